package doctor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// A member is a node of a cluster on this machine.
type member struct {
	id, data, gossip string
	args             []string
	node             *node.Node
}

// A group is a few nodes with a secret and a gossip key.
type group struct {
	t       *testing.T
	secret  string // file
	keys    string // file
	members []*member
}

// gossipKey is a key as it stands in gossip.key_file.
func gossipKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)) + "\n"
}

func newGroup(t *testing.T, ids ...string) *group {
	t.Helper()
	g := &group{t: t, secret: secretFile(t, secret), keys: secretFile(t, gossipKey(1))}
	var seeds []string
	for _, id := range ids {
		m := &member{id: id, data: freePort(t), gossip: freePort(t)}
		g.members = append(g.members, m)
		seeds = append(seeds, m.gossip)
	}
	for _, m := range g.members {
		join := ""
		if len(ids) > 1 {
			join = strings.Join(seeds, ",")
		}
		m.args = standalone(t, m.data, "--node-id", m.id, "--cluster-name", "prod", "--gossip-bind", m.gossip, "--join", join,
			"--gossip-key-file", g.keys, "--gossip-profile", "fast", "--secret-file", g.secret)
		m.node = here(t).start(m.args...)
	}
	return g
}

// kvclient runs a command against a node and returns its exit code.
func (g *group) kvclient(m *member, args ...string) (code int, stdout, stderr string) {
	g.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "kvclient"), append([]string{"--fabric", "iwarp", "--secret-file", g.secret, "--server", m.data}, args...)...)
	cmd.Env = append(node.CleanEnv(os.Environ()), "HOME=/nonexistent")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must runs a command that has to succeed.
func (g *group) must(m *member, args ...string) string {
	g.t.Helper()
	code, stdout, stderr := g.kvclient(m, args...)
	if code != 0 {
		g.t.Fatalf("kvclient %v: exit code %d: %s%s", args, code, stdout, stderr)
	}
	return stdout
}

// check runs cluster check until the first failure is code ("" for none):
// gossip takes its time.
func (g *group) check(m *member, code string) *report {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		exit, stdout, stderr := g.kvclient(m, "cluster", "check", "-o", "json")
		r := new(report)
		if err := json.Unmarshal([]byte(stdout), r); err != nil {
			g.t.Fatalf("%v: exit code %d: %s%s", err, exit, stdout, stderr)
		}
		if want := map[bool]int{true: 0, false: 1}[r.OK]; exit != want {
			g.t.Fatalf("exit code %d, want %d", exit, want)
		}
		if r.First == code {
			return r
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the first failure is %q, want %q\n%v", r.First, code, r)
		}
	}
}

// status is the part of cluster status -o json that scripts need.
type status struct {
	Clustered bool
	Name, ID  string
	Map       struct {
		Version uint64
		Digest  string
		Shards  int
		Owners  []string
	}
	Nodes []struct {
		ID      string
		Weight  int
		Shards  int
		State   string
		Reached bool
		Agree   bool
		Status  *struct {
			NodeID string `json:"node_id"`
			Map    struct{ State, Digest string }
		}
	}
}

func (g *group) status(m *member) (s status) {
	g.t.Helper()
	if err := json.Unmarshal([]byte(g.must(m, "cluster", "status", "-o", "json")), &s); err != nil {
		g.t.Fatal(err)
	}
	return s
}

// TestClusterCommands goes through the life of a cluster as its operator does.
func TestClusterCommands(t *testing.T) {
	g := newGroup(t, "kv1", "kv2", "kv3")
	first := g.members[0]
	g.check(first, "no-map")
	if code, _, stderr := g.kvclient(first, "put", "key", "value"); code != 1 || !strings.Contains(stderr, "cluster init") {
		t.Errorf("a put before there is a map: exit code %d, %s", code, stderr)
	}
	var birth struct {
		Name   string
		Digest string `json:"map_digest"`
		Shards int
		Nodes  []struct {
			ID             string
			Weight, Shards int
		}
	}
	if err := json.Unmarshal([]byte(g.must(first, "cluster", "init", "kv1", "kv2:2", "kv3", "-o", "json")), &birth); err != nil {
		t.Fatal(err)
	}
	if birth.Name != "prod" || birth.Shards != 32 || len(birth.Nodes) != 3 || birth.Nodes[1].Weight != 2 || birth.Nodes[1].Shards != 16 || birth.Nodes[0].Shards != 8 {
		t.Errorf("%+v", birth)
	}
	g.check(g.members[2], "")
	for i := range 10 {
		g.must(g.members[i%3], "put", fmt.Sprint("key", i), "value")
	}
	again := g.must(g.members[1], "cluster", "init", "kv3", "kv1", "kv2:2")
	if !strings.Contains(again, birth.Digest) {
		t.Errorf("init again made something else: %s", again)
	}
	if code, _, stderr := g.kvclient(first, "cluster", "init", "kv1", "kv2"); code != 1 || !strings.Contains(stderr, "another shard map") {
		t.Errorf("init with other nodes: exit code %d, %s", code, stderr)
	}
	s := g.status(g.members[1])
	if !s.Clustered || s.Name != "prod" || s.Map.Version != 1 || s.Map.Digest != birth.Digest || len(s.Map.Owners) != 32 || len(s.Nodes) != 3 {
		t.Errorf("%+v", s)
	}
	for _, n := range s.Nodes {
		if !n.Reached || !n.Agree || n.State != "alive" || n.Status == nil || n.Status.NodeID != n.ID || n.Status.Map.State != "committed" {
			t.Errorf("%+v", n)
		}
	}
	g.must(first, "admin", "rotate-rkeys", "--all")
	g.check(first, "")
	if got := g.must(g.members[2], "get", "key5"); got != "value" {
		t.Errorf("%q", got)
	}

	// One node away: said, with its shards; and back.
	last := g.members[2]
	_ = last.node.Kill()
	r := g.check(first, "not-reached")
	if !strings.Contains(r.String(), "shard-orphan: 8 shards belong to it") {
		t.Errorf("%v", r)
	}
	for s = g.status(first); s.Nodes[2].State != "dead"; s = g.status(first) {
		if s.Nodes[2].Reached {
			t.Fatalf("%+v", s.Nodes[2])
		}
	}
	last.node = here(t).start(last.args...)
	g.check(first, "")

	for _, words := range []string{"add kv4 --yes", "remove kv3 --yes", "replace kv3 kv4 --yes", "rebalance --yes", "replicas 3 --yes", "tasks", "cancel 1", "pause"} {
		if code, _, stderr := g.kvclient(first, append([]string{"cluster"}, strings.Fields(words)...)...); code != 1 || !strings.Contains(stderr, "without replicas cannot be changed") {
			t.Errorf("%s: exit code %d, %s", words, code, stderr)
		}
	}
}

// TestReplicatedCluster: doctor and cluster check say of a cluster with replicas who may be lost, and check that replicas are alike.
func TestReplicatedCluster(t *testing.T) {
	g := newGroup(t, "kv1", "kv2", "kv3")
	first := g.members[0]
	g.must(first, "cluster", "init", "--replicas", "3", "--groups", "2", "kv1", "kv2", "kv3")
	for i := range 10 {
		g.must(g.members[i%3], "put", fmt.Sprint("key", i), "value")
	}
	if r := g.check(first, "").String(); strings.Count(r, "3 of 3 are alike at entry") != 2 || !strings.Contains(r, "each of 2 groups has a majority of replicas that take part; one more node may be lost") {
		t.Errorf("%s", r)
	}
	examined := func() string {
		_, stdout, stderr := g.kvclient(first, "doctor")
		return stdout + stderr
	}
	if text := examined(); !strings.Contains(text, "each of 2 groups has one") || !strings.Contains(text, "one more node may be lost") {
		t.Errorf("%s", text)
	}
	last := g.members[2]
	_ = last.node.Kill()
	r := g.check(first, "not-reached").String()
	if strings.Contains(r, "shard-orphan") || !strings.Contains(r, "replica-silent") {
		t.Errorf("%s", r)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		text := examined()
		if strings.Contains(text, "no-spare: the loss of one more node stops groups 1, 2") && strings.Contains(text, "each of 2 groups has one") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("one node is away: %s", text)
		}
	}
	last.node = here(t).start(last.args...)
	g.check(first, "")
}

// TestGossipKeys changes the key of gossip while the cluster runs, as the
// help text says.
func TestGossipKeys(t *testing.T) {
	g := newGroup(t, "kv1", "kv2")
	first := g.members[0]
	g.must(first, "cluster", "init", "kv1", "kv2")
	g.check(first, "")
	list := func() map[string]struct {
		Primary string
		Keys    []string
	} {
		var r struct {
			Nodes map[string]struct {
				Primary string
				Keys    []string
			}
		}
		if err := json.Unmarshal([]byte(g.must(first, "admin", "gossip-keys", "list", "-o", "json")), &r); err != nil || len(r.Nodes) != 2 {
			t.Fatalf("%v, %+v", err, r)
		}
		return r.Nodes
	}
	write := func(text string) {
		if err := os.WriteFile(g.keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := list()["kv1"].Primary
	write(gossipKey(1) + gossipKey(2))
	g.must(first, "admin", "gossip-keys", "reload")
	both := list()["kv2"]
	if both.Primary != old || len(both.Keys) != 2 {
		t.Fatalf("%+v", both)
	}
	fresh := both.Keys[0]
	if fresh == old {
		fresh = both.Keys[1]
	}
	g.must(first, "admin", "gossip-keys", "use", fresh)
	write(gossipKey(2))
	g.must(first, "admin", "gossip-keys", "reload")
	for id, k := range list() {
		if k.Primary != fresh || len(k.Keys) != 1 {
			t.Errorf("%s: %+v", id, k)
		}
	}
	g.check(first, "")
	h := here(t)
	args := append(first.args[:len(first.args):len(first.args)], "--timeout", "20s")
	h.want(h.doctor(args...), "", "the gossip keys and cluster.name (prod) are the same there")
}

// TestTenants: an operator revokes a tenant and allows it again, at all nodes.
func TestTenants(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := write("web.secret", "the secret of the tenant web")
	tenants := write("tenants.yaml", "tenants:\n  - name: web\n    secret_file: web.secret\n    space: main\n")
	g := newGroup(t, "kv1", "kv2")
	for _, m := range g.members {
		if code, err := m.node.Stop(time.Minute); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v", code, err)
		}
		m.args = append(m.args, "--tenants-file", tenants)
		m.node = here(t).start(m.args...)
	}
	first := g.members[0]
	g.must(first, "cluster", "init", "kv1", "kv2")
	g.check(first, "")
	web := func(args ...string) (code int, stderr string) {
		as := *g
		as.secret = own
		code, _, stderr = as.kvclient(first, append([]string{"--tenant", "web", "--timeout", "20s"}, args...)...)
		return code, stderr
	}
	put := func(want int, says string) {
		t.Helper()
		for i := range 4 { // keys of both nodes
			if code, stderr := web("put", fmt.Sprint("key", i), "value"); code != want || !strings.Contains(stderr, says) {
				t.Errorf("exit code %d, want %d, %q in %s", code, want, says, stderr)
			}
		}
	}
	put(0, "")
	if code, stderr := web("admin", "revoke", "main"); code != 1 || !strings.Contains(stderr, "not allowed") {
		t.Errorf("a tenant without the right: exit code %d, %s", code, stderr)
	}
	g.must(g.members[1], "admin", "revoke", "web")
	put(1, "authentication")
	if list := g.must(first, "admin", "tenants", "-o", "json"); strings.Count(list, `"revoked":true`) != 2 || strings.Contains(list, "the secret of") {
		t.Errorf("%s", list)
	}
	h := here(t)
	h.want(h.doctor("--fabric", "iwarp", "--tenant", "web", "--secret-file", own, first.data), "secret", "tenant")
	g.must(first, "admin", "allow", "web")
	put(0, "")
}

// TestGossipBroken: what keeps a node from its cluster, by real nodes.
func TestGossipBroken(t *testing.T) {
	g := newGroup(t, "kv1")
	m := g.members[0]
	h := here(t)
	joining := func(more ...string) []string {
		return standalone(t, "127.0.0.1:0", append([]string{"--node-id", "kv9", "--gossip-bind", "127.0.0.1:0", "--join", m.gossip, "--secret-file", g.secret}, more...)...)
	}
	h.want(h.doctor(joining("--cluster-name", "prod", "--gossip-key-file", g.keys)...), "", "a node of the cluster prod takes gossip of this machine by TCP")
	h.want(h.doctor(joining("--cluster-name", "prod", "--gossip-key-file", g.keys, m.data)...), "", "the gossip keys and cluster.name (prod) are the same there")
	for _, c := range []struct {
		name       string
		args       []string
		code, says string
	}{
		{"wrong gossip key", joining("--cluster-name", "prod", "--gossip-key-file", secretFile(t, gossipKey(7)), m.data), "gossip-key", "wrong gossip key"},
		{"no gossip key", joining("--cluster-name", "prod", "--insecure", m.data), "gossip-key", "gossip.key_file"},
		{"wrong cluster name", joining("--cluster-name", "test", "--gossip-key-file", g.keys), "gossip-label", `of the cluster "prod"`},
		{"key file for all to read", joining("--cluster-name", "prod", "--gossip-key-file", forAll(t, g.keys)), "key-mode", "chmod 600"},
		{"a data port for gossip", joining("--cluster-name", "prod", "--gossip-key-file", g.keys, "--join", m.data), "not-a-node", "gossip port"},
		{"data of another node", joining("--cluster-name", "prod", "--gossip-key-file", g.keys, "--data-dir", dataOf(m)), "data-dir-other", "node kv1 of the cluster prod"},
		{"address of another node", joining("--cluster-name", "prod", "--gossip-key-file", g.keys, "--listen", m.data), "port-in-use", "node kv1 of prod"},
		{"data of a node for a server alone", append(standalone(t, "127.0.0.1:0"), "--data-dir", dataOf(m)), "data-dir-other", "gossip.bind is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := here(t)
			h.want(h.doctor(c.args...), c.code, c.says)
		})
	}
}

// forAll is a copy of a file that every user may read.
func forAll(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := secretFile(t, string(data))
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func dataOf(m *member) string {
	for i, a := range m.args {
		if a == "--data-dir" {
			return m.args[i+1]
		}
	}
	return ""
}
