package route

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

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
// a replica says. A stranger is put out again when it fails a call in another way than by naming a leader, when the newest configuration that a
// leader has told of does not have it, and by the next map; one that has failed stays out for a second, whoever names it.

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
	shy  map[string]int64    // those that have failed a call: when they may be taken in again, on the time since born; Router.mu
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
	clear(x.shy)
	x.due.Store(0)
	x.rest.Store(0)
}

// takeIn puts those of the named nodes into the table that its group does not have, if they are known to be there, and returns
// the group as the table has it then; nil if there is none, or the client is closed.
func takeIn(r *Router, g *group, names ...string) *group {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.table.Load()
	now := old.groupOf(Share{Group: g.id})
	if r.closed || now == nil {
		return nil
	}
	x := &r.strangers
	list, at := slices.Clone(x.of[g.id]), int64(time.Since(x.born))
	for _, node := range names {
		switch {
		case node == "" || slices.Contains(now.nodes, node) || slices.Contains(list, node) || len(list) == maxStrangers:
		case !old.m.Has(node) && r.members[node] == nil || at < x.shy[node]:
		default:
			list = append(list, node)
		}
	}
	if len(list) == len(x.of[g.id]) {
		return now
	}
	return haveLocked(r, old, g.id, list)
}

// fails puts a stranger out that has failed a call.
func fails(r *Router, g *group, node string) {
	r.mu.Lock()
	x := &r.strangers
	if len(x.shy) >= maxSeen || x.shy == nil {
		x.shy = map[string]int64{}
	}
	x.shy[node] = int64(time.Since(x.born) + strangeRest)
	r.mu.Unlock()
	putOut(r, g, func(o string) bool { return o != node })
}

// putOut takes those strangers out of the table's group that are not to stay in it.
func putOut(r *Router, g *group, stays func(node string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.strangers.of[g.id]
	list := slices.DeleteFunc(slices.Clone(all), func(node string) bool { return !stays(node) })
	if !r.closed && len(list) < len(all) {
		haveLocked(r, r.table.Load(), g.id, list)
	}
}

// haveLocked makes a table in which a group has these strangers, and returns the group. Peers that were made for strangers alone are closed. Router.mu
// is held.
func haveLocked(r *Router, old *table, group uint32, list []string) *group {
	x := &r.strangers
	if x.of == nil {
		x.of, x.made = map[uint32][]string{}, map[string]bool{}
	}
	x.of[group] = list
	t := *old
	t.peers = maps.Clone(old.peers)
	for _, id := range list {
		if t.peers[id] == nil {
			t.peers[id] = newPeer(r, id, t.m)
			x.made[id] = true
		}
	}
	for id := range x.made {
		if !x.isLocked(id) {
			r.retireLocked(t.peers[id])
			delete(t.peers, id)
			delete(x.made, id)
		}
	}
	t.led = groups(r, t.m, t.peers, old.led)
	r.table.Store(&t)
	r.log.Info("replicas that the shard map does not have", "group", group, "nodes", list, "version", t.m.Version)
	return t.groupOf(Share{Group: group})
}

// isLocked reports whether a node is a stranger in any group. Router.mu is held.
func (x *strangers) isLocked(node string) bool {
	for _, list := range x.of {
		if slices.Contains(list, node) {
			return true
		}
	}
	return false
}

// Meet goes by what a leader has told of its group, by a session: voters that the table does not have are taken in, and the router looks for a newer map; others
// that are strangers are put out. It waits for nothing.
func (l Led) Meet(s *session.Session, told *session.GroupInfo) {
	g := l.g
	newest := g.seat.config.Load()
	if told.Config < newest {
		return // what it says is over
	}
	if told.Config == newest && g.knows(told.Voters) && g.hasOnly(told.Voters) {
		return
	}
	for newest < told.Config && !g.seat.config.CompareAndSwap(newest, told.Config) {
		newest = g.seat.config.Load()
	}
	if !g.hasOnly(told.Voters) {
		putOut(g.router, g, func(node string) bool { return slices.Contains(told.Voters, node) })
	}
	if g.knows(told.Voters) {
		return
	}
	x := &g.router.strangers
	now, due := int64(time.Since(x.born)), x.due.Load()
	if now < due {
		return
	}
	rest := min(max(2*x.rest.Load(), int64(strangeRest)), int64(strangeMost))
	if !x.due.CompareAndSwap(due, now+rest) {
		return // another call does it
	}
	x.rest.Store(rest)
	takeIn(g.router, g, told.Voters...)
	x.look(g.router, s)
}

// knows reports whether the table has all of the voters.
func (g *group) knows(voters []string) bool {
	for _, v := range voters {
		if !slices.Contains(g.nodes, v) {
			return false
		}
	}
	return true
}

// hasOnly reports whether all strangers are among the voters.
func (g *group) hasOnly(voters []string) bool {
	for _, node := range g.nodes[g.mapped:] {
		if !slices.Contains(voters, node) {
			return false
		}
	}
	return true
}

// isStranger reports whether a node has a replica by the word of others alone.
func (g *group) isStranger(node string) bool { return slices.Contains(g.nodes[g.mapped:], node) }
