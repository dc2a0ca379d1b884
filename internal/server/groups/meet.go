package groups

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// Before its replicas take part, a node meets the other nodes of the map: it opens a way to each, so that each has seen this start of it (transport.Config.Admit),
// durably, before anything that its replicas promise in it counts. A node whose directory was set back meets one of those, and is refused.
//
//	start 7   meets a and b ──▶ votes, acknowledges
//	          its directory is set back to what it was before
//	start 7'  meets a or b  ──▶ refused: it has forgotten start 7
//
// Hearing them when they happen to be spoken to is not enough: a follower speaks to leaders alone, so the third node would not have seen start 7, and with
// the vote of start 7' it could be elected without what the other two have acknowledged.
//
// Each node that was met is asked for its map, too, before the replicas here take part. While this node was away a group that has lost its majority may have been given up by the operator, and
// replaced by another one (cluster.Group.Was). If the nodes that were lost came back, and ran their replicas before they hear of that, they would be a majority of the old group, and serve what the new one has changed.
//
// A node that does not answer within meetFor is not waited for, because after an outage it may never come back, and the others must go on. So a node
// that was set back is taken for a sound one if nobody who has seen its last start answers in that time.

// meetFor is the default of Env.Meet.
const meetFor = 3 * time.Second

// meet lets the replicas take part, once the other nodes of the map have been met.
func (g *Groups) meet(m *cluster.Map, t *transport.Transport) {
	limit := g.env.Meet
	if limit == 0 {
		limit = meetFor
	}
	ctx, cancel := context.WithTimeout(g.ctx, limit)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var setBack error
	for i := range m.Nodes {
		node := m.Nodes[i].ID
		if node == g.env.Node {
			continue
		}
		wg.Go(func() {
			err := t.Meet(ctx, node)
			switch back := (*transport.SetBackError)(nil); {
			case err == nil && g.env.Learn != nil:
				if err := g.env.Learn(ctx, node); err != nil && g.ctx.Err() == nil {
					g.env.Log.Info("another node has not said which shard map it has", "other", node, "err", err)
				}
			case err == nil:
			case errors.As(err, &back):
				mu.Lock()
				setBack = err
				mu.Unlock()
				cancel() // whatever the others say
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				g.env.Log.Warn(base.LogAlways, "another node does not answer: the replicas here take part without having asked it whether this data directory was set back", "other", node, "err", err)
			}
		})
	}
	wg.Wait()
	if setBack == nil && g.ctx.Err() == nil {
		close(g.may)
	}
}

// begin has the replicas take part, if they may and it is known where; once. g.mu is held.
func (g *Groups) begin() {
	if t := g.link.to.Load(); g.taking && g.m != nil && t != nil && !g.closed && !g.met {
		g.met = true
		m := g.m
		g.wg.Go(func() { g.meet(m, t) })
	}
}
