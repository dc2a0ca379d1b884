package server

import (
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// ours says whether the node serves a shard. If not, the request has been
// answered: there is no map, or the key is another node's. The map decides, and
// nothing that gossip says.
func (r *request) ours(shard uint16) bool {
	c := r.s.srv.root.cluster
	if c == nil {
		return true
	}
	own := c.owned.Load()
	switch {
	case own == nil:
		r.noMap()
		return false
	case int(shard) < len(own.mine) && own.mine[shard] || teeth.Off(teeth.D8OwnedOnly):
		return true
	}
	r.moved(own, shard)
	return false
}

// oursKey is ours for a key.
func (r *request) oursKey(key []byte) bool {
	srv := r.s.srv
	return srv.root.cluster == nil || r.ours(cluster.ShardOf(key, srv.shards))
}

// mapped says whether there is a map, for requests about many keys. If not, the
// request has been answered.
func (r *request) mapped() bool {
	c := r.s.srv.root.cluster
	if c == nil || c.owned.Load() != nil {
		return true
	}
	r.noMap()
	return false
}

func (r *request) noMap() { r.fail(wire.StatusNoMap, "") }

// moved answers with who owns the shard.
func (r *request) moved(own *ownership, shard uint16) {
	m := wire.Moved{MapVersion: own.m.Version, MapDigest: own.digest, Owner: []byte(own.m.OwnerOf(shard))}
	b, err := r.s.lane.newReply(r.s, wire.MovedSize)
	if err != nil {
		r.refuse(err)
		return
	}
	b.n = len(wire.AppendMoved(b.mem[:0], r.hdr.Type, r.hdr.ID, m))
	r.reply(b, wire.StatusMoved)
}

// foreign reports whether a key that stands in the store is another node's. It
// does not get there by any request; were it there all the same, nobody must be
// told of it.
func (srv *Server) foreign(key []byte) bool {
	c := srv.root.cluster
	if c == nil {
		return false
	}
	own := c.owned.Load()
	return own == nil || !own.mine[cluster.ShardOf(key, srv.shards)]
}
