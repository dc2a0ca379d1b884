package simcluster

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// disturb does the scenario's faults, several at a time if it so happens, until done is closed, and undoes them. Half of them are done to
// nodes that lead.
func (w *World) disturb(done <-chan struct{}) error {
	if w.sc.Every == 0 {
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for rest(w.rng, w.sc.Every, done) {
		n, f, rng := w.victim(), w.sc.Faults[w.rng.IntN(len(w.sc.Faults))], rand.New(rand.NewPCG(w.seed, w.rng.Uint64()))
		if !n.busy.TryLock() {
			continue
		}
		wg.Go(func() {
			defer n.busy.Unlock()
			if err := f(w, n, rng, done); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// victim is the node that something is done to next.
func (w *World) victim() *Node {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if w.rng.IntN(2) == 0 {
		for range 2 * nodes {
			if n.leads() {
				break
			}
			n = w.nodes[w.rng.IntN(len(w.nodes))]
		}
	}
	return n
}

// rest waits for a random time up to most. It returns false if the run is over.
func rest(rng *rand.Rand, most time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	case <-time.After(time.Duration(rng.Int64N(int64(most)))):
		return true
	}
}

// count notes what was done.
func (w *World) count(what func(*Done)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what(&w.done)
}

// kill: a node loses its power and comes back, while its memory can be READ still or is gone.
func kill(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Kills++ })
	linger := time.Duration(rng.IntN(2)) * time.Duration(rng.Int64N(int64(5*time.Second)))
	n.kill(linger)
	if rng.IntN(2) == 0 {
		rest(rng, 4*time.Second, done)
	}
	return n.start()
}

// stop: a node is stopped as an operator does, and comes back.
func stop(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Stops++ })
	if err := n.stop(); err != nil {
		return err
	}
	if rng.IntN(2) == 0 {
		rest(rng, 3*time.Second, done)
	}
	return n.start()
}

// pause: a node's program stands still while its adapter answers READs from the memory as it was.
func pause(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Pauses++ })
	n.host.Pause()
	rest(rng, 5*time.Second, done)
	n.host.Resume()
	return nil
}

// hang: a node's disk answers no sync for a while.
func hang(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Hangs++ })
	n.mu.Lock()
	disk := n.disk
	n.mu.Unlock()
	disk.hang(time.Duration(rng.Int64N(int64(4 * time.Second))))
	return nil
}

// lose: all connections of a node end.
func lose(w *World, n *Node, _ *rand.Rand, _ <-chan struct{}) error {
	w.count(func(d *Done) { d.Lost++ })
	n.host.CutConnections()
	return nil
}

// cutOff: a node is cut off from all other nodes, and from no client.
func cutOff(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	return w.cutOffFor(6*time.Second, n, rng, done)
}

// longCut: it is, for so long that the others may have let go what it lacks.
func longCut(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	return w.cutOffFor(30*time.Second, n, rng, done)
}

func (w *World) cutOffFor(most time.Duration, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Cuts++ })
	set := func(on bool) {
		for _, o := range w.nodes {
			if o != n {
				w.cutWay(n.id, o.id, on)
				w.cutWay(o.id, n.id, on)
			}
		}
	}
	set(true)
	rest(rng, most, done)
	set(false)
	return nil
}

// cutWay: what a node says does not come to some of the others, or what they say not to it.
func cutWay(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.OneWay++ })
	out := rng.IntN(2) == 0
	var others []*Node
	for _, o := range w.nodes {
		if o != n && rng.IntN(2) == 0 {
			others = append(others, o)
		}
	}
	set := func(on bool) {
		for _, o := range others {
			if out {
				w.cutWay(n.id, o.id, on)
			} else {
				w.cutWay(o.id, n.id, on)
			}
		}
	}
	set(true)
	rest(rng, 6*time.Second, done)
	set(false)
	return nil
}

// cutClient: a client and a node do not reach each other, or only one of them does.
func cutClient(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Cuts++ })
	c, way := w.hosts[rng.IntN(len(w.hosts))], rng.IntN(3)
	set := func(on bool) {
		if way != 1 {
			w.cutWay(n.id, c, on)
		}
		if way != 2 {
			w.cutWay(c, n.id, on)
		}
	}
	set(true)
	rest(rng, 6*time.Second, done)
	set(false)
	return nil
}

// setClock: a node's wall clock is set.
func setClock(w *World, n *Node, rng *rand.Rand, _ <-chan struct{}) error {
	w.count(func(d *Done) { d.Clocks++ })
	n.skew.Store(w.sc.skew(rng))
	return nil
}

// blackout: all nodes that nothing else is done to lose their power at once, and come back.
func blackout(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	w.count(func(d *Done) { d.Blackouts++ })
	all := []*Node{n}
	for _, o := range w.nodes {
		if o != n && o.busy.TryLock() {
			defer o.busy.Unlock()
			all = append(all, o)
		}
	}
	for _, o := range all {
		o.kill(time.Duration(rng.Int64N(int64(3 * time.Second))))
	}
	rest(rng, 3*time.Second, done)
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, o := range all {
		wg.Go(func() { errs[i] = o.start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
