package client

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

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A fleet is the nodes of one cluster as a Client sees them.
//
//	key ──ShardOf──▶ shard ──map──▶ node ──fleet──▶ peer ──▶ session
//
// The map is law and comes from the nodes, each of which keeps it durably; the
// view, which says where a node listens, is gossip, which is a hint. So a hint
// decides where to knock and nothing else: whoever opens must know the secret,
// say that he is the node that was wanted, and have no other map (learn.go).
//
// Peers are made when a map or a caller names them and connect when a call needs
// them. They share nothing, so a node that is away costs its own calls alone.
type fleet struct {
	cfg     Config
	log     *slog.Logger
	routing atomic.Pointer[routing] // never nil

	done   context.Context
	cancel context.CancelFunc
	poked  chan struct{} // cap 1: somebody could not reach a node
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	told    *cluster.View // the last one that was taken
	members map[string]*memberSeen
	tellers map[string]teller   // by node: whose view was taken last
	ways    map[string][]string // addresses of Config.Servers that have led to a node
	leaving map[*peer]struct{}  // peers that are being closed
	past    Counters            // of peers that have been
	asking  *asking             // a refresh under way
	away    error               // of the last askMapped: mapAway
}

// A routing is where keys lead. It is immutable, so a call sees one map and the
// peers of that map.
type routing struct {
	m      *cluster.Map // nil: the cluster has none yet
	digest uint64
	owner  []*peer          // by shard
	peers  map[string]*peer // by node: those of the map, and others that were asked for
}

func newFleet(cfg Config) *fleet {
	f := &fleet{
		cfg: cfg, log: cfg.Logger, poked: make(chan struct{}, 1),
		members: make(map[string]*memberSeen), tellers: make(map[string]teller), ways: make(map[string][]string),
		leaving: make(map[*peer]struct{}),
	}
	f.routing.Store(&routing{peers: map[string]*peer{}})
	f.done, f.cancel = context.WithCancel(context.Background())
	return f
}

// owner returns the peer that serves key, awake. It fails with ErrNoMap.
func (f *fleet) owner(key []byte) (*peer, error) {
	r := f.routing.Load()
	if r.m == nil {
		return nil, ErrNoMap
	}
	p := r.owner[cluster.ShardOf(key, len(r.owner))]
	if !p.awake.Load() {
		p.rouse()
	}
	return p, nil
}

// owns reports whether the node owns the shard of key by the map in force.
func (f *fleet) owns(node string, key []byte) bool {
	r := f.routing.Load()
	return r.m != nil && r.m.Owns(node, cluster.ShardOf(key, len(r.owner)))
}

// owners returns the peers of all nodes that own shards, awake, by node id.
func (f *fleet) owners() []*peer {
	r := f.routing.Load()
	var peers []*peer
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
			p.rouse()
			peers = append(peers, p)
		}
	}
	return peers
}

// ownersNow is owners for who must have them: it asks for a map if there is none,
// and waits for one as calls for keys do (reroute.go).
func (f *fleet) ownersNow(ctx context.Context) ([]*peer, error) {
	if peers := f.owners(); peers != nil {
		return peers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	for rest, told := rerouteFirst, false; ; rest = min(2*rest, rerouteMost) {
		err := f.refresh(ctx, nil)
		peers := f.owners()
		switch {
		case peers != nil:
			return peers, nil
		case err != nil && !told:
			return nil, err
		case err != nil: // somebody has said before that there is none
			return nil, (&rerouting{over: ctx.Err(), away: f.mapAway()}).because(ErrNoMap)
		}
		told = true
		f.waiting((&rerouting{away: f.mapAway()}).because(ErrNoMap))
		if !pause(ctx, rest) {
			return nil, (&rerouting{over: ctx.Err(), away: f.mapAway()}).because(ErrNoMap)
		}
	}
}

// peer returns the peer of a node, awake: of one in the map or one that gossip
// has told of. ErrUnknownNode.
func (f *fleet) peer(node string) (*peer, error) {
	p := f.routing.Load().peers[node]
	if p == nil {
		f.mu.Lock()
		switch {
		case f.closed:
			f.mu.Unlock()
			return nil, ErrClosed
		case f.members[node] == nil && len(f.ways[node]) == 0:
			known := slices.Sorted(maps.Keys(f.members))
			f.mu.Unlock()
			return nil, fmt.Errorf("%w: %q; known are %q", ErrUnknownNode, node, known)
		}
		if p = f.routing.Load().peers[node]; p == nil {
			p = f.addPeerLocked(node)
		}
		f.mu.Unlock()
	}
	p.rouse()
	return p, nil
}

// addPeerLocked makes the peer of a node that no map has named.
func (f *fleet) addPeerLocked(node string) *peer {
	old := f.routing.Load()
	r := *old
	r.peers = maps.Clone(old.peers)
	p := f.newPeer(node)
	r.peers[node] = p
	f.routing.Store(&r)
	return p
}

// newPeer makes a peer that is asleep.
func (f *fleet) newPeer(node string) *peer {
	p := newPeer(f.cfg)
	p.fleet, p.node = f, node
	p.servers = func() []string { return f.addresses(node) }
	return p
}

// adopt makes the peer of the first session one of the fleet's.
func (f *fleet) adopt(p *peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := p.node
	p.servers = func() []string { return f.addresses(node) }
	old := f.routing.Load()
	if asleep := old.peers[node]; asleep != nil { // made by the map
		asleep.cancel()
	}
	r := *old
	r.peers = maps.Clone(old.peers)
	r.peers[node] = p
	if r.m != nil {
		r.owner = owners(r.m, r.peers)
	}
	f.routing.Store(&r)
}

// installLocked puts a map into force, which has been judged by the caller, and
// closes the peers that it names no more.
func (f *fleet) installLocked(m *cluster.Map) {
	old := f.routing.Load()
	r := &routing{m: m, digest: m.Digest(), peers: make(map[string]*peer)}
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
	f.routing.Store(r)
	f.log.Info("shard map", "cluster", m.Name, "version", m.Version, "nodes", len(m.Nodes), "shards", len(m.Owner))
}

func owners(m *cluster.Map, peers map[string]*peer) []*peer {
	owner := make([]*peer, len(m.Owner))
	for shard, i := range m.Owner {
		owner[shard] = peers[m.Nodes[i].ID]
	}
	return owner
}

// retireLocked closes a peer that no call is led to any more, when those under
// way there are done, at the latest after Config.Timeout: then they are made
// again elsewhere, or end with ErrOutcomeUnknown.
func (f *fleet) retireLocked(p *peer) {
	f.leaving[p] = struct{}{}
	f.log.Info("node has left the shard map", "node", p.node)
	f.wg.Go(func() {
		if s := p.current.Load(); s != nil {
			s.mindAside(func() bool { return s.users.Load() == 0 && s.readsDone.Load() == s.readsPosted.Load() })
		}
		if err := p.close(); err != nil {
			f.log.Warn("closing a node's connection", "node", p.node, "err", err)
		}
		n := p.counters()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.leaving, p)
		f.past.add(&n)
	})
}

// close closes every peer, side by side; a second call does nothing.
func (f *fleet) close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	peers := slices.AppendSeq(slices.Collect(maps.Keys(f.leaving)), maps.Values(f.routing.Load().peers))
	f.mu.Unlock()
	f.cancel()
	errs := make([]error, 0, len(peers))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			if err := p.close(); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	f.wg.Wait()
	return errors.Join(errs...)
}

// poke has the fleet look for news: a node cannot be reached where it was.
func (f *fleet) poke() {
	select {
	case f.poked <- struct{}{}:
	default:
	}
}

// pokeRest is the least time between two looks that nobody waits for.
const pokeRest = time.Second

// keep looks for news when it is poked.
func (f *fleet) keep() {
	for {
		select {
		case <-f.poked:
		case <-f.done.Done():
			return
		}
		ctx, cancel := context.WithTimeout(f.done, f.cfg.Timeout)
		if err := f.refresh(ctx, nil); err != nil && f.done.Err() == nil {
			f.log.Info("no news of the cluster", "err", err)
		}
		cancel()
		t := time.NewTimer(pokeRest/2 + rand.N(pokeRest))
		select {
		case <-t.C:
		case <-f.done.Done():
			t.Stop()
			return
		}
	}
}

// known returns the peers that there are, by node id.
func (f *fleet) known() []*peer {
	return slices.SortedFunc(maps.Values(f.routing.Load().peers), func(a, b *peer) int { return cmp.Compare(a.node, b.node) })
}

// counters sums up all peers, those that are closed included.
func (f *fleet) counters() Counters {
	f.mu.Lock()
	sum, peers := f.past, slices.Collect(maps.Keys(f.leaving))
	peers = slices.AppendSeq(peers, maps.Values(f.routing.Load().peers))
	f.mu.Unlock()
	for _, p := range peers {
		n := p.counters()
		sum.add(&n)
	}
	return sum
}
