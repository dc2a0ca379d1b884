package driver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

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

// A changing is somebody who waits for a change of configuration.
type changing struct {
	index uint64 // of the entry that was proposed
	done  chan<- error
}

// Change implements consensus.Engine.
func (n *Node) Change(ctx context.Context, id consensus.GroupID, c consensus.Config, expect uint64) error {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	name := binary.LittleEndian.Uint64(b[:])
	var proposed atomic.Bool
	err := n.do(ctx, id, func(_ *turn, g *group, done chan<- error) error {
		var index uint64
		cc, err := g.change(&c, expect, name)
		if err == nil {
			index, err = g.r.ProposeChange(cc)
		}
		if err != nil {
			done <- err
			return nil
		}
		g.changes[name] = changing{index, done}
		proposed.Store(true)
		return nil
	})
	if proposed.Load() && (errors.Is(err, consensus.ErrClosed) || errors.Is(err, consensus.ErrFenced)) {
		return fmt.Errorf("%w: %w", consensus.ErrUnknown, err)
	}
	return err
}

// settle tells those whose changes were applied. One whose entry's place another entry has
// taken was refused by the library.
func (g *group) settle(changed []core.Changed) {
	for _, c := range changed {
		if w, ok := g.changes[c.Name]; ok {
			delete(g.changes, c.Name)
			if c.Config != nil {
				w.done <- nil
			} else {
				w.done <- consensus.ErrChanged
			}
		}
	}
	for name, w := range g.changes {
		if w.index <= g.published {
			delete(g.changes, name)
			w.done <- fmt.Errorf("%w: another change is under way", consensus.ErrChanged)
		}
	}
}

// unsettled tells those whose changes may still happen.
func (g *group) unsettled() {
	for name, w := range g.changes {
		delete(g.changes, name)
		w.done <- consensus.ErrUnknown
	}
}
