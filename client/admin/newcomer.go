package admin

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A node that comes into a cluster that lives.
//
//	AdminStatus   its store, shards, cluster   must be as those of the others
//	ClusterJoin   may it come?                 not asked of one that the map has already: an earlier call has
//	…             the seat agrees on the task
//	MapFollow     the map with it              until it has this one, or a later one

// followRest is the rest between two tries to tell a node the map.
const followRest = 200 * time.Millisecond

// newcomers asks the nodes that a question names whether they may come, and writes their stores into it.
//
// ErrUnknownNode: gossip has not told of some, all of which the error names. ErrOtherCluster: it has another name of the cluster, other shards, or a map of another cluster.
// ErrRefused: it says itself that it cannot come.
func (a *Admin) newcomers(ctx context.Context, q *wire.ClusterQuestion) (all []*candidate, err error) {
	var unheard []string
	for _, n := range q.Nodes {
		p, err := a.rt.Peer(n.ID)
		if errors.Is(err, client.ErrUnknownNode) {
			unheard = append(unheard, strconv.Quote(n.ID))
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, &candidate{p: p})
	}
	switch len(unheard) {
	case 0:
	case 1:
		return nil, fmt.Errorf("%w: the cluster has not heard of %s: is it up, and does its gossip.join name a node of the cluster?", client.ErrUnknownNode, unheard[0])
	default:
		return nil, fmt.Errorf("%w: the cluster has not heard of %s: are they up, and does the gossip.join of each name a node of the cluster?", client.ErrUnknownNode, strings.Join(unheard, ", "))
	}
	m := a.rt.Map()
	if err := atEach(a.rt, all, func(c *candidate) error { return c.meet(ctx, a.rt, func() error { return c.mayCome(ctx, m) }) }); err != nil {
		return nil, err
	}
	for i, c := range all {
		q.Nodes[i].Store = hex.EncodeToString(c.store[:])
	}
	return all, nil
}

// meet does something with a node, and does it again where its connections were closed because a map came into force that has the node in another part.
func (c *candidate) meet(ctx context.Context, rt *route.Router, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, client.ErrClosed) || route.IsClosed(rt) || !base.Pause(ctx, followRest) {
			return err
		}
		if c.p, err = rt.Peer(c.p.Node); err != nil {
			return err
		}
	}
}

// mayCome asks a node whether it may come into the cluster of m.
func (c *candidate) mayCome(ctx context.Context, m *cluster.Map) error {
	st, err := c.status(ctx)
	if err != nil {
		return err
	}
	switch id := hex.EncodeToString(m.Cluster[:]); {
	case st.ClusterName != m.Name:
		return fmt.Errorf("%w: the node is of cluster %q, not %q: see its cluster.name", client.ErrOtherCluster, clipped(st.ClusterName), m.Name)
	case st.ClusterID != "" && st.ClusterID != id:
		return fmt.Errorf("%w: the node has a shard map of another cluster %q: give it an empty data directory", client.ErrOtherCluster, m.Name)
	case st.Shards.Total != len(m.Owner):
		return fmt.Errorf("%w: the node has %d shards, this cluster has %d: give it that many, and an empty data directory", client.ErrOtherCluster, st.Shards.Total, len(m.Owner))
	}
	if store, has := m.StoreOf(c.p.Node); has && store == c.store {
		return nil
	}
	q := wire.ClusterQuestion{Do: wire.ClusterJoin}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	text, err = document(ctx, c.p, wire.AdminCluster, text)
	if err != nil {
		return err
	}
	answer, err := parseAnswer(q, text)
	switch {
	case err != nil:
		return base.Caused(client.ErrProtocol, err)
	case answer.State == wire.ClusterWait:
		if base.Pause(ctx, followRest) {
			return c.mayCome(ctx, m)
		}
		return fmt.Errorf("%w: node %q cannot come yet: %s", ErrRefused, c.p.Node, whyOf(answer))
	case answer.State == wire.ClusterRefused:
		return fmt.Errorf("%w: node %q cannot come: %s", ErrRefused, c.p.Node, whyOf(answer))
	}
	return nil
}

// deliver tells the nodes that come the map that the seat has answered with. It tries until ctx ends: the task is agreed on, and its moves
// wait for these nodes.
func (a *Admin) deliver(ctx context.Context, comes []*candidate, answer ClusterAnswer) error {
	m, err := cluster.ParseMap(answer.Map)
	if now := a.rt.Map(); err == nil && m.Cluster != now.Cluster {
		err = fmt.Errorf("%v is of another cluster", m)
	}
	for _, c := range comes {
		if err != nil {
			break
		}
		if store, _ := m.StoreOf(c.p.Node); store != c.store {
			err = fmt.Errorf("%v does not have node %q with its store", m, c.p.Node)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: task %d is agreed on, and the shard map with it makes no sense: %w", client.ErrProtocol, answer.Task.ID, err)
	}
	err = atEach(a.rt, comes, func(c *candidate) error {
		for {
			err := c.meet(ctx, a.rt, func() error { return c.follow(ctx, m) })
			if err == nil || errors.Is(err, errRefusedMap) || errors.Is(err, client.ErrDenied) || !base.Pause(ctx, followRest) {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("task %d is agreed on, and not all nodes that come have taken the shard map; run it again: %w", answer.Task.ID, err)
	}
	return nil
}

// follow has a node take a map that the cluster has agreed on. It is well if the node has a later one by now: the others tell it those.
func (c *candidate) follow(ctx context.Context, m *cluster.Map) error {
	refused := c.step(ctx, wire.MapFollow, m, wire.MapCommitted)
	if !errors.Is(refused, errRefusedMap) {
		return refused
	}
	p := c.p.Begin(ctx)
	return c.p.Ask(&p, "shard-map follow", nil, func(s *session.Session) error {
		text, err := s.Document(&p, wire.DocumentMap, nil, session.MaxNews)
		if errors.Is(err, client.ErrNoMap) {
			return refused
		}
		if err != nil {
			return err
		}
		has, err := cluster.ParseMap(text)
		if err != nil {
			return s.BadNews(err)
		}
		if has.Cluster != m.Cluster || has.Version <= m.Version {
			return refused
		}
		return nil
	})
}
