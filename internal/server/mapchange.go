package server

import (
	"context"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// What sessions learn of the cluster, and how they agree on its map.

// shownView is the view of the cluster that clients are told, encoded when the
// first one asks.
type shownView struct {
	view *cluster.View
	once sync.Once
	text []byte
}

func (v *shownView) encode() []byte {
	v.once.Do(func() { v.text = cluster.AppendView(nil, v.view) })
	return v.text
}

// A clusterText is what a session reads in parts. Immutable.
type clusterText struct {
	what    wire.ClusterWhat
	version uint64
	text    []byte
}

// clusterPart answers a ClusterRequest. It runs on the pool: a view of a
// thousand nodes takes time to encode.
func (r *request) clusterPart() {
	m, err := wire.ParseClusterRequest(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	c := s.srv.root.cluster
	if c == nil {
		r.fail(wire.StatusUnsupported, "this server is no node of a cluster")
		return
	}
	s.mu.Lock()
	whole := s.clusterText
	s.mu.Unlock()
	// A session that reads on has the same text; what is newer it asks for anew.
	if m.Offset == 0 || whole == nil || whole.what != m.What {
		if whole = c.text(m.What); whole == nil {
			r.noMap()
			return
		}
	}
	if uint64(m.Offset) > uint64(len(whole.text)) {
		r.fail(wire.StatusBadRequest, "offset is beyond the end")
		return
	}
	part := whole.text[m.Offset:]
	part = part[:min(len(part), s.replySize-wire.ClusterFixed)]
	s.mu.Lock()
	// Kept only for a client that has not seen its end.
	if s.clusterText = whole; int(m.Offset)+len(part) == len(whole.text) {
		s.clusterText = nil
	}
	s.mu.Unlock()
	r.answer(wire.ClusterFixed+len(part), func(dst []byte) []byte {
		return wire.AppendClusterReply(dst, r.hdr.ID, wire.ClusterReply{
			Total: uint32(len(whole.text)), Offset: m.Offset, Version: whole.version, Data: part,
		})
	})
}

// text is the whole of what a request asks for; nil if there is no such map.
func (c *clustered) text(what wire.ClusterWhat) *clusterText {
	m := c.book.Map()
	switch what {
	case wire.ClusterView:
		v := c.shown.Load()
		return &clusterText{what, v.view.Version, v.encode()}
	case wire.ClusterPromise:
		m = c.book.Promised()
	}
	if m == nil {
		return nil
	}
	return &clusterText{what, m.Version, cluster.AppendMap(nil, m)}
}

// mapChange takes a map in, or a part of one, and does a step with it. It runs
// on the pool: a step is durable before it is answered. That the session has the
// admin right was seen to (permit).
func (r *request) mapChange() {
	m, err := wire.ParseMapChange(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	c := s.srv.root.cluster
	switch {
	case c == nil:
		r.fail(wire.StatusUnsupported, "this server is no node of a cluster")
		return
	case m.Total > cluster.MaxMap:
		r.fail(wire.StatusTooLarge, "the map is larger than a map can be")
		return
	}
	s.mu.Lock()
	if m.Offset == 0 {
		s.mapParts = nil
	}
	if int(m.Offset) != len(s.mapParts) {
		s.mapParts = nil
		s.mu.Unlock()
		r.fail(wire.StatusBadRequest, "the parts of a map come in order")
		return
	}
	s.mapParts = append(s.mapParts, m.Data...)
	whole := s.mapParts
	done := len(whole) == int(m.Total)
	if done {
		s.mapParts = nil
	}
	s.mu.Unlock()
	text := ""
	if done {
		next, err := cluster.ParseMap(whole)
		if err != nil {
			r.fail(wire.StatusBadRequest, err.Error())
			return
		}
		if err := c.step(s.ctx, m.Step, next); err != nil {
			s.srv.log.Warn(limitNone, "a step towards a shard map is refused", "step", m.Step.String(), "peer", s.peer, "map", next.String(), "err", err)
			text = err.Error()
		} else {
			s.srv.log.Info("shard map", "step", m.Step.String(), "peer", s.peer, "map", next.String())
		}
	}
	state, digest := c.mapState()
	r.answer(wire.MapChangeReplySize, func(dst []byte) []byte {
		return wire.AppendMapChangeReply(dst, r.hdr.ID, wire.MapChangeReply{State: state, Digest: digest, Text: []byte(text)})
	})
}

// step does one step with a map. ctx bounds the look whether the node is empty.
func (c *clustered) step(ctx context.Context, step wire.MapStep, m *cluster.Map) error {
	switch step {
	case wire.MapPrepare:
		return c.book.Prepare(ctx, m)
	case wire.MapAbandon:
		return c.book.Abandon(m)
	}
	if err := c.book.Commit(m); err != nil {
		return err
	}
	c.inForce()
	return nil
}

// inForce begins to serve the shards that the map gives this node.
func (c *clustered) inForce() {
	m := c.book.Map()
	if own := c.owned.Load(); own != nil && own.m == m {
		return
	}
	c.owned.Store(newOwnership(m, c.id.Node))
	for _, sp := range c.srv.everySpace() {
		sp.releaseOwned()
	}
	if err := c.members.SetSelf(c.self); err != nil {
		c.srv.log.Error(limitNone, "the other nodes cannot be told of the shard map", "err", err)
	}
	c.bump()
}

// mapState is what the node has of a map.
func (c *clustered) mapState() (wire.MapState, uint64) {
	if m := c.book.Map(); m != nil {
		return wire.MapCommitted, m.Digest()
	}
	if m := c.book.Promised(); m != nil {
		return wire.MapPromised, m.Digest()
	}
	return wire.MapNone, 0
}

// bump has all clients of the node come for what is new.
func (c *clustered) bump() {
	for _, sp := range c.srv.everySpace() {
		sp.Bump()
	}
}
