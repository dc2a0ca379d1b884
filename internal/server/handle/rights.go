package handle

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// What a login may do. Both are decided before any handler runs: by the right that
// the type of the request needs (row.right), and by the keys that it names (do).
// What a NIC does cannot be decided by key: a login with a prefix gets no rkeys at
// all (view, hello).

// A right is what a login must be allowed for a request to be handled.
type right uint8

const (
	mayNothing    right = iota // of what comes before a session has rights
	mayRead                    // every login
	mayReadAll                 // a login without a prefix
	mayWrite                   //
	mayAdminister              //
)

// permit refuses what the login has not the right to do at all. true: go on.
func (r *op) permit() bool {
	l, need := r.Session.Login, r.row.right
	switch {
	case need == mayWrite && !l.MayWrite:
		return r.deny("tenant %s may only read", l.Name)
	case need == mayAdminister && !l.Admin:
		return r.deny("%v is for administrators", wire.KindOf(r.Body))
	case need == mayReadAll && len(l.KeyPrefix) > 0:
		return r.deny("tenant %s sees keys that begin with %q, and no statistics", l.Name, l.KeyPrefix)
	}
	return true
}

// mayName refuses a key, or a prefix of keys, outside the login's own prefix.
// true: go on.
func (r *op) mayName(key []byte) bool {
	if l := r.Session.Login; !l.MayName(key) {
		return r.deny("tenant %s may name keys that begin with %q", l.Name, l.KeyPrefix)
	}
	return true
}

// deny answers with StatusDenied. It returns false.
func (r *op) deny(format string, args ...any) bool {
	r.c.env.Bounds.Denied.Add(1)
	r.Fail(wire.StatusDenied, fmt.Sprintf(format, args...))
	return false
}

// ours says whether the node serves a shard. If not, the request has been
// answered: there is no map, the key is another node's, or of a group that another
// node leads. The map decides, and nothing that gossip says; who leads, the group does.
func (r *op) ours(shard uint16) bool {
	switch owner, own := r.c.env.Owned.Of(shard); owner {
	case base.Ours:
		return own == nil || !own.Replicated() || leads(r, own, shard)
	case base.NoMap:
		r.Fail(wire.StatusNoMap, "")
	default:
		r.moved(own, shard)
	}
	return false
}

// oursKey is ours for a key.
func (r *op) oursKey(key []byte) bool {
	env := r.c.env
	return env.Owned == nil || r.ours(cluster.ShardOf(key, env.Shards))
}

// covers says whether the node answers a request about many keys. It needs a map; and in a cluster with
// replicas the request names one group, of which this node leads, because what a node has of keys that it
// does not lead may be old. If it does not, the request has been answered; else op.shards are those of the group.
func (r *op) covers(group uint32) bool {
	if !r.c.env.Owned.Mapped() {
		r.Fail(wire.StatusNoMap, "")
		return false
	}
	own := r.c.env.Owned.Shards()
	if own == nil || !own.Replicated() {
		if r.c.env.Owned.Awaits(group) { // the node that told the client of the group has the map in force, and it comes here next
			notLeader(r, wire.NotLeader{Group: group})
			return false
		}
		if group != 0 {
			r.Fail(wire.StatusBadRequest, fmt.Sprintf("group %d is asked for, and the keys of this server are in no groups", group))
		}
		return group == 0
	}
	switch r.shards = own.Of(group); {
	case group == 0:
		r.Fail(wire.StatusUnsupported, "the keys are in groups with replicas, and scans and watches ask for one group at a time: a client is needed that knows groups, and is not one of this node alone")
		return false
	case r.shards == nil:
		r.Fail(wire.StatusBadRequest, fmt.Sprintf("group %d is asked for, and the shard map has none of that number", group))
		return false
	}
	if r.Header.Type == wire.TypeWatch && own.Mine(r.shards[0]) {
		store.KeepEvents(r.c.env.Store, r.shards[0]) // whoever leads: a watch goes on at the next leader
	}
	return r.ours(r.shards[0]) // whoever leads one shard of a group leads all
}

// moved answers with the node that owns the shard.
func (r *op) moved(own *base.Shards, shard uint16) {
	m := wire.Moved{MapVersion: own.Map.Version, MapDigest: own.Digest, Owner: []byte(own.Map.OwnerOf(shard))}
	b, err := r.Session.NewBuffer(wire.MovedSize)
	if err != nil {
		r.refuse(err)
		return
	}
	b.N = len(wire.AppendMoved(b.Mem[:0], r.Header.Type, r.Header.ID, m))
	r.Reply(b, wire.StatusMoved)
}

// foreign reports whether a key that stands in the store is another node's. No
// request puts such a key there; if one is there all the same, no client must be
// told of it.
func (env *Env) foreign(key []byte) bool {
	if env.Owned == nil {
		return false
	}
	owner, _ := env.Owned.Of(cluster.ShardOf(key, env.Shards))
	return owner != base.Ours
}
