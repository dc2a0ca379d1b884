package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/sim"
	"github.com/rdmakv/rdmakv/test/linear"
)

// An Outcome is what a run showed.
type Outcome struct {
	Ops, Unknown int
	Histories    int
	Keys         int
	Kills        int
	Pauses       int
	Cuts         int
	Virtual      time.Duration
	Real         time.Duration
	Network      sim.Counts
	Clients      client.Counters // of the first client
	Err          error           // what must not happen; nil: all is well
	Failed       *linear.Object  // the history that is not linearizable
	Slack        linear.Slack    // with which it was judged
}

// Run plays one run in a bubble of its own. log, if not nil, takes the schedule.
// The test is not failed by what the run shows, only by a bubble that does not
// end.
func Run(t *testing.T, seed uint64, sc Scenario, log func(string)) (out Outcome) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// A collection in the middle would move the goroutines' turns. Two of them empty each
	// sync.Pool: Pebble's writer of tables of values pools channels, and one that was made in
	// another bubble must not be used in this one.
	runtime.GC()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	real := time.Now()
	var objects []*linear.Object
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		objects, out.Err = play(seed, &sc, log, &out)
		out.Virtual = time.Since(began)
	})
	for _, o := range objects {
		n, unknown := o.Size()
		out.Ops, out.Unknown = out.Ops+n, out.Unknown+unknown
		out.Histories, out.Keys = out.Histories+1, out.Keys+o.Keys
		if out.Err != nil {
			continue
		}
		if res := o.Check(sc.slack(), time.Minute); res.Verdict != porcupine.Ok {
			out.Failed, out.Slack = o, sc.slack()
			out.Err = fmt.Errorf("the history of object %d, %d operations, is not linearizable (%v)", o.ID, n, res.Verdict)
		}
	}
	out.Real = time.Since(real)
	return out
}

// play runs the world inside the bubble.
func play(seed uint64, sc *Scenario, log func(string), out *Outcome) (objects []*linear.Object, err error) {
	w, err := newWorld(seed, sc, log)
	if err != nil {
		return nil, fmt.Errorf("making the world: %w", err)
	}
	stores := make([]linear.Store, len(w.clients))
	for i, c := range w.clients {
		stores[i] = newThinker(c, w, seed, uint64(i), sc.Eager)
	}
	can := linear.ClientCan
	if sc.Plain {
		can = linear.Abilities{}
	}
	can.Scan = can.Scan && !sc.NoScan
	cfg := linear.Config{
		Seed: seed, Ops: sc.Ops, Stores: stores, Workers: sc.Workers, Objects: sc.Objects, OpsPerObject: sc.PerObject,
		Unknowns: 4, Sizes: sc.Sizes, Timeout: 15 * time.Second, ShortEvery: 12, ShortUpTo: 50 * time.Millisecond,
		Can: can, TTLFrom: 300 * time.Millisecond, TTLUpTo: 6 * time.Second,
		Done: func(o *linear.Object) { objects = append(objects, o) },
	}
	orInt(&cfg.Workers, 6)
	orInt(&cfg.Objects, 3)
	orInt(&cfg.OpsPerObject, 150)
	load := linear.New(cfg)

	done, disturbed := make(chan struct{}), make(chan error, 1)
	undo := Interrupt(w.net, seed, sc.Steps)
	go func() {
		if sc.Disturb == nil {
			disturbed <- nil
			return
		}
		disturbed <- sc.Disturb(w, done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = load.Run(ctx)
	close(done)
	err = errors.Join(err, <-disturbed)
	undo()
	w.net.SetAdversity(sim.Adversity{})
	out.Network, out.Kills, out.Pauses, out.Cuts = w.net.Counts(), w.kills, w.pauses, w.cuts
	if err == nil {
		err = load.Finish(ctx)
	}
	out.Clients = w.clients[0].Counters()
	for i, c := range w.clients {
		if lost := c.Counters().SessionsLost; sc.Steady && lost > 0 && err == nil {
			err = fmt.Errorf("client %d has lost its connection %d times, and nobody cut it", i, lost)
		}
	}
	if e := w.close(); err == nil && e != nil {
		err = fmt.Errorf("the end: %w", e)
	}
	return objects, err
}

func orInt(p *int, v int) {
	if *p == 0 {
		*p = v
	}
}

// slack is how far from their time keys may expire. A new incarnation of a server
// that did not stop cleanly may begin with its clock ahead by the bound that the
// last one had made durable, at most 6 s ahead of the wall clock: what was written
// before expires early by as much. By how much a key that is written after it may
// expire late is noted with each write (linear.Output.Ahead).
func (sc *Scenario) slack() linear.Slack {
	s := linear.Slack{Rate: 0.01, Early: 20 * time.Millisecond, Late: 50 * time.Millisecond}
	if sc.Crashes {
		s.Early = 7 * time.Second
	}
	return s
}
