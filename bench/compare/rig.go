package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// A rig has what the contenders of one row share: servers with their keys, the
// client in C, files of requests. Each is made when it is first asked for, so that
// one that cannot be made fails the contenders that need it and no others. It is not
// safe for concurrent use.
type rig struct {
	o      options
	place  servers.Place
	dir    string // for all else
	native *clients.Native

	servers  map[string]*servers.Server
	requests map[string]*clients.Requests

	reader *clients.LMDB
	etcd   string // the worker that asks etcd, once it is built
	envs   map[string]lmdbEnv
	remove []string // directories outside of the others
}

// newRig makes the directories of a row: files below dir, sockets where the path
// is short.
func newRig(o options) (*rig, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	disk, err := os.MkdirTemp(o.dir, "row-")
	if err != nil {
		return nil, err
	}
	if disk, err = filepath.Abs(disk); err != nil {
		return nil, err
	}
	sockets, err := os.MkdirTemp("", "kvc")
	if err != nil {
		return nil, errors.Join(err, os.Remove(disk))
	}
	return &rig{
		o: o, place: servers.Place{Disk: disk, Sockets: sockets}, dir: disk,
		servers: make(map[string]*servers.Server), requests: make(map[string]*clients.Requests),
		envs: make(map[string]lmdbEnv),
	}, nil
}

// close ends all servers and removes what they have left.
func (r *rig) close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Stop())
	}
	for _, dir := range append(r.remove, r.place.Disk, r.place.Sockets) {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// A data set is what a row's stores hold.
type dataset struct {
	records uint64
	value   int
	choice  string // uniform or zipf
}

// fillLimit bounds the load phase: 50 million keys at 25,000 a second.
const fillLimit = 2000 * time.Second

// A recipe says how to start a server and how to reach it.
type recipe struct {
	name   string // what tells it from others of the row
	start  func(context.Context, servers.Place) (*servers.Server, error)
	target func(*servers.Server) jobs.Target
	pins   pins
	// leader finds the node of a cluster that leads the others; nil: their processor time is
	// not told apart.
	leader func(context.Context, *servers.Server) (*servers.Server, error)
	// program is the worker that knows this kind of server; nil: this program does.
	program func(context.Context, *rig) (string, error)
}

// on is the same recipe for a server on the processor of the pins.
func (rec recipe) on(p pins) recipe {
	if p.on {
		rec.name += " on " + p.String()
		rec.pins = p
	}
	return rec
}

// worker is the program that loads the server; "" is this one.
func (rec recipe) worker(ctx context.Context, r *rig) (string, error) {
	if rec.program == nil {
		return "", nil
	}
	return rec.program(ctx, r)
}

// measured lets a turn run against a server, with the processes whose time is measured.
func (rec recipe) measured(ctx context.Context, s *servers.Server, turn func(t jobs.Target) (report.Sample, error)) (report.Sample, error) {
	t := rec.target(s)
	t.PIDs = s.PIDs()
	if rec.leader == nil {
		return turn(t)
	}
	leads := func() (int, error) {
		leader, err := rec.leader(ctx, s)
		if err != nil {
			return 0, err
		}
		return leader.PID(), nil
	}
	return underOne(leads, func(leader int) (report.Sample, error) {
		t.Leader = leader
		return turn(t)
	})
}

// underOne fails a turn behind which another process leads than before it: what the leader used
// of the processor would be that of two.
func underOne(leads func() (int, error), turn func(leader int) (report.Sample, error)) (report.Sample, error) {
	before, err := leads()
	if err != nil {
		return report.Sample{}, err
	}
	got, err := turn(before)
	if err != nil {
		return got, err
	}
	after, err := leads()
	if err == nil && after != before {
		err = errors.New("another node leads behind the turn than before it")
	}
	return got, err
}

// server returns the running server of a recipe, filled with the data set.
func (r *rig) server(ctx context.Context, rec recipe, d dataset) (*servers.Server, error) {
	name := fmt.Sprintf("%s %d*%d", rec.name, d.records, d.value)
	if s := r.servers[name]; s != nil {
		err := s.Alive()
		if err == nil {
			return s, nil
		}
		delete(r.servers, name) // the next round starts another one
		return nil, errors.Join(err, os.RemoveAll(s.Dir))
	}
	program, err := rec.worker(ctx, r)
	if err != nil {
		return nil, err // before a server is started in vain
	}
	place := r.place
	place.Pinned, place.Core = rec.pins.on, rec.pins.server
	s, err := rec.start(ctx, place)
	if err != nil {
		return nil, err
	}
	if d.records > 0 {
		ctx, cancel := context.WithTimeout(ctx, fillLimit)
		defer cancel()
		t := rec.target(s)
		t.PIDs = s.PIDs()
		fill := jobs.Load{Target: t, Records: d.records, Value: d.value, Seed: r.o.seed}
		if _, err := employ(ctx, job{Fill: &fill, program: program}); err != nil {
			return nil, errors.Join(fmt.Errorf("filling %s: %w", rec.name, err), s.Stop())
		}
	}
	r.servers[name] = s
	return s, nil
}

// compiled returns the client in C, to be run on the processor of the pins.
func (r *rig) compiled(ctx context.Context, p pins) (*clients.Native, error) {
	if r.native == nil {
		n, err := clients.CompileNative(ctx, r.dir)
		if err != nil {
			return nil, err
		}
		r.native = n
	}
	n := *r.native
	n.Start = func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = servers.Attached()
		return servers.StartOn(cmd, p.clientCore())
	}
	return &n, nil
}

// drawn is how many keys a file of requests has: enough that they do not repeat
// within a processor's caches, and that they follow the distribution.
const drawn = 1 << 18

// asked returns a file of requests for keys of the data set.
func (r *rig) asked(d clients.Dialect, op string, set dataset, batch int) (*clients.Requests, error) {
	name := fmt.Sprintf("%s %s %v %d", d.Name, op, set, batch)
	if q := r.requests[name]; q != nil {
		return q, nil
	}
	o, err := set.options(r.o.seed)
	if err != nil {
		return nil, err
	}
	// The client holds the file in memory, so it has fewer requests where they are
	// large.
	n := drawn
	if op == "put" {
		n = max(1, min(drawn, 64<<20/(set.value+64)))
	}
	keys, err := o.Draw(max(n, batch))
	if err != nil {
		return nil, err
	}
	var q *clients.Requests
	if op == "put" {
		q, err = d.Sets(r.dir, keys, set.value, batch)
	} else {
		q, err = d.Gets(r.dir, keys, set.value, batch)
	}
	if err == nil {
		r.requests[name] = q
	}
	return q, err
}
