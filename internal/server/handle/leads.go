package handle

import (
	"errors"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// Keys of a cluster with replicas. A replica that does not lead answers for none of them: what it has may be old.
//
//	leads     before anything is decided: does this replica lead, and since when (its reign)? A write is ordered in that reign or in none,
//	          so nothing that was looked at in between is of another one
//	confirm   before a read looks: has a majority just confirmed that this replica leads (ReadIndex)? Whoever was deposed does not know that
//
// A page of a scan is a read of all keys of one group: its moment is behind the confirm. So it is behind the moment of the page before it,
// at whatever node that was: what a leader has shown is committed, and the next leader has published it before it is confirmed.
//
// Writes need no confirm: what a deposed leader orders no majority takes.

// leads says whether this node's replica leads the group of a shard, which the map gives it. If not, the request has been answered.
func leads(r *op, own *base.Shards, shard uint16) bool {
	if r.c.env.LeaderOf == nil {
		r.Fail(wire.StatusUnsupported, "this tenant's keys are on one node each, and the cluster has replicas: such tenants are served by clusters without replicas alone")
		return false
	}
	reign, err := store.ReignOf(r.c.env.Store, shard)
	switch {
	case err != nil:
		r.refuse(err)
		return false
	case reign == 0: // the map came a moment ago, and the store does not have the group yet
		notLeader(r, wire.NotLeader{Group: own.Group(shard)})
		return false
	}
	r.reign = reign
	return true
}

// confirmed says whether what the store shows of a key from now on is not older than the request. If not, the request has been answered. It
// may wait.
func confirmed(r *op, key []byte) bool {
	return r.reign == 0 || confirmedOf(r, cluster.ShardOf(key, r.c.env.Shards))
}

// confirmedAll is confirmed for the keys of the group that is asked for, if one is.
func confirmedAll(r *op) bool { return r.shards == nil || confirmedOf(r, r.shards[0]) }

func confirmedOf(r *op, shard uint16) bool {
	if err := store.Confirm(r.Session.Context(), r.c.env.Store, shard); err != nil {
		r.refuse(err)
		return false
	}
	return true
}

// refusedLeader answers with who leads, if err is that this replica does not. false: it is something else.
func refusedLeader(r *op, err error) bool {
	e, ok := errors.AsType[*store.NotLeaderError](err)
	if !ok || errors.Is(err, store.ErrOutcomeUnknown) {
		return false
	}
	m := wire.NotLeader{Group: uint32(e.Group), Term: e.Term, Leader: []byte(leaderOf(r, e.Group, e.Leader))}
	if own := r.c.env.Owned.Shards(); m.Group == 0 && own != nil && own.Replicated() {
		m.Group = own.Group(r.write.Shard)
	}
	notLeader(r, m)
	return true
}

func leaderOf(r *op, group consensus.GroupID, replica consensus.ReplicaID) string {
	if of := r.c.env.LeaderOf; of != nil && replica != 0 {
		return of(group, replica)
	}
	return ""
}

// notLeader answers with who leads a group.
func notLeader(r *op, m wire.NotLeader) {
	b, err := r.Session.NewBuffer(wire.NotLeaderSize)
	if err != nil {
		r.Failed(wire.StatusOverloaded, "", err)
		return
	}
	b.N = len(wire.AppendNotLeader(b.Mem[:0], r.Header.Type, r.Header.ID, m))
	r.Reply(b, wire.StatusNotLeader)
}

// groupInfo tells a client by what it may believe what it READs of a group: where the replica's cell is, whether the replica leads, and whose words
// the client needs. Nothing is asked of the other voters: what is told was true at a moment, and a client that READs the cells learns whether it
// still is.
func groupInfo(r *op, m wire.GroupInfoRequest) {
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
