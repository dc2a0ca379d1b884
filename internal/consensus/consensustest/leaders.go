package consensustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// elects: when a leader dies, another one leads within the time of an election.
func elects(w *World) {
	w.found(group, 3)
	for round := range 5 {
		lead := w.leader(group)
		w.puts(fmt.Sprint("round ", round), 5)
		began := time.Now()
		lead.node.crash(uint64(round), false)
		if next := w.leader(group); next == lead {
			w.errorf("the one that is down leads")
		}
		if took := time.Since(began); took > time.Second {
			w.errorf("an election took %v", took)
		}
		w.puts(fmt.Sprint("after round ", round), 5)
		lead.node.boot()
	}
	w.settle(group)
}

// loneVoter: a group of one elects itself; a read waits until it has published an entry of
// its term, because before that it may not know all that was committed.
func loneVoter(w *World) {
	w.found(group, 1)
	w.puts("a", 10)
	n := w.node("n1")
	top, _ := w.judge.acknowledged(group)
	n.crash(1, false)
	n.mu.Lock()
	n.apply = 50 * time.Millisecond // its machine has a lot to publish again
	n.slow = 50 * time.Millisecond
	n.mu.Unlock()
	n.boot()
	m := n.machine(group)
	for {
		m.mu.Lock()
		leads := m.role.leads
		m.mu.Unlock()
		if leads {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := n.engineOf().Barrier(context.Background(), group); err != nil {
		w.errorf("a barrier: %v", err)
	}
	if s, err := m.State(); err != nil || s.Applied < top {
		w.errorf("the barrier returns at entry %d, and entry %d was acknowledged", s.Applied, top)
	}
	w.settle(group)
}

// allLosePower: what was acknowledged survives that all nodes lose power at once.
func allLosePower(w *World) {
	for _, n := range w.nodes {
		n.slow = 5 * time.Millisecond
	}
	w.found(group, 3)
	for round := range uint64(4) {
		w.puts(fmt.Sprint("round ", round), 10)
		for i, name := range w.names {
			w.node(name).crash(round*8+uint64(i), false)
		}
		for _, name := range w.names {
			w.node(name).boot()
		}
	}
	w.puts("the end", 1)
	w.settle(group)
}

// diskHangs: a leader whose disk does not answer hands over, or loses the group.
func diskHangs(w *World) {
	w.found(group, 3)
	w.puts("a", 5)
	lead := w.leader(group)
	began := time.Now()
	lead.node.hang(true)
	ctx, cancel := within(5 * time.Second)
	defer cancel()
	lead.put(ctx, "it hangs") // the disk must have something to do
	for m := w.leader(group); m == lead; m = w.leader(group) {
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(began); took > 2*time.Second {
		w.errorf("the group was held by a hanging disk for %v", took)
	}
	w.puts("b", 5)
	lead.node.hang(false)
	w.puts("c", 5)
	w.settle(group)
}

// followersDiskHangs: the others go on, and what the one does not take is bounded.
func followersDiskHangs(w *World) {
	w.found(group, 3)
	lead := w.leader(group)
	slow := w.others(lead.node.name)[0]
	slow.hang(true)
	w.puts("a", 50)
	time.Sleep(3 * time.Second)
	if w.leader(group) != lead {
		w.errorf("the leader has changed, and its disk was well")
	}
	slow.hang(false)
	w.settle(group)
}

// leaderIsCutOff: a leader that hears of nobody stops to lead, a read at it is not answered,
// and a write at it is not acknowledged.
func leaderIsCutOff(w *World) {
	w.found(group, 3)
	w.puts("a", 5)
	lead := w.leader(group)
	w.net.isolate(lead.node.name, true)
	ctx, cancel := within(2 * time.Second)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		read, cancel := within(time.Second) // its reign ends sooner
		defer cancel()
		if err := lead.node.engineOf().Barrier(read, group); !errors.Is(err, consensus.ErrNotLeader) {
			w.errorf("a leader that is cut off says to who reads: %v", err)
		}
	})
	both.Go(func() {
		if _, ok := lead.put(ctx, "cut off"); ok {
			w.errorf("a leader that is cut off acknowledges a write")
		}
	})
	both.Wait()
	if s, err := lead.node.engineOf().Status(group); err != nil || s.Leads {
		w.errorf("a leader that is cut off leads on: %v", err)
	}
	if next := w.leader(group); next == lead {
		w.errorf("nobody else leads")
	}
	w.puts("b", 5)
	w.net.heal()
	w.settle(group)
}

// leaderIsCutOffAndHangs: a leader whose disk hangs, and that nobody hears, does not know that it is deposed: a read at it ends all
// the same, and those that come later, until it is well.
func leaderIsCutOffAndHangs(w *World) {
	w.found(group, 3)
	w.puts("a", 5)
	lead := w.leader(group)
	lead.node.hang(true)
	ctx, cancel := within(time.Second)
	defer cancel()
	var put sync.WaitGroup
	put.Go(func() { lead.put(ctx, "it hangs") }) // the disk must have something to do
	time.Sleep(450 * time.Millisecond)           // and has not hung for so long that the leader hands over
	w.net.isolate(lead.node.name, true)
	put.Wait()
	if s, err := lead.node.engineOf().Status(group); err != nil || !s.Leads {
		w.errorf("its time goes on, although its disk hangs: %v", err)
	}
	for range 2 {
		read, cancel := within(5 * time.Second)
		if err := lead.node.engineOf().Barrier(read, group); !errors.Is(err, consensus.ErrNotLeader) {
			w.errorf("a leader that is cut off and hangs says to who reads: %v", err)
		}
		cancel()
	}
	w.puts("b", 5)
	lead.node.hang(false)
	w.net.heal()
	w.settle(group)
	if err := w.leader(group).node.engineOf().Barrier(context.Background(), group); err != nil {
		w.errorf("when all is well: %v", err)
	}
}

// oneWayCut: a leader that is not heard, or does not hear, loses the group.
func oneWayCut(w *World) {
	w.found(group, 3)
	for _, deaf := range []bool{false, true} {
		lead := w.leader(group)
		for _, n := range w.others(lead.node.name) {
			if deaf {
				w.net.cut(n.name, lead.node.name, true)
			} else {
				w.net.cut(lead.node.name, n.name, true)
			}
		}
		began := time.Now()
		for w.leader(group) == lead {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 2*time.Second {
			w.errorf("deaf %v: it took %v until another one leads", deaf, took)
		}
		w.net.heal()
		w.puts(fmt.Sprint("deaf ", deaf), 3)
	}
	w.settle(group)
}

// slowMachine: while a leader's machine does not publish, no follower publishes what it has
// not (R7), and the group is not lost.
func slowMachine(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	lead.mu.Lock()
	lead.held = make(chan struct{})
	lead.mu.Unlock()
	ctx, cancel := within(time.Second)
	defer cancel()
	if _, ok := lead.put(ctx, "held"); ok {
		w.errorf("a write was acknowledged and not published")
	}
	for _, n := range w.others(lead.node.name) {
		m := n.machine(group)
		m.mu.Lock()
		if _, ok := m.state.Writes["held"]; ok {
			w.errorf("%s has published what the leader has not", n.name)
		}
		m.mu.Unlock()
	}
	read, cancel := within(200 * time.Millisecond)
	defer cancel()
	if err := lead.node.engineOf().Barrier(read, group); err == nil {
		w.errorf("a read returns while what was committed before it is not published")
	}
	if s, err := lead.node.engineOf().Status(group); err != nil || !s.Leads {
		w.errorf("it does not lead any more: %+v %v", s, err)
	}
	lead.release()
	w.puts("b", 3)
	w.settle(group)
}

// commitArrivesSoon: followers publish a write within a tick of the leader, and not with the next
// heartbeat only.
func commitArrivesSoon(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	time.Sleep(200 * time.Millisecond)
	for i := range 10 {
		write := fmt.Sprintf("soon %d", i)
		w.put(group, write)
		time.Sleep(12 * time.Millisecond) // a tick, a way of the network, and publishing
		for _, name := range w.names {
			m := w.node(name).machine(group)
			m.mu.Lock()
			if _, ok := m.state.Writes[write]; !ok {
				w.errorf("%s has not published write %d after 12 ms", name, i)
			}
			m.mu.Unlock()
		}
		w.sleep(30 * time.Millisecond)
	}
}

// hearsOfAll: a leader knows at any time who was heard of lately, so that it can hand its group over at any time, and soon who was not.
func hearsOfAll(w *World) {
	w.found(group, 3)
	lead := w.leader(group)
	w.net.slow(15 * time.Millisecond)
	time.Sleep(time.Second)
	gone := w.others(lead.node.name)[0].name
	heard := func() (all map[string]bool) {
		s, err := lead.node.engineOf().Status(group)
		if err != nil || !s.Leads || len(s.Peers) != 2 {
			w.errorf("it does not lead two others: %+v %v", s, err)
		}
		all = map[string]bool{}
		for _, p := range s.Peers {
			all[p.Node] = p.Active
		}
		return all
	}
	for range 500 {
		time.Sleep(2 * time.Millisecond)
		for node, active := range heard() {
			if !active {
				w.errorf("%s counts as gone, and is there", node)
				return
			}
		}
	}
	w.net.cut(gone, lead.node.name, true)
	for began := time.Now(); heard()[gone]; time.Sleep(2 * time.Millisecond) {
		if took := time.Since(began); took > 510*time.Millisecond { // two election timeouts of the library, two heartbeats, a tick
			w.errorf("%s was not heard of for %v, and does not count as gone", gone, took)
			return
		}
	}
}

// heartbeatsInStep: the heartbeats of all groups that a node leads leave in one frame to each other node.
func heartbeatsInStep(w *World) {
	const groups = 8
	for g := range consensus.GroupID(groups) {
		w.found(g+1, 3)
		time.Sleep(7 * time.Millisecond)
	}
	leaders := map[string]bool{}
	for g := range consensus.GroupID(groups) {
		leaders[w.leader(g+1).node.name] = true
	}
	time.Sleep(time.Second)
	before := w.net.heartbeatsSent()
	time.Sleep(time.Second)
	// Each 50 ms one to each of two nodes, and now and then a tick that came while a turn was taken.
	if sent, most := w.net.heartbeatsSent()-before, 22*2*len(leaders); sent > most {
		w.errorf("%d frames with heartbeats in a second from %d nodes, at most %d are needed", sent, len(leaders), most)
	}
}
