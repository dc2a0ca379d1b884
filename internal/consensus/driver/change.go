package driver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

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

// change makes a change of configuration of what somebody asks for.
func (g *group) change(c *consensus.Config, expect, name uint64) (*pb.ConfChangeV2, error) {
	switch {
	case !g.r.Role().Leads:
		return nil, consensus.ErrNotLeader
	case g.config.Index != expect:
		return nil, fmt.Errorf("%w: it is of entry %d", consensus.ErrChanged, g.config.Index)
	case len(g.changes) > 0:
		return nil, fmt.Errorf("%w: another change is under way", consensus.ErrChanged)
	case !c.Voter(g.self):
		return nil, fmt.Errorf("%w: the leader would take itself out, transfer the group first", consensus.ErrConfig)
	}
	return core.MakeChange(&g.config, c, name)
}
