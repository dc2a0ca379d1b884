package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// Shards with replicas. A group of shards is led by one of its replicas, and which one that is
// changes by itself, without another map. So a table has, for each group, whom the client believes
// to lead, and a call goes there:
//
//	key ──ShardOf──▶ shard ──map──▶ group ──seat──▶ node ──table──▶ peer.Peer
//
// That is a belief and nothing more: a replica that does not lead says so, changes nothing, and
// names the leader if it knows it. A node that says nothing, or cannot be reached, is left by
// all calls at once, for the next replica in order; one that says nothing is asked for
// peer.Silence. While nobody leads, calls go round among the replicas, with a rest before
// each try, until their time is over: an election takes a moment, and how many tries it takes
// says nothing, so these are not counted as moves by a map are (reroute.go).
//
//	believed at first    the first replica, which leads where it can
//	told by a replica    is believed if its term is higher than all that were heard of, or if it is of the
//	                     highest one and nobody was told to lead that; so two nodes that
//	                     name each other are not followed round and round
//	not believed         a node that names itself, another group, or a node that nobody knows; one that the map has no
//	                     replica at may have one by now (strangers.go)
//	not followed         to a node that is away; it is looked for meanwhile (Replica.Seek). Nor, for a moment, to one that has
//	                     not answered a call just now, unless in a higher term: who names it has not noticed yet

const (
	leaderRestFirst = 10 * time.Millisecond
	leaderRestMost  = 100 * time.Millisecond
)

// A group is the replicas of some shards, as a table leads to them.
type group struct {
	id     uint32
	nodes  []string     // at least one; the first leads where it can; behind those of the map strangers (strangers.go)
	mapped int          // how many of the nodes are of the map
	peers  []*peer.Peer // of the nodes
	seat   *seat        // of all tables that have the group
	router *Router
	m      *cluster.Map // by which it is led
}

// A seat is who is believed to lead a group, and the names of the writes to it. Any call may replace the belief, by compare and swap.
//
// Each group has slots of its own, because its log puts the requests of a slot in order, and no other group's does: else a newer request of
// the slot, in another group, could be known at a replica before what became of the older one is.
type seat struct {
	atomic.Pointer[leader]
	names  *peer.IDs
	fresh  *Fresh
	config atomic.Uint64 // the newest configuration that a leader has told of
}

// A leader is such a belief. It is immutable.
type leader struct {
	node string
	term uint64 // the highest that was heard of
	told bool   // a replica has named the node for the term; else it is the next one to try
	news bool   // another replica told of the term since the last one that was believed to lead was left
}

// groups makes what a table of the map leads by, for each shard; nil for a map without replicas. Of
// groups that there were before, old, it keeps the seats: groups are the same for ever. r.mu is held.
func groups(r *Router, m *cluster.Map, peers map[string]*peer.Peer, old []*group) []*group {
	if m == nil || m.Replication == nil {
		return nil
	}
	before := make(map[uint32]*group)
	for _, g := range old {
		before[g.id] = g
	}
	list := make([]*group, len(m.Replication.Groups))
	for i := range list {
		of := &m.Replication.Groups[i]
		g := &group{id: of.ID, router: r, m: m}
		for _, replica := range of.Replicas {
			g.nodes = append(g.nodes, m.Nodes[replica.Node].ID)
		}
		g.mapped = len(g.nodes)
		for _, id := range r.strangers.of[of.ID] {
			if !slices.Contains(g.nodes, id) {
				g.nodes = append(g.nodes, id)
			}
		}
		for _, id := range g.nodes {
			g.peers = append(g.peers, peers[id])
		}
		if was := before[of.ID]; was != nil {
			g.seat = was.seat
			g.reseat(was)
		} else {
			slots := min(r.cfg.MaxInflight, maxSlots/len(list))
			g.seat = &seat{names: peer.NewIDs(i*slots, slots, r.cfg.MaxWaiting), fresh: newFresh(g.nodes, peer.LeaseClock(r.world))}
			g.seat.Store(&leader{node: g.nodes[0]})
		}
		list[i] = g
	}
	led := make([]*group, len(m.Replication.Group))
	for shard, i := range m.Replication.Group {
		led[shard] = list[i]
	}
	return led
}

// reseat has what is believed of a group hold for other replicas than it had before, was. A leader that has none any more is not believed,
// and if nobody has ever been told to lead the first one is tried, which may be another one now. What has been learned of a replica for gets
// that may be old ends with it.
func (g *group) reseat(was *group) {
	for {
		h := g.seat.Load()
		guessed := !h.told && h.term == 0 && h.node == was.nodes[0]
		if slices.Contains(g.nodes, h.node) && !guessed {
			break
		}
		if g.seat.CompareAndSwap(h, &leader{node: g.nodes[0], term: h.term, news: h.news}) {
			break
		}
	}
	if seen := g.seat.fresh.Seen(); seen != nil && !slices.Contains(g.peers, seen.Peer) {
		g.seat.fresh.Drop(seen)
	}
}

// at is the index of a node among the replicas; that of the first if it has none, as when a
// call of an older table, or of a newer one, has named it.
func (g *group) at(node string) int { return max(slices.Index(g.nodes, node), 0) }

// leads is the peer of the node that is believed to lead, or of another replica if that is away.
func (g *group) leads() *peer.Peer {
	i := g.at(g.seat.Load().node)
	if g.peers[i].Replica.Away() && g.near(i) != i {
		g.leave(g.nodes[i], 0)
		i = g.at(g.seat.Load().node)
	}
	g.peers[i].Start()
	return g.peers[i]
}

// near is the next replica behind i that is not away, and that has answered lately if there is one that has; i if there is none.
func (g *group) near(i int) int {
	best := i
	for n := 1; n < len(g.nodes); n++ {
		j := (i + n) % len(g.nodes)
		switch r := &g.peers[j].Replica; {
		case r.Away():
		case !r.Silent():
			return j
		case best == i:
			best = j
		}
	}
	return best
}

// leave ends the belief that a node leads, for all calls, and notes the term that was heard of, if it was the node that told. One that tells
// is asked again, after a rest, if none of the others has answered lately. Of a node that has no replica by this table nothing was believed.
func (g *group) leave(node string, term uint64) {
	i := slices.Index(g.nodes, node)
	if i < 0 {
		return
	}
	j := g.near(i)
	switch {
	case term > 0 && g.peers[j].Replica.Silent():
		j = i
	case j == i:
		j = (i + 1) % len(g.nodes)
	}
	for {
		h := g.seat.Load()
		if g.at(h.node) != i { // another call has left it
			return
		}
		if g.seat.CompareAndSwap(h, &leader{node: g.nodes[j], term: max(h.term, term), news: term > 0}) {
			return
		}
	}
}

// told takes in that the replica at a node does not lead, as it has said by a session, nil if that is over, and reports whether another one
// is believed to.
func (g *group) told(by string, s *session.Session, said *session.NotLeader) bool {
	if said.Group != g.id {
		g.leave(by, 0)
		return false
	}
	named := slices.Index(g.nodes, said.Leader)
	if named < 0 && said.Leader != "" {
		now := takeIn(g.router, g, said.Leader)
		g.router.strangers.look(g.router, s)
		if now != nil && slices.Contains(now.nodes, said.Leader) {
			return now.told(by, s, said)
		}
	}
	if named >= 0 && said.Leader != by {
		switch r := &g.peers[named].Replica; {
		case r.Away():
			r.Seek()
			named = -1
		case r.Silent():
			// The others have not noticed yet. Which term it led in is known once one of them has told that: who never had to ask has not heard of
			// that term, and it would look like one in which it was elected since.
			if h := g.seat.Load(); said.Term <= h.term || !h.news {
				named = -1
			}
		}
	}
	for {
		h := g.seat.Load()
		switch {
		case named >= 0 && said.Leader != by && (said.Term > h.term || said.Term == h.term && !h.told):
			if !g.seat.CompareAndSwap(h, &leader{node: said.Leader, term: said.Term, told: true}) {
				continue
			}
			return true
		case g.at(h.node) != slices.Index(g.nodes, by): // another call knows better, or another table
			return true
		}
		g.leave(by, said.Term)
		return false
	}
}

// A step is what becomes of a call that has failed.
type step uint8

const (
	stepOver step = iota // it has failed
	stepMap              // to where a newer map leads
	stepRest             // to the next replica, after a rest
	stepLed              // to the replica that leads
)

// ErrPutOff: a try at a replica was not made, and is made later. It tells nothing of the node.
var ErrPutOff = errors.New("the try was put off")

// PutOff adds ErrPutOff to the error of a try whose time was over in our own queues.
func PutOff(err error) error {
	if base.IsNotSent(err) && base.TimeOver(err) && !errors.Is(err, context.Canceled) {
		return base.Caused(ErrPutOff, base.Plain(err))
	}
	return base.Plain(err)
}

// heed learns of a call for key that has failed at a peer with err, nil if it came to none,
// and says what becomes of it.
func (t *table) heed(ctx context.Context, p *peer.Peer, key []byte, err error) step {
	if t.led == nil || p == nil || !p.Led() { // !p.Led(): the call was made at a node that had the key alone, before there were groups
		return stepMap
	}
	return t.led[cluster.ShardOf(key, len(t.led))].heed(ctx, p, err)
}

// heed learns of a call for keys of the group that has failed at a peer with err, and says what becomes of it.
func (g *group) heed(ctx context.Context, p *peer.Peer, err error) step {
	next := g.heard(ctx, p, err)
	if next != stepLed && next != stepOver && g.isStranger(p.Node) && !errors.As(err, new(*session.NotLeader)) {
		fails(g.router, g, p.Node)
	}
	return next
}

// heard is heed for a node of the map.
func (g *group) heard(ctx context.Context, p *peer.Peer, err error) step {
	said, moved := (*session.NotLeader)(nil), (*session.Moved)(nil)
	switch {
	case errors.As(err, &said):
		if g.told(p.Node, p.Current(), said) {
			return stepLed
		}
		return stepRest
	case errors.As(err, &moved):
		g.leave(p.Node, 0)
		if moved.Version < g.m.Version || moved.Version == g.m.Version && moved.Digest == g.router.table.Load().digest {
			return stepRest // it does not have the replica yet, or no more: that is no reason to ask for a map
		}
		return stepMap
	case errors.Is(err, base.ErrNoMap):
		g.leave(p.Node, 0)
		return stepRest // it comes into the cluster
	case errors.Is(err, base.ErrClosed):
		g.leave(p.Node, 0)
		if !slices.Contains(g.peers, p) && g.router.done.Err() == nil {
			return stepLed // its node has left the map, or has come back since
		}
		return stepMap
	case errors.Is(err, ErrPutOff) && !base.TimeOver(err):
		return stepRest
	case OfNode(err):
		// That the caller has little time, or waited here, tells nothing of a node that has answered lately.
		ours := ctx.Err() != nil || errors.Is(err, ErrPutOff)
		if s := p.Current(); !ours || s == nil || s.Quiet() > peer.Silence {
			if base.TimeOver(err) {
				p.Replica.Mute()
			}
			g.leave(p.Node, 0)
		}
		return stepRest
	}
	return stepOver
}

// OfNode reports whether a try at a replica has failed because of its node, and not because
// of what was asked: it was not reached, was lost, did not answer in time, does not know.
func OfNode(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	for _, e := range []error{base.ErrUnavailable, base.ErrLost, base.ErrClosing, base.ErrLate, base.ErrTimeout, context.DeadlineExceeded, base.ErrOutcomeUnknown} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// onward is Router.Again for a call that goes on among the replicas of its group.
func (r *Reroute) onward(ctx context.Context, timeout time.Duration, next step, silent bool) context.Context {
	r.led = true
	if r.over = ctx.Err(); r.over != nil {
		return nil
	}
	ctx = r.bound(ctx, timeout)
	if silent { // the leader may be slow: it has more time when it is asked again
		r.patience = 4 * max(r.patience, min(peer.Silence, timeout/4))
	}
	if next == stepLed && r.followed < maxReroutes {
		r.followed++
		return ctx
	}
	r.rest = min(max(2*r.rest, leaderRestFirst), leaderRestMost)
	if !base.Pause(ctx, r.rest) {
		r.over = ctx.Err()
		return nil
	}
	return ctx
}

// unled is why a call has failed whose time was over while it looked for a leader: why is of
// its last try.
func unled(why, over error) error {
	if errors.Is(over, context.Canceled) {
		return over
	}
	const text = "no node has answered as the leader of the group, at last"
	if errors.Is(why, base.ErrUnavailable) || errors.Is(why, base.ErrOverloaded) {
		return fmt.Errorf("%w: %s: %w: %w", base.ErrUnavailable, text, why, base.AsTimeout(over))
	}
	// That a node does not lead, say, is not what has happened to the call, so it is there as text.
	return fmt.Errorf("%w: %s: %v: %w", base.ErrUnavailable, text, why, base.AsTimeout(over))
}

// A Led is the replicas of a key's group. The zero value is that of a key which has none.
type Led struct{ g *group }

// LedOf returns the replicas of a key, by the map in force.
func LedOf(r *Router, key []byte) Led {
	led := r.table.Load().led
	if led == nil {
		return Led{}
	}
	return Led{led[cluster.ShardOf(key, len(led))]}
}

// IsNone reports whether there are none.
func (l Led) IsNone() bool { return l.g == nil }

// Group is the group's id.
func (l Led) Group() uint32 { return l.g.id }

// Leader is the peer of the node that is believed to lead, started.
func (l Led) Leader() *peer.Peer { return l.g.leads() }

// Has reports whether a node has one of the replicas.
func (l Led) Has(node string) bool { return slices.Contains(l.g.nodes, node) }

// Len is how many replicas there are.
func (l Led) Len() int { return len(l.g.nodes) }

// At is replica i behind that of a node, 0 ≤ i < Len: its node, and its peer, started.
func (l Led) At(node string, i int) (string, *peer.Peer) {
	i = (l.g.at(node) + i) % len(l.g.nodes)
	l.g.peers[i].Start()
	return l.g.nodes[i], l.g.peers[i]
}

// Names are those of all writes to the group of a key, if shards have replicas; else nil, whatever the key. (peer.Directory)
func (r *Router) Names(key []byte) *peer.IDs {
	led := r.table.Load().led
	if led == nil {
		return nil
	}
	return led[cluster.ShardOf(key, len(led))].seat.names
}

// maxSlots is how many slots the names of a client can have.
const maxSlots = 1 << 16
