package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// A Scenario is what a run is about. Everything else the seed decides.
type Scenario struct {
	Name      string
	Adversity sim.Adversity
	Ops       int   // of the workers, together
	Workers   int   // default 6
	Objects   int   // keys in use at a time; default 3
	PerObject int   // operations until a key makes room for a new one; default 150
	Sizes     []int // of values
	NoScan    bool  // values that a scan may leave out
	Plain     bool  // gets, puts and deletes alone
	Eager     bool  // workers hardly ever wait between two calls
	Short     bool  // clients poll, so that gets try a READ into a sink first
	// Steps is how often, of 256 times, others do whole calls at a point that the
	// store marks; 0 means 16. More often they do less.
	Steps   int
	Disk    time.Duration // bounds what a sync takes
	Crashes bool          // Disturb kills the server
	Steady  bool          // no connection may be lost
	Config  func(*server.Config)
	// Disturb runs beside the workers until done is closed, on a goroutine of
	// its own, and is what happens to the node.
	Disturb func(w *World, done <-chan struct{}) error
}

// slow is adversity without losses.
func slow() sim.Adversity {
	a := sim.Storm()
	a.Lose, a.Setup = 0, 0
	return a
}

// race is a network that takes no time, so that many calls fit between two steps
// of the store; what is late is so by steps.
func race() sim.Adversity {
	return sim.Adversity{Torn: 0.6, ReuseKeys: true}
}

// late is a network where many READs take longer than a lease.
func late() sim.Adversity {
	a := slow()
	a.Late, a.LateMost, a.Torn = 0.2, 5*time.Second, 0.9
	return a
}

// patient is a network where READs take longer than a lease, for clients that
// wait for them.
func patient() sim.Adversity {
	a := slow()
	a.Late, a.LateMost = 0.05, 2*time.Second
	return a
}

// small are values of a few size classes, so that freed places come back at once.
var small = []int{9, 16, 16, 16, 24, 100}

// Scenarios is all of them.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "race", Adversity: race(), Ops: 600, Workers: 10, Objects: 1, Sizes: []int{16}, PerObject: 250, Plain: true, Eager: true, Steps: 64},
		{Name: "storm", Adversity: slow(), Ops: 500, Objects: 2, Sizes: small, PerObject: 200},
		{Name: "one-size", Adversity: slow(), Ops: 500, Objects: 2, Sizes: []int{16}, PerObject: 200},
		{Name: "disk", Adversity: slow(), Ops: 400, Objects: 4, Sizes: small, Disk: 20 * time.Millisecond},
		{Name: "faults", Adversity: faults(), Ops: 400, Sizes: small},
		{Name: "large", Adversity: slow(), Ops: 200, Objects: 2, NoScan: true, Sizes: []int{16, 2000, 9000, 20_000, 65_536, 70_000, 150_000}},
		{Name: "pause", Adversity: slow(), Ops: 400, Sizes: small, Disturb: pauses},
		{Name: "kill", Adversity: slow(), Ops: 400, Sizes: small, Disturb: kills, Crashes: true, Disk: 5 * time.Millisecond},
		{Name: "kill-faults", Adversity: faults(), Ops: 400, Sizes: small, Disturb: kills, Crashes: true, Disk: 5 * time.Millisecond},
		{Name: "cut", Adversity: faults(), Ops: 300, Sizes: small, Disturb: cuts},
		{Name: "growth", Adversity: slow(), Ops: 400, Sizes: small, Steps: 1, Disturb: growth},
		{Name: "reuse", Adversity: slow(), Ops: 400, Sizes: []int{16, 300, 1000, 1600}, Steps: 1, Disturb: reuse,
			Config: func(c *server.Config) { c.MemoryLimit, c.RegionSize = 6<<20, 1<<20 }},
		{Name: "full", Adversity: slow(), Ops: 400, Objects: 4, Sizes: []int{16, 300, 1000}, Steps: 1, Disturb: full,
			Config: func(c *server.Config) { c.MemoryLimit, c.RegionSize = 5<<20, 1<<20 }},
		{Name: "checkpoint", Adversity: slow(), Ops: 400, Objects: 4, Sizes: []int{16, 300, 2000, 9000}, NoScan: true,
			// Without Disk: at a change of segments the pipeline waits for syncs under a mutex.
			Disturb: checkpoints, Crashes: true,
			Config: func(c *server.Config) { c.MemoryLimit, c.RegionSize = 5<<20, 1<<20 }},
		{Name: "late", Adversity: late(), Ops: 500, Workers: 8, Objects: 6, Sizes: small, PerObject: 300, Disturb: slowGrowth, Steps: 1},
		{Name: "restart", Adversity: slow(), Ops: 400, Objects: 6, Sizes: small, Disturb: restarts, Crashes: true},
		{Name: "turnover", Adversity: patient(), Ops: 400, Sizes: []int{16, 300, 1000, 70_000}, NoScan: true, Steps: 1, Disturb: turnover, Steady: true,
			Config: func(c *server.Config) {
				c.MemoryLimit, c.RegionSize = 12<<20, 1<<20
				c.Lease, c.Beat = 300*time.Millisecond, 30*time.Millisecond
				c.RKeyMaxAge, c.RegionIdle = time.Second, 500*time.Millisecond
			}},
		{Name: "short-race", Adversity: race(), Ops: 600, Workers: 4, Objects: 1, Sizes: []int{16}, PerObject: 250, Plain: true, Eager: true, Steps: 64, Short: true},
		{Name: "short", Adversity: slow(), Ops: 500, Workers: 3, Objects: 2, Sizes: small, PerObject: 200, Short: true},
		{Name: "short-faults", Adversity: faults(), Ops: 400, Workers: 3, Sizes: small, Disturb: everything, Crashes: true, Short: true},
		{Name: "short-reuse", Adversity: slow(), Ops: 400, Workers: 3, Eager: true, Sizes: []int{16, 300, 1000, 1600}, Steps: 1, Disturb: reuse, Short: true,
			Config: func(c *server.Config) { c.MemoryLimit, c.RegionSize = 6<<20, 1<<20 }},
		{Name: "short-turnover", Adversity: patient(), Ops: 400, Workers: 3, Sizes: []int{16, 300, 1000}, NoScan: true, Steps: 1, Disturb: turnover, Steady: true, Short: true,
			Config: func(c *server.Config) {
				c.MemoryLimit, c.RegionSize = 12<<20, 1<<20
				c.Lease, c.Beat = 300*time.Millisecond, 30*time.Millisecond
				c.RKeyMaxAge, c.RegionIdle = time.Second, 500*time.Millisecond
			}},
		{Name: "everything", Adversity: faults(), Ops: 400, Sizes: []int{16, 16, 100, 1000, 9000}, Disturb: everything, Crashes: true},
	}
}

// faults loses connections often enough that a short run sees several.
func faults() sim.Adversity {
	a := sim.Storm()
	a.Lose = 0.003
	return a
}

// rest waits for a random time up to most. It returns false if the run is over.
func (w *World) rest(most time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	case <-time.After(time.Duration(w.rng.Int64N(int64(most)))):
		return true
	}
}

// pauses: the server's program stops for up to 10 s while its adapter answers
// READs, and goes on.
func pauses(w *World, done <-chan struct{}) error {
	for w.rest(3*time.Second, done) {
		w.pause(time.Duration(w.rng.Int64N(int64(10 * time.Second))))
	}
	return nil
}

// kills: the server dies, and a new incarnation starts while the memory of the
// old one can still be read.
func kills(w *World, done <-chan struct{}) error {
	for w.rest(4*time.Second, done) {
		if err := w.crash(time.Duration(w.rng.Int64N(int64(4 * time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// restarts: the server stops cleanly and starts again, and is written to while it
// fills its memory.
func restarts(w *World, done <-chan struct{}) error {
	for w.rest(3*time.Second, done) {
		if err := w.srv.Shutdown(context.Background()); err != nil {
			return fmt.Errorf("clean stop: %w", err)
		}
		w.kills++
		if err := w.start(); err != nil {
			return err
		}
	}
	return nil
}

// cuts: connections, devices and paths come and go.
func cuts(w *World, done <-chan struct{}) error {
	for w.rest(2*time.Second, done) {
		w.cuts++
		switch w.rng.IntN(4) {
		case 0:
			w.host.CutConnections()
		case 1:
			w.hosts[w.rng.IntN(len(w.hosts))].CutConnections()
		default:
			name := fmt.Sprintf("client%d", w.rng.IntN(len(w.hosts)))
			w.net.Cut("server", name, true)
			ok := w.rest(6*time.Second, done)
			w.net.Cut("server", name, false)
			if !ok {
				return nil
			}
		}
	}
	return nil
}

// checkpoints: so much is written that the base takes in the log again and again, while memory is
// short, so that what is read comes from the log and the base; and now and then the server dies.
func checkpoints(w *World, done <-chan struct{}) error {
	for w.rest(time.Second, done) {
		if err := w.churnFrom(0, 100+w.rng.IntN(100), 30_000); err != nil {
			return err
		}
		if w.rng.IntN(3) > 0 {
			continue
		}
		if err := w.crash(time.Duration(w.rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// everything that can happen to a node, one after the other.
func everything(w *World, done <-chan struct{}) error {
	for w.rest(2*time.Second, done) {
		switch w.rng.IntN(5) {
		case 0:
			w.pause(time.Duration(w.rng.Int64N(int64(6 * time.Second))))
		case 1:
			if err := w.crash(time.Duration(w.rng.Int64N(int64(4 * time.Second)))); err != nil {
				return err
			}
		case 2:
			w.host.CutConnections()
		case 3:
			if err := w.churn(300, 16+w.rng.IntN(2)*300); err != nil {
				return err
			}
		default:
			if !w.rest(3*time.Second, done) {
				return nil
			}
		}
	}
	return nil
}
