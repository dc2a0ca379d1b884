package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The groups of replicas in cluster status. package admin puts them together; here is how they look, and which of them
// are trouble.

// told is what the nodes that have answered say of their groups, by node.
func (r *statusReport) told() map[string][]admin.GroupStatus {
	told := make(map[string][]admin.GroupStatus)
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Status != nil {
			told[n.ID] = n.Status.Groups
		}
	}
	return told
}

// leaderless are the groups that nobody leads, as far as can be known: a node that is there and says nothing of itself, as
// to a tenant without the admin right, may lead any of its groups.
func (r *statusReport) leaderless() map[uint32]bool {
	mute := make(map[string]bool)
	for i := range r.Nodes {
		n := &r.Nodes[i]
		mute[n.ID] = n.Reached && n.Status == nil
	}
	list := make(map[uint32]bool)
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Leader == "" && !slices.ContainsFunc(g.Replicas, func(p admin.Replica) bool { return mute[p.Node] }) {
			list[g.ID] = true
		}
	}
	return list
}

// idle are the groups that are not at work yet: nobody leads them, or a node that tells of its replica has it not started.
func (r *statusReport) idle() (list []uint32) {
	leaderless := r.leaderless()
	for i := range r.Groups {
		g := &r.Groups[i]
		if leaderless[g.ID] || slices.ContainsFunc(g.Replicas, func(p admin.Replica) bool { return p.State == "waits" }) {
			list = append(list, g.ID)
		}
	}
	return list
}

// groupsText is the groups for people; "": there are none. What comes from nodes is made harmless.
func (r *statusReport) groupsText() string {
	if len(r.Groups) == 0 {
		return ""
	}
	lines, notes := []string{"group\tshards\tleader\tterm\treplicas (entries behind)\n"}, ""
	leaderless := r.leaderless()
	for i := range r.Groups {
		g := &r.Groups[i]
		var all []string
		for _, p := range g.Replicas {
			all = append(all, replicaText(g, &p))
			if p.State == "stopped" {
				notes += fmt.Sprintf("\ngroup %d: the replica of %s was stopped: %s\n", g.ID, doctor.OneLine(p.Node), cmp.Or(doctor.OneLine(p.Why), "it does not say why"))
			}
		}
		leader := cmp.Or(doctor.OneLine(g.Leader), "?")
		if leaderless[g.ID] {
			leader = "NONE"
			notes += fmt.Sprintf("\ngroup %d has no leader that could be found: its keys wait until a majority of its replicas is there\n", g.ID)
		}
		lines = append(lines, fmt.Sprintf("%d\t%d\t%s\t%d\t%s\n", g.ID, len(g.Shards), leader, g.Term, strings.Join(all, ", ")))
	}
	return "\n" + cli.Table(lines) + notes
}

// replicaText is a replica in the table: its node, and how far it is behind the leader or why that is not known.
func replicaText(g *admin.Group, p *admin.Replica) string {
	text := cmp.Or(doctor.OneLine(p.Node), "?")
	if p.Leaves {
		text += " (leaves)"
	}
	switch {
	case p.State == "stopped":
		return text + " STOPPED"
	case p.State == "":
		return text + " (not heard)"
	case p.State == "waits":
		return text + " (waits)"
	case p.Snapshot:
		return text + " (snapshot)"
	case p.State == "learns" && g.Heard():
		return fmt.Sprintf("%s (learns, %d)", text, p.Lag)
	case p.State == "leads" && p.Node == g.Leader:
		return text
	case !g.Heard():
		return text + " (?)"
	}
	return fmt.Sprintf("%s (%d)", text, p.Lag)
}

// metaText is the meta group for people; "": there is none.
func (r *statusReport) metaText() string {
	if r.Meta == nil {
		return ""
	}
	var all []string
	for _, p := range r.Meta.Replicas {
		text := doctor.OneLine(p.Node)
		if p.Leaves {
			text += " (leaves)"
		}
		all = append(all, text)
	}
	return "the meta group, which agrees on changes: " + strings.Join(all, ", ") + "\n"
}

// zoned says whether the map says of any node where it stands.
func (r *statusReport) zoned() bool {
	return slices.ContainsFunc(r.Nodes, func(n nodeReport) bool { return n.Zone != "" })
}

// another says whether a node has another version of the map of this cluster in force, as for a moment while the cluster is
// changed: a later one than this command was told, or one before it.
func (r *statusReport) another(s *wire.NodeStatus) bool {
	return r.Meta != nil && s.Map.State == "committed" && s.Map.Version != r.Map.Version && s.Map.Version > 0 && s.ClusterID == r.ID
}
