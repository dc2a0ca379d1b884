package groups

import (
	"context"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The map by which a cluster without replicas gets groups is promised by every node, and then put in force at each. A node that has promised it opens its ways to the others before it is in force here,
// and asks them for it: whoever puts maps in force may have ended before it came to this node, and the node would serve by the map before for ever, while its groups, which nobody has but it, serve nothing.
//
//	promised ──▶ ways are open ──▶ asks each other node, now and then ──┬─ one has it in force, or a later one ──▶ it is in force here
//	                                                                  └─ none has: it serves on by the map before
//
// Nothing counts but what another node has in force: so the promise alone changes nothing.

const (
	askFirst  = time.Second      // behind the promise: mostly it is in force by then, and nobody is asked
	askMost   = 10 * time.Second // the longest rest between two rounds
	answerFor = 2 * time.Second  // how long one node may take
)

// openWays opens the ways to the nodes of a map, if they are not open. g.mu is held.
func openWays(g *Groups, m *cluster.Map) error {
	if g.link.to.Load() != nil {
		return nil
	}
	t, err := transport.New(transport.Config{
		Name: g.env.Node, Cluster: m.Cluster, Secret: g.env.Secret, Endpoint: door{g.engine, &g.link}, Routes: g.env.Routes, Logger: g.env.Logger,
		Knows: func(node string) bool { m := known(g); return m != nil && m.Has(node) }, Store: g.env.Store().ID(), Openings: g.env.Openings(), SetBack: g.env.SetBack,
		Answer: g.link.answering(others{g}.answer),
		Admit: func(node string, has [16]byte, openings []wire.Opening) error {
			m := known(g)
			if m == nil {
				return cluster.ErrNoMap
			}
			return g.admit(m, node, has, openings)
		},
	})
	if err != nil {
		return err
	}
	g.link.to.Store(t)
	return nil
}

// known is the map whose nodes may speak: the one in force, else the one that is promised; nil: there is neither.
func known(g *Groups) *cluster.Map {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m != nil {
		return g.m
	}
	return g.next
}

// Await tells of the map that the node has promised while one without replicas is in force: the other nodes are asked whether they have it. nil: it has promised none any more. It does not wait.
//
// Error: store.ErrGroups, if the replicas that the map gives the node are another store's; what keeps the node from having any.
func Await(g *Groups, m *cluster.Map) error {
	if g == nil {
		return nil
	}
	if m != nil {
		if err := g.mine(m); err != nil {
			return err
		}
		if err := g.Fit(); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.m != nil || g.next == m {
		return nil
	}
	if g.asks != nil {
		g.asks()
		g.asks = nil
	}
	if g.next = m; m == nil {
		return nil
	}
	if err := openWays(g, m); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(g.ctx)
	g.asks = cancel
	g.wg.Go(func() { ask(ctx, g, m) })
	return nil
}

// ask asks the other nodes of a map for it, until it is in force here, or ctx ends.
func ask(ctx context.Context, g *Groups, m *cluster.Map) {
	for rest := askFirst; ; rest = min(2*rest, askMost) {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
		var wg sync.WaitGroup
		for i := range m.Nodes {
			node := m.Nodes[i].ID
			if node == g.env.Node || g.env.Learn == nil {
				continue
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, answerFor)
				defer cancel()
				if err := g.env.Learn(ctx, node); err != nil && g.ctx.Err() == nil {
					g.env.Log.Info("another node has not said whether the shard map is in force that this node has promised", "other", node, "err", err)
				}
			})
		}
		if wg.Wait(); g.current() != nil {
			return
		}
	}
}
