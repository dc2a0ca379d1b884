package seat

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
)

// lists are members of a group as text: "1 2 3" are replicas 1 to 3, at nodes n1 to n3.
func lists(text string) (list []consensus.Member) {
	for _, f := range strings.Fields(text) {
		list = append(list, consensus.Member{ID: consensus.ReplicaID(f[0] - '0'), Node: "n" + f})
	}
	return list
}

func (d Doing) text() string {
	var b strings.Builder
	b.WriteString(d.Act.String())
	if d.Replica != 0 {
		b.WriteString(" " + text(d.Replica))
	}
	for _, list := range [][]consensus.Member{d.Config.Voters, d.Config.Learners} {
		if len(d.Config.Voters) > 0 {
			b.WriteString(" |")
			for _, m := range list {
				b.WriteString(" " + text(m.ID))
			}
		}
	}
	return b.String()
}

// TestNext: the one step, of a group whose map and configuration are as told.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name           string
		m              string // replicas of the map; those with a minus leave
		voters, learns string
		leader         consensus.ReplicaID
		away           string // not heard of
		lags           string // have not got the configuration, or are not steady
		want, why      string
	}{
		{"as wanted", "1 2 3", "1 2 3", "", 1, "", "", "nothing", ""},
		{"a new one", "1- 2 3 4", "1 2 3", "", 2, "", "", "add a learner 4 | 1 2 3 | 4", ""},
		{"a new one, while others are away", "1- 2 3 4", "1 2 3", "", 2, "3", "", "add a learner 4 | 1 2 3 | 4", ""},
		{"it lacks much", "1- 2 3 4", "1 2 3", "4", 2, "", "4", "nothing", "replica 4 at n4 gets what the group has"},
		{"it votes", "1- 2 3 4", "1 2 3", "4", 2, "", "", "promote 4 | 1 2 3 4 |", ""},
		{"it votes while the old one is away", "1- 2 3 4", "1 2 3", "4", 2, "1", "", "promote 4 | 1 2 3 4 |", ""},
		{"it waits for one that stays", "1- 2 3 4", "1 2 3", "4", 2, "3", "", "nothing", "replica 3 at n3 is away"},
		{"an even number does not", "1 2 3 4 5", "1 2 3 4", "5", 2, "3", "", "promote 5 | 1 2 3 4 5 |", ""},
		{"the old one stops", "1- 2 3 4", "1 2 3 4", "", 2, "", "", "demote 1 | 2 3 4 | 1", ""},
		{"the old one, away, stops", "1- 2 3 4", "1 2 3 4", "", 2, "1", "", "demote 1 | 2 3 4 | 1", ""},
		{"it stops while another one is away", "1- 2 3 4", "1 2 3 4", "", 2, "3", "", "demote 1 | 2 3 4 | 1", ""},
		{"one less", "1- 2 3", "1 2 3", "", 2, "", "", "demote 1 | 2 3 | 1", ""},
		{"one less would be no majority", "1- 2 3", "1 2 3", "", 2, "3", "", "nothing", "replica 3 at n3 is away"},
		{"the old one leads", "1- 2 3 4", "1 2 3 4", "", 1, "", "", "transfer 2", ""},
		{"it leads, and another one is away", "1- 2 3 4", "1 2 3 4", "", 1, "2", "", "transfer 3", ""},
		{"it leads, and another one is behind", "1- 2 3 4", "1 2 3 4", "", 1, "", "2", "transfer 3", ""},
		{"others leave first", "1- 2- 3 4", "1 2 3 4", "", 1, "", "", "demote 2 | 1 3 4 | 2", ""},
		{"nobody can take over", "1- 2", "1 2", "", 1, "2", "", "nothing", "nobody can take the lead over from node n1"},
		{"the old one is out", "1- 2 3 4", "2 3 4", "1", 2, "", "", "remove 1 | 2 3 4 |", ""},
		{"not before a majority knows", "1- 2 3 4", "2 3 4", "1", 2, "", "3 4", "nothing", "no majority knows yet that replica 1 has no vote"},
		{"a minority need not know", "1- 2 3 4", "2 3 4", "1", 2, "4", "3", "remove 1 | 2 3 4 |", ""},
		{"with a majority it is out, whoever is away", "1- 2 3 4", "2 3 4", "1", 2, "1 4", "", "remove 1 | 2 3 4 |", ""},
		{"undone: a learner goes", "1 2 3 4-", "1 2 3", "4", 2, "3 4", "", "remove 4 | 1 2 3 |", ""},
		{"undone: a voter stops", "1 2 3 4-", "1 2 3 4", "", 2, "4", "", "demote 4 | 1 2 3 | 4", ""},
		{"undone: the old one votes again", "1 2 3 4-", "2 3 4", "1", 2, "", "", "promote 1 | 1 2 3 4 |", ""},
		{"the map is older", "1 2 3", "1 2 3", "4", 2, "", "", "nothing", "the map here is older than the group's configuration"},
		{"who is not in the map goes", "1 2 3 5", "1 2 3", "4", 2, "", "", "remove 4 | 1 2 3 |", ""},
		{"from one to one", "1- 2", "1", "", 1, "", "", "add a learner 2 | 1 | 2", ""},
		{"from one to one: two vote", "1- 2", "1", "2", 1, "", "", "promote 2 | 1 2 |", ""},
		{"from one to one: the other leads", "1- 2", "1 2", "", 1, "", "", "transfer 2", ""},
		{"from one to one: it stops", "1- 2", "1 2", "", 2, "", "", "demote 1 | 2 | 1", ""},
		{"from one to one: it is out", "1- 2", "2", "1", 2, "", "", "remove 1 | 2 |", ""},
		{"it follows", "1- 2 3 4", "1 2 3", "", 0, "", "", "nothing", ""},
		{"it has no vote any more", "1- 2 3 4", "2 3 4", "1", 1, "", "", "nothing", "replica 1 has no vote any more, and another one is to lead"},
	} {
		g := cluster.DraftGroup{ID: 1}
		for _, f := range strings.Fields(c.m) {
			p := cluster.DraftReplica{ID: uint64(f[0] - '0'), Node: "n" + f[:1], Leaves: strings.HasSuffix(f, "-")}
			g.Replicas, g.Top = append(g.Replicas, p), max(g.Top, p.ID)
		}
		st := consensus.Status{Group: 1, ID: max(1, c.leader), Leads: c.leader != 0, Config: consensus.Config{Index: 10, Voters: lists(c.voters), Learners: lists(c.learns)}}
		for _, m := range slices.Concat(st.Config.Voters, st.Config.Learners) {
			if m.ID != st.ID {
				p := consensus.Peer{Member: m, Learner: st.Config.Learner(m.ID), Match: 12, Active: !strings.Contains(c.away, text(m.ID))}
				if strings.Contains(c.lags, text(m.ID)) {
					p.Match = 9
				}
				st.Peers = append(st.Peers, p)
			}
		}
		do := Next(&g, &st, func(id consensus.ReplicaID) bool { return !strings.Contains(c.lags, text(id)) })
		if got := do.text(); strings.TrimSpace(got) != c.want || do.Why != c.why {
			t.Errorf("%s: %q (%s), not %q (%s)", c.name, got, do.Why, c.want, c.why)
		}
		if len(do.Config.Voters) > 0 {
			if err := do.Config.Check(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	// A node that comes back with another replica waits until the one of before is out.
	g := cluster.DraftGroup{ID: 1, Top: 5, Replicas: []cluster.DraftReplica{{Node: "n1", ID: 1}, {Node: "n2", ID: 2}, {Node: "n3", ID: 3}, {Node: "n4", ID: 5}}}
	st := consensus.Status{ID: 1, Leads: true, Config: consensus.Config{Index: 10, Voters: lists("1 2 3"), Learners: lists("4")}}
	if do := Next(&g, &st, nil); do.Act != Nothing || do.Why != "node n4 has another replica still, which leaves" {
		t.Errorf("%+v", do)
	}
	if do := Next(&cluster.DraftGroup{}, &st, nil); do.Act != Nothing {
		t.Errorf("a group that the map has not: %+v", do)
	}
	st.Fenced = consensus.ErrFenced
	if do := Next(&g, &st, nil); do.Act != Nothing || do.Why != "" {
		t.Errorf("a replica that was stopped: %+v", do)
	}
}

// TestAway: who is away, by a leader; others do not know.
func TestAway(t *testing.T) {
	st := consensus.Status{ID: 2, Leads: true, Config: consensus.Config{Voters: lists("1 2 3"), Learners: lists("4")}, Peers: []consensus.Peer{{Member: lists("1")[0], Active: true}, {Member: lists("3")[0]}}}
	if got := Away(&st); !slices.Equal(got, []uint64{3}) {
		t.Error(got)
	}
	if st.Leads = false; Away(&st) != nil {
		t.Error("a follower says who is away")
	}
}
