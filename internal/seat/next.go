package seat

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
)

// An Act is what the leader of a group does next.
type Act uint8

const (
	Nothing    Act = iota
	AddLearner     // Config has another learner
	Promote        // Config has a learner as a voter
	Transfer       // To is to lead, because this replica leaves
	Demote         // Config has a voter as a learner
	Remove         // Config has a learner less
)

func (a Act) String() string {
	return [...]string{"nothing", "add a learner", "promote", "transfer", "demote", "remove"}[a]
}

// A Doing is an Act with what it needs.
type Doing struct {
	Act     Act
	Replica consensus.ReplicaID // that it is about
	Config  consensus.Config    // AddLearner, Promote, Demote, Remove: for Engine.Change, which differs by one member
	Why     string              // Nothing: what is waited for; "": the group is as the map wants it
}

// Next says what the leader of a group does to bring it to what the map wants: one step of
//
//	a replica that the map has and the group has not   learns
//	a learner that stays and lacks little              votes
//	a voter that leaves                                learns, once all that stay vote, and not while it leads
//	a learner that leaves                              is out
//
// in that order, so that the group never has fewer voters than before while a replica goes from one node to another. Steady says whether a learner lacks so little, and has
// for so long, that it can vote.
//
// While a voter that stays is away, none begins to vote if that makes the majority larger, and none stops if those that are there would be no majority without it.
//
// g is the group by a map that the meta group has confirmed to be the newest since this replica began to lead, or by a later one. By an older map a new leader might give a
// vote to a replica that the map does not have any more, and its node would give a voter up: Step takes a replica out of the map when the leader of then goes by a map that
// says that it leaves, and knows nothing of those that are elected later. Engine.Change is to be given st.Config.Index, so that a step which is late finds another configuration.
//
// st is of this replica; if it does not lead, there is nothing to do.
func Next(g *cluster.DraftGroup, st *consensus.Status, steady func(consensus.ReplicaID) bool) Doing {
	if !st.Leads || st.Fenced != nil || len(g.Replicas) == 0 {
		return Doing{}
	}
	c := &st.Config
	if !c.Voter(st.ID) { // it was elected by an older configuration
		return Doing{Why: "replica " + text(st.ID) + " has no vote any more, and another one is to lead"}
	}
	for _, list := range [2][]consensus.Member{c.Voters, c.Learners} {
		for _, m := range list {
			if uint64(m.ID) > g.Top {
				return Doing{Why: "the map here is older than the group's configuration"}
			}
		}
	}
	stays := func(id consensus.ReplicaID) bool {
		p := g.Replica(uint64(id))
		return p != nil && !p.Leaves
	}
	var waits string
	for _, m := range c.Learners { // first, so that a node which comes back finds its place free
		switch {
		case stays(m.ID):
		case hasConfig(st):
			return Doing{Act: Remove, Replica: m.ID, Config: without(c, m.ID)}
		default:
			waits = "no majority knows yet that replica " + text(m.ID) + " has no vote"
		}
	}
	all := true // that stay vote
	for _, p := range g.Replicas {
		id := consensus.ReplicaID(p.ID)
		if p.Leaves || c.Voter(id) {
			continue
		}
		all = false
		if c.Learner(id) {
			switch away := absent(st, stays); {
			case !steady(id):
				waits = "replica " + text(id) + " at " + p.Node + " gets what the group has"
			case away != 0 && len(c.Voters)%2 == 1:
				waits = "replica " + text(away) + " at " + c.Node(away) + " is away"
			default:
				return Doing{Act: Promote, Replica: id, Config: with(c, consensus.Member{ID: id, Node: p.Node}, true)}
			}
			continue
		}
		if taken(c, p.Node) {
			waits = "node " + p.Node + " has another replica still, which leaves"
			continue
		}
		return Doing{Act: AddLearner, Replica: id, Config: with(c, consensus.Member{ID: id, Node: p.Node}, false)}
	}
	if !all {
		return Doing{Why: waits}
	}
	for _, m := range c.Voters {
		if stays(m.ID) || m.ID == st.ID { // the others first, and then this one
			continue
		}
		less := with(c, m, false)
		if away := absent(st, stays); away != 0 && there(st, &less) < less.Majority() {
			return Doing{Why: "replica " + text(away) + " at " + c.Node(away) + " is away"}
		}
		return Doing{Act: Demote, Replica: m.ID, Config: less}
	}
	if !stays(st.ID) {
		if to := heir(g, st); to != 0 {
			return Doing{Act: Transfer, Replica: to}
		}
		return Doing{Why: "nobody can take the lead over from node " + c.Node(st.ID)}
	}
	return Doing{Why: waits}
}

// hasConfig says whether a majority of the voters has the configuration in force, this replica among them.
func hasConfig(st *consensus.Status) bool {
	have := 0
	for _, v := range st.Config.Voters {
		if v.ID == st.ID || slices.ContainsFunc(st.Peers, func(p consensus.Peer) bool { return p.ID == v.ID && p.Match >= st.Config.Index }) {
			have++
		}
	}
	return have >= st.Config.Majority()
}

// heard says whether a replica was heard of lately, or is this one.
func heard(st *consensus.Status, id consensus.ReplicaID) bool {
	return id == st.ID || slices.ContainsFunc(st.Peers, func(p consensus.Peer) bool { return p.ID == id && p.Active })
}

// there is how many voters of a configuration were heard of lately.
func there(st *consensus.Status, c *consensus.Config) (n int) {
	for _, v := range c.Voters {
		if heard(st, v.ID) {
			n++
		}
	}
	return n
}

// absent is a voter that stays and was not heard of lately; 0: there is none.
func absent(st *consensus.Status, stays func(consensus.ReplicaID) bool) consensus.ReplicaID {
	for _, v := range st.Config.Voters {
		if stays(v.ID) && !heard(st, v.ID) {
			return v.ID
		}
	}
	return 0
}

// Away are the voters that a leader has not heard of lately, as reports have them.
func Away(st *consensus.Status) (list []uint64) {
	for _, v := range st.Config.Voters {
		if st.Leads && !heard(st, v.ID) {
			list = append(list, uint64(v.ID))
		}
	}
	return list
}

// heir is the voter that stays, was heard of and has most, and the map's first one if it has as much.
func heir(g *cluster.DraftGroup, st *consensus.Status) (to consensus.ReplicaID) {
	var most uint64
	for _, r := range g.Replicas {
		for _, p := range st.Peers {
			if uint64(p.ID) == r.ID && !r.Leaves && st.Config.Voter(p.ID) && p.Active && !p.Snapshot && (to == 0 || p.Match > most) {
				to, most = p.ID, p.Match
			}
		}
	}
	return to
}

func text(id consensus.ReplicaID) string { return strconv.FormatUint(uint64(id), 10) }

func taken(c *consensus.Config, node string) bool {
	at := func(m consensus.Member) bool { return m.Node == node }
	return slices.ContainsFunc(c.Voters, at) || slices.ContainsFunc(c.Learners, at)
}

func without(c *consensus.Config, id consensus.ReplicaID) consensus.Config {
	gone := func(m consensus.Member) bool { return m.ID == id }
	return consensus.Config{Voters: slices.DeleteFunc(slices.Clone(c.Voters), gone), Learners: slices.DeleteFunc(slices.Clone(c.Learners), gone)}
}

// with is the configuration with a member as a voter, or as a learner.
func with(c *consensus.Config, m consensus.Member, votes bool) consensus.Config {
	n := without(c, m.ID)
	list := &n.Learners
	if votes {
		list = &n.Voters
	}
	*list = append(*list, m)
	slices.SortFunc(*list, func(a, b consensus.Member) int { return cmp.Compare(a.ID, b.ID) })
	return n
}
