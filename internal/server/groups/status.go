package groups

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// mapped are the node's replicas by the map in force.
func (g *Groups) mapped() []store.Group {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	m := g.m
	g.mu.Unlock()
	if m == nil {
		return nil
	}
	return g.wanted(m)
}

// Status is the node's replicas, by group; nil: it has none.
func (g *Groups) Status() (list []wire.GroupStatus) {
	for _, c := range g.mapped() {
		st, err := g.engine.Status(c.ID)
		if err != nil { // it is not started
			st = consensus.Status{ID: c.Replica, Config: c.Founders}
		}
		list = append(list, g.statusOf(&c, &st, err == nil))
	}
	return list
}

// statusOf is one of them; runs: the engine runs it.
func (g *Groups) statusOf(c *store.Group, st *consensus.Status, runs bool) wire.GroupStatus {
	st.Group, st.ID = c.ID, c.Replica
	out := StatusOf(g.env.Node, st, runs)
	out.Shards = c.Shards
	return out
}

// StatusOf is a replica of a node as the node tells of it, without shards; runs: the engine runs it.
func StatusOf(node string, st *consensus.Status, runs bool) wire.GroupStatus {
	out := wire.GroupStatus{
		ID: uint32(st.Group), Replica: uint64(st.ID), State: "follows", Leader: st.Config.Node(st.Leader), Term: st.Term, Shards: []uint16{},
		Last: st.Last, Committed: st.Committed, Applied: st.Applied, Replicas: []wire.ReplicaStatus{},
	}
	switch {
	case !runs:
		out.State, out.Why = "waits", "it takes no part yet: see the node's log"
	case st.Fenced != nil:
		out.State, out.Why = "stopped", wire.CleanText([]byte(st.Fenced.Error()))
	case st.Leads:
		out.State, out.Leader = "leads", node
	case !st.Config.Voter(st.ID):
		out.State = "learns"
	}
	for i, members := range [2][]consensus.Member{st.Config.Voters, st.Config.Learners} {
		for _, m := range members {
			r := wire.ReplicaStatus{ID: uint64(m.ID), Node: m.Node, Votes: i == 0}
			if m.ID == st.ID {
				r.Match, r.Active = st.Last, runs && st.Fenced == nil
			}
			for _, p := range st.Peers {
				if p.ID == m.ID && st.Leads {
					r.Match, r.Active, r.Snapshot = p.Match, p.Active, p.Snapshot
				}
			}
			out.Replicas = append(out.Replicas, r)
		}
	}
	slices.SortFunc(out.Replicas, func(a, b wire.ReplicaStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// handOver is for how long HandOver waits for others to take over.
const handOver = time.Second

// HandOver asks other voters to lead the groups that this node leads, because it is about to end, and returns when they do, after a second
// at most, or when ctx ends. Writes that are under way are done first; those that come later are told who leads.
func (g *Groups) HandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range g.mapped() {
		wg.Go(func() {
			switch led, err := g.handOver(ctx, c.ID); {
			case !led:
			case err == nil:
				g.handed.Add(1)
			default:
				g.env.Log.Warn(base.LogInternal, "a group is left without a leader until its voters elect one: none took over from this node, which ends", "group", c.ID, "err", err)
			}
		})
	}
	wg.Wait()
}

// handOver asks one voter after the other to lead a group, until one does or ctx ends, and says whether this node led it.
func (g *Groups) handOver(ctx context.Context, group consensus.GroupID) (led bool, err error) {
	asked := consensus.ReplicaID(0)
	for {
		st, failed := g.engine.Status(group)
		if failed != nil || !st.Leads {
			return led, nil // it leads no more, whoever did that
		}
		to := heir(&st, asked)
		if to == 0 {
			return led, err // nobody is there who could
		}
		led, asked = true, to
		switch err = g.engine.Transfer(ctx, group, to); {
		case errors.Is(err, consensus.ErrNotLeader):
			return led, nil // somebody was quicker
		case !errors.Is(err, consensus.ErrTransfer) || ctx.Err() != nil:
			return led, err
		}
	}
}

// Handed is how many groups HandOver has given to others, since the start.
func (g *Groups) Handed() int { return int(g.handed.Load()) }

// heir is the voter that is to lead after this replica: of those that were heard of lately one whose disk has room, and of these the one that has most;
// where several have as much, not the same one for all groups. One that was asked and did not take over is the last choice. 0: there is none.
func heir(st *consensus.Status, asked consensus.ReplicaID) (to consensus.ReplicaID) {
	var best consensus.Peer
	n := len(st.Peers)
	for i := range n {
		p := st.Peers[(i+int(st.Group))%n]
		if p.ID == st.ID || p.Learner || p.Snapshot || !p.Active || !st.Config.Voter(p.ID) {
			continue
		}
		better := p.Match > best.Match
		switch {
		case (p.ID == asked) != (to == asked):
			better = to == asked
		case p.Room != best.Room:
			better = p.Room
		}
		if to == 0 || better {
			to, best = p.ID, p
		}
	}
	return to
}
