package handle

import (
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// groupInfo tells a client by what it may believe what it READs of a group: where the replica's cell is, whether the replica leads, and whose words
// the client needs. Nothing is asked of the other voters: what is told was true at a moment, and a client that READs the cells learns whether it
// still is.
func (r *op) groupInfo(m wire.GroupInfoRequest) {
	env := r.c.env
	if env.LeaderOf == nil {
		r.Fail(wire.StatusUnsupported, "there are no replicas here")
		return
	}
	sight, ok := store.SightOf(env.Store, consensus.GroupID(m.Group))
	if !ok {
		notLeader(r, wire.NotLeader{Group: m.Group})
		return
	}
	info := wire.GroupInfo{Group: m.Group, Cell: uint64(sight.Cell), Term: sight.Term, Config: sight.Config.Index}
	var voters []string
	for _, v := range sight.Config.Voters {
		voters = append(voters, v.Node)
	}
	r.Answer(wire.GroupInfoSize, func(dst []byte) []byte { return wire.AppendGroupInfo(dst, r.Header.ID, info, voters) })
}
