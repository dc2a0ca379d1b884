package driver

import (
	"context"
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

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
	if err := n.intake.enter(ctx, node, stalled*n.c.Tick); err != nil { // its sender waits no longer
		leave()
		return err
	}
	leave = func() { // before it answers: the sender may begin another one then
		n.intake.leave(node)
		g.receiving.Store(false)
		g.leave()
	}
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
