package nodes

import (
	"math"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// saidBy is a node with what it says of its groups.
func saidBy(id string, groups ...wire.GroupStatus) nodeReport {
	return nodeReport{ID: id, Status: &wire.NodeStatus{NodeReplicas: wire.NodeReplicas{Groups: groups}}}
}

func said(replica uint64, state, leader string, term, last uint64, match ...uint64) wire.GroupStatus {
	g := wire.GroupStatus{ID: 3, Replica: replica, State: state, Leader: leader, Term: term, Last: last, Shards: []uint16{1, 4}}
	for i, m := range match {
		g.Replicas = append(g.Replicas, wire.ReplicaStatus{ID: uint64(i + 1), Node: string(rune('a' + i)), Votes: true, Match: m, Active: true})
	}
	return g
}

// TestGroupsOf: a group is what its leader of the highest term says, and each replica what its node says; what contradicts, or is not there, makes no
// leader and no lag.
func TestGroupsOf(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  []nodeReport
		leader string
		term   uint64
		lag    uint64 // of replica 2
		state  string // of replica 2
	}{
		"all well":                  {[]nodeReport{saidBy("a", said(1, "leads", "a", 5, 9, 9, 7, 9)), saidBy("b", said(2, "follows", "a", 5, 7, 0, 7, 0))}, "a", 5, 2, "follows"},
		"an old leader thinks so":   {[]nodeReport{saidBy("a", said(1, "leads", "a", 4, 9, 9, 7, 9)), saidBy("b", said(2, "leads", "b", 5, 9, 9, 9, 9))}, "b", 5, 0, "leads"},
		"the leader is not reached": {[]nodeReport{{ID: "a"}, saidBy("b", said(2, "follows", "a", 5, 7, 0, 7, 0))}, "a", 5, 0, "follows"},
		"nobody leads":              {[]nodeReport{saidBy("a", said(1, "follows", "b", 5, 7, 0, 7, 0)), saidBy("b", said(2, "follows", "a", 5, 7, 0, 7, 0))}, "", 5, 0, "follows"},
		"a newer term without one":  {[]nodeReport{saidBy("a", said(1, "leads", "a", 5, 9, 9, 7, 9)), saidBy("b", said(2, "follows", "", 6, 7, 0, 7, 0))}, "", 6, 0, "follows"},
		"more than there is":        {[]nodeReport{saidBy("a", said(1, "leads", "a", 5, 9, 9, math.MaxUint64, 9))}, "a", 5, 0, ""},
		"another replica's word":    {[]nodeReport{saidBy("a", said(1, "leads", "a", 5, 9, 9, 9, 9)), saidBy("b", said(7, "stopped", "a", 5, 7))}, "a", 5, 0, ""},
	} {
		list := groupsOf(c.nodes)
		if len(list) != 1 || list[0].ID != 3 || len(list[0].Shards) != 2 || len(list[0].Replicas) != 3 {
			t.Errorf("%s: %+v", name, list)
			continue
		}
		g := list[0]
		if g.Leader != c.leader || g.Term != c.term || g.Replicas[1].Lag != c.lag || g.Replicas[1].State != c.state {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if list := groupsOf([]nodeReport{{ID: "a"}, saidBy("b")}); list == nil || len(list) != 0 || groupsText(list) != "" {
		t.Errorf("without groups: %+v", list)
	}
}

// TestGroupsText: a group without a leader and a replica that was stopped stand out, and no node's text steers a terminal.
func TestGroupsText(t *testing.T) {
	bad := said(2, "stopped", "", 5, 7)
	bad.Why = "disk\x1b[2J is gone"
	lead := said(1, "leads", "a", 5, 9, 9, 7, 9)
	lead.Replicas[2].Node = "c\x1b[2J\nx"
	text := groupsText(groupsOf([]nodeReport{saidBy("a", lead), saidBy("b", bad)}))
	for _, want := range []string{"3      2       a       5", "b STOPPED", "was stopped: disk"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 5 {
		t.Errorf("it steers the terminal: %q", text)
	}
	if text := groupsText(groupsOf([]nodeReport{saidBy("b", said(2, "follows", "", 5, 7, 0, 7, 0))})); !strings.Contains(text, "NONE") || !strings.Contains(text, "no leader") {
		t.Errorf("nobody leads:\n%s", text)
	}
}

// TestCheckReplicas: what the flags ask for and cannot be is refused before any node is asked.
func TestCheckReplicas(t *testing.T) {
	for args, want := range map[string]string{
		"n1 n2 n3":                            "",
		"--replicas 1 n1":                     "",
		"--replicas 3 n1 n2 n3":               "",
		"--replicas 3 --groups 4 n1 n2 n3 n4": "",
		"--replicas 2 n1 n2":                  "even number",
		"--replicas 0 n1":                     "1, 3, 5 or 7",
		"--replicas -1 n1":                    "1, 3, 5 or 7",
		"--replicas 9 n1":                     "1, 3, 5 or 7",
		"--replicas 3 n1 n2":                  "2 are named",
		"--replicas 3 n1 n2 n3:0":             "2 are named",
		"--groups 4 n1 n2 n3":                 "--replicas 3",
		"--replicas 3 --groups 0 n1 n2 n3":    "--groups 0",
		"--replicas 3 --groups 257 n1 n2 n3":  "--groups 257",
	} {
		cmd := clusterInitCmd(nil)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var o admin.InitOptions
		o.Replicas, _ = cmd.Flags().GetInt("replicas")
		o.Groups, _ = cmd.Flags().GetInt("groups")
		nodes, err := parseWeights(cmd.Flags().Args())
		if err == nil {
			err = checkReplicas(cmd, o, nodes)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
