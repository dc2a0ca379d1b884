package groups

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store"
)

// A node whose disk is full refuses puts (store.ErrNoSpace). The groups that it leads need not suffer: it hands each to a voter
//
//	that has said that its disk has room (consensus.Peer.Room), was heard of lately, and lacks fewer than nearly entries;
//	one group after the other. A group that nobody took over stays for fullAgain.
//
// If no voter has room, it leads on, serves gets, and refuses puts. No group goes to and fro: a node that was full takes none for
// settledPart of the quiet time after its disk has had room again, and leaders do not go home to a full disk (ready).

const (
	// fullLook is how often it is looked whether groups are to go.
	fullLook = time.Second
	// fullAgain is for how long a group stays that nobody took over.
	fullAgain = 10 * time.Second
	// settledPart of the quiet time is for how long a disk must have had room.
	settledPart = 6
)

// quiet is for how long a group must have been as it is before it goes home.
func (g *Groups) quiet() time.Duration {
	if g.env.Quiet != 0 {
		return g.env.Quiet
	}
	return quietFor
}

// leaveFull hands groups over while the disk of this node is full, until the node ends.
func (g *Groups) leaveFull() {
	tick := time.NewTicker(min(fullLook, g.quiet()))
	defer tick.Stop()
	stays := map[consensus.GroupID]time.Time{} // until when
	for {
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
		for _, c := range g.mapped() {
			st, err := g.engine.Status(c.ID)
			if err != nil || time.Now().Before(stays[c.ID]) {
				continue
			}
			if to := roomy(&st); to != 0 && !g.handAway(&c, to) {
				stays[c.ID] = time.Now().Add(fullAgain)
			}
		}
	}
}

// roomy is the voter that is to lead a group because this node, which does, has a full disk; 0: this node need not hand it over, or nobody else
// could do better.
func roomy(st *consensus.Status) consensus.ReplicaID {
	if !st.Leads || !st.Full || st.Fenced != nil {
		return 0
	}
	fit := *st
	fit.Peers = nil
	for _, p := range st.Peers {
		if ready(st, p.ID) {
			fit.Peers = append(fit.Peers, p)
		}
	}
	return heir(&fit, 0)
}

// handAway asks a replica to take over, and says whether this node leads no more.
func (g *Groups) handAway(c *store.Group, to consensus.ReplicaID) bool {
	ctx, cancel := context.WithTimeout(g.ctx, handOver)
	defer cancel()
	err := g.engine.Transfer(ctx, c.ID, to)
	switch {
	case err == nil:
		g.env.Log.Info("a group is led by another node, because the disk of this one is full", "group", c.ID, "replica", to)
	case g.ctx.Err() == nil:
		g.env.Log.Info("a group stays here although the disk is full: the other voter did not take over", "group", c.ID, "replica", to, "err", err)
	}
	return err == nil
}
