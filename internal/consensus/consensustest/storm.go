package consensustest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// An Outcome is what a storm showed.
type Outcome struct {
	Acked, Barriers, Elections, Crashes, Changes int
	Virtual                                      time.Duration
}

// Storm plays everything at once, from a seed: five nodes, two groups, writers and readers,
// while nodes lose power, disks hang, links are cut one way and both, messages are lost and
// doubled, leaders hand over, and replicas come and go.
func Storm(t *testing.T, seed uint64, engines Maker) (out Outcome) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed) // the library draws election timers from it
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := newWorld(t, seed, engines, 5)
		defer w.close()
		for _, n := range w.nodes {
			n.slow, n.apply, n.every = 4*time.Millisecond, 2*time.Millisecond, 5+w.intN(30)
			for _, r := range n.replicas {
				r.m.slow = n.apply
			}
		}
		groups := []consensus.GroupID{1, 2}
		for _, g := range groups {
			w.found(g, 3)
		}
		s := &storm{w: w, next: map[consensus.GroupID]consensus.ReplicaID{1: 4, 2: 4}, seed: seed}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, g := range groups {
			for i := range 3 {
				all.Go(func() { s.write(ctx, g, i) })
			}
			all.Go(func() { s.read(ctx, g) })
			all.Go(func() { s.change(ctx, g) })
			all.Go(func() { s.hand(ctx, g) })
		}
		all.Go(func() { s.weather(ctx) })
		all.Wait()
		w.net.heal()
		for _, name := range w.names {
			n := w.node(name)
			n.hang(false)
			if !n.isUp() {
				n.boot()
			}
		}
		for _, g := range groups {
			w.put(g, "the last one")
			s.forget(g)
			w.settle(g)
			_, n := w.judge.acknowledged(g)
			out.Acked += n
			w.judge.mu.Lock()
			out.Elections += len(w.judge.of(g).leaders)
			w.judge.mu.Unlock()
		}
		out.Barriers, out.Crashes, out.Changes = int(s.barriers.Load()), int(s.crashes.Load()), int(s.changes.Load())
		out.Virtual = time.Since(began)
	})
	return out
}

type storm struct {
	w                          *World
	seed                       uint64
	next                       map[consensus.GroupID]consensus.ReplicaID // each is one goroutine's
	barriers, crashes, changes atomic.Int64
}

// any returns a machine of a group that says that it leads; nil: none does.
func (s *storm) any(g consensus.GroupID) *Machine {
	for _, i := range s.w.perm() {
		if m := s.w.node(s.w.names[i]).machine(g); m != nil {
			m.mu.Lock()
			leads := m.role.leads
			m.mu.Unlock()
			if leads {
				return m
			}
		}
	}
	return nil
}

func (w *World) perm() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Perm(len(w.names))
}

func (s *storm) write(ctx context.Context, g consensus.GroupID, writer int) {
	for i := 0; ctx.Err() == nil; i++ {
		s.w.sleep(10 * time.Millisecond)
		if m := s.any(g); m != nil {
			write, cancel := context.WithTimeout(ctx, 2*time.Second)
			m.put(write, fmt.Sprintf("%d.%d", writer, i))
			cancel()
		}
	}
}

// read holds a Barrier to what was acknowledged before it.
func (s *storm) read(ctx context.Context, g consensus.GroupID) {
	for ctx.Err() == nil {
		s.w.sleep(30 * time.Millisecond)
		m := s.any(g)
		if m == nil {
			continue
		}
		top, _ := s.w.judge.acknowledged(g)
		wait, cancel := context.WithTimeout(ctx, time.Second)
		err := m.node.engineOf().Barrier(wait, g)
		cancel()
		if err != nil {
			continue
		}
		s.barriers.Add(1)
		m.mu.Lock()
		applied := m.state.Applied
		m.mu.Unlock()
		if applied < top {
			s.w.judge.mu.Lock()
			s.w.judge.wrong("a barrier of replica %d of group %d returns at entry %d, and entry %d was acknowledged before it", m.id, g, applied, top)
			s.w.judge.mu.Unlock()
		}
	}
}

// weather breaks things and mends them.
func (s *storm) weather(ctx context.Context) {
	w := s.w
	for i := uint64(0); ctx.Err() == nil; i++ {
		w.sleep(400 * time.Millisecond)
		name, other := w.names[w.intN(len(w.names))], w.names[w.intN(len(w.names))]
		n := w.node(name)
		switch w.intN(12) {
		case 0, 1, 2:
			s.crashes.Add(1)
			n.crash(s.seed+i*31, w.chance(0.3))
			w.sleep(800 * time.Millisecond)
			n.boot()
		case 3:
			s.crashes.Add(int64(len(w.names)))
			for k, name := range w.names {
				w.node(name).crash(s.seed+i*37+uint64(k), false)
			}
			for _, name := range w.names {
				w.node(name).boot()
			}
		case 4:
			w.net.isolate(name, true)
		case 5, 6:
			w.net.cut(name, other, true)
		case 7:
			n.hang(true)
			w.sleep(2 * time.Second)
			n.hang(false)
		case 8:
			w.net.mu.Lock()
			w.net.loss, w.net.twice, w.net.upTo = 0.1, 0.1, 30*time.Millisecond
			w.net.mu.Unlock()
		default:
			w.net.heal()
		}
	}
}

// hand has leaders hand over.
func (s *storm) hand(ctx context.Context, g consensus.GroupID) {
	for ctx.Err() == nil {
		s.w.sleep(1500 * time.Millisecond)
		if m := s.any(g); m != nil {
			m.mu.Lock()
			voters := m.state.Config.Voters
			m.mu.Unlock()
			m.node.engineOf().Transfer(ctx, g, voters[s.w.intN(len(voters))].ID)
		}
	}
}

// change adds replicas and takes others away.
func (s *storm) change(ctx context.Context, g consensus.GroupID) {
	for ctx.Err() == nil {
		s.w.sleep(600 * time.Millisecond)
		s.forget(g)
		m := s.any(g)
		if m == nil {
			continue
		}
		m.mu.Lock()
		c := m.state.Config
		m.mu.Unlock()
		e := m.node.engineOf()
		next := consensus.Config{Voters: append([]consensus.Member(nil), c.Voters...), Learners: append([]consensus.Member(nil), c.Learners...)}
		switch {
		case len(c.Learners) > 0 && s.w.chance(0.7): // a learner becomes a voter, when it has most
			next.Learners = next.Learners[1:]
			next.Voters = append(next.Voters, c.Learners[0])
		case len(c.Learners) > 0:
			next.Learners = next.Learners[1:]
		case len(c.Voters) > 3:
			k := s.w.intN(len(next.Voters))
			next.Voters = append(next.Voters[:k], next.Voters[k+1:]...)
		default:
			if !s.add(g, &next) {
				continue
			}
		}
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := e.Change(wait, g, next, c.Index)
		cancel()
		if err == nil {
			s.changes.Add(1)
		}
	}
}

// add makes a replica at a node that has none.
func (s *storm) add(g consensus.GroupID, next *consensus.Config) bool {
	for _, i := range s.w.perm() {
		n := s.w.node(s.w.names[i])
		n.mu.Lock()
		free := n.up && n.replicas[g] == nil
		n.mu.Unlock()
		if !free {
			continue
		}
		id := s.next[g]
		s.next[g]++
		if n.create(g, id, consensus.State{}) != nil {
			return false
		}
		next.Learners = append(next.Learners, consensus.Member{ID: id, Node: n.name})
		return true
	}
	return false
}

// forget takes away the replicas that a configuration does not have which a majority of its
// voters have applied.
func (s *storm) forget(g consensus.GroupID) {
	w := s.w
	configs := map[uint64]int{}
	var newest consensus.Config
	for _, name := range w.names {
		if m := w.node(name).machine(g); m != nil {
			m.mu.Lock()
			c := m.state.Config
			m.mu.Unlock()
			configs[c.Index]++
			if c.Index > newest.Index {
				newest = c
			}
		}
	}
	if configs[newest.Index] < len(newest.Voters) {
		return
	}
	for _, name := range w.names {
		n := w.node(name)
		n.mu.Lock()
		r, e := n.replicas[g], n.engine
		gone := n.up && r != nil && r.m != nil && !newest.Voter(r.id) && !newest.Learner(r.id)
		if gone && s.w.inConfig(g, r.id, newest.Index) {
			delete(n.replicas, g)
		} else {
			gone = false
		}
		n.mu.Unlock()
		if gone {
			e.Stop(g, true)
		}
	}
}

// inConfig reports whether a replica was in a configuration before an index: one that was
// not may be about to come.
func (w *World) inConfig(g consensus.GroupID, id consensus.ReplicaID, before uint64) bool {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for index, c := range w.judge.of(g).configs {
		if index < before && (c.Voter(id) || c.Learner(id)) {
			return true
		}
	}
	return false
}
