package consensustest

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// isFull is what the engine asks.
func (n *Node) isFull() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.full
}

// fill fills the disk, or empties it, as far as the engine is told.
func (n *Node) fill(full bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.full = full
}

// handTo has a replica lead.
func (w *World) handTo(g consensus.GroupID, to consensus.ReplicaID) {
	w.t.Helper()
	for w.leader(g).id != to {
		ctx, cancel := within(time.Second)
		w.leader(g).node.engineOf().Transfer(ctx, g, to)
		cancel()
	}
}

// tells waits until a leader says of another replica that its disk has room, or none, and returns how long that took.
func (w *World) tells(lead *Machine, id consensus.ReplicaID, room bool) time.Duration {
	w.t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		s, err := lead.node.engineOf().Status(lead.g)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, p := range s.Peers {
			if p.ID == id && p.Room == room {
				return time.Since(began)
			}
		}
	}
	w.t.Fatalf("the leader does not say of replica %d: room %v%s", id, room, w.tell(lead.g))
	return 0
}

// fullDisks: when a leader dies, a voter whose disk is full leaves it to one that has room, and if all are full, one of them leads. Who has
// the newest entries leads although its disk is full.
func fullDisks(w *World) {
	w.found(group, 3)
	full := w.node("n3")
	full.fill(true)
	for round := range 10 {
		w.handTo(group, consensus.ReplicaID(1+round%2))
		lead := w.leader(group)
		if took := w.tells(lead, 3, false); took > time.Second {
			w.errorf("a leader hears after %v that a disk is full", took)
		}
		w.tells(lead, consensus.ReplicaID(2-round%2), true)
		w.puts(fmt.Sprint("round ", round), 2)
		w.settle(group) // who lacks entries cannot be elected
		lead.node.crash(uint64(round), false)
		if next := w.leader(group); next.node == full {
			w.errorf("round %d: one whose disk is full leads, and another one's has room", round)
		}
		lead.node.boot()
		w.puts(fmt.Sprint("after round ", round), 2)
	}
	w.handTo(group, 1)
	other := w.node("n2")
	other.crash(0, false)
	w.puts("it lacks these", 3)
	w.node("n1").crash(0, false)
	other.boot()
	if next := w.leader(group); next.node != full {
		w.errorf("%s leads, and lacks entries", next.node.name)
	}
	w.node("n1").boot()
	for _, name := range w.names {
		w.node(name).fill(true)
	}
	w.tells(w.leader(group), 1, false)
	w.tells(w.leader(group), 2, false)
	for round := range 3 {
		lead := w.leader(group)
		began := time.Now()
		lead.node.crash(uint64(round), false)
		if next := w.leader(group); next == lead {
			w.errorf("the one that is down leads")
		}
		if took := time.Since(began); took > 3*time.Second {
			w.errorf("an election among full disks took %v", took)
		}
		lead.node.boot()
		w.puts(fmt.Sprint("all are full ", round), 2)
	}
	w.settle(group)
}

// fullDiskSettles: a disk that has room for a moment is full still.
func fullDiskSettles(w *World) {
	w.found(group, 3)
	w.handTo(group, 1)
	lead, full := w.leader(group), w.node("n3")
	w.tells(lead, 3, true)
	full.fill(true)
	w.tells(lead, 3, false)
	for range 3 {
		full.fill(false)
		time.Sleep(5 * time.Second)
		if took := w.tells(lead, 3, false); took > 0 {
			w.errorf("a disk that has had room for 5 s is told of as one that has")
		}
		full.fill(true)
		time.Sleep(100 * time.Millisecond)
	}
	full.fill(false)
	if took := w.tells(lead, 3, true); took < 9*time.Second || took > 11*time.Second {
		w.errorf("it was told after %v that a disk has room", took)
	}
	if s, err := full.engineOf().Status(group); err != nil || s.Full {
		w.errorf("it says of itself: %+v, %v", s, err)
	}
	w.settle(group)
}

// noRoomForVotes: a follower whose log is full to the last byte of it, on a disk that is full, falls behind. It does not vote on what it could not
// store, is not stopped by elections however many there are, and catches up when there is room.
func noRoomForVotes(w *World) {
	n := w.node("n1")
	n.mu.Lock()
	n.never, n.crowded = true, true
	n.mu.Unlock()
	w.found(group, 3)
	w.handTo(group, 2)
	behind := func(far func(consensus.Status, contents) bool) bool {
		s, err := n.engineOf().Status(group)
		if err != nil {
			w.t.Fatal(err)
		}
		lead := w.leader(group)
		lead.mu.Lock()
		defer lead.mu.Unlock()
		return far(s, lead.state)
	}
	i := 0
	for ; i < 100 && !behind(func(s consensus.Status, c contents) bool { return s.Last+4 < c.Applied }); i++ {
		w.put(group, fmt.Sprintf("%200000d", i))
	}
	elections := 0
	for ; elections < 600 && !behind(func(s consensus.Status, c contents) bool { return s.Term+20 < c.Term }); elections++ {
		w.handTo(group, consensus.ReplicaID(3-elections%2))
	}
	if i == 100 || elections == 600 {
		w.errorf("its log has room: %d entries of 200 KB, %d elections%s", i, elections, w.tell(group))
	}
	n.mu.Lock()
	n.never, n.crowded = false, false
	n.mu.Unlock()
	n.relieve()
	w.puts("there is room", 3)
	w.settle(group)
}
