package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/client/admin"
)

// lagMost is how many entries a replica may be behind before it is worth a warning. A replica takes thousands of entries in a second, so it is
// no more than a moment; and one that is behind by more is no replacement for the leader yet.
const lagMost = 10_000

// named bounds the groups that a text names.
const named = 8

// A groupHealth is what can be said of one group.
type groupHealth struct {
	*admin.Group
	up     []string // nodes of the voters that take part
	voters int
}

// spare is how many more nodes of the group may be lost: below 0 it has no majority.
func (g *groupHealth) spare() int { return len(g.up) - (g.voters/2 + 1) }

// replicas asks a node of a cluster with replicas for its groups.
func (e *peerExam) replicas(ctx context.Context, p Peer, addr string, info *admin.ClusterInfo) {
	r, ok := p.(Replicating)
	if !ok || info.Founders == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	told, err := r.Groups(ctx)
	if err != nil {
		e.skip("groups of", addr, "it does not tell of them: %v", err)
		e.mute = append(e.mute, addr)
		return
	}
	e.told[info.Teller] = told
	if e.founders == nil || info.MapVersion >= e.version { // while a cluster is changed, nodes have other maps for moments
		e.founders, e.version = info.Founders, info.MapVersion
	}
}

// groups judges what the nodes have told of their groups. Where one that was reached has not, as to a tenant without the admin right, what
// the others say is not enough: it may lead.
func (e *peerExam) groups() {
	switch {
	case e.founders == nil:
	case len(e.mute) > 0:
		e.skip("groups", "", "%d nodes do not tell of their groups: with the main secret, or a tenant with the right admin", len(e.mute))
	default:
		e.report.Add(Groups(admin.GroupsOf(e.founders, e.told))...)
	}
}

// takesPart says whether a replica does: by its leader, who hears of it, or by itself where no leader was heard.
func takesPart(g *admin.Group, p *admin.Replica) bool {
	switch {
	case p.State == "stopped" || p.State == "waits":
		return false
	case g.Heard():
		return p.Active || p.Node == g.Leader
	}
	return p.State != ""
}

// Groups examines the groups of a cluster with replicas, as GroupsOf of package admin puts them together: whether each has a leader, and a
// majority of voters that take part; how many more nodes may be lost; which voters take no part, or are behind. Replicas without a vote
// come or go, as the tasks of the cluster say, and are no trouble. No groups: no steps.
func Groups(groups []admin.Group) (steps []Step) {
	if len(groups) == 0 {
		return nil
	}
	var leaderless, without []string
	away := make(map[string][]string) // groups, by node and why
	spare, least := 1<<30, []string{}
	whole := true      // all voters of the least groups take part
	var learn []string // groups
	for i := range groups {
		g := groupHealth{Group: &groups[i]}
		id := fmt.Sprint(g.ID)
		for j := range g.Replicas {
			p := &g.Replicas[j]
			if !p.Votes {
				if !slices.Contains(learn, id) {
					learn = append(learn, id)
				}
				continue
			}
			in := takesPart(g.Group, p)
			g.voters++
			if in {
				g.up = append(g.up, p.Node)
			}
			if !in {
				why := awayText(p)
				away[OneLine(p.Node)+"\x00"+why] = append(away[OneLine(p.Node)+"\x00"+why], id)
			} else if p.Snapshot || p.Lag > lagMost {
				steps = append(steps, lagStep(g.Group, p))
			}
		}
		if g.Leader == "" {
			leaderless = append(leaderless, id)
		}
		switch s := g.spare(); {
		case s < 0:
			without = append(without, id)
		case s < spare:
			spare, least, whole = s, []string{id}, len(g.up) == g.voters
		case s == spare:
			least, whole = append(least, id), whole && len(g.up) == g.voters
		}
	}
	for _, key := range slices.Sorted(maps.Keys(away)) {
		node, why, _ := strings.Cut(key, "\x00")
		steps = append(steps, Step{Name: "replicas of", Subject: node, Level: Warn, Code: CodeReplicaAway, Do: "kvclient doctor there, and its log", Text: fmt.Sprintf("%s of %s", why, groupsText(away[key]))})
	}
	if len(without) > 0 {
		steps = append(steps, Step{Name: "majority", Level: Fail, Code: CodeNoMajority, Do: "bring back the nodes that are away, with their data directories: nobody else may serve these keys",
			Text: groupsText(without) + verb(without, " has", " have") + " no majority of replicas that take part: its keys wait"})
	}
	if len(leaderless) > 0 {
		steps = append(steps, Step{Name: "leaders", Level: Fail, Code: CodeNoLeader, Do: "look again in some seconds: an election takes less than one. If it stays so, bring back the nodes that are away",
			Text: groupsText(leaderless) + verb(leaderless, " has", " have") + " no leader that could be found"})
	}
	switch {
	case len(without) > 0: // there is nothing to spare
	case spare == 0 && whole: // as many replicas as the operator wants
		steps = append(steps, Step{Name: "majority", Level: OK, Text: fmt.Sprintf("each of %d groups has a majority of replicas that take part; the loss of one more node stops %s, which has too few replicas to bear it (kvclient cluster replicas 3)", len(groups), groupsText(least))})
	case spare == 0:
		steps = append(steps, Step{Name: "majority", Level: Warn, Code: CodeNoSpare, Do: "bring back the nodes that are away", Text: "the loss of one more node stops " + groupsText(least)})
	default:
		steps = append(steps, Step{Name: "majority", Level: OK, Text: fmt.Sprintf("each of %d groups has a majority of replicas that take part; %s may be lost", len(groups), nodesText(spare))})
	}
	if len(learn) > 0 {
		steps = append(steps, Step{Name: "replicas", Level: OK, Text: "of " + groupsText(learn) + verb(learn, " one comes or goes", " some come or go") + " (kvclient cluster tasks)"})
	}
	if len(leaderless) == 0 {
		steps = append(steps, Step{Name: "leaders", Level: OK, Text: fmt.Sprintf("each of %d groups has one", len(groups))})
	}
	return steps
}

// awayText says why a replica takes no part.
func awayText(p *admin.Replica) string {
	switch {
	case p.State == "stopped":
		return "it has stopped its part (" + cmp.Or(OneLine(p.Why), "it does not say why") + ")"
	case p.State == "waits":
		return "it takes no part yet (" + cmp.Or(OneLine(p.Why), "it does not say why") + ")"
	case p.State == "":
		return "it is not heard, as a replica"
	}
	return "the leader does not hear it, as a replica"
}

// lagStep tells of a replica that is behind.
func lagStep(g *admin.Group, p *admin.Replica) Step {
	text := fmt.Sprintf("it is %d entries behind", p.Lag)
	if p.Snapshot {
		text = "it is so far behind that it is sent all keys"
	}
	return Step{Name: "replica of " + OneLine(p.Node) + " in", Subject: fmt.Sprintf("group %d", g.ID), Level: Warn, Code: CodeReplicaLags, Do: "look again: if it does not get less, its disk, its network: kvclient doctor there", Text: text}
}

// groupsText names groups.
func groupsText(ids []string) string {
	switch {
	case len(ids) == 1:
		return "group " + ids[0]
	case len(ids) > named:
		return fmt.Sprintf("%d groups (%s and others)", len(ids), strings.Join(ids[:named], ", "))
	}
	return "groups " + strings.Join(ids, ", ")
}

// nodesText is how many nodes.
func nodesText(n int) string {
	if n == 1 {
		return "one more node"
	}
	return fmt.Sprintf("%d more nodes", n)
}

// verb is the form for one or for several.
func verb(list []string, one, several string) string {
	if len(list) == 1 {
		return one
	}
	return several
}
