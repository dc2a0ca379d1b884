package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
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

// showing is a report of these nodes, put together as clusterStatus does.
func showing(founders []admin.Group, nodes ...nodeReport) *statusReport {
	r := &statusReport{Clustered: true, Map: mapReport{Version: 1}, Nodes: nodes}
	r.Groups = admin.GroupsOf(founders, r.told())
	return r
}

// founders are group 3 as the map has it.
func founders() []admin.Group {
	g := admin.Group{ID: 3, Shards: []uint16{1, 4}}
	for i, node := range []string{"a", "b", "c"} {
		g.Replicas = append(g.Replicas, admin.Replica{ID: uint64(i + 1), Node: node, Votes: true})
	}
	return []admin.Group{g}
}

// TestGroupsText: lags stand beside the nodes, a group without a leader and a replica that was stopped stand out, and no node's text
// steers a terminal.
func TestGroupsText(t *testing.T) {
	bad := said(2, "stopped", "", 5, 7)
	bad.Why = "disk\x1b[2J is gone"
	lead := said(1, "leads", "a", 5, 9, 9, 7, 9)
	lead.Replicas[2].Node = "c\x1b[2J\nx"
	text := showing(nil, saidBy("a", lead), saidBy("b", bad)).groupsText()
	for _, want := range []string{"3      2       a       5     a, b STOPPED, c", "was stopped: disk"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 5 {
		t.Errorf("it steers the terminal: %q", text)
	}
	for name, c := range map[string]struct {
		nodes []nodeReport
		want  string
		fails bool
	}{
		"all well":                  {[]nodeReport{saidBy("a", said(1, "leads", "a", 5, 9, 9, 7, 9)), saidBy("b", said(2, "follows", "a", 5, 7)), saidBy("c", said(3, "waits", "", 0, 0))}, "a       5     a, b (2), c (waits)\n", false},
		"the leader is not reached": {[]nodeReport{{ID: "a"}, saidBy("b", said(2, "follows", "a", 5, 7, 0, 7, 0)), {ID: "c"}}, "a       5     a (not heard), b (?), c (not heard)\n", false},
		"nobody leads":              {[]nodeReport{saidBy("a", said(1, "follows", "", 5, 7, 0, 7, 0)), saidBy("b", said(2, "follows", "", 5, 7)), {ID: "c"}}, "NONE    5     a (?), b (?), c (not heard)\n", true},
		"nobody is there":           {[]nodeReport{{ID: "a"}, {ID: "b"}, {ID: "c"}}, "NONE    0     a (not heard)", true},
		"no admin right":            {[]nodeReport{{ID: "a", Reached: true}, {ID: "b", Reached: true}, {ID: "c", Reached: true}}, "?       0     a (not heard)", false},
	} {
		r := showing(founders(), c.nodes...)
		if text := r.text(); !strings.Contains(text, c.want) || strings.Contains(text, "no leader that") != c.fails || len(r.leaderless()) > 0 != c.fails {
			t.Errorf("%s: no %q, or trouble is not %v:\n%s", name, c.want, c.fails, text)
		}
	}
	if r := showing(nil, nodeReport{ID: "a"}, saidBy("b")); r.Groups == nil || len(r.Groups) != 0 || r.groupsText() != "" || len(r.leaderless()) > 0 {
		t.Errorf("without groups: %+v", r.Groups)
	}
}

// TestIdle: which groups cluster init waits for.
func TestIdle(t *testing.T) {
	lead, follow := saidBy("a", said(1, "leads", "a", 5, 9, 9, 9, 9)), saidBy("b", said(2, "follows", "a", 5, 9))
	for name, c := range map[string]struct {
		nodes []nodeReport
		want  bool
	}{
		"at work":               {[]nodeReport{lead, follow, saidBy("c", said(3, "follows", "a", 5, 9))}, false},
		"a node is away":        {[]nodeReport{lead, follow, {ID: "c"}}, false},
		"one was stopped":       {[]nodeReport{lead, follow, saidBy("c", said(3, "stopped", "", 5, 9))}, false},
		"one is not started":    {[]nodeReport{lead, follow, saidBy("c", said(3, "waits", "", 0, 0))}, true},
		"nobody leads":          {[]nodeReport{saidBy("a", said(1, "follows", "", 5, 9)), saidBy("b", said(2, "follows", "", 5, 9)), {ID: "c"}}, true},
		"nobody has it started": {[]nodeReport{saidBy("a", said(1, "waits", "", 0, 0)), saidBy("b", said(2, "waits", "", 0, 0)), saidBy("c", said(3, "waits", "", 0, 0))}, true},
		"no right to ask":       {[]nodeReport{{ID: "a", Reached: true}, {ID: "b", Reached: true}, {ID: "c", Reached: true}}, false},
	} {
		if got := showing(founders(), c.nodes...).idle(); len(got) > 0 != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGroupNames: scripts read these names and values, so none of them may go.
func TestGroupNames(t *testing.T) {
	r := showing(founders(), saidBy("a", said(1, "leads", "a", 5, 9, 9, 7, 9)), saidBy("b", said(2, "follows", "a", 5, 7)))
	text, err := json.Marshal(struct {
		Groups []admin.Group `json:"groups"`
	}{r.Groups})
	const want = `{"groups":[{"id":3,"leader":"a","term":5,"shards":[1,4],"replicas":[` +
		`{"id":1,"node":"a","votes":true,"match":9,"lag":0,"active":true,"snapshot":false,"state":"leads"},` +
		`{"id":2,"node":"b","votes":true,"match":7,"lag":2,"active":true,"snapshot":false,"state":"follows"},` +
		`{"id":3,"node":"c","votes":true,"match":9,"lag":0,"active":true,"snapshot":false,"state":""}]}]}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
	if text, err := json.Marshal(showing(nil)); err != nil || !strings.Contains(string(text), `"groups":[]`) {
		t.Errorf("without groups: %v, %s", err, text)
	}
}

// TestInitText: init tells of the groups where there are some, and is as it was where there are none.
func TestInitText(t *testing.T) {
	info := admin.ClusterInfo{Name: "prod", ID: "01", MapVersion: 1, MapDigest: 0xaa, Shards: 8, Replicas: 1, Nodes: []admin.ClusterNode{
		{ID: "n1", Weight: 1, Shards: 4}, {ID: "n2", Weight: 2, Shards: 2}, {ID: "n3", Weight: 1, Shards: 2}, {ID: "n4"}}}
	show := func(output string) string {
		var out bytes.Buffer
		if err := showInit(&app.App{Stdout: &out, Output: output}, info); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const head = "cluster prod (01), shard map version 1, digest 00000000000000aa, 8 shards\n"
	if got, want := show("text"), head+"\nnode  weight  shards\nn1    1       4\nn2    2       2\nn3    1       2\n"; got != want {
		t.Errorf("without replicas:\n%q\n%q", got, want)
	}
	info.Replicas, info.Groups = 3, 4
	info.Nodes[0].Leads, info.Nodes[1].Leads, info.Nodes[2].Leads = 2, 1, 1
	if got, want := show("text"), head+"4 groups with 3 replicas on 3 nodes\n\nnode  weight  leads groups  with shards\n"+
		"n1    1       2             4\nn2    2       1             2\nn3    1       1             2\n"; got != want {
		t.Errorf("with replicas:\n%q\n%q", got, want)
	}
	for _, want := range []string{`"replicas":3`, `"groups":4`, `{"id":"n1","weight":1,"shards":4,"leads":2}`} {
		if got := strings.Join(strings.Fields(show("json")), ""); !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

// TestInitFailure: of several nodes that refuse, each one's own text is shown with its name, and what stands around them stays.
func TestInitFailure(t *testing.T) {
	part := &client.PartialError{Total: 3, Failures: []client.Failure{{Node: "n1", Err: errors.New("log_bytes is too small")}, {Node: "n3", Err: errors.New("sync is not\nalways")}}}
	err := initFailure(fmt.Errorf("run it again: %w", part))
	if got, want := err.Error(), "run it again: 2 of 3 failed: n1: log_bytes is too small; n3: sync is not always"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (*client.PartialError)(nil); !errors.As(err, &got) || got != part {
		t.Errorf("%v is no PartialError any more", err)
	}
	one := fmt.Errorf("it: %w", &client.PartialError{Total: 3, Failures: part.Failures[:1]})
	if err := initFailure(one); err != one {
		t.Errorf("of one node: %v", err)
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
		nodes, err := parseNodes(cmd.Flags().Args(), true)
		if err == nil {
			err = checkReplicas(cmd, o, nodes)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
