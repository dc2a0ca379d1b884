// Package route leads a call to its server.
//
//	key ──ShardOf──▶ shard ──map──▶ node ──table──▶ peer.Peer
//
// Router is what a Client is: a table that is replaced and never changed, with the peers of
// the nodes in the shard map, or with the only server there is. Owner answers for one key,
// Many for several; Reroute and Router.Again are for a call that a node has sent elsewhere
// (reroute.go). Where shards have replicas, leaders.go knows which of them is asked. What nodes say
// of their cluster is judged in learn.go.
//
// Lock order: Router.mu is a leaf, but for the making of peers. No peer is closed and no
// call is made with it held.
package route

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/world"
)

// A Router is what leads a Client's calls to servers: to the nodes of a cluster, or to a
// single server, which owns every key.
//
//	key ──ShardOf──▶ shard ──map──▶ node ──table──▶ peer ──▶ session
//
// The map is law and comes from the nodes, each of which keeps it durably; the
// view, which says where a node listens, is gossip, which is a hint. So a hint
// decides which address is tried and nothing else: the server that answers must
// know the secret, say that it is the node that was wanted, and have no other map
// (learn.go).
//
// Peers are made when a map or a caller names them and connect when a call needs
// them. They share nothing, so a node that is away costs its own calls alone.
type Router struct {
	cfg   *base.Config
	world world.World
	log   *slog.Logger
	table atomic.Pointer[table] // never nil

	client [16]byte // random; the peers' that may share names; under mu, because it is another one when a cluster gets groups

	bufferBytes atomic.Int64 // of all Buffers of the program
	besideOnce  sync.Once
	beside      any // see Beside

	done    context.Context
	cancel  context.CancelFunc
	lookDue chan struct{} // cap 1: a node could not be reached
	wg      sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	told       *cluster.View // the last one that was taken
	members    map[string]*memberSeen
	tellers    map[string]teller       // by node: whose view was taken last
	ways       map[string][]string     // addresses of Config.Servers that have led to a node
	leaving    map[*peer.Peer]struct{} // peers that are being closed
	past       base.Counters           // of peers that have been
	strangers  strangers
	refreshing *refresh // a refresh under way
	away       error    // of the last askMapped: mapAway
}

// A table is where keys lead. It is immutable, so a call sees one map and the
// peers of that map.
type table struct {
	only   *peer.Peer   // the only server there is; then the rest is empty, but for peers
	m      *cluster.Map // nil: the cluster has none yet
	digest uint64
	owner  []*peer.Peer          // by shard
	led    []*group              // by shard, if they have replicas; else nil (leaders.go)
	peers  map[string]*peer.Peer // by node: those of the map, and others that were asked for
}

func newRouter(cfg *base.Config, w world.World) *Router {
	own := *cfg
	f := &Router{
		cfg: &own, world: w, log: cfg.Logger, lookDue: make(chan struct{}, 1),
		members: make(map[string]*memberSeen), tellers: make(map[string]teller), ways: make(map[string][]string),
		leaving: make(map[*peer.Peer]struct{}),
	}
	f.strangers.born = time.Now()
	crand.Read(f.client[:])
	f.table.Store(&table{peers: map[string]*peer.Peer{}})
	f.done, f.cancel = context.WithCancel(context.Background())
	return f
}

// Owner returns the peer that serves key, or is believed to (leaders.go), started. It fails with
// ErrNoMap.
func (r *Router) Owner(key []byte) (*peer.Peer, error) {
	t := r.table.Load()
	if t.only != nil {
		return t.only, nil
	}
	if t.m == nil {
		return nil, base.ErrNoMap
	}
	shard := cluster.ShardOf(key, len(t.owner))
	if t.led != nil {
		return t.led[shard].leads(), nil
	}
	p := t.owner[shard]
	p.Start()
	return p, nil
}

// Owns reports whether the node alone has the shard of key, by the map in force.
func (r *Router) Owns(node string, key []byte) bool {
	t := r.table.Load()
	return t.m != nil && t.led == nil && t.m.Owns(node, cluster.ShardOf(key, len(t.owner)))
}

// Owners returns the peers of all nodes that own shards, awake, by node id.
func (r *Router) Owners() []*peer.Peer { return r.table.Load().owners() }

// owners is Owners by one table.
func (t *table) owners() []*peer.Peer {
	if t.only != nil {
		return []*peer.Peer{t.only}
	}
	var peers []*peer.Peer
	if t.m == nil {
		return nil
	}
	used := make([]bool, len(t.m.Nodes))
	for _, i := range t.m.Owner {
		used[i] = true
	}
	for i, n := range t.m.Nodes {
		if used[i] {
			p := t.peers[n.ID]
			p.Start()
			peers = append(peers, p)
		}
	}
	return peers
}

// OwnersNow is Owners for calls that must have them: it asks for a map if there is none,
// and waits for one as calls for keys do (reroute.go).
func (r *Router) OwnersNow(ctx context.Context) ([]*peer.Peer, error) {
	if peers := r.Owners(); peers != nil {
		return peers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	for rest, told := rerouteFirst, false; ; rest = min(2*rest, rerouteMost) {
		err := r.Refresh(ctx, nil)
		peers := r.Owners()
		switch {
		case peers != nil:
			return peers, nil
		case err != nil && !told:
			return nil, err
		case err != nil: // a node has said before that there is none
			return nil, (&Reroute{over: ctx.Err(), away: r.mapAway()}).Because(base.ErrNoMap)
		}
		told = true
		tellWaiting(r, (&Reroute{away: r.mapAway()}).Because(base.ErrNoMap))
		if !base.Pause(ctx, rest) {
			return nil, (&Reroute{over: ctx.Err(), away: r.mapAway()}).Because(base.ErrNoMap)
		}
	}
}

// IsClosed says whether the client is closed. A call that fails with ErrClosed while it is not was at a node that has left the map.
func IsClosed(r *Router) bool { return r.done.Err() != nil }

// Peer returns the peer of a node, awake: of one in the map or one that gossip
// has told of. ErrUnknownNode.
func (r *Router) Peer(node string) (*peer.Peer, error) {
	t := r.table.Load()
	if t.only != nil {
		if node != "" && node != t.only.Info().Node {
			return nil, fmt.Errorf("%w: %q; there is one server only", base.ErrUnknownNode, node)
		}
		return t.only, nil
	}
	p := t.peers[node]
	if p == nil {
		r.mu.Lock()
		switch {
		case r.closed:
			r.mu.Unlock()
			return nil, base.ErrClosed
		case r.members[node] == nil && len(r.ways[node]) == 0:
			known := slices.Sorted(maps.Keys(r.members))
			r.mu.Unlock()
			return nil, fmt.Errorf("%w: %q; known are %q", base.ErrUnknownNode, node, known)
		}
		if p = r.table.Load().peers[node]; p == nil {
			p = r.addPeerLocked(node)
		}
		r.mu.Unlock()
	}
	p.Start()
	return p, nil
}

// addPeerLocked makes the peer of a node that no map has named.
func (r *Router) addPeerLocked(node string) *peer.Peer {
	old := r.table.Load()
	t := *old
	t.peers = maps.Clone(old.peers)
	p := newPeer(r, node, old.m)
	t.peers[node] = p
	r.table.Store(&t)
	return p
}

// newPeer makes a peer that is asleep, for use by the map. Where shards have no replicas its
// names are its own: one for a node that has come back begins to count anew, so it is another client to
// it. While there is no map, there may be one with replicas soon. Caller holds mu.
func newPeer(r *Router, node string, m *cluster.Map) *peer.Peer {
	client := r.client
	if m != nil && m.Replication == nil {
		crand.Read(client[:])
	}
	return peer.New(r.cfg, r.world, node, r, client)
}

// alone makes the router one of a single server, for good.
func (r *Router) alone(p *peer.Peer) {
	r.table.Store(&table{only: p, peers: map[string]*peer.Peer{"": p}})
}

// Only is the single server; nil in a cluster.
func (r *Router) Only() *peer.Peer { return r.table.Load().only }

// adopt makes the peer of the first session one of the router's.
func (r *Router) adopt(p *peer.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	node := p.Node
	old := r.table.Load()
	if asleep := old.peers[node]; asleep != nil { // made by the map
		asleep.GiveUp()
	}
	t := *old
	t.peers = maps.Clone(old.peers)
	t.peers[node] = p
	if t.m != nil {
		t.owner, t.led = owners(t.m, t.peers), groups(r, t.m, t.peers, t.led)
	}
	r.table.Store(&t)
}

// installLocked puts a map into force, which has been judged by the caller, and
// closes the peers that it names no more.
func (r *Router) installLocked(m *cluster.Map) {
	old := r.table.Load()
	grouped := m.Replication != nil && old.m != nil && old.m.Replication == nil
	if grouped {
		// The cluster got groups, which know the requests that their nodes have answered. Names of writes count anew, by group, so they are those of another client: else a
		// first write would be taken for one that was answered before, and be lost.
		crand.Read(r.client[:])
		for _, p := range old.peers {
			peer.Part(p)
		}
	}
	t := &table{m: m, digest: m.Digest(), peers: make(map[string]*peer.Peer)}
	for _, n := range m.Nodes {
		p := old.peers[n.ID]
		if p != nil && m.Replication != nil && p.ClientID() != r.client {
			r.retireLocked(p) // it is of a time without replicas, and another client to its node
			p = nil
		}
		if p == nil {
			p = newPeer(r, n.ID, m)
		}
		t.peers[n.ID] = p
	}
	for id, p := range old.peers {
		switch {
		case t.peers[id] != nil:
		case grouped || old.m != nil && old.m.Has(id) || r.strangers.made[id]:
			r.retireLocked(p)
			delete(r.ways, id) // if the node is there still, gossip knows where
		default:
			t.peers[id] = p // asked for by name: not ours to close
		}
	}
	r.strangers.known()
	t.owner, t.led = owners(m, t.peers), groups(r, m, t.peers, old.led)
	r.table.Store(t)
	r.log.Info("shard map", "cluster", m.Name, "version", m.Version, "nodes", len(m.Nodes), "shards", len(m.Owner))
}

func owners(m *cluster.Map, peers map[string]*peer.Peer) []*peer.Peer {
	owner := make([]*peer.Peer, len(m.Owner))
	for shard, i := range m.Owner {
		owner[shard] = peers[m.Nodes[i].ID]
	}
	return owner
}

// retireLocked closes a peer that no call is led to any more, when those under
// way there are done, at the latest after Config.Timeout: then they are made
// again elsewhere, or end with ErrOutcomeUnknown.
func (r *Router) retireLocked(p *peer.Peer) {
	r.leaving[p] = struct{}{}
	r.log.Info("node has left the shard map", "node", p.Node)
	r.wg.Go(func() {
		if s := p.Current(); s != nil {
			s.UntilIdle()
		}
		if err := p.Close(); err != nil {
			r.log.Warn("closing a node's connection", "node", p.Node, "err", err)
		}
		n := p.Counters()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.leaving, p)
		base.AddCounters(&r.past, &n)
	})
}

// Close closes every peer, side by side; a second call does nothing.
func (r *Router) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	peers := slices.AppendSeq(slices.Collect(maps.Keys(r.leaving)), maps.Values(r.table.Load().peers))
	r.mu.Unlock()
	r.cancel()
	errs := make([]error, 0, len(peers))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			if err := p.Close(); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.wg.Wait()
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Unreachable has the router look for news: a node cannot be reached where it was.
func (r *Router) Unreachable(string) {
	select {
	case r.lookDue <- struct{}{}:
	default:
	}
}

// lookRest is about the least time between two looks for which no call waits.
const lookRest = time.Second

// keep looks for news when a look is due.
func (r *Router) keep() {
	for {
		select {
		case <-r.lookDue:
		case <-r.done.Done():
			return
		}
		ctx, cancel := context.WithTimeout(r.done, r.cfg.Timeout)
		if err := r.Refresh(ctx, r.strangers.at.Swap(nil)); err != nil && r.done.Err() == nil {
			r.log.Info("no news of the cluster", "err", err)
		}
		cancel()
		t := time.NewTimer(lookRest/2 + rand.N(lookRest))
		select {
		case <-t.C:
		case <-r.done.Done():
			t.Stop()
			return
		}
	}
}

// Known returns the peers that there are, by node id.
func (r *Router) Known() []*peer.Peer {
	return slices.SortedFunc(maps.Values(r.table.Load().peers), func(a, b *peer.Peer) int { return cmp.Compare(a.Node, b.Node) })
}

// Counters sums up all peers, those that are closed included.
func (r *Router) Counters() base.Counters {
	r.mu.Lock()
	sum, peers := r.past, slices.Collect(maps.Keys(r.leaving))
	peers = slices.AppendSeq(peers, maps.Values(r.table.Load().peers))
	r.mu.Unlock()
	for _, p := range peers {
		n := p.Counters()
		base.AddCounters(&sum, &n)
	}
	return sum
}

// Dial makes the router of a client, whose first session says whether the server is a node
// of a cluster. cfg is valid and complete; what the client has in place of the machine comes
// by ctx (world). It fails as Dial does, with an *Error.
func Dial(ctx context.Context, cfg *base.Config) (*Router, error) {
	w := world.From(ctx)
	f := newRouter(cfg, w)
	var dir peer.Directory
	if !cfg.Direct {
		dir = f
	}
	p := peer.New(cfg, w, "", dir, f.client)
	s, err := p.Dial(ctx)
	if err != nil {
		p.Release()
		f.Close()
		return nil, p.Fail("dial", nil, "", err)
	}
	if s.Node == "" {
		p.IsAlone(s)
		f.alone(p)
		p.Serve(s)
		return f, nil
	}
	p.IsNode(s.Node)
	f.adopt(p)
	p.Serve(s)
	f.wg.Go(f.keep)
	return f, nil
}

// Seen is what is known of the cluster: the view that was taken last, the map in force, and
// every member as told by the node that should know best. All but the list is shared
// and not changed.
func (r *Router) Seen() (told *cluster.View, m *cluster.Map, members []cluster.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.members {
		members = append(members, seen.m)
	}
	return r.told, r.table.Load().m, members
}

// Map is the map in force; nil if there is none.
func (r *Router) Map() *cluster.Map { return r.table.Load().m }

// Install puts a map into force, whatever was before. The caller has judged it.
func (r *Router) Install(m *cluster.Map) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.installLocked(m)
}

// NodeOf is Owner for calls about a key that do not ask for it: its error says why there is no
// map.
func (r *Router) NodeOf(key []byte) (*peer.Peer, error) {
	p, err := r.Owner(key)
	if err != nil {
		err = (&Reroute{away: r.mapAway()}).Because(err)
	}
	return p, err
}

// Config is what the client was made with. It is not changed.
func (r *Router) Config() *base.Config { return r.cfg }

// World is what the client has in place of the machine.
func (r *Router) World() world.World { return r.world }

// Beside is what a room above keeps for as long as the client lives: what make has returned at the
// first call. There is one such room.
func Beside(r *Router, make func() any) any {
	r.besideOnce.Do(func() { r.beside = make() })
	return r.beside
}

// BufferBytes is how many bytes all Buffers of the program have together.
func (r *Router) BufferBytes() *atomic.Int64 { return &r.bufferBytes }
