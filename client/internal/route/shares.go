package route

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A call about all keys, as a scan is, asks for each share of them by itself: where shards have replicas
// for each group, which some node leads, and else for what each node owns.
//
//	share of a node     asked for at that node, and nowhere else
//	share of a group    asked for as a key of the group is (leaders.go): at whom the client believes to lead
//
// What groups there are, and which shards each has, is said at the birth of a map and does not change. So a
// call that takes its shares once goes through all keys, whatever node leads meanwhile. Once in the life of a cluster the share of a node becomes those
// of groups, when a cluster without replicas gets some: each of them has shards of one node alone, so the call goes on with these (Became).

// A Share is some of all keys.
type Share struct {
	Group uint32       // 0: those of a node
	node  *peer.Peer   // of such a share
	m     *cluster.Map // by which it is one; nil: there is one server only
}

// Shares returns what all keys are made up of: each key is in one share. It waits for a map as OwnersNow does.
func Shares(ctx context.Context, r *Router) ([]Share, error) {
	if _, err := r.OwnersNow(ctx); err != nil {
		return nil, err
	}
	t := r.table.Load()
	var shares []Share
	if list := t.groups(); list != nil {
		for _, g := range list {
			shares = append(shares, Share{Group: g.id})
		}
		return shares, nil
	}
	for _, p := range t.owners() {
		shares = append(shares, Share{node: p, m: t.m})
	}
	return shares, nil
}

// Became returns the shares of groups that a node's share has become, if a call for that has failed with err because the cluster has groups now; nil: it is as it was, and the call has failed.
func (s Share) Became(ctx context.Context, r *Router, err error) (shares []Share) {
	if s.Group != 0 || s.m == nil || s.m.Replication != nil || ctx.Err() != nil || IsClosed(r) {
		return nil
	}
	if r.table.Load().led == nil && !(elsewhere(err) || errors.Is(err, base.ErrUnsupported)) {
		return nil
	}
	for n, rest := 0, rerouteFirst; r.table.Load().led == nil; n, rest = n+1, min(2*rest, rerouteMost) {
		if r.Refresh(ctx, nil) != nil || n == maxReroutes {
			return nil
		}
		if r.table.Load().led == nil && !base.Pause(ctx, rest) {
			return nil
		}
	}
	t := r.table.Load()
	seen := make(map[uint32]bool)
	for shard, g := range t.led {
		if !seen[g.id] && s.m.OwnerOf(uint16(shard)) == s.node.Node {
			seen[g.id] = true
			shares = append(shares, Share{Group: g.id})
		}
	}
	return shares
}

// groups returns the groups that there are; nil if shards have no replicas.
func (t *table) groups() (list []*group) {
	seen := make(map[*group]bool)
	for _, g := range t.led {
		if !seen[g] {
			seen[g] = true
			list = append(list, g)
		}
	}
	return list
}

// groupOf returns the group of a share; nil: there is none.
func (t *table) groupOf(s Share) *group {
	for _, g := range t.led {
		if s.Group != 0 && g.id == s.Group {
			return g
		}
	}
	return nil
}

// At returns the peer that is asked for a share, started.
func (s Share) At(r *Router) (*peer.Peer, error) {
	if s.Group == 0 {
		return s.node, nil
	}
	g := r.table.Load().groupOf(s)
	if g == nil {
		return nil, fmt.Errorf("%w: the shard map has no group %d any more", base.ErrMoved, s.Group)
	}
	return g.leads(), nil
}

// Others returns the peers of the other replicas of a share's group, started.
func (s Share) Others(r *Router, p *peer.Peer) (others []*peer.Peer) {
	if g := r.table.Load().groupOf(s); g != nil {
		for _, o := range g.peers {
			if o != p {
				o.Start()
				others = append(others, o)
			}
		}
	}
	return others
}

// Node is the node of a share; "" if it is a group's, or of the only server there is.
func (s Share) Node() string {
	if s.Group != 0 {
		return ""
	}
	return s.node.Node
}

// Again is Router.Again for a call for a share, of a group, that has failed with err at p.
func (s Share) Again(ctx context.Context, r *Router, way *Reroute, p *peer.Peer, err error) context.Context {
	t := r.table.Load()
	g := t.groupOf(s)
	if g == nil || p == nil {
		return nil
	}
	way.wasSilent(p, err)
	next := way.again(ctx, r, g.heed(ctx, p, err), err)
	if next == nil && errors.Is(way.over, context.DeadlineExceeded) {
		p.Counts().Timeouts.Add(1) // of the call, not of each try
	}
	return next
}
