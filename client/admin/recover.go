package admin

import (
	"context"
	"errors"
	"fmt"
	stdmaps "maps"
	"slices"
	"strings"
	"sync"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A RecoverRequest says which group is to be replaced by a new one, and of what.
type RecoverRequest struct {
	Group uint32 // 0: the meta group, of which From makes a new one by itself
	From  string // the node whose replica the new group is made of
	// AcceptLoss says that the voters which do not answer are down and never come back with what they have, and that what From lacks is lost. Without it, and without Dry, the
	// cluster refuses, and says what would be lost.
	AcceptLoss bool
	Dry        bool // say what would be lost, and do nothing
}

// A ClusterLoss is what a group loses that is recovered, as far as the nodes that answer know. The texts in it are the nodes' own, and may steer a terminal.
type ClusterLoss = wire.ClusterLoss

// Recover has a new group take the place of one that has lost its majority for good. It returns when the cluster has agreed on that; the node makes the new group then, within
// seconds, and calls for its keys succeed again. The new group has one replica: SetReplicas gives it others, and Rebalance the meta group. A group that was recovered from that node before is no error
// (Loss.Done). To call it again after any error does no harm.
//
// Nobody can know whether nodes that do not answer are down. If they live, and go on with the old group, what they acknowledge is lost when they hear of the new one, and until then there are two answers to a get.
//
// For group 0 all nodes that this client reaches are asked for their shard maps first, because the node may reach fewer: it is refused if another one has made the meta group anew, or if there are two.
//
// Errors: client.ErrOptions for what no cluster could do; ErrRefused with the reason of the cluster: the group has a leader or a majority that answers, the node's replica is no beginning of a group or
// another one has more, or the loss was not accepted. The others are those of Change. It needs the admin right.
func (a *Admin) Recover(ctx context.Context, r RecoverRequest) (ClusterAnswer, error) {
	if err := cluster.CheckNodeID(r.From); err != nil {
		return ClusterAnswer{}, a.fail("cluster-recover", nil, fmt.Errorf("%w: %w", client.ErrOptions, err))
	}
	q := wire.ClusterQuestion{Do: wire.ClusterRecover, Group: r.Group, From: r.From, Accept: r.AcceptLoss, Dry: r.Dry}
	if r.Group != 0 {
		return a.simple(ctx, q)
	}
	return a.atSeat(ctx, q, func(ctx context.Context) (ClusterAnswer, error) {
		if err := a.oneMeta(ctx, r.From); err != nil {
			return ClusterAnswer{}, err
		}
		return a.askOne(ctx, q, r.From)
	})
}

// askOne asks one node, whether it is the seat or not.
func (a *Admin) askOne(ctx context.Context, q wire.ClusterQuestion, node string) (ClusterAnswer, error) {
	s, err := newSeeker(a.rt, q)
	if err != nil {
		return ClusterAnswer{}, err
	}
	switch answer, err := s.at(ctx, node); {
	case err != nil:
		return ClusterAnswer{}, err
	case answer.State == wire.ClusterRefused:
		return ClusterAnswer{}, fmt.Errorf("%w: %s", ErrRefused, whyOf(answer))
	case answer.State == wire.ClusterTaken || answer.State == wire.ClusterPlan:
		return answer, nil
	default:
		return ClusterAnswer{}, fmt.Errorf("%w: node %q: %s; to ask again does no harm", client.ErrOutcomeUnknown, node, whyOf(answer))
	}
}

// oneMeta returns nil if a node may be asked to make the meta group anew, as far as the nodes that this client reaches know: ErrRefused if another one has made it, or there are two. Nodes that do not
// answer say nothing.
func (a *Admin) oneMeta(ctx context.Context, from string) error {
	s, err := newSeeker(a.rt, wire.ClusterQuestion{Do: wire.ClusterTasks})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(a.rt.Config().Timeout, seatQuick))
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var twin error
	maps := make(map[string]*cluster.Map)
	for _, node := range s.nodes(0) { // cluster.MaxNodes at most
		wg.Go(func() {
			m, err := a.mapOf(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				maps[node] = m
			case errors.Is(err, cluster.ErrTwoMetas): // the client goes by one of them, and does not speak with nodes of the other one
				twin = fmt.Errorf("%w: %w", ErrRefused, err)
			}
		})
	}
	wg.Wait()
	if twin != nil {
		return twin
	}
	newest := ""
	for _, node := range slices.Sorted(stdmaps.Keys(maps)) {
		for _, other := range slices.Sorted(stdmaps.Keys(maps)) {
			if x, y := maps[node], maps[other]; x.Parts(y.Version, y.Life()) && y.Parts(x.Version, x.Life()) {
				return fmt.Errorf("%w: %w: nodes %q and %q go by different ones; stop the nodes of one of them (docs/failures.md)", ErrRefused, cluster.ErrTwoMetas, node, other)
			}
		}
		if newest == "" || maps[node].Version > maps[newest].Version {
			newest = node
		}
	}
	if newest == "" {
		return nil
	}
	m, own := maps[newest], maps[from]
	if own == nil || own.Generation() >= m.Generation() {
		return nil
	}
	var has []string
	for _, p := range m.Replication.Meta.Replicas {
		has = append(has, m.Nodes[p.Node].ID)
	}
	return fmt.Errorf("%w: node %q has shard map %d, by which the meta group was made anew before, at %s, and node %q has not heard of it: see that they reach each other", ErrRefused, newest, m.Version, strings.Join(has, ", "), from)
}

// mapOf is the shard map that a node has in force.
func (a *Admin) mapOf(ctx context.Context, node string) (m *cluster.Map, err error) {
	to, err := a.rt.Peer(node)
	if err != nil {
		return nil, err
	}
	p := to.Begin(ctx)
	err = to.Ask(&p, "shard-map", nil, func(s *session.Session) error {
		text, err := s.Document(&p, wire.DocumentMap, nil, session.MaxNews)
		if err == nil {
			if m, err = cluster.ParseMap(text); err != nil {
				return s.BadNews(err)
			}
		}
		return err
	})
	return m, err
}
