// Package route leads a call to its server.
//
//	key ──ShardOf──▶ shard ──map──▶ node ──table──▶ peer.Peer
//
// Router is what a Client is: a table that is replaced and never changed, with the peers of
// the nodes in the shard map, or with the only server there is. Owner answers for one key,
// Many for several; Reroute and Router.Again are for a call that a node has sent elsewhere
// (reroute.go). What nodes say of their cluster is judged in learn.go.
//
// Lock order: Router.mu is a leaf, but for the making of peers. No peer is closed and no
// call is made with it held.
package route

import (
	"cmp"
	"context"
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

	bufferBytes atomic.Int64 // of all Buffers of the program

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
	refreshing *refresh                // a refresh under way
	away       error                   // of the last askMapped: mapAway
}

// A table is where keys lead. It is immutable, so a call sees one map and the
// peers of that map.
type table struct {
	only   *peer.Peer   // the only server there is; then the rest is empty, but for peers
	m      *cluster.Map // nil: the cluster has none yet
	digest uint64
	owner  []*peer.Peer          // by shard
	peers  map[string]*peer.Peer // by node: those of the map, and others that were asked for
}

func newRouter(cfg *base.Config, w world.World) *Router {
	own := *cfg
	f := &Router{
		cfg: &own, world: w, log: cfg.Logger, lookDue: make(chan struct{}, 1),
		members: make(map[string]*memberSeen), tellers: make(map[string]teller), ways: make(map[string][]string),
		leaving: make(map[*peer.Peer]struct{}),
	}
	f.table.Store(&table{peers: map[string]*peer.Peer{}})
	f.done, f.cancel = context.WithCancel(context.Background())
	return f
}

// Owner returns the peer that serves key, started. It fails with ErrNoMap.
func (f *Router) Owner(key []byte) (*peer.Peer, error) {
	r := f.table.Load()
	if r.only != nil {
		return r.only, nil
	}
	if r.m == nil {
		return nil, base.ErrNoMap
	}
	p := r.owner[cluster.ShardOf(key, len(r.owner))]
	p.Start()
	return p, nil
}

// Owns reports whether the node owns the shard of key by the map in force.
func (f *Router) Owns(node string, key []byte) bool {
	r := f.table.Load()
	return r.m != nil && r.m.Owns(node, cluster.ShardOf(key, len(r.owner)))
}

// Owners returns the peers of all nodes that own shards, awake, by node id.
func (f *Router) Owners() []*peer.Peer {
	r := f.table.Load()
	if r.only != nil {
		return []*peer.Peer{r.only}
	}
	var peers []*peer.Peer
	if r.m == nil {
		return nil
	}
	used := make([]bool, len(r.m.Nodes))
	for _, i := range r.m.Owner {
		used[i] = true
	}
	for i, n := range r.m.Nodes {
		if used[i] {
			p := r.peers[n.ID]
			p.Start()
			peers = append(peers, p)
		}
	}
	return peers
}

// OwnersNow is Owners for calls that must have them: it asks for a map if there is none,
// and waits for one as calls for keys do (reroute.go).
func (f *Router) OwnersNow(ctx context.Context) ([]*peer.Peer, error) {
	if peers := f.Owners(); peers != nil {
		return peers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	for rest, told := rerouteFirst, false; ; rest = min(2*rest, rerouteMost) {
		err := f.Refresh(ctx, nil)
		peers := f.Owners()
		switch {
		case peers != nil:
			return peers, nil
		case err != nil && !told:
			return nil, err
		case err != nil: // somebody has said before that there is none
			return nil, (&Reroute{over: ctx.Err(), away: f.mapAway()}).Because(base.ErrNoMap)
		}
		told = true
		tellWaiting(f, (&Reroute{away: f.mapAway()}).Because(base.ErrNoMap))
		if !base.Pause(ctx, rest) {
			return nil, (&Reroute{over: ctx.Err(), away: f.mapAway()}).Because(base.ErrNoMap)
		}
	}
}

// Peer returns the peer of a node, awake: of one in the map or one that gossip
// has told of. ErrUnknownNode.
func (f *Router) Peer(node string) (*peer.Peer, error) {
	r := f.table.Load()
	if r.only != nil {
		if node != "" && node != r.only.Info().Node {
			return nil, fmt.Errorf("%w: %q; there is one server only", base.ErrUnknownNode, node)
		}
		return r.only, nil
	}
	p := r.peers[node]
	if p == nil {
		f.mu.Lock()
		switch {
		case f.closed:
			f.mu.Unlock()
			return nil, base.ErrClosed
		case f.members[node] == nil && len(f.ways[node]) == 0:
			known := slices.Sorted(maps.Keys(f.members))
			f.mu.Unlock()
			return nil, fmt.Errorf("%w: %q; known are %q", base.ErrUnknownNode, node, known)
		}
		if p = f.table.Load().peers[node]; p == nil {
			p = f.addPeerLocked(node)
		}
		f.mu.Unlock()
	}
	p.Start()
	return p, nil
}

// addPeerLocked makes the peer of a node that no map has named.
func (f *Router) addPeerLocked(node string) *peer.Peer {
	old := f.table.Load()
	r := *old
	r.peers = maps.Clone(old.peers)
	p := f.newPeer(node)
	r.peers[node] = p
	f.table.Store(&r)
	return p
}

// newPeer makes a peer that is asleep.
func (f *Router) newPeer(node string) *peer.Peer {
	return peer.New(f.cfg, f.world, node, f)
}

// alone makes the router one of a single server, for good.
func (f *Router) alone(p *peer.Peer) {
	f.table.Store(&table{only: p, peers: map[string]*peer.Peer{"": p}})
}

// Only is the single server; nil in a cluster.
func (f *Router) Only() *peer.Peer { return f.table.Load().only }

// adopt makes the peer of the first session one of the router's.
func (f *Router) adopt(p *peer.Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := p.Node
	old := f.table.Load()
	if asleep := old.peers[node]; asleep != nil { // made by the map
		asleep.GiveUp()
	}
	r := *old
	r.peers = maps.Clone(old.peers)
	r.peers[node] = p
	if r.m != nil {
		r.owner = owners(r.m, r.peers)
	}
	f.table.Store(&r)
}

// installLocked puts a map into force, which has been judged by the caller, and
// closes the peers that it names no more.
func (f *Router) installLocked(m *cluster.Map) {
	old := f.table.Load()
	r := &table{m: m, digest: m.Digest(), peers: make(map[string]*peer.Peer)}
	for _, n := range m.Nodes {
		if p := old.peers[n.ID]; p != nil {
			r.peers[n.ID] = p
		} else {
			r.peers[n.ID] = f.newPeer(n.ID)
		}
	}
	for id, p := range old.peers {
		switch {
		case r.peers[id] != nil:
		case old.m != nil && old.m.Has(id):
			f.retireLocked(p)
		default:
			r.peers[id] = p // asked for by name: not ours to close
		}
	}
	r.owner = owners(m, r.peers)
	f.table.Store(r)
	f.log.Info("shard map", "cluster", m.Name, "version", m.Version, "nodes", len(m.Nodes), "shards", len(m.Owner))
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
func (f *Router) retireLocked(p *peer.Peer) {
	f.leaving[p] = struct{}{}
	f.log.Info("node has left the shard map", "node", p.Node)
	f.wg.Go(func() {
		if s := p.Current(); s != nil {
			s.UntilIdle()
		}
		if err := p.Close(); err != nil {
			f.log.Warn("closing a node's connection", "node", p.Node, "err", err)
		}
		n := p.Counters()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.leaving, p)
		base.AddCounters(&f.past, &n)
	})
}

// Close closes every peer, side by side; a second call does nothing.
func (f *Router) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	peers := slices.AppendSeq(slices.Collect(maps.Keys(f.leaving)), maps.Values(f.table.Load().peers))
	f.mu.Unlock()
	f.cancel()
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
	f.wg.Wait()
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Unreachable has the router look for news: a node cannot be reached where it was.
func (f *Router) Unreachable(string) {
	select {
	case f.lookDue <- struct{}{}:
	default:
	}
}

// lookRest is about the least time between two looks for which no call waits.
const lookRest = time.Second

// keep looks for news when a look is due.
func (f *Router) keep() {
	for {
		select {
		case <-f.lookDue:
		case <-f.done.Done():
			return
		}
		ctx, cancel := context.WithTimeout(f.done, f.cfg.Timeout)
		if err := f.Refresh(ctx, nil); err != nil && f.done.Err() == nil {
			f.log.Info("no news of the cluster", "err", err)
		}
		cancel()
		t := time.NewTimer(lookRest/2 + rand.N(lookRest))
		select {
		case <-t.C:
		case <-f.done.Done():
			t.Stop()
			return
		}
	}
}

// Known returns the peers that there are, by node id.
func (f *Router) Known() []*peer.Peer {
	return slices.SortedFunc(maps.Values(f.table.Load().peers), func(a, b *peer.Peer) int { return cmp.Compare(a.Node, b.Node) })
}

// Counters sums up all peers, those that are closed included.
func (f *Router) Counters() base.Counters {
	f.mu.Lock()
	sum, peers := f.past, slices.Collect(maps.Keys(f.leaving))
	peers = slices.AppendSeq(peers, maps.Values(f.table.Load().peers))
	f.mu.Unlock()
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
	p := peer.New(cfg, w, "", dir)
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
// every member as the node has told of it who should know best. All but the list is shared
// and not changed.
func (f *Router) Seen() (told *cluster.View, m *cluster.Map, members []cluster.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seen := range f.members {
		members = append(members, seen.m)
	}
	return f.told, f.table.Load().m, members
}

// Map is the map in force; nil if there is none.
func (f *Router) Map() *cluster.Map { return f.table.Load().m }

// Install puts a map into force, whatever was before. The caller has judged it.
func (f *Router) Install(m *cluster.Map) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.installLocked(m)
}

// NodeOf is Owner for calls about a key that do not ask for it: its error says why there is no
// map.
func (f *Router) NodeOf(key []byte) (*peer.Peer, error) {
	p, err := f.Owner(key)
	if err != nil {
		err = (&Reroute{away: f.mapAway()}).Because(err)
	}
	return p, err
}

// Config is what the client was made with. Nobody changes it.
func (f *Router) Config() *base.Config { return f.cfg }

// World is what the client has in place of the machine.
func (f *Router) World() world.World { return f.world }

// BufferBytes is how many bytes all Buffers of the program have together.
func (f *Router) BufferBytes() *atomic.Int64 { return &f.bufferBytes }
