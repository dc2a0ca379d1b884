package consensustest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Scenes of many snapshots: what a node that was away needs is much at once, and may fail again and again.

// maxSending and maxReceiving are how many snapshots a node sends to another one at a time, and receives, at most.
const (
	maxSending   = 2
	maxReceiving = 4
)

// A tally counts snapshots that are under way.
type tally struct {
	now, most map[string]int
}

// add counts one more, or one less.
func (t *tally) add(what string, n int) {
	if t.now == nil {
		t.now, t.most = map[string]int{}, map[string]int{}
	}
	t.now[what] += n
	t.most[what] = max(t.most[what], t.now[what])
}

// A slowState is a snapshot that takes long to be received.
type slowState struct {
	io.Reader
	ctx context.Context
	n   *network
	to  string
	in  bool // it was counted
	out bool // it is counted no more
}

// Read counts the snapshot, and waits, the first time, and counts it no more when it has been read: behind that its place is given to another one.
func (s *slowState) Read(b []byte) (n int, err error) {
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if !s.in {
		s.in = true
		s.n.mu.Lock()
		s.n.received.add(s.to, 1)
		long := s.n.intake
		s.n.mu.Unlock()
		select {
		case <-time.After(long):
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
	return s.Reader.Read(b)
}

// end says that it is over.
func (s *slowState) end() {
	if s.in && !s.out {
		s.out = true
		s.n.mu.Lock()
		defer s.n.mu.Unlock()
		s.n.received.add(s.to, -1)
	}
}

// receive has a node receive a snapshot.
func (l *link) receive(ctx context.Context, to string, e consensus.Endpoint, h consensus.SnapshotHead, b []byte) error {
	from := &slowState{Reader: bytes.NewReader(b), ctx: ctx, n: l.n, to: to}
	defer from.end()
	return e.Receive(ctx, l.node.name, h, from)
}

// trimGroups has all logs of groups trimmed.
func (w *World) trimGroups(groups int) {
	for _, name := range w.names {
		for g := range groups {
			if m := w.node(name).machine(group + consensus.GroupID(g)); m != nil {
				w.node(name).checkpoint(m)
			}
		}
	}
	time.Sleep(100 * time.Millisecond)
}

// absentee has a node be away so long that all its replicas need a snapshot. Each of the others leads some of the groups.
func (w *World) absentee(groups int) *Node {
	away := w.node(w.names[0])
	for i := range groups {
		w.found(group+consensus.GroupID(i), len(w.names))
		w.put(group+consensus.GroupID(i), "first")
	}
	away.crash(0, false)
	for i := range groups {
		g := group + consensus.GroupID(i)
		w.put(g, "second")
		lead := w.leader(g)
		if to := w.names[1+i%(len(w.names)-1)]; lead.node.name != to {
			ctx, cancel := within(time.Second)
			if err := lead.node.engineOf().Transfer(ctx, g, w.node(to).machine(g).id); err != nil {
				w.errorf("transfer: %v", err)
			}
			cancel()
		}
		for n := range 10 {
			w.put(g, fmt.Sprint("third ", n))
		}
	}
	time.Sleep(time.Second) // it is given up
	w.trimGroups(groups)
	return away
}

// manySnapshots: a node that was away is sent a few snapshots at a time, of each node and in all, and in the end each group has sent it one.
func manySnapshots(w *World) {
	const groups = 24
	away := w.absentee(groups)
	w.net.mu.Lock()
	w.net.intake = 300 * time.Millisecond
	w.net.mu.Unlock()
	before := w.net.snapshotsSent()
	began := time.Now()
	away.boot()
	for g := range groups {
		w.put(group+consensus.GroupID(g), "fourth")
	}
	for g := range groups {
		w.settle(group + consensus.GroupID(g))
	}
	took := time.Since(began)
	defer func() { w.t.Logf("%d snapshots were sent, of %d groups, in %v", w.net.snaps-before, groups, took) }()
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for pair, n := range w.net.sending.most {
		if n > maxSending {
			w.errorf("%d snapshots were on their way at a time, %s", n, pair)
		}
	}
	if n := w.net.received.most[away.name]; n > maxReceiving {
		w.errorf("%d snapshots were received at a time", n)
	}
	if n := w.net.taken; n != groups {
		w.errorf("%d snapshots have arrived, of %d groups", n, groups)
	}
	if n := w.net.snaps - before; n != groups {
		w.errorf("%d snapshots were sent, of %d groups", n, groups)
	}
	if least := groups / maxReceiving * w.net.intake; took > 3*least {
		w.errorf("it took %v, and %v is the least", took, least)
	}
}

// failingSnapshots: behind a snapshot that did not arrive there is a pause, which grows, up to a bound, and is short again when one has arrived.
func failingSnapshots(w *World) {
	lose := func(n int) {
		w.net.mu.Lock()
		defer w.net.mu.Unlock()
		w.net.lose = n
	}
	away := w.absentee(1)
	lose(1 << 20)
	before := w.net.snapshotsSent()
	away.boot()
	time.Sleep(20 * time.Second)
	if n := w.net.snapshotsSent() - before; n < 4 || n > 10 {
		w.errorf("%d snapshots were sent in 20 s, none of which arrived", n)
	}
	time.Sleep(time.Minute)
	if n := w.net.snapshotsSent() - before; n < 8 || n > 18 {
		w.errorf("%d snapshots were sent in 80 s, none of which arrived", n)
	}
	lose(0)
	w.puts("arrives", 3)
	w.settle(group)
	away.crash(0, false)
	w.puts("again", 10)
	time.Sleep(time.Second)
	w.trimGroups(1)
	lose(1)
	began := time.Now()
	away.boot()
	w.settle(group)
	if took := time.Since(began); took > 2*time.Second {
		w.errorf("it took %v with one snapshot that did not arrive: the pause is not short again", took)
	}
}
