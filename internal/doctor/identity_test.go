package doctor

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
)

// TestDataOfOthers: a data directory is this node's, or the report names its
// owner.
func TestDataOfOthers(t *testing.T) {
	m, err := cluster.Propose([16]byte{1}, "prod", 8, []cluster.MapNode{{ID: "kv1"}, {ID: "kv2"}})
	if err != nil {
		t.Fatal(err)
	}
	newerMap := "rkv map\xff" + strings.Repeat("\x00", 64)
	sum := sha256.Sum256([]byte(newerMap))
	mine := string(format.AppendIdentity(nil, format.Identity{Node: "kv1", Cluster: "prod"}))
	for _, c := range []struct {
		name, node, file, shards string
		code                     string
		text                     string
	}{
		{"new", "kv1", "", "", "", "none yet"},
		{"ours", "kv1", mine, string(format.AppendMap(nil, format.Committed, m)), "", "4 of the shards are this node's"},
		{"another node's", "kv2", mine, "", CodeDataOther, "that of node kv1 of the cluster prod"},
		{"a node's, and we are alone", "", mine, "", CodeDataOther, "gossip.bind is empty"},
		{"damaged", "kv1", mine[:len(mine)-3], "", CodeDataDir, "checksum"},
		{"of a newer program", "kv1", "rdmakv node\nformat 99\n", "", CodeDataDir, "leave the directory as it is"},
		{"of a level that this program does not read", "kv1", string(format.AppendIdentity(nil, format.Identity{Node: "kv1", Cluster: "prod", Level: feature.Here().Newest + 1})), "", CodeDataDir, "start this node with a newer program"},
		{"a map of a newer program", "kv1", mine, newerMap + string(sum[:]), CodeDataDir, "leave the directory as it is"},
		{"a map without us", "kv3", string(format.AppendIdentity(nil, format.Identity{Node: "kv3", Cluster: "prod"})), string(format.AppendMap(nil, format.Committed, m)), CodeDataOther, "kv3 is not in it"},
		{"a damaged map", "kv1", mine, "rkv map", CodeDataDir, "the same on all"},
		{"init was cut short", "kv1", mine, string(format.AppendMap(nil, format.Promised, m)), CodeMapPromised, "cluster init again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.set.NodeID, r.set.Cluster = c.node, "prod"
			if c.node != "" {
				r.set.Gossip = "127.0.0.1:0"
			}
			for file, text := range map[string]string{format.NodeFile: c.file, format.MapFile: c.shards} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(r.set.DataDir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			report, failed, warned := r.run()
			if all := slices.Concat(failed, warned); c.code == "" && len(all) > 0 || c.code != "" && !slices.Equal(all, []string{c.code}) {
				t.Errorf("%v, want %q", all, c.code)
			}
			if c.name != "new" && !strings.Contains(report.Text(), c.text) {
				t.Errorf("no %q in\n%s", c.text, report.Text())
			}
		})
	}
}

// TestKeyFiles: what is wrong with a file of secrets is named, and nothing of
// it shown.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("a very secret secret"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		f    KeyFile
		code string
	}{
		{"good", KeyFile{Path: file("good", 0o600), Secret: true}, ""},
		{"for all to read", KeyFile{Path: file("open", 0o644), Secret: true}, CodeKeyMode},
		{"a certificate", KeyFile{Path: file("cert", 0o644)}, ""},
		{"missing", KeyFile{Path: filepath.Join(dir, "none"), Secret: true}, CodeKeyFile},
		{"a directory", KeyFile{Path: dir, Secret: true}, CodeKeyFile},
		{"malformed", KeyFile{Path: file("short", 0o600), Secret: true, Err: errors.New("key 1 is no base64")}, CodeKeyFile},
	} {
		r := newRig(t)
		c.f.Key = "secret_file"
		r.set.Files = []KeyFile{c.f}
		report, failed, _ := r.run()
		if c.code == "" && len(failed) > 0 || c.code != "" && !slices.Equal(failed, []string{c.code}) {
			t.Errorf("%s: %v, want %q", c.name, failed, c.code)
		}
		if strings.Contains(report.Text(), "very secret") {
			t.Errorf("%s: the secret is shown", c.name)
		}
	}
	r := newRig(t)
	r.set.NoSession, r.set.NoGossip, r.set.Join = errors.New("no"), errors.New("no"), []string{"127.0.0.1:1"}
	if report, failed, _ := r.run(); len(failed) > 0 || strings.Count(report.Text(), "skip  ") < 2 {
		t.Errorf("%v\n%s", failed, report.Text())
	}
}

// TestPortInUse: the program that listens at a port of the configuration is named;
// kvserver is taken for the node.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t)
	r.host.Root = "/" // the process that has it stands there
	r.set = Settings{Node: true, Fabric: "iwarp", DataDir: r.set.DataDir, Listen: []string{l.Addr().String()}, HugePages: "off", MemoryLimit: 8 << 20, RegionSize: 2 << 20}
	report, failed, _ := r.run()
	self := filepath.Base(os.Args[0])
	if !slices.Equal(failed, []string{CodePortInUse}) || !strings.Contains(text(report, CodePortInUse), "in use by "+self) {
		t.Errorf("%v, want it named %s\n%s", failed, self, report.Text())
	}
}

// A clusteredPeer is a node of a cluster.
type clusteredPeer struct {
	*fakePeer
	info admin.ClusterInfo
}

func (p clusteredPeer) Cluster(context.Context) (admin.ClusterInfo, error) { return p.info, nil }

// TestOtherNodes: from one node all are found, each once, and one that gossip
// does not know is reported.
func TestOtherNodes(t *testing.T) {
	r := newRig(t)
	var dialed []string
	at := func(addr string) []admin.Endpoint {
		return []admin.Endpoint{{Fabric: "iwarp", Addr: "192.0.2.1:7400"}, {Fabric: "verbs", Addr: addr}}
	}
	info := admin.ClusterInfo{Clustered: true, Name: "prod", Teller: "kv1", Nodes: []admin.ClusterNode{
		{ID: "kv1", Weight: 1, Endpoints: at("10.0.0.2:7400")}, {ID: "kv2", Weight: 1, Endpoints: at("10.0.0.3:7400")},
		{ID: "kv3", Weight: 1, State: "unknown"}, {ID: "kv4", State: "left", Endpoints: at("10.0.0.9:7400")},
	}}
	r.host.Dial = func(_ context.Context, addr string) (Peer, error) {
		dialed = append(dialed, addr)
		return clusteredPeer{&fakePeer{now: r.peer.now, mtu: 4096}, info}, nil
	}
	report, failed, warned := r.run()
	if !slices.Equal(dialed, []string{"10.0.0.2:7400", "10.0.0.3:7400"}) || len(failed) > 0 || !slices.Contains(warned, CodeUnknown) {
		t.Errorf("dialed %v, failed %v, warned %v\n%s", dialed, failed, warned, report.Text())
	}
}

// TestInterrupted: an examination that is interrupted says so, and leaves out
// what waits for others.
func TestInterrupted(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report := Run(ctx, r.host, nil, r.set)
	if !strings.Contains(report.Text(), "interrupted") || strings.Contains(report.Text(), "session 10.0.0.2") {
		t.Errorf("%s", report.Text())
	}
}

// TestRuns: where a node that runs is dialed.
func TestRuns(t *testing.T) {
	for _, c := range []struct {
		fabric, addr, held string
		locked             bool
		at                 string
	}{
		{"auto", "10.0.0.1:7400", "10.0.0.1:7400", false, "10.0.0.1:7400"},
		{"auto", "10.0.0.1:7400", "", true, ""}, // somebody else's port, or none
		{"auto", "0.0.0.0:7400", "0.0.0.0:7400", false, "127.0.0.1:7400"},
		{"auto", ":7400", ":7400", false, "127.0.0.1:7400"},
		{"auto", "127.0.0.1:0", "127.0.0.1:0", true, ""},
		{"verbs", "10.0.0.1:7400", "", true, "10.0.0.1:7400"},
		{"verbs", "10.0.0.1:7400", "", false, ""},
		{"verbs", "0.0.0.0:7400", "", true, ""},
	} {
		e := &exam{set: Settings{Fabric: c.fabric}, held: map[string]bool{c.held: true}, holder: map[int]bool{}}
		if c.locked {
			e.holder[1] = true
		}
		if at, ok := e.runs(c.addr); ok != (c.at != "") || ok && at != c.at {
			t.Errorf("%+v: %q, %v", c, at, ok)
		}
	}
}
