package route

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// What a router believes, and of which node.
//
//	map    the higher version wins, an older one is not looked at. Another map
//	       of the same version, one of another cluster, or a later one that changes what
//	       stays for ever (cluster.CheckChange): the server that has it
//	       is not of this cluster, and its session ends.
//	view   a member's record is the one of the teller that should know best: the
//	       member itself, else the newest teller's. An older view of a teller
//	       never replaces a newer one of the same teller.
//
// Gossip orders neither views of two tellers nor incarnations of a member, so
// there is no better order than that; and none is needed, because a record only
// says where to knock.

// A memberSeen is a member as a node has told of it.
type memberSeen struct {
	m      cluster.Member
	teller string
	at     time.Time
}

// A teller is how far a node's views have been taken.
type teller struct {
	incarnation uint64 // of its store: a new one counts its views anew
	version     uint64
}

// Learn takes in what a node has said, or refuses it: then the node is of
// another cluster, or another node than the one that was wanted.
func (r *Router) Learn(n *session.News, shards int) error {
	if n.Map != nil && len(n.Map.Owner) != shards {
		return fmt.Errorf("%w: node %q has %d shards and a map of %d", base.ErrProtocol, n.View.Self, shards, len(n.Map.Owner))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return base.ErrClosed
	}
	if n.Map != nil {
		if err := r.learnMapLocked(n.View.Self, n.Map); err != nil {
			return err
		}
	}
	r.learnViewLocked(n)
	return nil
}

func (r *Router) learnMapLocked(node string, m *cluster.Map) error {
	t := r.table.Load()
	if t.m == nil {
		r.installLocked(m)
		return nil
	}
	switch {
	case m.Cluster != t.m.Cluster:
		return fmt.Errorf("%w: node %q belongs to %v, this client uses %v", base.ErrOtherCluster, node, m, t.m)
	case m.Version < t.m.Version:
	case m.Version == t.m.Version && m.Digest() != t.digest:
		return fmt.Errorf("%w: node %q has %v, this client uses %v", base.ErrOtherCluster, node, m, t.m)
	case m.Version > t.m.Version:
		if m.Replication == nil && t.m.Replication != nil {
			return fmt.Errorf("%w: node %q has a map without replicas, this cluster has them", base.ErrOtherCluster, node)
		}
		if len(m.Owner) != len(t.m.Owner) {
			return fmt.Errorf("%w: node %q has a map of %d shards, this cluster has %d", base.ErrOtherCluster, node, len(m.Owner), len(t.m.Owner))
		}
		if t.m.Replication != nil {
			if err := cluster.CheckChange(t.m, m); err != nil {
				return fmt.Errorf("%w: node %q: %w", base.ErrOtherCluster, node, err)
			}
		}
		r.installLocked(m)
	}
	return nil
}

// maxSeen bounds what is remembered of members, however many tell of them.
const maxSeen = cluster.MaxNodes

func (r *Router) learnViewLocked(n *session.News) {
	v := n.View
	last, known := r.tellers[v.Self]
	if known && last.incarnation == n.Incarnation && last.version > v.Version {
		return
	}
	if !known && len(r.tellers) >= maxSeen {
		clear(r.tellers)
	}
	r.tellers[v.Self] = teller{n.Incarnation, v.Version}
	r.told = v
	now := time.Now()
	for i := range v.Members {
		m := &v.Members[i]
		old := r.members[m.ID]
		switch {
		case old == nil && len(r.members) >= maxSeen:
			r.forgetLocked(v)
			if len(r.members) >= maxSeen {
				return
			}
		case old == nil:
		case old.teller == m.ID && v.Self != m.ID && old.m.Incarnation == m.Incarnation:
			// Its own word stands, but not on whether it lives.
			old.m.State, old.m.Since = m.State, m.Since
			continue
		}
		r.members[m.ID] = &memberSeen{m: *m, teller: v.Self, at: now}
	}
	// A member is forgotten that the teller has forgotten and no other node has told of.
	for id, seen := range r.members {
		if seen.teller == v.Self && v.Member(id) == nil {
			delete(r.members, id)
		}
	}
}

// forgetLocked makes room: it forgets all members that are neither in v nor in the map.
func (r *Router) forgetLocked(v *cluster.View) {
	t := r.table.Load()
	for id := range r.members {
		if v.Member(id) == nil && (t.m == nil || !t.m.Has(id)) {
			delete(r.members, id)
		}
	}
}

// Met notes that an address of Config.Servers has led to a node: gossip may
// know it by an address that is good among the nodes only.
func (r *Router) Met(node, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.cfg.Servers, addr) && !slices.Contains(r.ways[node], addr) {
		r.ways[node] = append(r.ways[node], addr)
	}
}

// Addresses returns where a node may listen: where it says itself, by the
// fabrics in the order of Config.Fabrics, and where it was met before.
func (r *Router) Addresses(node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var addrs []string
	add := func(addr string) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	if seen := r.members[node]; seen != nil {
		for _, fabric := range r.cfg.Fabrics {
			for _, e := range seen.m.Endpoints {
				if e.Fabric == fabric.Name() {
					add(e.Addr)
				}
			}
		}
	}
	for _, addr := range r.ways[node] {
		add(addr)
	}
	return addrs
}
