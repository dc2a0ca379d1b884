package simcluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rdmakv/rdmakv/rdma/sim"
	"github.com/rdmakv/rdmakv/test/linear"
	node "github.com/rdmakv/rdmakv/test/sim"
)

// An Outcome is what a run showed.
type Outcome struct {
	Done
	Ops, Unknown int
	Histories    int
	Believed     uint64 // gets that READs answered
	Asked        uint64 // gets that a SEND answered
	Refused      uint64 // gets that were READ, and not believed by words
	Bounded      uint64 // gets with a bound that a replica answered
	Late         int    // of these, those that showed less than was acknowledged when they began
	Elections    int    // that were won
	Samples      int    // of cells
	Snapshots    int    // that were begun
	Virtual      time.Duration
	Real         time.Duration
	Network      sim.Counts
	Err          error          // what must not happen; nil: all is well
	Failed       *linear.Object // the history that is not linearizable
	Slack        linear.Slack   // with which it was judged
}

// add adds up what runs have shown.
func (o *Outcome) add(r *Outcome) {
	o.Kills, o.Stops, o.Pauses, o.Cuts = o.Kills+r.Kills, o.Stops+r.Stops, o.Pauses+r.Pauses, o.Cuts+r.Cuts
	o.OneWay, o.Hangs, o.Lost, o.Clocks, o.Blackouts = o.OneWay+r.OneWay, o.Hangs+r.Hangs, o.Lost+r.Lost, o.Clocks+r.Clocks, o.Blackouts+r.Blackouts
	o.Transfers += r.Transfers
	o.Changes, o.Cancels = o.Changes+r.Changes, o.Cancels+r.Cancels
	o.Samples, o.Snapshots = o.Samples+r.Samples, o.Snapshots+r.Snapshots
	o.Ops, o.Unknown, o.Histories = o.Ops+r.Ops, o.Unknown+r.Unknown, o.Histories+r.Histories
	o.Believed, o.Asked, o.Refused, o.Elections = o.Believed+r.Believed, o.Asked+r.Asked, o.Refused+r.Refused, o.Elections+r.Elections
	o.Bounded, o.Late = o.Bounded+r.Bounded, o.Late+r.Late
	o.Virtual, o.Real = o.Virtual+r.Virtual, o.Real+r.Real
}

// Run plays one run in a bubble of its own. log, if not nil, takes the schedule. The test is not failed by what the run shows, only by a
// bubble that does not end.
func Run(t *testing.T, seed uint64, sc Scenario, log func(string)) (out Outcome) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// A collection in the middle would move the goroutines' turns. Two of them empty each sync.Pool: Pebble pools channels, and one that was
	// made in another bubble must not be used in this one.
	runtime.GC()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	real := time.Now()
	// Virtual time stands still for ever if a goroutine waits for a mutex whose holder sleeps: then the test's own time limit ends it, and this says which run it was.
	stands := time.AfterFunc(2*time.Minute, func() { fmt.Printf("simcluster: scenario %s, seed %d goes on for two minutes\n", sc.Name, seed) })
	defer stands.Stop()
	var objects []*linear.Object
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		objects, out.Err = play(seed, &sc, log, &out)
		out.Virtual = time.Since(began)
	})
	out.Slack = sc.slack()
	for _, o := range objects {
		n, unknown := o.Size()
		out.Ops, out.Unknown, out.Histories = out.Ops+n, out.Unknown+unknown, out.Histories+1
		if out.Err != nil {
			continue
		}
		if res := o.Check(out.Slack, time.Minute); res.Verdict != porcupine.Ok {
			out.Failed = o
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
	var late error
	var lock sync.Mutex
	stores := make([]linear.Store, len(w.clients))
	for i, c := range w.clients {
		stores[i] = &punctual{Store: linear.NewClient(c), mu: &lock, late: &late}
	}
	can, sizes := linear.ClientCan, sc.Sizes
	can.Scan, can.Batch = !sc.Large, !sc.Large
	if sizes == nil {
		sizes = []int{9, 16, 16, 24, 100, 1000}
	}
	load := linear.New(linear.Config{
		Seed: seed, Ops: sc.Ops, Stores: stores, Workers: sc.Workers, Objects: sc.Objects, OpsPerObject: 120,
		Unknowns: 4, Sizes: sizes, Timeout: 15 * time.Second, ShortEvery: 12, ShortUpTo: 300 * time.Millisecond,
		Can: can, TTLFrom: 300 * time.Millisecond, TTLUpTo: 6 * time.Second, Pace: sc.Pace,
		Done: func(o *linear.Object) { objects = append(objects, o) },
	})
	watched, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		w.watch.run(watched)
	}()
	bounded := w.climb(seed)
	undo := node.Interrupt(w.net, seed, 1)
	churned := make(chan error, 1)
	done, disturbed, changed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { changed <- w.change(done) }()
	go func() { disturbed <- w.disturb(done) }()
	go func() { churned <- w.churn(done) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	err = load.Run(ctx)
	close(done)
	behind := bounded(out)
	err = errors.Join(err, <-disturbed, <-churned, <-changed)
	undo()
	w.net.SetAdversity(sim.Adversity{})
	out.Network, out.Done = w.net.Counts(), w.done
	if err == nil {
		err = load.Finish(ctx)
	}
	for _, c := range w.clients {
		n := c.Counters()
		out.Believed += n.OneSidedHits + n.OneSidedMisses
		out.Asked += n.SendGets
		out.Refused += n.Fallbacks.Words
		out.Bounded += n.Bounded
	}
	if err == nil {
		if w.want, err = w.over(); err == nil {
			err = w.settle()
		}
	}
	close(watched)
	<-watching
	out.Elections, out.Samples, out.Snapshots = w.watch.terms(), w.watch.samples, w.watch.snapshots
	err = errors.Join(err, w.watch.err, late, behind)
	if err == nil {
		err = w.equal()
	}
	if err == nil && sc.Calm && out.Believed <= 3*out.Asked {
		err = fmt.Errorf("nothing went wrong, and of the gets %d were by READ and %d by SEND", out.Believed, out.Asked)
	}
	if e := w.close(); err == nil && e != nil {
		err = fmt.Errorf("the end: %w", e)
	}
	return objects, err
}

// slack is how far from their time keys may expire. Early: whoever leads decides by its clock, which may be ahead of the wall clock by 6 s after a crash. Late: a
// scan goes by no clock, so it shows a key until the removal of it is published (R9), which without a majority may be never.
func (sc *Scenario) slack() linear.Slack {
	s := linear.Slack{Rate: 0.01, Early: 20 * time.Millisecond, Late: time.Hour, Step: linear.ReplicaStep}
	switch {
	case sc.Skew > 0: // nobody loses its power, and two clocks may be wrong in different directions
		s.Early = 2*sc.Skew + time.Second
	case sc.Every > 0:
		s.Early = 7 * time.Second
	}
	return s
}

// Text says what happened.
func (o *Outcome) Text() string {
	return fmt.Sprintf("gets believed=%d asked=%d words=%d bounded=%d late=%d; elections=%d snapshots=%d cells=%d; kills=%d blackouts=%d stops=%d pauses=%d cuts=%d oneway=%d hangs=%d lost=%d clocks=%d transfers=%d changes=%d cancels=%d",
		o.Believed, o.Asked, o.Refused, o.Bounded, o.Late, o.Elections, o.Snapshots, o.Samples, o.Kills, o.Blackouts, o.Stops, o.Pauses, o.Cuts, o.OneWay, o.Hangs, o.Lost, o.Clocks, o.Transfers, o.Changes, o.Cancels)
}
