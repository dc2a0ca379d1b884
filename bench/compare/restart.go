package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// restarted measures how soon a large store answers after a stop. It takes
// minutes, so it runs only where it is named.
func restarted(o options) *row {
	d := dataset{o.few(10_000_000), 100, "uniform"}
	r := newRow("restart", "Restart of a store of 10 M keys of 100 B",
		"From the moment the process is started again, with what it stored in the page cache. The first get is made by a client that connects anew; memory is full when every shard is filled.",
		report.Figure{Name: "seconds", Unit: "s"})
	r.rare, r.once = true, true
	w := way{fabric: "iwarp", wait: "adaptive", sync: "interval"}
	again := func(name string, sig syscall.Signal, full bool) contender {
		rec := rdmakvServer(o, w, d)
		return contender{
			Contender: report.Contender{Name: name, Kind: report.Ours, System: "rdmakv iwarp", How: "kvserver --sync interval, ended by " + sig.String()},
			measure: func(ctx context.Context, r *rig) (report.Sample, error) {
				s, err := r.server(ctx, rec, d)
				if err != nil {
					return report.Sample{}, err
				}
				if err := filled(ctx, rec.target(s)); err != nil {
					return report.Sample{}, err
				}
				return rec.again(ctx, o, w, s, sig, d, full)
			},
		}
	}
	r.add(
		again("first get after a clean stop", syscall.SIGTERM, false),
		again("memory full after a clean stop", syscall.SIGTERM, true),
		again("first get after SIGKILL", syscall.SIGKILL, false),
		again("memory full after SIGKILL", syscall.SIGKILL, true),
	)
	limit := float64(d.records) / 2e6
	return r.
		target("first get within 1 s of start after a clean stop", "first get after a clean stop", "", report.AtMost, 1).
		target("memory full at 2 M keys/s", "memory full after a clean stop", "", report.AtMost, limit).
		target("the same after a crash, which also waits for leases and the log", "memory full after SIGKILL", "", report.AtMost, limit)
}

// again ends the server and measures its new start.
func (rec recipe) again(ctx context.Context, o options, w way, s *servers.Server, sig syscall.Signal, d dataset, full bool) (report.Sample, error) {
	if sig == syscall.SIGKILL {
		// A killed server may lose what it acknowledged in its last sync_interval.
		time.Sleep(time.Second)
	}
	var begun time.Time
	settings := rdmakvSettings(o, w, d)
	if err := settings.Restart(ctx, s, sig, func() { begun = time.Now() }); err != nil {
		return report.Sample{}, err
	}
	t := rec.target(s)
	c, err := t.dial(ctx)
	if err != nil {
		return report.Sample{}, err
	}
	defer c.Close()
	if _, err := c.Get(ctx, keys().Append(nil, d.records/2)); err != nil {
		return report.Sample{}, err
	}
	took := time.Since(begun)
	if full {
		if err := filled(ctx, t); err != nil {
			return report.Sample{}, err
		}
		took = time.Since(begun)
		// A fill that left keys out would be a fast one, so all are got.
		if err := whole(ctx, t, d); err != nil {
			return report.Sample{}, err
		}
	}
	return report.Sample{Ops: 1, Seconds: took.Seconds(), Value: took.Seconds()}, nil
}

// whole gets all keys, and fails if one is not there.
func whole(ctx context.Context, t target, d dataset) (err error) {
	open, end, err := t.open(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	l := loadJob{Target: t, Records: d.records, Value: d.value, Op: "get", Choice: d.choice, Callers: 1, Duration: time.Second}
	o, err := l.options(open)
	if err != nil {
		return err
	}
	return touch(ctx, o)
}

// filled waits until all shards are filled.
func filled(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		st, err := storeStats(ctx, t)
		if err != nil {
			return err
		}
		if st.ShardsFilled == st.Shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d shards are filled: %w", st.ShardsFilled, st.Shards, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
