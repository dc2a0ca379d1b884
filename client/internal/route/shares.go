package route

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
)

// A call about all keys, as a scan is, asks for each share of them by itself: where shards have replicas
// for each group, which some node leads, and else for what each node owns.
//
//	share of a node     asked for at that node, and nowhere else
//	share of a group    asked for as a key of the group is (leaders.go): at whom the client believes to lead
//
// What groups there are, and which shards each has, is said at the birth of a map and does not change. So a
// call that takes its shares once goes through all keys, whatever node leads meanwhile.

// A Share is some of all keys.
type Share struct {
	Group uint32     // 0: those of a node
	node  *peer.Peer // of such a share
}

// Shares returns what all keys are made up of: each key is in one share. It waits for a map as OwnersNow does.
func Shares(ctx context.Context, r *Router) ([]Share, error) {
	peers, err := r.OwnersNow(ctx)
	if err != nil {
		return nil, err
	}
	var shares []Share
	if list := r.table.Load().groups(); list != nil {
		for _, g := range list {
			shares = append(shares, Share{Group: g.id})
		}
		return shares, nil
	}
	for _, p := range peers {
		shares = append(shares, Share{node: p})
	}
	return shares, nil
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
