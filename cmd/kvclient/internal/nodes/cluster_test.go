package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// goodCluster is a status without any fault.
func goodCluster() *statusReport {
	st := &statusReport{Clustered: true, Name: "prod", ID: "01", Map: mapReport{Version: 1, Digest: "00000000000000aa", Shards: 4, Owners: []string{"kv1", "kv2", "kv1", "kv2"}}}
	var members []wire.MemberStatus
	for i, id := range []string{"kv1", "kv2"} {
		members = append(members, wire.MemberStatus{ID: id, State: "alive", Incarnation: fmt.Sprint(i)})
	}
	for i, id := range []string{"kv1", "kv2"} {
		st.Nodes = append(st.Nodes, nodeReport{
			ID: id, Weight: 1, Shards: 2, State: "alive", Reached: true, Agree: true, Fabric: "iwarp", Device: "iwarp0", Endpoints: []string{"iwarp://10.0.0.1:7400"},
			Status: &wire.NodeStatus{
				NodeID: id, NodeProgram: wire.NodeProgram{Version: "v1"}, Incarnation: fmt.Sprint(i), Map: wire.MapStatus{State: "committed", Version: 1, Digest: "00000000000000aa"},
				Shards: wire.ShardStatus{Owned: 2, Total: 4}, Gossip: &wire.GossipStatus{Members: slices.Clone(members)},
			},
		})
	}
	return st
}

// TestClusterCheck: every difference is found, and nothing else.
func TestClusterCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*statusReport)
		codes string
	}{
		{"all is well", func(*statusReport) {}, ""},
		{"a server alone", func(st *statusReport) { st.Clustered = false }, "no-map"},
		{"no map", func(st *statusReport) {
			st.Map = mapReport{}
			for i := range st.Nodes {
				n := &st.Nodes[i]
				n.Weight, n.Shards, n.Status.Map, n.Status.Shards = 0, 0, wire.MapStatus{State: "none"}, wire.ShardStatus{}
			}
		}, "no-map"},
		{"a node is gone", func(st *statusReport) {
			n := &st.Nodes[1]
			n.State, n.Reached, n.Status, n.Error = "dead", false, nil, "no answer"
			st.Nodes[0].Status.Gossip.Members[1].State = "dead"
		}, "not-reached shard-orphan"},
		{"gossip is cut", func(st *statusReport) {
			st.Nodes[1].State, st.Nodes[1].Agree = "dead", false
			st.Nodes[0].Status.Gossip.Members[1].State = "dead"
		}, "gossip-opinion views-differ"},
		{"two of a node", func(st *statusReport) {
			st.Nodes[0].Status.Gossip.Open = []wire.ConflictStatus{{Node: "kv2", Addrs: []string{"10.0.0.2:7946", "10.0.0.9:7946"}, Proved: true}}
		}, "conflict"},
		{"there were two of a node", func(st *statusReport) {
			st.Nodes[1].Status.Gossip.Open = []wire.ConflictStatus{{Node: "kv2", Addrs: []string{"10.0.0.2:7946", "10.0.0.9:7946"}, Proved: true, Over: true}}
		}, "conflict"},
		{"a claim without proof", func(st *statusReport) {
			st.Nodes[0].Status.Gossip.Open = []wire.ConflictStatus{{Node: "kv2", Addrs: []string{"10.0.0.9:7946"}}}
		}, "conflict"},
		{"another map", func(st *statusReport) { st.Nodes[1].Status.Map.Digest = "00000000000000bb" }, "map-differs"},
		{"a map only promised", func(st *statusReport) { st.Nodes[0].Status.Map.State = "prepared" }, "map-differs"},
		{"a node without its data directory", func(st *statusReport) { st.Nodes[1].Status.Map = wire.MapStatus{State: "none"} }, "map-differs"},
		{"a node that cluster init did not name", func(st *statusReport) {
			st.Nodes[1].Weight, st.Nodes[1].Shards, st.Nodes[1].Status.Map, st.Nodes[1].Status.Shards = 0, 0, wire.MapStatus{State: "none"}, wire.ShardStatus{}
			st.Map.Owners = []string{"kv1", "kv1", "kv1", "kv1"}
			st.Nodes[0].Shards, st.Nodes[0].Status.Shards.Owned = 4, 4
		}, "map-differs"},
		{"it serves other shards", func(st *statusReport) { st.Nodes[0].Status.Shards.Owned = 1 }, "map-differs"},
		{"not converged", func(st *statusReport) {
			st.Nodes[0].Status.Gossip.Members = st.Nodes[0].Status.Gossip.Members[:1]
		}, "views-differ"},
		{"from before its last start", func(st *statusReport) { st.Nodes[0].Status.Gossip.Members[1].Incarnation = "old" }, "views-differ"},
		{"different releases", func(st *statusReport) { st.Nodes[1].Status.Version = "v2" }, "versions"},
		{"no right", func(st *statusReport) { st.Nodes[1].Status, st.Nodes[1].StatusError = nil, "denied" }, "no-status"},
	} {
		st := goodCluster()
		c.spoil(st)
		r := checkCluster(st)
		var codes []string
		for _, s := range r.Steps {
			if s.Code != "" {
				codes = append(codes, s.Code)
			}
		}
		if strings.Join(codes, " ") != c.codes || r.Good != (r.Failed == 0) {
			t.Errorf("%s: %v, want %s\n%s", c.name, codes, c.codes, r.Text())
		}
	}
}

// TestPassing: what cluster check looks at again before it calls it a failure.
func TestPassing(t *testing.T) {
	fail := func(codes ...string) *doctor.Report {
		r := &doctor.Report{Good: true}
		k := checker{r}
		k.ok("node", "a", "fine")
		k.bad(doctor.Warn, "node", "a", codeOpinion, "", "strange")
		for _, c := range codes {
			k.bad(doctor.Fail, "x", "", c, "", "bad")
		}
		return r
	}
	for name, c := range map[string]struct {
		r    *doctor.Report
		want bool
	}{
		"well":                  {fail(), false},
		"an election":           {fail(doctor.CodeNoLeader), true},
		"a restart":             {fail(doctor.CodeNoMajority, doctor.CodeNoLeader, codeViews), true},
		"a node is away":        {fail(codeUnreached, doctor.CodeNoLeader), false},
		"two are the same node": {fail(codeConflict), false},
		"no map":                {fail(codeNoMap), false},
	} {
		if got := passing(c.r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLearnedTable: a region whose rkey, address or self gossip does not know.
func TestLearnedTable(t *testing.T) {
	var learned wire.TableAnswer
	err := json.Unmarshal([]byte(`{"devices":["iwarp/iwarp0"],"regions":[
		{"id":0,"keys":[{"device":0,"addr":"4096","rkey":7}]}, {"id":1,"keys":[{"device":0,"addr":"8192","rkey":8},{"device":1,"addr":"1","rkey":2}]}]}`), &learned)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keys []admin.RegionKey
		want string
	}{
		{[]admin.RegionKey{{Region: 0, Addr: 4096, RKey: 7}, {Region: 1, Addr: 8192, RKey: 8}}, "[]"},
		{[]admin.RegionKey{{Region: 0, Addr: 4096, RKey: 8}}, "[0]"},
		{[]admin.RegionKey{{Region: 1, Addr: 4096, RKey: 8}, {Region: 2, Addr: 1, RKey: 2}}, "[1 2]"},
	} {
		if got := fmt.Sprint(missingKeys(&learned, c.keys)); got != c.want {
			t.Errorf("%v: %s, want %s", c.keys, got, c.want)
		}
	}
}

// TestStatusText: what people see of a cluster with one node away.
func TestStatusText(t *testing.T) {
	st := goodCluster()
	n := &st.Nodes[1]
	n.Reached, n.Agree, n.Status, n.Error = false, false, nil, "no\nanswer"
	st.Nodes[0].Status.Version, st.Nodes[0].Status.Fabrics = "v1\x1b[31m\nkv9", []string{"iwarp\r"} // a terminal does not obey another node
	text := st.text()
	if strings.ContainsAny(text, "\x1b\r") || strings.Contains(text, "\nkv9") {
		t.Errorf("%q", text)
	}
	for _, want := range []string{"cluster prod (01)", "shard map version 1", "kv2 is not reached: no answer", "gossip believes it alive, the data path says otherwise", "iwarp/iwarp0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestStatusNames: scripts read these names, so none of them may go.
func TestStatusNames(t *testing.T) {
	const want = `clustered id map map.digest map.owners map.shards map.version name nodes nodes.agree nodes.device nodes.endpoints nodes.error nodes.fabric nodes.gossip nodes.id nodes.incarnation nodes.map_digest nodes.map_version nodes.reached nodes.read_us nodes.send_us nodes.shards nodes.since nodes.state nodes.status nodes.status.beat_age_ms nodes.status.fabrics nodes.status.gossip nodes.status.incarnation nodes.status.lag nodes.status.lease_ms nodes.status.map nodes.status.memory nodes.status.node_id nodes.status.ready nodes.status.regions nodes.status.sessions nodes.status.shards nodes.status.version nodes.status_error nodes.table nodes.table.digest nodes.table.regions nodes.table.version nodes.weight view view.teller view.version`
	st := goodCluster()
	st.Nodes = st.Nodes[:1]
	st.Nodes[0].Error, st.Nodes[0].StatusError = "x", "x"
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	have := make(map[string]bool)
	var walk func(string, any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				path := strings.TrimPrefix(name+"."+k, ".")
				have[path] = true
				walk(path, inner)
			}
		case []any:
			for _, inner := range v {
				walk(name, inner)
			}
		}
	}
	walk("", tree)
	for name := range strings.FieldsSeq(want) {
		if !have[name] {
			t.Errorf("%s is gone", name)
		}
	}
}

// operator runs kvclient with these words against an address without a server.
func operator(t *testing.T, line string, env ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Env: append(env, "HOME=/nonexistent", "RDMAKV_FABRIC=iwarp")}
	return a.Run(t.Context(), strings.Fields(line), Commands), out.String(), errs.String()
}

// TestOperatorUsage: wrong usage is reported before any server is dialed, and a
// key on the command line is not repeated.
func TestOperatorUsage(t *testing.T) {
	const key = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDEyMzQ="
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"cluster", "cluster: a command is missing", cli.ExitUsage},
		{"cluster init", "NODE[:WEIGHT][@ZONE] is missing", cli.ExitUsage},
		{"cluster init kv1:0", "every node is left out", cli.ExitUsage},
		{"cluster init kv1:x", "number from 0 (leave it out) to", cli.ExitUsage},
		{"cluster init KV1", "KV1", cli.ExitUsage},
		{"cluster init kv1 kv2 kv1", "named twice", cli.ExitUsage},
		{"cluster add kv4", "say --yes", cli.ExitUsage},
		{"admin", "admin: a command is missing", cli.ExitUsage},
		{"admin revoke", "TENANT is missing", cli.ExitUsage},
		{"admin gossip-keys", "needs one of: list", cli.ExitUsage},
		{"admin gossip-keys add " + key, "travels neither", cli.ExitUsage},
		{"admin gossip-keys use " + key, "wants a digest", cli.ExitUsage},
		{"admin gossip-keys use", "needs one of", cli.ExitUsage},
		{"admin gossip-keys relaod", `did you mean "reload"?`, cli.ExitUsage},
		{"doctor --role both", "--role is", cli.ExitUsage},
		{"doctor -o xml", "--output is", cli.ExitUsage},
	} {
		code, _, stderr := operator(t, c.line)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Contains(stderr, key) {
			t.Errorf("%q: exit code %d, %s", c.line, code, stderr)
		}
	}
}

// TestDoctorFindsConfig: a wrong configuration is a finding; what a node needs
// is looked at where the configuration is a node's.
func TestDoctorFindsConfig(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		line, env  string
		role, code string
		good       bool
	}{
		{"doctor --lease 5", "", "", doctor.CodeConfig, false},
		{"doctor", "RDMAKV_NODEID=x", "", doctor.CodeConfig, false},
		{"doctor --gossip-bind 127.0.0.1:0 --node-id kv1 --admin-listen= --listen 127.0.0.1:0 --data-dir " + dir, "", "node", doctor.CodeConfig, false},
		{"doctor --insecure --gossip-bind 127.0.0.1:0 --node-id kv1 --admin-listen= --listen 127.0.0.1:0 --data-dir " + dir, "", "node", "", true},
		{"doctor --role client --server 127.0.0.1:1", "", "client", doctor.CodeRefused, false},
		{"doctor --role client --secret-file /nonexistent/secret --server 127.0.0.1:1", "", "client", doctor.CodeKeyFile, false},
		{"doctor --role client --server 127.0.0.1:1", "RDMAKV_SECRET=short", "client", doctor.CodeConfig, false},
	} {
		env := []string{}
		if c.env != "" {
			env = append(env, c.env)
		}
		code, stdout, stderr := operator(t, c.line+" -o json", env...)
		var r doctor.Report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%s: %v: %s%s", c.line, err, stdout, stderr)
		}
		want := cli.ExitError
		if c.good {
			want = cli.ExitOK
		}
		if code != want || r.Good != c.good || r.First != c.code || c.role != "" && r.Role != c.role || strings.Contains(stdout, "=short") {
			t.Errorf("%s: exit code %d, %+v", c.line, code, r)
		}
	}
}

// TestDoctorFindsWeakSecrets: a secret that a person has thought of is a warning
// that names its owner, and does not show it; a random one is none.
func TestDoctorFindsWeakSecrets(t *testing.T) {
	const phrase, random = "correct horse battery staple", "Zk3v0mYwqT8xJ1nR5uLhC7dPgE2sBaQf"
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("alice.secret", phrase, 0o600)
	file("bob.secret", random, 0o600)
	tenants := file("tenants.yaml", "tenants:\n- name: alice\n  secret_file: alice.secret\n- name: bob\n  secret_file: bob.secret\n", 0o644)
	node := "doctor --admin-listen= --listen 127.0.0.1:0 --data-dir " + filepath.Join(dir, "data") + " --tenants-file " + tenants
	for _, c := range []struct {
		line string
		env  []string
		want []string
	}{
		{"doctor --role client --server 127.0.0.1:1", []string{"RDMAKV_SECRET=" + phrase}, []string{"RDMAKV_SECRET"}},
		{"doctor --role client --server 127.0.0.1:1", []string{"RDMAKV_SECRET=" + random}, nil},
		{"doctor --role client --server 127.0.0.1:1 --secret-file " + file("main.secret", phrase, 0o600), nil, []string{"secret_file"}},
		{node, []string{"RDMAKV_SECRET=" + random}, []string{"tenant alice"}},
	} {
		_, stdout, stderr := operator(t, c.line+" -o json", c.env...)
		var r doctor.Report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%s: %v: %s%s", c.line, err, stdout, stderr)
		}
		var got []string
		for _, s := range r.Steps {
			if s.Code == doctor.CodeWeakSecret && s.Level == doctor.Warn {
				got = append(got, s.Subject)
			}
		}
		if !slices.Equal(got, c.want) || strings.Contains(stdout+stderr, phrase) {
			t.Errorf("%s: weak are %q, want %q; the phrase shows: %v", c.line, got, c.want, strings.Contains(stdout+stderr, phrase))
		}
	}
}
