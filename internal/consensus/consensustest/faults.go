package consensustest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// logIsFull: a leader whose log is full proposes nothing, a follower whose log is full takes
// no more entries, and both go on when there is room. The others go on at once.
func logIsFull(w *World) {
	const alone = consensus.GroupID(2)
	n := w.node("n1")
	n.never = true
	w.found(group, 3)
	w.found(alone, 1)
	for w.leader(group).node == n {
		ctx, cancel := within(time.Second)
		n.engineOf().Transfer(ctx, group, 2)
		cancel()
	}
	large := func(m *Machine, what string, i int) bool {
		ctx, cancel := within(time.Second)
		defer cancel()
		b := make([]byte, 200<<10)
		copy(b, fmt.Sprintf("%s %d", what, i))
		_, ok := m.put(ctx, string(b))
		return ok
	}
	i := 0
	for i < 200 && large(w.leader(alone), "alone", i) {
		i++
	}
	if i == 200 {
		w.errorf("40 MB of entries went into a log of 8 MiB")
	}
	for i := range 40 {
		if !large(w.leader(group), "three", i) {
			w.errorf("one log that is full holds the group")
		}
	}
	n.mu.Lock()
	if took := n.log.Stats().Bytes; took > 11<<20 {
		w.errorf("a log whose bound is 8 MiB has %d bytes", took)
	}
	n.mu.Unlock()
	if s, err := w.leader(alone).node.engineOf().Status(alone); err != nil || !s.Leads {
		w.errorf("a full log: %+v %v", s, err)
	}
	n.mu.Lock()
	n.never = false
	n.mu.Unlock()
	n.relieve()
	w.puts("there is room", 3)
	w.settle(group)
	if !large(w.leader(alone), "at last", 0) {
		w.errorf("there is room, and nothing is taken")
	}
	w.settle(alone)
}

// badProposals: what cannot be proposed is refused at once.
func badProposals(w *World) {
	w.found(group, 3)
	lead := w.leader(group)
	e := lead.node.engineOf()
	term := lead.role.term
	for _, c := range []struct {
		what string
		g    consensus.GroupID
		term uint64
		size int
		err  error
	}{
		{"nothing", group, term, 0, consensus.ErrTooLarge},
		{"too much", group, term, consensus.MaxEntry + 1, consensus.ErrTooLarge},
		{"an old term", group, term - 1, 1, consensus.ErrNotLeader},
		{"a later term", group, term + 1, 1, consensus.ErrNotLeader},
		{"another group", 99, term, 1, consensus.ErrNoGroup},
	} {
		if err := e.Propose(c.g, c.term, make([]byte, c.size)); !errors.Is(err, c.err) {
			w.errorf("%s: %v", c.what, err)
		}
	}
	follower := w.others(lead.node.name)[0].engineOf()
	if err := follower.Propose(group, term, []byte("x")); !errors.Is(err, consensus.ErrNotLeader) {
		w.errorf("at a follower: %v", err)
	}
	if err := follower.Barrier(context.Background(), group); !errors.Is(err, consensus.ErrNotLeader) {
		w.errorf("a read at a follower: %v", err)
	}
	// Without a majority nothing is taken in without a bound.
	for _, n := range w.others(lead.node.name) {
		n.crash(0, false)
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = e.Propose(group, term, make([]byte, 200<<10))
	}
	if !errors.Is(err, consensus.ErrBusy) && !errors.Is(err, consensus.ErrNotLeader) {
		w.errorf("%d entries of 200 KiB were taken by a leader without followers: %v", n, err)
	}
	for _, n := range w.others(lead.node.name) {
		n.boot()
	}
	w.settle(group)
}

var errBroken = errors.New("the machine is broken")

// machineFails: a machine that fails fences its replica, and the others go on.
func machineFails(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	lead.mu.Lock()
	lead.fails = errBroken
	lead.mu.Unlock()
	ctx, cancel := within(time.Second)
	defer cancel()
	if _, ok := lead.put(ctx, "breaks"); ok {
		w.errorf("a machine that fails acknowledges")
	}
	if s, err := lead.node.engineOf().Status(group); err != nil || !errors.Is(s.Fenced, errBroken) || !errors.Is(s.Fenced, consensus.ErrFenced) {
		w.errorf("a machine has failed: %+v %v", s, err)
	}
	if err := lead.node.engineOf().Barrier(ctx, group); !errors.Is(err, consensus.ErrFenced) {
		w.errorf("a read: %v", err)
	}
	if w.leader(group) == lead {
		w.errorf("a machine that has failed leads")
	}
	w.puts("b", 3)
	w.judge.expect(errBroken)
	if err := lead.node.engineOf().Stop(group, false); err != nil {
		w.errorf("stop: %v", err)
	}
	lead.node.start(group)
	w.settle(group)
}

// logFails: a node whose disk fails takes part in nothing, and says so.
func logFails(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	lead.node.mu.Lock()
	lead.node.broken = errBroken
	lead.node.mu.Unlock()
	ctx, cancel := within(time.Second)
	defer cancel()
	if _, ok := lead.put(ctx, "breaks"); ok {
		w.errorf("a disk that fails acknowledges")
	}
	if s, err := lead.node.engineOf().Status(group); err != nil || !errors.Is(s.Fenced, errBroken) {
		w.errorf("the disk has failed: %+v %v", s, err)
	}
	if err := lead.node.engineOf().Start(ctx, 2, 1, &Machine{}); !errors.Is(err, errBroken) {
		w.errorf("a start on a log that has failed: %v", err)
	}
	w.puts("b", 3)
	w.judge.expect(errBroken)
	lead.node.mu.Lock()
	lead.node.broken = nil
	lead.node.mu.Unlock()
	lead.node.crash(0, false)
	lead.node.boot()
	w.settle(group)
}

// logIsGone: a replica without its log must not start (R18).
func logIsGone(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	w.trimAll()
	n := w.node("n3")
	n.crash(0, false)
	n.disk, n.from = logtest.New(logtest.Options{}), 0
	n.mu.Lock()
	r := n.replicas[group]
	delete(n.replicas, group)
	n.mu.Unlock()
	n.boot()
	c, err := decode(r.saved)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &Machine{w: w, node: n, g: group, id: r.id, state: c, wait: map[string]chan uint64{}}
	if err := n.engineOf().Start(context.Background(), group, r.id, m); !errors.Is(err, consensus.ErrNoLog) {
		w.errorf("a start without a log: %v", err)
	}
	// A log that begins behind what the machine has is as bad.
	lead := w.leader(group)
	stop := w.others(lead.node.name)[0]
	if !stop.isUp() || stop == n {
		stop = w.others(lead.node.name)[1]
	}
	if stop == n {
		return
	}
	if err := stop.engineOf().Stop(group, false); err != nil {
		w.t.Fatal(err)
	}
	old := &Machine{w: w, node: stop, g: group, id: stop.replicas[group].id, state: contents{State: consensus.State{Applied: 1, Term: 1, Config: c.Config}}}
	if err := stop.engineOf().Start(context.Background(), group, old.id, old); !errors.Is(err, consensus.ErrNoLog) {
		w.errorf("a start of a machine that is behind its log: %v", err)
	}
}

// ends: what waits is told when a replica stops, and when the node does.
func ends(w *World) {
	w.found(group, 3)
	w.found(2, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	e := lead.node.engineOf()
	w.net.isolate(lead.node.name, true)
	got := make(chan error, 2)
	go func() { got <- e.Barrier(context.Background(), group) }()
	time.Sleep(10 * time.Millisecond)
	if err := e.Stop(group, false); err != nil {
		w.errorf("stop: %v", err)
	}
	if err := <-got; !errors.Is(err, consensus.ErrClosed) {
		w.errorf("a read at a replica that is stopped: %v", err)
	}
	if err := e.Propose(group, 1, []byte("x")); !errors.Is(err, consensus.ErrNoGroup) {
		w.errorf("a proposal behind the end: %v", err)
	}
	if err := lead.node.start(group); err != nil {
		w.errorf("start again: %v", err)
	}
	if err := e.Start(context.Background(), group, lead.id, lead); err == nil {
		w.errorf("it starts twice")
	}
	w.net.heal()
	w.settle(group)
	lead = w.leader(group)
	lead.node.stop()
	if err := e.Barrier(context.Background(), 2); lead.node.engineOf() == e && !errors.Is(err, consensus.ErrClosed) {
		w.errorf("a read behind the end of the node: %v", err)
	}
	lead.node.boot()
	w.settle(group)
	w.settle(2)
}
