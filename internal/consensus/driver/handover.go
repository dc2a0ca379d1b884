package driver

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// Handing is those who wait until this replica does not lead any more (Transfer).
type handing struct{ waiting []handed }

type handed struct {
	done chan<- error
	age  int // ticks
}

func (h *handing) add(done chan<- error) { h.waiting = append(h.waiting, handed{done: done}) }

// tick gives up those who have waited for more than so many ticks: the library has, too.
func (h *handing) tick(patience int) {
	k := 0
	for _, w := range h.waiting {
		if w.age++; w.age > patience {
			w.done <- consensus.ErrTransfer
			continue
		}
		h.waiting[k] = w
		k++
	}
	h.waiting = h.waiting[:k]
}

// end tells all what came of it.
func (h *handing) end(err error) {
	for _, w := range h.waiting {
		w.done <- err
	}
	h.waiting = nil
}

// Transfer implements consensus.Engine.
func (n *Node) Transfer(ctx context.Context, id consensus.GroupID, to consensus.ReplicaID) error {
	return n.do(ctx, id, func(_ *turn, g *group, done chan<- error) error {
		switch {
		case !g.r.Role().Leads:
			done <- consensus.ErrNotLeader
		case !g.config.Voter(to):
			done <- fmt.Errorf("%w: replica %d is no voter, so it cannot lead", consensus.ErrConfig, to)
		case to == g.self:
			done <- nil
		default:
			g.handing.add(done)
			return g.r.Transfer(to)
		}
		return nil
	})
}

// plays tells the machine who leads.
func (g *group) plays(r core.Role) {
	g.mu.Lock()
	led := g.status.Leads
	g.status.Leads, g.status.Term, g.status.Leader = r.Leads, g.r.Word(), r.Leader
	g.mu.Unlock()
	if led {
		g.gone()
	}
	if r.Leads {
		g.m.Leads(r.Term) // it may propose at once
	} else {
		g.m.Follows(r.Term, r.Leader)
	}
}

// gone ends what only a leader does.
func (g *group) gone() {
	g.dropProposals()
	g.reads.fail(consensus.ErrNotLeader)
	g.handing.end(nil)
	g.unsettled()
	g.abandon()
}
