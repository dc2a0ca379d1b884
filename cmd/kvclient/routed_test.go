package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// cluster starts two nodes of a cluster in this process, and returns what runs
// kvclient against the first of them.
func cluster(t *testing.T) func(code int, stdin string, args ...string) string {
	t.Helper()
	run, _ := startNodes(t)
	return func(code int, stdin string, args ...string) string {
		t.Helper()
		out, _ := run(code, stdin, args...)
		return out
	}
}

// startNodes is cluster; run returns standard output and standard error, stop ends the
// second node.
func startNodes(t *testing.T) (run func(code int, stdin string, args ...string) (stdout, stderr string), stop func()) {
	t.Helper()
	var seeds []string
	var first string
	for _, id := range []string{"a", "b"} {
		srv, err := server.New(server.Config{
			Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(), MinFreeBytes: -1, CacheBytes: 4 << 20, LogBytes: 16 << 20,
			Shards: 4, MemoryLimit: 64 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20, MemoryKind: mem.Heap,
			Cluster: &server.ClusterConfig{NodeID: id, Name: fmt.Sprint("cli-", os.Getpid()), Bind: "127.0.0.1:0", Join: seeds, Insecure: true, Profile: "fast"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop = sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := srv.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		seeds = append(seeds, srv.GossipAddr())
		if first == "" {
			first = srv.Addrs()[0].String()
		}
	}
	return func(code int, stdin string, args ...string) (string, string) {
		t.Helper()
		var out, errOut bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut,
			Env: []string{"RDMAKV_SERVERS=" + first, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		if got := a.Run(t.Context(), args, commands); got != code {
			t.Fatalf("%q: exit code %d, want %d\n%s%s", args, got, code, &out, &errOut)
		}
		return out.String(), errOut.String()
	}, stop
}

// TestKeysOfDeadNode: what the other node has is printed, or deleted; the keys that
// failed are named in one line.
func TestKeysOfDeadNode(t *testing.T) {
	run, stop := startNodes(t)
	run(cli.ExitOK, "", "cluster", "init", "a", "b")
	for i := range 16 {
		run(cli.ExitOK, "", "put", fmt.Sprintf("key%02d", i), "v")
	}
	all := []string{"--timeout", "2s", "get", "-o", "json", "nokey"}
	for i := range 16 {
		all = append(all, fmt.Sprintf("key%02d", i))
	}
	stop()
	// The dead node's keys take all of the two seconds. A machine that stalls takes these from the
	// keys of the living one, too: so a command that must say something has three attempts.
	try := func(said func(out, errOut string) bool, args ...string) (out, errOut string) {
		t.Helper()
		for range 3 {
			if out, errOut = run(cli.ExitError, "", args...); said(out, errOut) {
				break
			}
		}
		return out, errOut
	}
	var here, away []string
	out, errOut := try(func(out, _ string) bool {
		here, away = nil, nil
		for i := range 16 {
			if key := fmt.Sprintf("key%02d", i); strings.Contains(out, key) {
				here = append(here, key)
			} else {
				away = append(away, key)
			}
		}
		return len(here) > 0
	}, all...)
	if len(here) == 0 || len(away) == 0 {
		t.Fatalf("of %d keys %d came\n%s%s", 16, len(here), out, errOut)
	}
	named := func(errOut string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(errOut), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, `"`+away[0]+`"`) || strings.Contains(last, here[0]) || !strings.Contains(last, "node b") {
			t.Errorf("%s", errOut)
		}
	}
	named(errOut)
	out, errOut = try(func(out, _ string) bool { return out != "" }, "--timeout", "2s", "get", away[0], here[0])
	if out != here[0]+"\tv\n" {
		t.Errorf("get prints %q", out)
	}
	if named(errOut); strings.Count(errOut, "\n") != 1 {
		t.Errorf("%s", errOut)
	}
	_, errOut = try(func(_, errOut string) bool { return !strings.Contains(errOut, `"`+here[0]+`"`) }, "--timeout", "2s", "delete", away[0], here[0])
	named(errOut)
	run(app.ExitNotFound, "", "get", here[0])

	// Nothing is told of what was done if nothing was (TestDoneBeforeAnError).
	_, errOut = run(cli.ExitError, "", "--timeout", "2s", "export")
	if strings.HasPrefix(errOut, "exported") || strings.Contains(errOut, "exported 0 keys") {
		t.Errorf("export: %s", errOut)
	}
	_, errOut = run(cli.ExitError, "", "--timeout", "2s", "delete", "--yes", "--prefix", "key")
	if strings.HasPrefix(errOut, "deleted") || strings.Contains(errOut, "deleted 0 keys") {
		t.Errorf("delete --prefix: %s", errOut)
	}
}

// TestLeftOut: a user who asks a node that has been left out of the map, while the
// node that has it is away, is told that; not to run cluster init.
func TestLeftOut(t *testing.T) {
	run, stop := startNodes(t)
	run(cli.ExitOK, "", "cluster", "init", "a:0", "b")
	run(cli.ExitOK, "", "put", "k", "v")
	if out, _ := run(cli.ExitOK, "", "ping", "-c", "1", "-o", "json"); !strings.Contains(out, "send") {
		t.Errorf("ping: %s", out)
	}
	stop()
	for _, line := range []string{"get k", "get k l", "ping", "wait"} {
		_, errOut := run(cli.ExitError, "", append([]string{"--timeout", "2s"}, strings.Fields(line)...)...)
		last := errOut[strings.LastIndex(strings.TrimSpace(errOut), "\n")+1:]
		if strings.Contains(errOut, "cluster init") || !strings.Contains(last, "no server at ") || !strings.Contains(last, "(node b): connection refused") {
			t.Errorf("%s: %s", line, errOut)
		}
	}
}

// fullWriter takes nothing, as a full disk.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestHelpToFullDisk: help that could not be written is an error, as any output.
func TestHelpToFullDisk(t *testing.T) {
	for _, args := range [][]string{{"get", "--help"}, {"help", "get"}, {"--version"}, {"--version", "-o", "json"}} {
		var errOut bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: fullWriter{}, Stderr: &errOut, Env: []string{"HOME=/nonexistent"}}
		if code := a.Run(t.Context(), args, commands); code != cli.ExitError || !strings.Contains(errOut.String(), "write standard output: no space left on device") {
			t.Errorf("%q: exit code %d, %s", args, code, &errOut)
		}
	}
}

// The commands of one server, over two that share the keys.
func TestCommandsOverCluster(t *testing.T) {
	run := cluster(t)
	run(cli.ExitError, "", "--timeout", "300ms", "get", "k") // no map yet
	for tries := 0; ; tries++ {
		var info struct{ Nodes []struct{} }
		if err := json.Unmarshal([]byte(run(cli.ExitOK, "", "cluster", "status", "-o", "json")), &info); err != nil {
			t.Fatal(err)
		}
		if len(info.Nodes) == 2 {
			break
		}
		if tries > 1000 {
			t.Fatal("the nodes do not find each other")
		}
	}
	run(cli.ExitOK, "", "cluster", "init", "a", "b")

	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, `{"key":"key%03d","value":"value %d"}`+"\n", i, i)
	}
	var imported struct {
		Keys  int
		Nodes map[string]int
	}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, lines.String(), "import", "-o", "json")), &imported); err != nil {
		t.Fatal(err)
	}
	if n := imported.Nodes; imported.Keys != 400 || n["a"]+n["b"] != 400 || n["a"] < 100 || n["b"] < 100 {
		t.Errorf("%+v", imported)
	}
	file := filepath.Join(t.TempDir(), "out.jsonl")
	run(cli.ExitOK, "", "export", file)
	if got, err := os.ReadFile(file); err != nil || string(got) != lines.String() {
		t.Errorf("%d bytes are exported, %d were imported; %v", len(got), lines.Len(), err)
	}
	if got := run(cli.ExitOK, "", "get", "key007"); got != "value 7" {
		t.Errorf("get: %q", got)
	}
	if got := run(cli.ExitOK, "", "scan", "--prefix", "key39", "--keys-only"); strings.Count(got, "\n") != 10 {
		t.Errorf("scan: %q", got)
	}
	var st admin.Stats
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "", "stats", "-o", "json")), &st); err != nil || len(st.Nodes) != 2 || len(st.Nodes["b"].Server) == 0 {
		t.Errorf("stats: %+v, %v", st, err)
	}
	st = admin.Stats{}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "", "stats", "--node", "b", "-o", "json")), &st); err != nil || st.Session.Node != "b" || st.Nodes != nil {
		t.Errorf("stats of b: %+v, %v", st, err)
	}
	var pings struct {
		Nodes map[string]struct{ Read, Send struct{ Count int } }
	}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "", "ping", "-c", "3", "-o", "json")), &pings); err != nil || pings.Nodes["a"].Read.Count != 3 || pings.Nodes["b"].Send.Count != 3 {
		t.Errorf("ping: %+v, %v", pings, err)
	}
	for i := range 8 { // of both nodes
		key := fmt.Sprintf("key%03d", i)
		if got := run(cli.ExitOK, "", "inspect", key); !strings.Contains(got, key) || !strings.Contains(got, "live") {
			t.Errorf("inspect %s: %s", key, got)
		}
	}
	run(cli.ExitUsage, "", "inspect")
	if got := run(cli.ExitOK, "", "inspect", "--node", "b"); !strings.Contains(got, "items") {
		t.Errorf("inspect of b: %s", got)
	}
	run(cli.ExitError, "", "ping", "--node", "c")
}
