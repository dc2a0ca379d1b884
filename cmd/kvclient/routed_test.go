package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// nodes starts two nodes of a cluster in this process, and returns what runs
// kvclient against the first of them.
func nodes(t *testing.T) func(code int, stdin string, args ...string) string {
	t.Helper()
	var seeds []string
	var first string
	for _, id := range []string{"a", "b"} {
		srv, err := server.New(server.Config{
			Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(), MinFreeBytes: -1, CacheBytes: 4 << 20,
			Shards: 4, MemoryLimit: 64 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20, MemoryKind: memory.Heap,
			Cluster: &server.ClusterConfig{NodeID: id, Name: "cli", Bind: "127.0.0.1:0", Join: seeds, Insecure: true, Profile: "fast"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := srv.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		seeds = append(seeds, srv.GossipAddr())
		if first == "" {
			first = srv.Addrs()[0].String()
		}
	}
	return func(code int, stdin string, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut,
			env: []string{"RDMAKV_SERVERS=" + first, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		if got := a.run(t.Context(), args); got != code {
			t.Fatalf("%q: exit code %d, want %d\n%s%s", args, got, code, &out, &errOut)
		}
		return out.String()
	}
}

// The commands of one server, over two that share the keys.
func TestCommandsOverCluster(t *testing.T) {
	run := nodes(t)
	run(exitError, "", "--timeout", "300ms", "get", "k") // no map yet
	for tries := 0; ; tries++ {
		var info struct{ Nodes []struct{} }
		if err := json.Unmarshal([]byte(run(exitOK, "", "cluster", "status", "-o", "json")), &info); err != nil {
			t.Fatal(err)
		}
		if len(info.Nodes) == 2 {
			break
		}
		if tries > 1000 {
			t.Fatal("the nodes do not find each other")
		}
	}
	run(exitOK, "", "cluster", "init", "a", "b")

	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, `{"key":"key%03d","value":"value %d"}`+"\n", i, i)
	}
	var imported struct {
		Keys  int
		Nodes map[string]int
	}
	if err := json.Unmarshal([]byte(run(exitOK, lines.String(), "import", "-o", "json")), &imported); err != nil {
		t.Fatal(err)
	}
	if n := imported.Nodes; imported.Keys != 400 || n["a"]+n["b"] != 400 || n["a"] < 100 || n["b"] < 100 {
		t.Errorf("%+v", imported)
	}
	file := filepath.Join(t.TempDir(), "out.jsonl")
	run(exitOK, "", "export", file)
	if got, err := os.ReadFile(file); err != nil || string(got) != lines.String() {
		t.Errorf("%d bytes are exported, %d were imported; %v", len(got), lines.Len(), err)
	}
	if got := run(exitOK, "", "get", "key007"); got != "value 7" {
		t.Errorf("get: %q", got)
	}
	if got := run(exitOK, "", "scan", "--prefix", "key39", "--keys-only"); strings.Count(got, "\n") != 10 {
		t.Errorf("scan: %q", got)
	}
	var st client.Stats
	if err := json.Unmarshal([]byte(run(exitOK, "", "stats", "-o", "json")), &st); err != nil || len(st.Nodes) != 2 || len(st.Nodes["b"].Server) == 0 {
		t.Errorf("stats: %+v, %v", st, err)
	}
	st = client.Stats{}
	if err := json.Unmarshal([]byte(run(exitOK, "", "stats", "--node", "b", "-o", "json")), &st); err != nil || st.Session.Node != "b" || st.Nodes != nil {
		t.Errorf("stats of b: %+v, %v", st, err)
	}
	var pings struct {
		Nodes map[string]pingReport `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(run(exitOK, "", "ping", "-c", "3", "-o", "json")), &pings); err != nil || pings.Nodes["a"].Read.Count != 3 || pings.Nodes["b"].Send.Count != 3 {
		t.Errorf("ping: %+v, %v", pings, err)
	}
	for i := range 8 { // of both nodes
		key := fmt.Sprintf("key%03d", i)
		if got := run(exitOK, "", "inspect", key); !strings.Contains(got, key) || !strings.Contains(got, "live") {
			t.Errorf("inspect %s: %s", key, got)
		}
	}
	run(exitUsage, "", "inspect")
	if got := run(exitOK, "", "inspect", "--node", "b"); !strings.Contains(got, "items") {
		t.Errorf("inspect of b: %s", got)
	}
	run(exitError, "", "ping", "--node", "c")
}
