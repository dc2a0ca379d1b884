package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The groups of replicas of a cluster, put together from what its nodes say of those that they have. A node may be behind, or say what is not true: the
// leader of the highest term is believed about the others, and each node about its own replica.

type (
	// A groupReport is a group in cluster status -o json.
	groupReport struct {
		ID       uint32          `json:"id"`
		Leader   string          `json:"leader"` // node; "": no node that was reached knows one
		Term     uint64          `json:"term"`
		Shards   []uint16        `json:"shards"`
		Replicas []replicaReport `json:"replicas"` // by id
	}
	// A replicaReport is a replica of it.
	replicaReport struct {
		ID       uint64 `json:"id"`
		Node     string `json:"node"`
		State    string `json:"state"` // leads, follows, learns, waits, stopped: by its node; "": that was not reached
		Why      string `json:"why,omitempty"`
		Votes    bool   `json:"votes"`
		Match    uint64 `json:"match"`    // index up to which it has the leader's entries, by the leader
		Lag      uint64 `json:"lag"`      // entries that it lacks
		Active   bool   `json:"active"`   // the leader has heard of it lately
		Snapshot bool   `json:"snapshot"` // it is being sent one
	}
)

// groupsOf puts the groups together.
func groupsOf(nodes []nodeReport) []groupReport {
	best := map[uint32]*wire.GroupStatus{}
	own := map[string]*wire.GroupStatus{} // by group and node
	key := func(group uint32, node string) string { return fmt.Sprint(group, "/", node) }
	for i := range nodes {
		if nodes[i].Status == nil {
			continue
		}
		for j := range nodes[i].Status.Groups {
			g := &nodes[i].Status.Groups[j]
			own[key(g.ID, nodes[i].ID)] = g
			if b := best[g.ID]; b == nil || better(g, b) {
				best[g.ID] = g
			}
		}
	}
	list := []groupReport{}
	for _, g := range best {
		r := groupReport{ID: g.ID, Leader: g.Leader, Term: g.Term, Shards: append([]uint16{}, g.Shards...), Replicas: []replicaReport{}}
		// A node that answers and does not lead is no leader, whatever another one thinks.
		if o := own[key(g.ID, g.Leader)]; o != nil && o.State != "leads" {
			r.Leader = ""
		}
		for _, p := range g.Replicas {
			one := replicaReport{ID: p.ID, Node: p.Node, Votes: p.Votes}
			if g.State == "leads" {
				one.Match, one.Active, one.Snapshot = p.Match, p.Active, p.Snapshot
				one.Lag = g.Last - min(g.Last, p.Match)
			}
			if o := own[key(g.ID, p.Node)]; o != nil && o.Replica == p.ID {
				one.State, one.Why = o.State, o.Why
			}
			r.Replicas = append(r.Replicas, one)
		}
		slices.SortFunc(r.Replicas, func(a, b replicaReport) int { return cmp.Compare(a.ID, b.ID) })
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b groupReport) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// better says whether a node's report of a group is to be believed rather than another one's: who leads, in the higher term.
func better(a, b *wire.GroupStatus) bool {
	if leads := a.State == "leads"; leads != (b.State == "leads") {
		return leads && a.Term >= b.Term || !leads && a.Term > b.Term
	}
	return a.Term > b.Term
}

// groupsText is the groups for people; "": there are none. What comes from nodes is made harmless.
func groupsText(list []groupReport) string {
	if len(list) == 0 {
		return ""
	}
	lines, notes := []string{"group\tshards\tleader\tterm\treplicas (entries behind)\n"}, ""
	for _, g := range list {
		var all []string
		for _, p := range g.Replicas {
			text := cmp.Or(doctor.OneLine(p.Node), "?")
			switch {
			case p.State == "stopped":
				text += " STOPPED"
				notes += fmt.Sprintf("\ngroup %d: the replica of %s was stopped: %s\n", g.ID, doctor.OneLine(p.Node), doctor.OneLine(p.Why))
			case p.State == "":
				text += " (not reached)"
			case p.State == "waits":
				text += " (waits)"
			case p.Snapshot:
				text += " (snapshot)"
			case p.Lag > 0:
				text += fmt.Sprintf(" (%d)", p.Lag)
			}
			all = append(all, text)
		}
		leader := doctor.OneLine(g.Leader)
		if leader == "" {
			leader = "NONE"
			notes += fmt.Sprintf("\ngroup %d has no leader that could be found: its keys wait until a majority of its replicas is there\n", g.ID)
		}
		lines = append(lines, fmt.Sprintf("%d\t%d\t%s\t%d\t%s\n", g.ID, len(g.Shards), leader, g.Term, strings.Join(all, ", ")))
	}
	return "\n" + cli.Table(lines) + notes
}
