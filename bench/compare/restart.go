package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/counters"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// restarted measures how soon a large store answers after a stop.
func restarted(o options) *row {
	d := dataset{o.few(10_000_000), 100, "uniform"}
	r := newRow("restart", "Restart of a store of 10 M keys of 100 B",
		"From the moment the process is started again, with what it stored in the page cache. The figure is the time until a client that connects anew has its first get, of which there is one in a start: the median is over the rounds. Memory is full when every key is in it; the rate is all keys over the time from the start of the process to that. Misses are believed, so that they too are answered by READs, a lease of 2 s later, which is not in it. A killed server is killed while 50 callers put, "+fmt.Sprint(underLoad)+" after they began.",
		report.Figure{Name: "seconds", Unit: "s"})
	w := way{fabric: "iwarp", wait: "adaptive", sync: "interval"}
	again := func(name string, sig syscall.Signal, how string) contender {
		rec := rdmakvServer(o, w, d)
		gotten := false
		return contender{
			Contender: report.Contender{Name: name, Kind: report.Ours, System: "rdmakv iwarp", How: "kvserver --sync interval, ended by " + how},
			measure: func(ctx context.Context, r *rig) (report.Sample, error) {
				s, err := r.server(ctx, rec, d)
				if err != nil {
					return report.Sample{}, err
				}
				if err := filled(ctx, rec.target(s)); err != nil {
					return report.Sample{}, err
				}
				got, err := rec.again(ctx, r.o, w, s, sig, d)
				// A fill that left keys out would be a fast one. All are counted in each round, and got in
				// one: that takes longer than all else.
				if err == nil && !gotten {
					err = whole(ctx, rec.target(s), d)
					gotten = err == nil
				}
				return got, err
			},
		}
	}
	const clean, killed = "after a clean stop", "after SIGKILL under load"
	r.add(again(clean, syscall.SIGTERM, "SIGTERM"), again(killed, syscall.SIGKILL, "SIGKILL while 50 callers put"))
	return r.
		target("first get within 0.5 s of the start after a clean stop", clean, "", report.AtMost, 0.5).
		headline("restart, 10 M keys: first get after a clean stop").
		target("first get within 1 s of the start after SIGKILL under load", killed, "", report.AtMost, 1).
		headline("restart, 10 M keys: first get after `kill -9` under load").
		target("memory full at 4 M keys/s after a clean stop", clean, "", report.AtLeast, 4e6).of(fillRate()).
		headline("restart, 10 M keys: memory full, in keys per second since the start").
		target("memory full after SIGKILL under load, which also replays the log", killed, "", report.AtLeast, 4e6).of(fillRate()).beside().
		headline("the same after `kill -9` under load")
}

func fillRate() report.Figure { return report.Figure{Name: "rate", Unit: "keys/s", More: true} }

// underLoad is for how long puts go on before a server is killed under them: long enough that the
// log has as much to replay as it usually has.
const underLoad = 5 * time.Second

// again ends the server, with SIGKILL under load, and measures its new start.
func (rec recipe) again(ctx context.Context, o options, w way, s *servers.Server, sig syscall.Signal, d dataset) (report.Sample, error) {
	stop := func() {}
	if sig == syscall.SIGKILL {
		var err error
		if stop, err = rec.burden(ctx, o, s, d); err != nil {
			return report.Sample{}, err
		}
	}
	var begun time.Time
	settings := rdmakvSettings(o, w, d)
	err := settings.Restart(ctx, s, sig, func() {
		stop()
		begun = time.Now()
	})
	if err != nil {
		stop() // if the server had ended by itself, nobody has called it
		return report.Sample{}, err
	}
	t := rec.target(s)
	c, err := dial(ctx, &t)
	if err != nil {
		return report.Sample{}, err
	}
	defer c.Close()
	if _, err := c.Get(ctx, jobs.Keys().Append(nil, d.records/2)); err != nil {
		return report.Sample{}, err
	}
	first := time.Since(begun)
	if err := counters.Until(ctx, c, func(st counters.Store) bool { return st.Keys >= d.records }); err != nil {
		return report.Sample{}, err
	}
	took := time.Since(begun)
	if err := counters.Until(ctx, c, counters.Store.Filled); err != nil {
		return report.Sample{}, err
	}
	return report.Sample{Ops: d.records, Seconds: took.Seconds(), Rate: float64(d.records) / took.Seconds(), Value: first.Seconds()}, nil
}

// burden puts a load on a server until stop is called, which waits until the load is gone, so that
// it takes nothing from what comes next. It returns when the load has gone on for long enough.
func (rec recipe) burden(ctx context.Context, o options, s *servers.Server, d dataset) (stop func(), err error) {
	t := rec.target(s)
	t.PIDs = s.PIDs()
	before, err := storeStats(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := employ(ctx, job{Load: &jobs.Load{
			Target: t, Records: d.records, Value: d.value, Op: "put", Choice: d.choice, Callers: 50, Duration: turnLimit, Seed: o.seed,
		}})
		done <- err
	}()
	end := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	long := underLoad
	if o.quick {
		long = 500 * time.Millisecond
	}
	select {
	case err := <-done:
		cancel()
		return nil, errors.Join(errors.New("the load ended before the server was killed"), err)
	case <-time.After(long):
	}
	after, err := storeStats(ctx, t)
	if err == nil && after.Published == before.Published {
		err = errors.New("the load put nothing")
	}
	if err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// whole gets all keys, and fails if one is not there.
func whole(ctx context.Context, t jobs.Target, d dataset) (err error) {
	stores, end, err := open(ctx, &t, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	l := jobs.Load{Target: t, Records: d.records, Value: d.value, Op: "get", Choice: d.choice, Callers: 1, Duration: time.Second}
	o, err := l.Options(stores)
	if err != nil {
		return err
	}
	return jobs.Touch(ctx, o)
}

// filled waits until all shards are filled, and their misses are believed.
func filled(ctx context.Context, t jobs.Target) error {
	c, err := dial(ctx, &t)
	if err != nil {
		return err
	}
	defer c.Close()
	return counters.Until(ctx, c, counters.Store.Filled)
}
