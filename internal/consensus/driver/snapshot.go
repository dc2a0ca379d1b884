package driver

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// snapshot begins to send the machine's state to a replica. The applier calls it, so it is
// between two Apply (R8).
func (a *applier) snapshot(to consensus.ReplicaID, out *sending) {
	s, err := a.g.m.Snapshot(out.ctx)
	if err != nil {
		a.g.post(func(t *turn, g *group) error {
			t.n.c.Logger.Warn("a snapshot could not be made", "group", g.id, "for", to, "err", err)
			return g.sent(to, out, false)
		})
		return
	}
	drop := func() { s.Close() }
	if !a.g.postEvent(event{do: func(t *turn, g *group) error { return t.sendSnapshot(g, to, out, s) }, drop: drop}, false) {
		drop()
	}
}

// A sending is a snapshot for a replica. The log keeps what follows it until it is over.
type sending struct {
	ctx    context.Context
	cancel context.CancelFunc
	index  uint64       // of the snapshot
	read   atomic.Int64 // bytes that the link has taken
	seen   int64        // of them at the last tick
	idle   int          // ticks since the link has taken any
	over   bool         // it has arrived, or not
	age    int          // ticks since then
}

// Ticks: linger is for how long the log still keeps what follows a snapshot that has arrived,
// because the replica asks for it now; stalled is after how long without progress a snapshot
// is given up.
const (
	linger  = 20
	stalled = 3000
)

// A progress counts what is read.
type progress struct {
	io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.n.Add(int64(n))
	return n, err
}

// sent notes what came of a snapshot.
func (g *group) sent(to consensus.ReplicaID, s *sending, ok bool) error {
	s.over = true
	s.cancel()
	if g.sending[to] != s {
		return nil
	}
	return g.r.Sent(to, ok)
}

// patience is for how many ticks a replica that is not heard of counts as well.
const patience = 50

// hear takes in who was heard of. The library forgets that of all replicas at once, each election timeout, and hears of them with the next
// heartbeat: whoever believed it meanwhile would take all of them for gone, and hand a group to nobody. It is called each tick.
func (g *group) hear() {
	grace := 2 * g.n.c.Limits.WithDefaults().HeartbeatTicks
	g.peers = g.r.Peers(g.peers[:0])
	for i := range g.peers {
		p := &g.peers[i]
		p.Room = g.standing.room[p.ID]
		if p.Active {
			g.quiet[p.ID] = 0
			continue
		}
		g.quiet[p.ID]++
		p.Active = g.quiet[p.ID] <= grace
	}
	if len(g.peers) == 0 {
		clear(g.quiet)
	}
}

// forget drops what the log need not keep entries for any more. It is called each tick.
func (g *group) forget() {
	for to, s := range g.sending {
		if s.over {
			if s.age++; s.age > linger {
				delete(g.sending, to)
			}
			continue
		}
		s.idle++
		if n := s.read.Load(); n != s.seen {
			s.seen, s.idle = n, 0
		}
		if s.idle > stalled || g.config.Node(to) == "" {
			s.cancel()
		}
	}
}

// sendSnapshot sends what the applier has taken of the machine.
func (t *turn) sendSnapshot(g *group, to consensus.ReplicaID, out *sending, s consensus.Snapshot) error {
	head := consensus.SnapshotHead{Group: g.id, From: g.self, To: to, Term: g.r.Word(), State: s.State()}
	node := g.node(to)
	if !g.enter() {
		return s.Close() // the replica is about to end
	}
	if role := g.r.Role(); !role.Leads || node == "" || out.ctx.Err() != nil {
		go func() {
			defer g.leave()
			s.Close()
		}()
		return g.sent(to, out, false)
	}
	out.index = head.State.Applied
	go func() {
		defer g.leave()
		err := t.n.c.Link.Snapshot(out.ctx, node, head, progress{s, &out.read})
		if closing := s.Close(); err == nil {
			err = closing
		}
		g.post(func(t *turn, g *group) error {
			if err != nil {
				t.n.c.Logger.Warn("a snapshot did not arrive", "group", g.id, "at", node, "err", err)
			}
			return g.sent(to, out, err == nil)
		})
	}()
	return nil
}

// An arrival is a snapshot that the machine has received, whole.
type arrival struct {
	state  consensus.Received
	answer chan<- error
}

// drop says that it is not adopted. It does not wait for the machine.
func (a *arrival) drop(err error) {
	go func() {
		if closing := a.state.Close(); err == nil {
			err = closing
		}
		a.answer <- err
	}()
}

// Receive implements consensus.Endpoint.
func (n *Node) Receive(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	g, err := n.group(h.Group)
	if err != nil {
		return err
	}
	if h.To != g.self || h.From == 0 || h.From == h.To || h.State.Applied == 0 || h.State.Applied > core.MaxNumber ||
		h.Term == 0 || h.Term > core.MaxNumber || h.State.Term > h.Term || h.State.Term == 0 || h.State.Config.Index > h.State.Applied {
		return fmt.Errorf("%w: a snapshot of replica %d at %s for replica %d of group %d, in term %d, up to entry %d of term %d, with the configuration of entry %d",
			consensus.ErrMessage, h.From, node, h.To, h.Group, h.Term, h.State.Applied, h.State.Term, h.State.Config.Index)
	}
	if err := h.State.Config.Check(); err != nil {
		return fmt.Errorf("%w: %w", consensus.ErrMessage, err)
	}
	if !g.enter() {
		return g.why()
	}
	if !g.receiving.CompareAndSwap(false, true) {
		g.leave()
		return fmt.Errorf("%w: a snapshot is on its way", consensus.ErrBusy)
	}
	leave := func() {
		g.receiving.Store(false)
		g.leave()
	}
	if err := g.admits(node, &h); err != nil {
		leave()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	r, err := g.m.Receive(ctx, h.State, data)
	if err != nil {
		leave()
		return err
	}
	done := make(chan error, 1)
	a := &arrival{r, done}
	if !g.postEvent(event{do: func(t *turn, g *group) error { return t.arrived(g, h, a) }, drop: func() { a.drop(consensus.ErrClosed) }}, false) {
		a.drop(g.why())
	}
	select {
	case err := <-done:
		leave()
		return err
	case <-ctx.Done():
		go func() { // Stop waits for it still
			<-done
			leave()
		}()
		return ctx.Err()
	}
}

// admits holds a snapshot to what this replica knows: its sender is where it was, and knows of
// terms that can be.
func (g *group) admits(node string, h *consensus.SnapshotHead) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.status.Config.Node(h.From); at != "" && at != node {
		return fmt.Errorf("%w: replica %d is at node %s, and %s sends a snapshot of it", consensus.ErrMessage, h.From, at, node)
	}
	if h.Term > g.status.Term+core.MaxAhead {
		return fmt.Errorf("%w: a snapshot of term %d, and this replica knows of term %d", consensus.ErrMessage, h.Term, g.status.Term)
	}
	return nil
}

// arrived is an event: the machine has received a snapshot, whole.
func (t *turn) arrived(g *group, h consensus.SnapshotHead, a *arrival) error {
	switch {
	case h.State.Applied <= g.published:
		a.drop(nil) // not needed any more
	case g.received != nil || g.adopting:
		a.drop(consensus.ErrBusy)
	default:
		g.received = a
		return g.r.Step(core.SnapshotMessage(h.From, h.To, h.Term, &h.State))
	}
	return nil
}

// unneeded drops a snapshot that the library did not want.
func (g *group) unneeded() {
	if g.received != nil && !g.adopting && !g.r.SnapshotWaits() {
		g.received.drop(consensus.ErrNotTaken)
		g.received = nil
	}
}

// noted is an event: the log knows that the machine is about to adopt what it has received.
func (g *group) noted() {
	a := g.received
	g.received = nil
	g.queue.put(job{adopt: a})
}

// adopt makes the state that was received the machine's.
func (a *applier) adopt(r *arrival) error {
	if err := a.g.m.Adopt(r.state); err != nil {
		return fmt.Errorf("adopt a snapshot: %w", err)
	}
	s := r.state.State()
	a.config = s.Config
	ok := a.g.postEvent(event{do: func(t *turn, g *group) error {
		g.adopting, g.published, g.publishedTerm, g.config = false, s.Applied, s.Term, s.Config
		g.disk.Published(s.Applied, s.Term, &s.Config)
		g.trimmed = s.Applied
		later := g.later
		g.later = nil
		for _, w := range later {
			t.append(g, w)
		}
		r.answer <- nil
		return nil
	}, drop: func() { r.answer <- nil }}, false)
	if !ok {
		r.answer <- a.g.why()
	}
	return nil
}
