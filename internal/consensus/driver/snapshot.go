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
func (a *applier) snapshot(to consensus.ReplicaID) {
	s, err := a.g.m.Snapshot(a.g.ctx)
	ok := a.g.post(func(t *turn, g *group) error {
		if err != nil {
			t.n.c.Logger.Warn("a snapshot could not be made", "group", g.id, "for", to, "err", err)
			return g.sent(to, false)
		}
		return t.sendSnapshot(g, to, s)
	})
	if !ok && err == nil {
		s.Close()
	}
}

// A sending is a snapshot for a replica. The log keeps what follows it until it is over.
type sending struct {
	index uint64 // of the snapshot
	over  bool   // it has arrived, or not
	age   int    // ticks since then
}

// linger is for how many ticks the log still keeps what follows a snapshot that has arrived:
// the replica asks for it now.
const linger = 20

// sent notes what came of a snapshot.
func (g *group) sent(to consensus.ReplicaID, ok bool) error {
	if s := g.sending[to]; s != nil {
		s.over = true
	}
	return g.r.Sent(to, ok)
}

// patience is for how many ticks a replica that is not heard of counts as well.
const patience = 50

// forget drops what the log need not keep entries for any more. It is called each tick.
func (g *group) forget() {
	for _, p := range g.peers {
		if p.Active { // as the library says for up to an election timeout
			g.quiet[p.ID] = 0
		} else {
			g.quiet[p.ID]++
		}
	}
	if len(g.peers) == 0 {
		clear(g.quiet)
	}
	for to, s := range g.sending {
		if s.over {
			if s.age++; s.age > linger {
				delete(g.sending, to)
			}
		}
	}
}

// kept returns up to where the log may be trimmed for the others: not past a snapshot that is
// on its way, nor past what a replica lacks that is well and not far behind, so that
// what it lacks is in memory here.
func (g *group) kept() uint64 {
	most := ^uint64(0)
	for _, s := range g.sending {
		most = min(most, s.index)
	}
	for _, p := range g.peers {
		if g.quiet[p.ID] < patience && !p.Snapshot && p.Match+1 >= g.disk.InMemory() {
			most = min(most, p.Match)
		}
	}
	return most
}

// sendSnapshot sends what the applier has taken of the machine.
func (t *turn) sendSnapshot(g *group, to consensus.ReplicaID, s consensus.Snapshot) error {
	head := consensus.SnapshotHead{Group: g.id, From: g.self, To: to, Term: g.r.Word(), State: s.State()}
	node := g.node(to)
	if role := g.r.Role(); !role.Leads || node == "" {
		s.Close()
		return g.sent(to, false)
	}
	g.sending[to] = &sending{index: head.State.Applied}
	t.n.running.Go(func() {
		err := t.n.c.Link.Snapshot(g.ctx, node, head, s)
		if closing := s.Close(); err == nil {
			err = closing
		}
		g.post(func(t *turn, g *group) error {
			if err != nil {
				t.n.c.Logger.Warn("a snapshot did not arrive", "group", g.id, "at", node, "err", err)
			}
			return g.sent(to, err == nil)
		})
	})
	return nil
}

// An arrival is a snapshot that the machine has received, whole.
type arrival struct {
	state  consensus.Received
	answer chan<- error
}

// drop says that it is not adopted.
func (a *arrival) drop(err error) {
	if closing := a.state.Close(); err == nil {
		err = closing
	}
	a.answer <- err
}

// Receive implements consensus.Endpoint.
func (n *Node) Receive(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	g, err := n.group(h.Group)
	if err != nil {
		return err
	}
	if h.To != g.self || h.From == 0 || h.From == h.To || h.State.Applied == 0 || h.State.Applied > core.MaxNumber ||
		h.Term == 0 || h.Term > core.MaxNumber || h.State.Term > h.Term || h.State.Term == 0 {
		return fmt.Errorf("%w: a snapshot of replica %d at %s for replica %d of group %d, in term %d, up to entry %d of term %d",
			consensus.ErrMessage, h.From, node, h.To, h.Group, h.Term, h.State.Applied, h.State.Term)
	}
	if err := h.State.Config.Check(); err != nil {
		return fmt.Errorf("%w: %w", consensus.ErrMessage, err)
	}
	if !g.receiving.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: a snapshot is on its way", consensus.ErrBusy)
	}
	defer g.receiving.Store(false)
	r, err := g.m.Receive(ctx, h.State, data)
	if err != nil {
		return err
	}
	var taken atomic.Bool // the turn has it; if not, it is closed here
	err = n.do(ctx, h.Group, func(t *turn, g *group, done chan<- error) error {
		if taken.Swap(true) {
			return nil
		}
		return t.arrived(g, h, arrival{r, done})
	})
	if !taken.Swap(true) {
		r.Close()
	}
	return err
}

// arrived is an event: the machine has received a snapshot, whole.
func (t *turn) arrived(g *group, h consensus.SnapshotHead, a arrival) error {
	switch {
	case h.State.Applied <= g.published:
		a.drop(nil) // not needed any more
	case g.received != nil || g.adopting:
		a.drop(consensus.ErrBusy)
	default:
		g.received = &a
		return g.r.Step(core.SnapshotMessage(h.From, h.To, h.Term, &h.State))
	}
	return nil
}

// unneeded drops a snapshot that the library did not want.
func (g *group) unneeded() {
	if g.received != nil && !g.r.SnapshotWaits() {
		g.received.drop(consensus.ErrNotTaken)
		g.received = nil
	}
}

// adopt makes the state that was received the machine's.
func (a *applier) adopt(j *job) error {
	if err := a.g.m.Adopt(j.received); err != nil {
		return fmt.Errorf("adopt a snapshot: %w", err)
	}
	s := j.received.State()
	a.config = s.Config
	w, answer := j.adopt, j.answer
	j.answer = nil
	ok := a.g.post(func(t *turn, g *group) error {
		g.adopting, g.published, g.publishedTerm, g.config = false, s.Applied, s.Term, s.Config
		g.disk.Published(s.Applied, s.Term, &s.Config)
		g.trimmed = s.Applied
		t.append(g, w)
		answer <- nil
		return nil
	})
	if !ok {
		answer <- a.g.why()
	}
	return nil
}
