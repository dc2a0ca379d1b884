package admin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The groups of replicas of a cluster, put together from what its nodes say of their own replicas.
//
//	the map     which groups there are, with which shards, for ever; which replicas each is to have
//	the leader  of the highest term: which replicas the group has now, and how far each is
//	each node   the state of its own replica
//
// A node may be behind, and may say what is not true. So each is believed about as little as possible.

// stateLeads is the state of a replica that leads, as nodes write it.
const stateLeads = "leads"

// A Group is a group of shards with its replicas. Indexes are those of the group's own log: the
// first entry is 1, and 0 is none.
type Group struct {
	ID     uint32 `json:"id"`
	Leader string `json:"leader"` // node; "": nobody who was heard leads it, or knows who does
	// Term is the leader's. Without a leader it is the highest that a replica has told; 0: none has.
	Term     uint64    `json:"term"`
	Shards   []uint16  `json:"shards"`   // rising
	Replicas []Replica `json:"replicas"` // by id; in ClusterInfo.Founders the preferred leader first
}

// A Replica is one replica of a group. What is behind Votes is its leader's knowledge, and zero
// if that was not heard (Group.Heard); State and Why are its own node's.
type Replica struct {
	ID       uint64 `json:"id"`
	Node     string `json:"node"`
	Votes    bool   `json:"votes"`
	Leaves   bool   `json:"leaves,omitempty"` // by the map: the leader is to take it out
	Match    uint64 `json:"match"`            // index up to which it has the leader's entries, durably
	Lag      uint64 `json:"lag"`              // entries: the leader's newest index less Match, and never below 0
	Active   bool   `json:"active"`           // the leader has heard of it within an election timeout
	Snapshot bool   `json:"snapshot"`         // it is being sent one
	State    string `json:"state"`            // leads, follows, learns (without a vote), waits (it takes no part yet), stopped; "": its node has not told
	Why      string `json:"why,omitempty"`
}

// A GroupStatus is what a node says of a group that it has a replica of: one of "groups" in the
// JSON that Status answers. It is as the node has sent it: texts in it may steer a terminal.
type GroupStatus = wire.GroupStatus

// Heard reports whether the leader itself has told of the group: then Match, Lag, Active and
// Snapshot of its replicas are known, and are zero otherwise.
func (g *Group) Heard() bool {
	return g.Leader != "" && slices.ContainsFunc(g.Replicas, func(p Replica) bool { return p.Node == g.Leader && p.State == stateLeads })
}

// GroupsOf puts the groups of a cluster together, by id, from what its nodes say of theirs (told,
// by node). founders are those of the map, ClusterInfo.Founders: each is in the answer, whoever
// tells of it, has the map's shards, and others are not; nil: there is no map to go by, and the
// nodes are taken at their word. A node that was asked and has no groups is in told with none, one
// that has not answered is not.
//
// Where nodes contradict each other:
//   - Of several that say they lead, the higher term wins, then the lower node id.
//   - That leader leads no more where a majority of its voters tell of a later term.
//   - Where no leader was heard, the replica of the highest term is believed about who it is, unless
//     that node was heard, and says that it does not lead.
//   - A leader is a voter of the group by the list of the replica that tells of it. Of a group, a
//     replica or a node that is named twice the first one counts; the id 0 is none.
//
// It never fails, changes none of its arguments, shares no memory with them, and is safe for
// concurrent use. Its lists are never nil, so that JSON has no null.
func GroupsOf(founders []Group, told map[string][]GroupStatus) []Group {
	by := make(map[uint32][]report)
	for _, node := range slices.Sorted(maps.Keys(told)) {
		said := make(map[uint32]bool)
		for i := range told[node] {
			g := &told[node][i]
			if g.ID == 0 || said[g.ID] {
				continue
			}
			said[g.ID] = true
			by[g.ID] = append(by[g.ID], report{node: node, said: g, replicas: replicasIn(g)})
		}
	}
	list := make([]Group, 0, max(len(founders), len(by)))
	for i := range founders {
		list = append(list, groupOf(founders[i], by[founders[i].ID], told))
	}
	if founders == nil {
		for id, reports := range by {
			g := Group{ID: id, Shards: slices.Clone(best(reports).said.Shards)}
			slices.Sort(g.Shards)
			g.Shards = slices.Compact(g.Shards)
			list = append(list, groupOf(g, reports, told))
		}
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// A report is what one node says of one group.
type report struct {
	node     string
	said     *GroupStatus
	replicas []wire.ReplicaStatus // each id and each node once
}

// replicasIn is the list of a report without what is there twice.
func replicasIn(g *GroupStatus) (list []wire.ReplicaStatus) {
	ids, nodes := make(map[uint64]bool), make(map[string]bool)
	for _, p := range g.Replicas {
		if p.ID == 0 || p.Node == "" || ids[p.ID] || nodes[p.Node] {
			continue
		}
		ids[p.ID], nodes[p.Node] = true, true
		list = append(list, p)
	}
	return list
}

// voter reports whether a node has a voter by the report's list; id 0 stands for any.
func (r *report) voter(node string, id uint64) bool {
	return slices.ContainsFunc(r.replicas, func(p wire.ReplicaStatus) bool { return p.Node == node && p.Votes && (id == 0 || p.ID == id) })
}

// leads reports whether the report is that of a leader that its own list bears out.
func (r *report) leads() bool {
	return r.said.State == stateLeads && r.said.Replica != 0 && r.voter(r.node, r.said.Replica)
}

// best is the report of the highest term; of several the first one that knows a leader. There is
// at least one report.
func best(reports []report) (b *report) {
	for i := range reports {
		r := &reports[i]
		if b == nil || r.said.Term > b.said.Term || r.said.Term == b.said.Term && b.said.Leader == "" && r.said.Leader != "" {
			b = r
		}
	}
	return b
}

// leaderOf is the report of the leader; nil if none was heard.
func leaderOf(reports []report) (l *report) {
	for i := range reports {
		if r := &reports[i]; r.leads() && (l == nil || r.said.Term > l.said.Term) {
			l = r
		}
	}
	if l == nil {
		return nil
	}
	voters, left := 0, 0
	for _, p := range l.replicas {
		if !p.Votes {
			continue
		}
		voters++
		if slices.ContainsFunc(reports, func(r report) bool {
			return r.node == p.Node && r.said.Replica == p.ID && r.said.Term > l.said.Term
		}) {
			left++
		}
	}
	if left > voters/2 { // a majority has voted in, or heard of, a later term: it commits nothing
		return nil
	}
	return l
}

// groupOf is one group from the reports of it; g has its id and shards, and the replicas that are
// taken for its own if no report has any.
func groupOf(g Group, reports []report, told map[string][]GroupStatus) Group {
	out := Group{ID: g.ID, Shards: append([]uint16{}, g.Shards...), Replicas: []Replica{}}
	leader := leaderOf(reports)
	from := leader // whose list it is
	if leader != nil {
		out.Leader, out.Term = leader.node, leader.said.Term
	} else if len(reports) > 0 {
		from = best(reports)
		out.Term = from.said.Term
		if _, heard := told[from.said.Leader]; !heard && from.voter(from.said.Leader, 0) {
			out.Leader = from.said.Leader
		}
	}
	if from != nil {
		for _, p := range from.replicas {
			one := Replica{ID: p.ID, Node: p.Node, Votes: p.Votes}
			if leader != nil {
				one.Match, one.Active, one.Snapshot = p.Match, p.Active, p.Snapshot
				one.Lag = leader.said.Last - min(leader.said.Last, p.Match)
			}
			out.Replicas = append(out.Replicas, one)
		}
	}
	if len(out.Replicas) == 0 {
		out.Replicas = append(out.Replicas, g.Replicas...)
	}
	for i := range out.Replicas {
		p := &out.Replicas[i]
		p.Leaves = slices.ContainsFunc(g.Replicas, func(o Replica) bool { return o.ID == p.ID && o.Leaves })
		for _, r := range reports {
			if r.node == p.Node && r.said.Replica == p.ID {
				p.State, p.Why = r.said.State, r.said.Why
			}
		}
	}
	slices.SortFunc(out.Replicas, func(a, b Replica) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// foundersOf are the groups of a map; nil: it has none.
func foundersOf(m *cluster.Map) (list []Group) {
	if m.Replication == nil {
		return nil
	}
	for i := range m.Replication.Groups {
		g := inMap(m, &m.Replication.Groups[i])
		g.Shards = m.Replication.ShardsOf(i)
		list = append(list, g)
	}
	return list
}

// metaOf is the meta group of a map; nil: it has none.
func metaOf(m *cluster.Map) *Group {
	if m.Replication == nil || m.Replication.Meta == nil {
		return nil
	}
	g := inMap(m, m.Replication.Meta)
	return &g
}

// inMap is a group as the map has it, without its shards.
func inMap(m *cluster.Map, from *cluster.Group) Group {
	g := Group{ID: from.ID, Shards: []uint16{}}
	for _, p := range from.Replicas {
		g.Replicas = append(g.Replicas, Replica{ID: p.ID, Node: m.Nodes[p.Node].ID, Votes: true, Leaves: p.Leaves})
	}
	return g
}

// replicasOfEach is how many replicas each group of a map has that do not leave; of groups that differ for a while, the least.
func replicasOfEach(m *cluster.Map) int {
	least := cluster.MaxReplicas
	for _, g := range m.Replication.Groups {
		stay := 0
		for _, p := range g.Replicas {
			if !p.Leaves {
				stay++
			}
		}
		least = min(least, stay)
	}
	return least
}
