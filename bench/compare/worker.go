package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/internal/load/rdmakv"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// work does one job and prints the sample.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if j.Answer {
		return j.answer(out)
	}
	s, err := j.do(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}

// do carries out the one part of the job that is set.
func (j *job) do(ctx context.Context) (report.Sample, error) {
	switch {
	case j.Load != nil:
		return j.Load.run(ctx)
	case j.Fill != nil:
		return j.Fill.fill(ctx)
	case j.PingPong != nil:
		return clients.RunPingPong(ctx, j.Dir, *j.PingPong)
	case j.Stream != nil:
		return clients.ReceiveStream(ctx, j.Dir, *j.Stream)
	case j.Appends != nil:
		return clients.Appends(j.Dir, j.Appends.Record, j.Appends.Duration)
	case j.Over != nil:
		return clients.Overwrites(j.Dir, j.Over.Block, j.Over.Each, j.Over.Duration)
	case j.Copy != nil:
		return clients.Copies(j.Copy.Size, j.Copy.Duration)
	}
	return report.Sample{}, errors.New("a job of nothing")
}

// answer serves one connection of a floor.
func (j *job) answer(out io.Writer) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	if j.Stream != nil {
		return clients.SendStream(l, *j.Stream)
	}
	return clients.AnswerPingPong(l, *j.PingPong)
}

// open returns how callers reach the server, with values of so many bytes, and what to close at the end.
func (t *target) open(ctx context.Context, value int) (func(context.Context, int) (load.Store, error), func() error, error) {
	none := func() error { return nil }
	switch t.System {
	case "redis":
		return func(ctx context.Context, _ int) (load.Store, error) {
			return clients.DialRedis(ctx, t.Network, t.Addr)
		}, none, nil
	case "memcached":
		return func(ctx context.Context, _ int) (load.Store, error) {
			return clients.DialMemcache(ctx, t.Network, t.Addr)
		}, none, nil
	case "pebble":
		p, err := clients.OpenPebble(t.Addr, t.Sync)
		if err != nil {
			return nil, none, err
		}
		return func(context.Context, int) (load.Store, error) { return p, nil }, p.End, nil
	case "rdmakv":
		c, err := t.dial(ctx)
		if err != nil {
			return nil, none, err
		}
		if t.Registered {
			return rdmakv.OpenRegistered(value, c), c.Close, nil
		}
		return rdmakv.Open(c), c.Close, nil
	}
	return nil, none, fmt.Errorf("system %q is unknown", t.System)
}

// dial connects to rdmakv, by the one fabric and in no other way.
func (t *target) dial(ctx context.Context) (*client.Client, error) {
	mode, err := wait.ParseMode(t.Wait)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{Servers: []string{t.Addr}, Wait: mode, CacheEntries: t.Cache, Timeout: 10 * time.Second}
	switch t.Fabric {
	case "iwarp":
		cfg.Fabrics = []rdma.Fabric{iwarp.New(iwarp.Options{Wait: mode, NoCRCWithin: true})}
	case "shm":
		cfg.Fabrics = []rdma.Fabric{shm.New(shm.Options{Dir: t.ShmDir})}
	default:
		return nil, fmt.Errorf("fabric %q is unknown", t.Fabric)
	}
	return client.Dial(ctx, cfg)
}

// options translates the job into the options of package load. open makes the store
// of a caller.
func (l *loadJob) options(open func(context.Context, int) (load.Store, error)) (load.Options, error) {
	choice, ok := load.ChoiceByName(l.Choice)
	if !ok {
		return load.Options{}, fmt.Errorf("choice %q is unknown", l.Choice)
	}
	mix, err := load.ParseMix(l.Op + "=1")
	if err != nil {
		return load.Options{}, err
	}
	return load.Options{
		Open: open, Records: l.Records, Keys: keys(), Values: load.FixedSize(l.Value), Mix: mix, Choice: choice,
		Workers: l.Callers, Batch: max(1, l.Batch), Warmup: l.Warm, Duration: l.Duration, Seed: l.Seed,
	}, nil
}

// keys are those of redis-benchmark, key:000000000000 on.
func keys() load.Keys { return load.Keys{Prefix: "key:", Size: 16} }

// run measures a load.
func (l *loadJob) run(ctx context.Context) (s report.Sample, err error) {
	open, end, err := l.Target.open(ctx, l.Value)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	o, err := l.options(open)
	if err != nil {
		return s, err
	}
	if l.Touch {
		if err := touch(ctx, o); err != nil {
			return s, err
		}
	}
	var before, beforeServer time.Duration
	var cpuErr error
	o.Measuring = func() {
		before = used()
		beforeServer, cpuErr = l.Target.cpu()
	}
	res, err := load.Run(ctx, o)
	if err != nil {
		return s, err
	}
	own := used() - before
	server, err := l.Target.cpu()
	if err = errors.Join(err, cpuErr); err != nil {
		return s, err
	}
	if err := faults(ctx, res, l); err != nil {
		return s, err
	}
	s = report.Sample{
		Ops: uint64(res.Ops), Seconds: res.Seconds, Rate: res.OpsPerSecond,
		P50: res.P50, P90: res.P90, P99: res.P99, P999: res.P999, Max: res.Max,
		ServerCPU: micros(server-beforeServer) / float64(res.Ops), ClientCPU: micros(own) / float64(res.Ops),
	}
	for path, p := range res.Operations[l.Op].Paths {
		if path != "" && l.Target.System == "rdmakv" {
			if s.Paths == nil {
				s.Paths = make(map[string]float64)
			}
			s.Paths[path] = p.Share
		}
	}
	return s, nil
}

// cpu is what the server has used so far of processor time.
func (t *target) cpu() (time.Duration, error) {
	if t.PID == 0 {
		return 0, nil
	}
	return servers.CPU(t.PID)
}

// faults refuses results in which calls failed or did not find their key:
// figures of such a run would say nothing.
func faults(ctx context.Context, res *load.Result, l *loadJob) error {
	if res.Interrupted {
		return context.Cause(ctx)
	}
	if res.Errors > 0 {
		first := "unknown"
		if len(res.ErrorKinds) > 0 && len(res.ErrorKinds[0].Examples) > 0 {
			first = res.ErrorKinds[0].Examples[0]
		}
		return fmt.Errorf("%d of %d calls failed: %s", res.Errors, res.Errors+res.Ops, first)
	}
	if res.Ops == 0 {
		return errors.New("no call was answered in the time")
	}
	if n := res.Operations[l.Op].NotFound; n > 0 {
		return fmt.Errorf("%d of %d gets found no key: it was evicted, or never stored", n, res.Ops)
	}
	return nil
}

// touch gets all keys in batches, twice: a location cache that has grown takes a place over from the table before
// when its key is asked for again, and until then a get looks into both.
func touch(ctx context.Context, o load.Options) error {
	s, err := o.Open(ctx, 0)
	if err != nil {
		return err
	}
	many, ok := s.(load.BatchStore)
	if !ok {
		return fmt.Errorf("%T has no calls for many keys", s)
	}
	const batch = 64
	k, v, errs := make([][]byte, batch), make([][]byte, batch), make([]error, batch)
	parts := (o.Records + batch - 1) / batch
	for part := range 2 * parts {
		from := part % parts * batch
		n := int(min(batch, o.Records-from))
		for i := range n {
			k[i] = o.Keys.Append(k[i][:0], from+uint64(i))
		}
		many.GetMany(ctx, k[:n], v[:n], errs[:n])
		for _, err := range errs[:n] {
			if err != nil {
				return fmt.Errorf("touching the keys: %w", err)
			}
		}
	}
	return s.Close()
}

// fill stores the records.
func (l *loadJob) fill(ctx context.Context) (s report.Sample, err error) {
	l.Target.Registered = false
	open, end, err := l.Target.open(ctx, l.Value)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	l.Op, l.Choice, l.Callers, l.Duration = "put", "uniform", 1, time.Second
	o, err := l.options(open)
	if err != nil {
		return s, err
	}
	o.FillWorkers, o.FillBatch = 8, 64
	if l.Value > 64<<10 {
		o.FillBatch = 1
	}
	f, err := load.Fill(ctx, o)
	if err != nil {
		return s, err
	}
	return report.Sample{Ops: uint64(f.Keys), Seconds: f.Seconds, Rate: f.KeysPerSecond}, nil
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
