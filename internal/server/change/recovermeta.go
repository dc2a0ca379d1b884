package change

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The meta group that has lost its majority for good is made anew by one of its nodes, because nobody else can change the map:
//
//	node      asks all nodes, as the seat does, and takes the newest map that one of them has
//	          has each node that answers promise that it makes no meta group itself, and promises it nobody else (anewFor)
//	          puts a map of the next generation in force (cluster.Map.Generation), in which the meta group has one replica, here: durable, and that is all there is to it
//	host      makes that replica, which begins with this map (founders), and leads
//	seat      polls the others, who follow, because the version is above all of before; so does who was away
//
// A crash anywhere leaves the old map, or the new one, of which the replica is made at the next start. What the meta group knew besides, its tasks, is lost: they are canceled by that. Other
// replicas of the old meta group are given up where the new map is heard of. Two nodes that reach each other, or a third one, do not both make it; two that do not reach each other may, which the numbers of
// the two tell (cluster.Replication.Lives, anew.go). If the other replicas of the old meta group live, and are a majority that is only cut off, they go on with maps of the old generation, which nobody takes who has the new one.

// recoverMeta answers an operator who asks this node to make the meta group anew.
func (c *Changer) recoverMeta(ctx context.Context, q *wire.ClusterQuestion) (*wire.ClusterAnswer, error) {
	if q.From != c.env.Node {
		return &wire.ClusterAnswer{State: wire.ClusterRefused, Why: fmt.Sprintf("node %q is asked to make the meta group of what node %.80q has: that one is to be asked", c.env.Node, q.From)}, nil
	}
	makes := !q.Dry && q.Accept
	if makes {
		if why := c.anew.begin(c.env.Node); why != "" {
			return &wire.ClusterAnswer{State: wire.ClusterRefused, Why: why}, nil
		}
		defer c.anew.end()
	}
	next, loss, err := c.metaAnew(ctx)
	now := c.now.Load()
	a := &wire.ClusterAnswer{State: wire.ClusterTaken, Seat: c.env.Node, MapVersion: now.m.Version, Loss: loss}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		a.State, a.Why = wire.ClusterRefused, err.Error()
	case loss.Done:
	case q.Dry:
		a.State = wire.ClusterPlan
	case !q.Accept:
		a.State, a.Why = wire.ClusterRefused, unaccepted(loss).Error()
	default:
		if err := promised(ctx, c, next.m); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			a.State, a.Why = wire.ClusterRefused, err.Error()
			return a, nil
		}
		if err := c.env.Follow(ctx, next.m); err != nil {
			a.State, a.Why = wire.ClusterUnknown, fmt.Sprintf("the new shard map is not known to be durable: %v; ask again", err)
			return a, nil
		}
		c.env.Log.Warn(base.LogAlways, "the meta group is made anew, because its operator says that a majority is lost for good", "map", next.m.Version, "lost", loss.Away)
		a.MapVersion = next.m.Version
	}
	return a, nil
}

// metaAnew works out the map in which the meta group is made anew here.
func (c *Changer) metaAnew(ctx context.Context) (*inForce, *wire.ClusterLoss, error) {
	for range 2 { // a later map may be another generation
		now := c.now.Load()
		leads, g := c.leads() != nil, &now.d.Groups[0]
		if now.m.Generation() > 0 && (leads || len(g.Replicas) == 1 && g.At(c.env.Node) != nil) { // the only replica of a group leads as soon as it is made, and needs nobody
			return nil, &wire.ClusterLoss{From: c.env.Node, Heard: []string{}, Away: []string{}, Done: true}, nil
		}
		if leads {
			return nil, nil, fmt.Errorf("%w: the meta group has a leader, node %q: nothing of it is lost", seat.ErrRequest, c.env.Node)
		}
		c.poll(&meta.State{Map: now.m}, nil, time.Now())
		reports := c.lead.now()
		later := false
		for node, r := range reports {
			if r.Map > c.now.Load().m.Version {
				if err := c.Learn(ctx, node); err != nil {
					return nil, nil, fmt.Errorf("%w: node %q has shard map %d, which this node does not get: %v", seat.ErrRequest, node, r.Map, err)
				}
				later = true
			}
		}
		if later {
			continue
		}
		m, l, err := seat.RecoverMeta(now.m, reports, c.env.Node, max(1, rand.Uint64()))
		if err != nil {
			return nil, nil, err
		}
		l.Forgets = forgets(c.meta.state(), now.m)
		return &inForce{m: m}, lossOf(l), nil
	}
	return nil, nil, errors.New("the shard map changes while the meta group is asked for: ask again")
}

// forgets says what the new meta group knows nothing of: the tasks that this node knows, and what a majority of the lost ones had agreed on behind the map that the new one begins with.
func forgets(s *meta.State, m *cluster.Map) (list []string) {
	if s != nil {
		for i := range s.Tasks {
			if t := &s.Tasks[i]; !t.Over() {
				list = append(list, fmt.Sprintf("task %d (%s)", t.ID, seat.Describe(t)))
			}
		}
	}
	return append(list, fmt.Sprintf("each task and shard map that was agreed on behind shard map %d, the newest one that a node which answers has in force", m.Version))
}
