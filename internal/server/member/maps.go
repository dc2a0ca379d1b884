package member

import (
	"context"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/shardmap"
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

// errAlone is what a server says that is no node of a cluster.
func errAlone() error {
	return base.Refuse(wire.StatusUnsupported, "this server is no node of a cluster")
}

// View is the document wire.DocumentView: the view of the cluster, encoded.
func (c *Member) View() ([]byte, error) {
	if c == nil {
		return nil, errAlone()
	}
	return c.shown.Load().encode(), nil
}

// Map is the document wire.DocumentMap: the shard map in force, encoded.
func (c *Member) Map() ([]byte, error) { return c.mapText((*shardmap.Book).Map, 0) }

// Promise is the document wire.DocumentPromise: the shard map that is promised, encoded.
func (c *Member) Promise() ([]byte, error) { return c.mapText((*shardmap.Book).Promised, 1) }

// An encodedMap is a map with its text, encoded once for all sessions that ask: each
// keeps the documents that it has not read to their end, and they share this one.
type encodedMap struct {
	of   *cluster.Map
	text []byte
}

func (c *Member) mapText(of func(*shardmap.Book) *cluster.Map, which int) ([]byte, error) {
	if c == nil {
		return nil, errAlone()
	}
	m := of(c.book)
	if m == nil {
		return nil, base.Refuse(wire.StatusNoMap, "")
	}
	last := c.texts[which].Load()
	if last == nil || last.of != m {
		last = &encodedMap{m, cluster.AppendMap(nil, m)}
		c.texts[which].Store(last)
	}
	return last.text, nil
}

// Change does a step with a map, which is durable before it is answered, for a client at
// peer. That its login may administer was seen to before.
func (c *Member) Change(ctx context.Context, peer string, step wire.DocumentKind, text []byte) ([]byte, error) {
	if c == nil {
		return nil, errAlone()
	}
	next, err := cluster.ParseMap(text)
	if err != nil {
		return nil, base.Refuse(wire.StatusBadRequest, "%v", err)
	}
	var answer wire.MapAnswer
	if err := c.step(ctx, step, next); err != nil {
		c.log.Warn(base.LogAlways, "a step towards a shard map is refused", "step", step.String(), "peer", peer, "map", next.String(), "err", err)
		answer.Text = []byte(err.Error())
	} else {
		c.log.Info("shard map", "step", step.String(), "peer", peer, "map", next.String())
	}
	answer.State, answer.Digest = stateOf(c, next)
	return wire.AppendMapAnswer(nil, answer), nil
}

// step does one step with a map. ctx bounds the look whether the node is empty.
func (c *Member) step(ctx context.Context, step wire.DocumentKind, m *cluster.Map) error {
	switch step {
	case wire.MapPrepare:
		err := c.book.Prepare(ctx, m)
		awaits(c)
		return err
	case wire.MapAbandon:
		err := c.book.Abandon(m)
		awaits(c)
		return err
	case wire.MapFollow:
		return c.Follow(ctx, m)
	}
	if err := c.book.Commit(m); err != nil {
		return err
	}
	c.inForce()
	return nil
}

// Follow puts a later map in force, durably. The same one again is nil. A node that has none comes into the cluster by it.
//
// Errors: those of shardmap.Book.Follow. The map may be in force all the same after an error of the disk, at the next start.
func (c *Member) Follow(ctx context.Context, m *cluster.Map) error {
	if err := c.book.Follow(ctx, m); err != nil {
		return err
	}
	c.inForce()
	return nil
}

// MayJoin returns nil if this node may come into a cluster that has a map already: it has none, and holds no keys.
func (c *Member) MayJoin(ctx context.Context) error {
	if m := c.book.Map(); m != nil && m.Has(c.id.Node) {
		return fmt.Errorf("node %q is in the cluster already", c.id.Node)
	}
	return c.node.HoldsNothing(ctx)
}

// inForce begins to serve the shards that the map gives this node. Several may call it at once.
func (c *Member) inForce() {
	c.entering.Lock()
	defer c.entering.Unlock()
	m := c.book.Map()
	if own := c.owned.Shards(); own != nil && own.Map == m {
		return
	}
	// Before anybody is answered by the map: what the store does not have as a group's is nobody's.
	if err := c.node.Replicate(m); err != nil {
		c.log.Error(base.LogAlways, "this node has none of the replicas that the shard map gives it", "err", err)
	}
	c.owned.Set(m, c.id.Node)
	c.owned.Awaited.Store(nil)
	c.node.ReleaseOwned()
	if err := c.members.SetSelf(c.self); err != nil {
		c.log.Error(base.LogAlways, "the other nodes cannot be told of the shard map", "err", err)
	}
	c.node.Bump()
}

// Outside are the nodes that are there and have a shard map in force, by gossip, where this one has none and has promised none; nil: nothing of the
// kind. Then this node was left out when the map was made, or it is in it and has lost its data directory; which of both only the map tells.
func (c *Member) Outside() (list []string) {
	if c == nil || c.members == nil {
		return nil
	}
	if state, _ := c.MapState(); state != wire.MapNone { // cluster init has every node promise before any has it in force
		return nil
	}
	for _, o := range c.members.View().Members {
		if o.ID != c.id.Node && o.MapVersion > 0 && (o.State == cluster.Alive || o.State == cluster.Suspect) {
			list = append(list, o.ID)
		}
	}
	return list
}

// OutsideText says what Outside means to an operator.
const OutsideText = "other nodes have a shard map, and this one has none: kvclient cluster init did not name it, or its data directory is not the one that it had then; " +
	"in the second case start it with its old one, and stop no other node; kvclient cluster check says which it is"

// awaits tells the node which map it has promised, or has not any more, while another one is in force.
func awaits(c *Member) {
	c.entering.Lock()
	defer c.entering.Unlock()
	if own := c.owned.Shards(); own == nil || own.Map != c.book.Map() {
		return // the map comes in force, by a call that waits for this one
	}
	m := c.book.Promised()
	c.owned.Awaited.Store(m)
	if err := c.node.Await(m); err != nil {
		c.log.Error(base.LogAlways, "this node cannot ask others whether the shard map that it has promised is in force", "err", err)
	}
}

// stateOf is what the node has of one map, or else of any.
func stateOf(c *Member, m *cluster.Map) (wire.MapState, uint64) {
	if p := c.book.Promised(); p != nil && p.Digest() == m.Digest() {
		return wire.MapPromised, p.Digest()
	}
	return c.MapState()
}

// MapState is what the node has of a map: of the one in force, if there is one.
func (c *Member) MapState() (wire.MapState, uint64) {
	if m := c.book.Map(); m != nil {
		return wire.MapCommitted, m.Digest()
	}
	if m := c.book.Promised(); m != nil {
		return wire.MapPromised, m.Digest()
	}
	return wire.MapNone, 0
}
