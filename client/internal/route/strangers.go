package route

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
)

// When a client asks for a newer map, and what it does until there is one.
//
//	a node says Moved, by a newer map    the call waits for the map, of that node first (reroute.go)
//	the beat shows a newer view          the peer asks for view and map beside the calls (peer.keepNews)
//	a node cannot be reached             the router looks, once a second at most, whoever needs it
//	a replica names a leader, or the leader a voter, that the table does not have for the group: a stranger
//	                                     the router looks at that replica, likewise; while it has no newer map ever more seldom
//
// Which replicas a group has its own log says, and the map follows: so a stranger may well lead before there is a map that has it, and for as long as
// nobody makes one. It is therefore taken into the table, behind the replicas of the map, if gossip or the map knows such a node. That is a hint as all that
// a replica says: a node that has no replica answers that it has none, and is left. The next map ends it.

const (
	// maxStrangers bounds those of a group: what is said may be nonsense.
	maxStrangers = 4
	// strangeRest is the least time between two looks because of voters that are strangers. It doubles up to strangeMost while no newer map comes.
	strangeRest = time.Second
	strangeMost = 8 * time.Second
)

// A strangers is what a router knows of nodes that are replicas of groups by the word of others alone.
type strangers struct {
	due  atomic.Int64                    // on the time since born: when voters are a reason to look again
	rest atomic.Int64                    // nanoseconds
	at   atomic.Pointer[session.Session] // that is asked first at the next look; nil: any
	born time.Time

	of   map[uint32][]string // by group; Router.mu
	made map[string]bool     // those whose peers were made for that, so that they are ended with it; Router.mu
}

// look has the router look for news soon, at the node of s first; nil: at any.
func (x *strangers) look(r *Router, s *session.Session) {
	if s != nil {
		x.at.Store(s)
	}
	r.Unreachable("")
}

// known is called when a newer map is in force: nothing is strange about it yet. Router.mu is held.
func (x *strangers) known() {
	clear(x.of)
	clear(x.made)
	x.due.Store(0)
	x.rest.Store(0)
}

// takeIn puts those of the named nodes into the table that its group does not have, if they are known to be there, and returns
// the group as the table has it then; nil if that is no other than g.
func takeIn(r *Router, g *group, names ...string) *group {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.table.Load()
	now := old.groupOf(Share{Group: g.id})
	if r.closed || now == nil {
		return nil
	}
	x := &r.strangers
	fresh := slices.Clone(x.of[g.id])
	for _, node := range names {
		if node != "" && !slices.Contains(now.nodes, node) && !slices.Contains(fresh, node) && len(fresh) < maxStrangers && (old.m.Has(node) || r.members[node] != nil) {
			fresh = append(fresh, node)
		}
	}
	if len(fresh) > len(x.of[g.id]) {
		if x.of == nil {
			x.of, x.made = map[uint32][]string{}, map[string]bool{}
		}
		x.of[g.id] = fresh
		t := *old
		t.peers = withPeers(r, old, fresh)
		t.led = groups(r, t.m, t.peers, old.led)
		r.table.Store(&t)
		r.log.Info("replicas that the shard map does not have", "group", g.id, "nodes", fresh, "version", t.m.Version)
		now = t.groupOf(Share{Group: g.id})
	}
	if now == g {
		return nil
	}
	return now
}

// withPeers is the peers of a table and those of the nodes, which are strangers. r.mu is held.
func withPeers(r *Router, t *table, nodes []string) map[string]*peer.Peer {
	peers := maps.Clone(t.peers)
	for _, id := range nodes {
		if peers[id] == nil {
			peers[id] = newPeer(r, id, t.m)
			r.strangers.made[id] = true
		}
	}
	return peers
}

// Meet takes the voters of a group in that its leader has told of, by a session, if there are any that the table does not have; and
// has the router look for a newer map. It waits for nothing.
func (l Led) Meet(s *session.Session, voters []string) {
	if l.knows(voters) {
		return
	}
	r := l.g.router
	x := &r.strangers
	now, due := int64(time.Since(x.born)), x.due.Load()
	if now < due {
		return
	}
	rest := min(max(2*x.rest.Load(), int64(strangeRest)), int64(strangeMost))
	if !x.due.CompareAndSwap(due, now+rest) {
		return // another call does it
	}
	x.rest.Store(rest)
	takeIn(r, l.g, voters...)
	x.look(r, s)
}

// knows reports whether the table has all of the voters.
func (l Led) knows(voters []string) bool {
	for _, v := range voters {
		if !slices.Contains(l.g.nodes, v) {
			return false
		}
	}
	return true
}
