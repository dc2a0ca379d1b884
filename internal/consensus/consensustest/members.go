package consensustest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// change changes the configuration of the group, at its leader.
func (w *World) change(f func(c *consensus.Config)) error {
	ctx, cancel := within(5 * time.Second)
	defer cancel()
	m := w.leader(group)
	m.mu.Lock()
	c := m.state.Config
	m.mu.Unlock()
	next := consensus.Config{Voters: append([]consensus.Member(nil), c.Voters...), Learners: append([]consensus.Member(nil), c.Learners...)}
	f(&next)
	return m.node.engineOf().Change(ctx, group, next, c.Index)
}

// comeAndGo: a group walks from three nodes to others, one member at a time, and what was
// there at the beginning is there at the end.
func comeAndGo(w *World) {
	w.found(group, 3)
	w.puts("a", 10)
	w.trimAll()
	for i, name := range []string{"n4", "n5"} {
		id := consensus.ReplicaID(4 + i)
		if err := w.node(name).create(group, id, consensus.State{}); err != nil {
			w.t.Fatal(err)
		}
		member := consensus.Member{ID: id, Node: name}
		steps := []func(c *consensus.Config){
			func(c *consensus.Config) { c.Learners = append(c.Learners, member) },
			func(c *consensus.Config) { c.Learners, c.Voters = nil, append(c.Voters, member) },
			func(c *consensus.Config) { c.Voters = c.Voters[1:] },
		}
		for k, step := range steps {
			if k == 2 { // who goes does not lead
				for w.leader(group).id == consensus.ReplicaID(i+1) {
					ctx, cancel := within(time.Second)
					w.leader(group).node.engineOf().Transfer(ctx, group, id)
					cancel()
				}
			}
			if err := w.change(step); err != nil {
				w.t.Fatalf("%s, step %d: %v", name, k, err)
			}
			w.puts(fmt.Sprint(name, " step ", k), 3)
		}
		gone := w.node(w.names[i])
		if err := gone.engineOf().Stop(group, true); err != nil {
			w.errorf("stop: %v", err)
		}
		gone.mu.Lock()
		delete(gone.replicas, group)
		gone.mu.Unlock()
	}
	w.settle(group)
	if s, err := w.node("n5").engineOf().Status(group); err != nil || len(s.Config.Voters) != 3 || !s.Config.Voter(5) || s.Config.Voter(1) {
		w.errorf("the end: %+v %v", s, err)
	}
}

// refusedChanges: changes that cannot be.
func refusedChanges(w *World) {
	w.found(group, 3)
	w.puts("a", 1)
	lead := w.leader(group)
	e := lead.node.engineOf()
	ctx, cancel := within(5 * time.Second)
	defer cancel()
	four := consensus.Member{ID: 4, Node: "n4"}
	lead.mu.Lock()
	now := lead.state.Config
	lead.mu.Unlock()
	without := func(id consensus.ReplicaID) (list []consensus.Member) {
		for _, m := range now.Voters {
			if m.ID != id {
				list = append(list, m)
			}
		}
		return list
	}
	for _, c := range []struct {
		what   string
		config consensus.Config
		expect uint64
		err    error
	}{
		{"of a configuration that is not in force", consensus.Config{Voters: now.Voters, Learners: []consensus.Member{four}}, now.Index + 1, consensus.ErrChanged},
		{"of nothing", consensus.Config{Voters: now.Voters}, now.Index, consensus.ErrConfig},
		{"of two at once", consensus.Config{Voters: now.Voters[1:], Learners: []consensus.Member{four}}, now.Index, consensus.ErrConfig},
		{"without the leader", consensus.Config{Voters: without(lead.id)}, now.Index, consensus.ErrConfig},
		{"without voters", consensus.Config{}, now.Index, consensus.ErrConfig},
		{"of replica 0", consensus.Config{Voters: now.Voters, Learners: []consensus.Member{{Node: "n4"}}}, now.Index, consensus.ErrConfig},
		{"with two replicas at one node", consensus.Config{Voters: now.Voters, Learners: []consensus.Member{{ID: 4, Node: "n1"}}}, now.Index, consensus.ErrConfig},
	} {
		if err := e.Change(ctx, group, c.config, c.expect); !errors.Is(err, c.err) {
			w.errorf("a change %s: %v", c.what, err)
		}
	}
	if err := w.others(lead.node.name)[0].engineOf().Change(ctx, group, consensus.Config{}, 1); err == nil {
		w.errorf("a follower changes the group")
	}
	// Two at once: one of them, or none.
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() {
			c := consensus.Config{Voters: now.Voters, Learners: []consensus.Member{{ID: consensus.ReplicaID(4 + i), Node: "n4"}}}
			errs[i] = e.Change(ctx, group, c, now.Index)
		})
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		w.errorf("two changes at once: %v, %v", errs[0], errs[1])
	}
}

// transfer: a leader hands over under load, without a failed write longer than a moment.
func transfer(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	for round := range 6 {
		lead := w.leader(group)
		to := w.others(lead.node.name)[round%2].machine(group).id
		began := time.Now()
		ctx, cancel := within(time.Second)
		if err := lead.node.engineOf().Transfer(ctx, group, to); err != nil {
			w.errorf("transfer: %v", err)
		}
		cancel()
		for w.leader(group).id != to {
			if time.Since(began) > time.Second {
				w.errorf("replica %d leads, and not %d", w.leader(group).id, to)
				break
			}
			time.Sleep(time.Millisecond)
		}
		w.put(group, fmt.Sprint("round ", round))
		if took := time.Since(began); took > 150*time.Millisecond {
			w.errorf("round %d: %v until a write after a transfer was acknowledged", round, took)
		}
	}
	w.settle(group)
}

// transferToNobody: a leader whose voter is away leads on, and so does what was proposed
// meanwhile.
func transferToNobody(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	e := lead.node.engineOf()
	away := w.others(lead.node.name)[0]
	to := away.machine(group).id
	away.crash(0, false)
	ctx, cancel := within(5 * time.Second)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		if err := e.Transfer(ctx, group, to); !errors.Is(err, consensus.ErrTransfer) {
			w.errorf("a transfer to one that is down: %v", err)
		}
	})
	both.Go(func() {
		time.Sleep(20 * time.Millisecond)
		if _, ok := lead.put(ctx, "meanwhile"); !ok {
			w.errorf("what was proposed during a transfer that failed is lost")
		}
	})
	both.Wait()
	for _, to := range []consensus.ReplicaID{77, 0} {
		if err := e.Transfer(ctx, group, to); !errors.Is(err, consensus.ErrConfig) {
			w.errorf("a transfer to replica %d: %v", to, err)
		}
	}
	if err := e.Transfer(ctx, group, lead.id); err != nil {
		w.errorf("a transfer to itself: %v", err)
	}
	away.boot()
	w.settle(group)
}

// trimAll has every machine durable, and no entries of it in the logs.
func (w *World) trimAll() {
	for _, name := range w.names {
		if m := w.node(name).machine(group); m != nil {
			w.node(name).checkpoint(m)
		}
	}
	time.Sleep(100 * time.Millisecond)
}

// snapshots: a replica that was away for long gets the state, also if it loses power while
// it adopts it, and a leader keeps the entries that follow a snapshot that is on its way.
func snapshots(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	away := w.others(lead.node.name)[0]
	for round := range 3 {
		away.crash(uint64(round), false)
		w.puts(fmt.Sprint("round ", round), 10)
		time.Sleep(time.Second) // it is given up
		w.trimAll()
		before := w.net.snapshotsSent()
		if round == 1 { // Adopt takes long, and the power goes meanwhile
			away.mu.Lock()
			away.apply = 20 * time.Millisecond
			away.mu.Unlock()
		}
		away.boot()
		if round == 1 {
			time.Sleep(50 * time.Millisecond)
			for range 200 {
				away.mu.Lock()
				c, _ := decode(away.replicas[group].saved)
				away.apply = 0
				away.mu.Unlock()
				if c.Applied > 10 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			away.crash(0, false)
			away.boot()
		}
		if round == 2 { // it takes long, and the others go on and trim
			w.net.mu.Lock()
			w.net.haul = 300 * time.Millisecond
			w.net.mu.Unlock()
			for i := 0; i < 1000 && w.net.snapshotsSent() == before; i++ {
				time.Sleep(time.Millisecond)
			}
			w.puts("meanwhile", 10)
			w.trimAll()
		}
		w.puts(fmt.Sprint("behind round ", round), 3)
		w.settle(group)
		if n := w.net.snapshotsSent() - before; n == 0 || round == 2 && n > 1 {
			w.errorf("round %d: %d snapshots were sent", round, n)
		}
	}
}

// shortlyAway: a replica that is away for a moment, while all others trim, needs no snapshot.
func shortlyAway(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	time.Sleep(100 * time.Millisecond)
	away := w.others(w.leader(group).node.name)[0]
	w.net.isolate(away.name, true)
	w.puts("b", 10)
	w.trimAll()
	w.net.heal()
	w.settle(group)
	if n := w.net.snapshotsSent(); n != 0 {
		w.errorf("%d snapshots were sent", n)
	}
	// What was kept for it goes when it has it.
	time.Sleep(100 * time.Millisecond)
	for _, name := range w.names {
		n := w.node(name)
		n.mu.Lock()
		c, err := decode(n.replicas[group].saved)
		n.mu.Unlock()
		if s, serr := n.engineOf().Status(group); err != nil || serr != nil || s.First != c.Applied+1 {
			w.errorf("%s has entries from %d on, and its machine has those up to %d: %v %v", name, s.First, c.Applied, err, serr)
		}
	}
}

// keptForTheAbsent: a replica whose node is away for a while, as one that is started anew, needs no snapshot, whoever led: the log keeps what it lacks. It does
// so until the replica has been away for too long, or half of the log is in use.
func keptForTheAbsent(w *World) {
	w.keeps(time.Minute)
	w.found(group, 3)
	w.puts("a", 3)
	// gone has a node be away for so long, while the others do something, and trim. It returns how many snapshots it needs.
	gone := func(what string, away *Node, long time.Duration, meanwhile func()) int {
		w.trimAll()
		away.crash(0, false)
		meanwhile()
		time.Sleep(long)
		w.trimAll()
		time.Sleep(100 * time.Millisecond)
		before := w.net.snapshotsSent()
		away.boot()
		w.puts(what+", back", 3)
		w.settle(group)
		return w.net.snapshotsSent() - before
	}
	follower := func() *Node { return w.others(w.leader(group).node.name)[0] }
	some := func() { w.puts("some", 10) }
	for range 2 { // the second time it has a higher index, and not all that was ever there
		if n := gone("follower", follower(), 30*time.Second, some); n != 0 {
			w.errorf("a follower that was away for half a minute was sent %d snapshots", n)
		}
	}
	if n := gone("leader", w.leader(group).node, 30*time.Second, some); n != 0 {
		w.errorf("a leader that was away for half a minute was sent %d snapshots", n)
	}
	if n := gone("long", follower(), 2*time.Minute, some); n == 0 {
		w.errorf("the log has kept two minutes of entries, and one is meant")
	}
	used := func() (n, bound int64) {
		lead := w.leader(group).node
		lead.mu.Lock()
		defer lead.mu.Unlock()
		s := lead.log.Stats()
		return s.Bytes, s.Bound
	}
	n := gone("full", follower(), time.Second, func() {
		var most int64
		for i := 0; ; i++ {
			n, bound := used()
			if n > bound/2 || n < most {
				return // n < most: it was more than half since the last look, and a tick has trimmed it
			} else if i > 10_000 {
				w.t.Fatalf("%d bytes of the log are used, of %d", n, bound)
			}
			most = n
			w.puts(fmt.Sprint("fill ", i), 1)
		}
	})
	if n == 0 {
		w.errorf("the log keeps entries for a replica, and more than half of it is in use")
	}
	if n, bound := used(); n > bound/2 {
		w.errorf("%d bytes of the log are used, of %d", n, bound)
	}
}

// keeps has the logs keep what an absent replica lacks for so long. There are no replicas yet.
func (w *World) keeps(long time.Duration) {
	w.absent = long
	for _, name := range w.names {
		w.node(name).crash(0, false)
		w.node(name).boot()
	}
}

// keptOverAStart: what a log has kept for an absent replica goes when that one has it, also if the node was started anew meanwhile, and no checkpoint follows: at a
// group in which nothing is written there is none, and a log that kept its entries would be full one day for all groups.
func keptOverAStart(w *World) {
	for _, n := range w.nodes {
		n.never = true
	}
	w.keeps(time.Minute)
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group).node
	away := w.others(lead.name)[0]
	away.crash(0, false)
	w.puts("b", 10)
	time.Sleep(time.Second)
	w.trimAll()
	w.puts("c", 1)
	if s, err := lead.engineOf().Status(group); err != nil || s.First > 10 {
		w.errorf("%s has entries from %d on, and nothing is kept: %v", lead.name, s.First, err)
	}
	for _, n := range w.others(away.name) {
		n.crash(0, false)
		n.boot()
	}
	away.boot()
	w.settle(group)
	time.Sleep(time.Second)
	for _, n := range w.others(away.name) {
		n.mu.Lock()
		c, err := decode(n.replicas[group].saved)
		n.mu.Unlock()
		if s, serr := n.engineOf().Status(group); err != nil || serr != nil || s.First != c.Applied+1 {
			w.errorf("%s has entries from %d on, and its machine has those up to %d: %v %v", n.name, s.First, c.Applied, err, serr)
		}
	}
}

// keptByFollowers: what an absent replica lacks is kept by a follower, too, because it leads when the leader falls; also by one that was started anew meanwhile. When
// nobody has led for too long, it keeps nothing.
func keptByFollowers(w *World) {
	w.keeps(time.Minute)
	w.found(group, 3)
	w.puts("a", 3)
	for round := range 4 {
		w.trimAll()
		lead := w.leader(group).node
		away, other := w.others(lead.name)[0], w.others(lead.name)[1]
		away.crash(0, false)
		w.puts(fmt.Sprint("round ", round), 10)
		time.Sleep(time.Second)
		w.trimAll()
		if round%2 == 1 {
			other.crash(0, false)
			other.boot()
			w.trimAll()
			w.puts("behind", 1)
			w.trimAll()
		}
		lead.crash(0, false)
		before := w.net.snapshotsSent()
		away.boot()
		w.puts(fmt.Sprint("round ", round, ", back"), 3)
		if n := w.net.snapshotsSent() - before; n != 0 {
			w.errorf("round %d: a replica that came back when its leader fell was sent %d snapshots", round, n)
		}
		lead.boot()
		w.settle(group)
	}
	// Nobody leads.
	lead := w.leader(group).node
	away, other := w.others(lead.name)[0], w.others(lead.name)[1]
	away.crash(0, false)
	w.puts("nobody", 10)
	time.Sleep(time.Second)
	lead.crash(0, false)
	first := func() uint64 {
		w.node(other.name).checkpoint(other.machine(group))
		time.Sleep(100 * time.Millisecond)
		s, err := other.engineOf().Status(group)
		if err != nil {
			w.errorf("%v", err)
		}
		return s.First
	}
	before := first()
	time.Sleep(30 * time.Second)
	if n := first(); n != before {
		w.errorf("a follower has forgotten entries %d to %d after half a minute without a leader", before, n-1)
	}
	time.Sleep(time.Minute)
	if n := first(); n == before {
		w.errorf("a follower keeps entry %d after a minute and a half without a leader", n)
	}
	away.boot()
	lead.boot()
	w.settle(group)
}

// snapshotIsCut: one that does not arrive is sent again.
func snapshotIsCut(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	away := w.others(w.leader(group).node.name)[0]
	away.crash(0, false)
	w.puts("b", 10)
	time.Sleep(time.Second)
	w.trimAll()
	w.net.mu.Lock()
	w.net.lose = 3
	w.net.mu.Unlock()
	away.boot()
	w.settle(group)
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if w.net.lose != 0 {
		w.errorf("%d snapshots of 3 were not tried", w.net.lose)
	}
}
