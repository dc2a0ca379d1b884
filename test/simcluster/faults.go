package simcluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
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
	rest(rng, w.sc.most(5*time.Second), done)
	n.host.Resume()
	return nil
}

// transfer: a group goes from the node that leads it to another one.
func transfer(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	if !n.leads() {
		if n = w.leader(rng); n == nil {
			return nil
		}
	}
	srv := n.server()
	if srv == nil {
		return nil
	}
	for _, g := range n.groups() {
		if len(g.Replicas) == 0 {
			continue // it has just come, and knows nothing yet
		}
		if to := g.Replicas[rng.IntN(len(g.Replicas))]; g.State == "leads" && to.ID != g.Replica {
			w.count(func(d *Done) { d.Transfers++ })
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			// That it fails, because the other one is cut off, is no fault of the store.
			_ = store.EngineOf(server.StoreForTests(srv)).Transfer(ctx, consensus.GroupID(g.ID), consensus.ReplicaID(to.ID))
			return nil
		}
	}
	return nil
}

// leader is one of the nodes that lead; nil: none does.
func (w *World) leader(rng *rand.Rand) *Node {
	for _, i := range rng.Perm(nodes) {
		if w.nodes[i].leads() {
			return w.nodes[i]
		}
	}
	return nil
}

// eclipse: a leader hands over while voters that are not needed for it stand still, and stands still itself a moment later: the memory of all these
// can be READ, and only the old leader's own word says that it leads no more (R15).
func eclipse(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	srv := n.server()
	if srv == nil {
		return nil
	}
	for _, g := range n.groups() {
		if g.State != "leads" {
			continue
		}
		var others []*Node
		for _, o := range w.nodes {
			if o != n && slices.ContainsFunc(g.Replicas, func(r wire.ReplicaStatus) bool { return r.Node == o.id }) && o.busy.TryLock() {
				defer o.busy.Unlock()
				others = append(others, o)
			}
		}
		still := len(g.Replicas) / 2
		if len(others) <= still {
			return nil
		}
		w.count(func(d *Done) { d.Transfers, d.Pauses = d.Transfers+1, d.Pauses+still+1 })
		for _, o := range others[:still] {
			o.host.Pause()
			defer o.host.Resume()
		}
		heir := others[still+rng.IntN(len(others)-still)]
		for _, r := range g.Replicas {
			if r.Node == heir.id {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = store.EngineOf(server.StoreForTests(srv)).Transfer(ctx, consensus.GroupID(g.ID), consensus.ReplicaID(r.ID))
				cancel()
			}
		}
		rest(rng, 100*time.Millisecond, done)
		n.host.Pause()
		defer n.host.Resume()
		rest(rng, time.Second, done)
		return nil
	}
	return nil
}

// usurp: a leader is cut off from the other nodes, and from no client, while another voter loses its power, comes back at once, and could elect a new
// leader: what clients READ of its last life must not vouch for the old one (R18).
func usurp(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error {
	var voter *Node
	for _, g := range n.groups() {
		for _, r := range g.Replicas {
			for _, o := range w.nodes {
				if g.State == "leads" && voter == nil && o != n && o.id == r.Node && o.busy.TryLock() {
					voter = o
				}
			}
		}
	}
	if voter == nil {
		return nil
	}
	defer voter.busy.Unlock()
	w.count(func(d *Done) { d.Kills++; d.Cuts++ })
	w.cutOff(n, true)
	defer w.cutOff(n, false)
	voter.kill(5 * time.Second)
	for _, o := range w.nodes { // nodes notice, clients do not
		if o != voter {
			o.host.CutConnectionsTo(voter.host)
		}
	}
	err := voter.start()
	rest(rng, 5*time.Second, done)
	return err
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
	w.cutOff(n, true)
	rest(rng, w.sc.most(most), done)
	w.cutOff(n, false)
	return nil
}

// cutOff cuts a node off from all other nodes, or mends that.
func (w *World) cutOff(n *Node, on bool) {
	for _, o := range w.nodes {
		if o != n {
			w.cutWay(n.id, o.id, on)
			w.cutWay(o.id, n.id, on)
		}
	}
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
	rest(rng, w.sc.most(6*time.Second), done)
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
	rest(rng, w.sc.most(6*time.Second), done)
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
