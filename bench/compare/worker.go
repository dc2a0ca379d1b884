package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
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
		return j.Load.Run(ctx, open)
	case j.Fill != nil:
		return j.Fill.Fill(ctx, open)
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
func open(ctx context.Context, t *jobs.Target, value int) (jobs.Stores, func() error, error) {
	none := func() error { return nil }
	switch t.System {
	case "redis":
		return func(ctx context.Context, _ int) (load.Store, error) {
			if t.Acks > 0 {
				return clients.DialRedisWait(ctx, t.Network, t.Addr, t.Acks)
			}
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
		c, err := dial(ctx, t)
		if err != nil {
			return nil, none, err
		}
		if t.Registered {
			return rdmakv.OpenRegistered(value, c), c.Close, nil
		}
		return rdmakv.OpenBounded(t.Bound, c), c.Close, nil
	}
	return nil, none, fmt.Errorf("system %q is unknown", t.System)
}

// dial connects to rdmakv, by the one fabric and in no other way.
func dial(ctx context.Context, t *jobs.Target) (*client.Client, error) {
	mode, err := wait.ParseMode(t.Wait)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{Servers: append([]string{t.Addr}, t.Others...), Wait: mode, CacheEntries: t.Cache, Timeout: 10 * time.Second}
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
