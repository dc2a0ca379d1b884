package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// alone starts one server in this process and returns its address.
func alone(t *testing.T, change ...func(*server.Config)) string {
	t.Helper()
	cfg := server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(), MinFreeBytes: -1, CacheBytes: 4 << 20,
		Shards: 4, MemoryLimit: 64 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20, MemoryKind: memory.Heap,
	}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := server.New(cfg)
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
	return srv.Addrs()[0].String()
}

// notJSON are commands that have no -o json, and why.
var notJSON = map[string]string{
	"completion":            "a program of the shell",
	"completion bash":       "a program of the shell",
	"completion zsh":        "a program of the shell",
	"completion fish":       "a program of the shell",
	"completion powershell": "a program of the shell",
	"help":                  "text of cobra",
	"cluster":               "has commands below it",
	"admin":                 "has commands below it",
	"fabric":                "has commands below it",
	"cluster add":           "not yet",
	"cluster remove":        "not yet",
	"cluster move":          "not yet",
	"fabric perf":           "TestPerf",
	"admin gossip-keys":     "needs a cluster: test/doctor",
	"cluster init":          "needs a cluster: TestCommandsOverCluster, test/doctor",
	"admin revoke":          "needs a tenant: test/doctor",
	"admin allow":           "needs a tenant: test/doctor",
}

// TestEveryJSON pipes what each command prints with -o json through a parser. A
// command that is neither here nor in notJSON fails it.
func TestEveryJSON(t *testing.T) {
	addr := alone(t)
	run := func(line string) (int, string, string) {
		var out, errOut bytes.Buffer
		a := &app{stdin: strings.NewReader(`{"key":"in","value":"x"}` + "\n"), stdout: &out, stderr: &errOut,
			env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		code := a.run(t.Context(), strings.Fields(line))
		return code, out.String(), errOut.String()
	}
	file := filepath.Join(t.TempDir(), "out.jsonl")
	lines := []string{
		"wait", "put k v", "put k v2 --ttl 1h", "get k", "get k --meta", "get k --version", "get zz", "get zz --meta", "ttl zz", "--version", "get k zz", "get k --length 1", "exists k", "exists zz", "ttl k",
		"scan", "scan k", "scan --values", "count", "count k", "incr n", "touch k 1h", "batch", "import", "export " + file, "export -",
		"stats", "stats --all", "ping -c 2", "version", "inspect", "inspect k", "inspect --region 0",
		"bench --workload c --keys 20 --operations 50 --clients 1", "fabric devices", "doctor", "cluster status", "cluster check",
		"admin tenants", "admin limits", "admin rotate-rkeys", "watch --position", "delete k zz", "delete n", "delete --prefix bench --yes",
	}
	tried := make(map[string]bool)
	root := (&app{stdout: io.Discard, stderr: io.Discard}).root()
	for _, line := range lines {
		cmd, _, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		tried[path] = true
		code, out, errOut := run(line + " -o json")
		if code == exitUsage || line != "export "+file && out == "" {
			t.Errorf("%s: exit code %d, %q, %s", line, code, out, errOut)
		}
		parseAll(t, line, out)
	}
	if text, err := os.ReadFile(file); err != nil {
		t.Error(err)
	} else {
		parseAll(t, "export", string(text))
	}
	// Changes, as they come.
	_, at, _ := run("watch --position -o json")
	var now struct{ Position string }
	if err := json.Unmarshal([]byte(at), &now); err != nil || now.Position == "" {
		t.Fatalf("%q: %v", at, err)
	}
	run("put w 1")
	_, out, _ := run("watch --values --count 1 -o json --from " + now.Position)
	if parseAll(t, "watch", out); !strings.Contains(out, `"op":"put"`) {
		t.Errorf("watch: %q", out)
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		if path != "" && !tried[path] && notJSON[path] == "" {
			t.Errorf("%s is not tried with -o json, and notJSON does not say why", path)
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// parseAll wants nothing but JSON values in a text.
func parseAll(t *testing.T, line, text string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := dec.Decode(&v); err == io.EOF {
			return
		} else if err != nil {
			t.Errorf("%s: %v in\n%.500s", line, err, text)
			return
		}
		if _, object := v.(map[string]any); !object {
			t.Errorf("%s: %.200v is no object", line, v)
		}
	}
}

// TestWatchInterrupted: Ctrl-C is how a watch ends: no word, and the exit code that
// a shell gives a program which was interrupted.
func TestWatchInterrupted(t *testing.T) {
	addr := alone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var errOut bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: in, stderr: &errOut, env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
	code := make(chan int, 1)
	var position bytes.Buffer
	b := &app{stdin: strings.NewReader(""), stdout: &position, stderr: &errOut, env: a.env}
	if c := b.run(ctx, []string{"watch", "--position"}); c != exitOK {
		t.Fatal(c, errOut.String())
	}
	go func() { code <- a.run(ctx, []string{"watch", "--from", strings.TrimSpace(position.String())}) }()
	if c := b.run(ctx, []string{"put", "k", "v"}); c != exitOK {
		t.Fatal(c, errOut.String())
	}
	line := make([]byte, 64)
	n, err := out.Read(line) // it watches
	if err != nil || string(line[:n]) != "put\tk\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	cancel()
	if got := <-code; got != exitInterrupted || errOut.Len() > 0 {
		t.Errorf("exit code %d, %q", got, &errOut)
	}
}

// TestDeleteAll: many more keys than there are workers, and what does not begin so
// stays.
func TestDeleteAll(t *testing.T) {
	addr := alone(t)
	c, err := client.Dial(t.Context(), client.Config{Servers: []string{addr}, Fabric: iwarp.New(iwarp.Options{}), HeapMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var pairs []client.Pair
	for i := range 3000 {
		key := []byte{'a' + byte(i%2), byte(i >> 8), byte(i)}
		pairs = append(pairs, client.Pair{Key: key, Value: key})
	}
	if err := c.MultiPut(t.Context(), pairs); err != nil {
		t.Fatal(err)
	}
	show := newProgress(io.Discard, "deleted", 0, nil)
	err = deleteAll(t.Context(), c, []byte("a"), show)
	show.end()
	left := 0
	for e, err := range c.Scan(t.Context(), client.ScanOptions{KeysOnly: true}) {
		if err != nil || e.Key[0] != 'b' {
			t.Fatalf("%q, %v", e.Key, err)
		}
		left++
	}
	if err != nil || show.keys.Load() != 1500 || left != 1500 {
		t.Errorf("%d deleted, %d left, %v", show.keys.Load(), left, err)
	}
	// It ends with its context, and says so.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	show = newProgress(io.Discard, "deleted", 0, nil)
	if err := deleteAll(ctx, c, []byte("b"), show); err == nil {
		t.Error("a context that has ended ends it with an error")
	}
	show.end()
}

// TestConfirm: only a clear yes is one.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " y \n": true, "\n": false, "": false, "n\n": false, "yo\n": false} {
		var errOut bytes.Buffer
		a := &app{stdin: strings.NewReader(answer), stderr: &errOut}
		if a.confirm("delete all?") != want || errOut.String() != "kvclient: delete all? [y/N] " {
			t.Errorf("%q: %q", answer, &errOut)
		}
	}
}

// TestAdminText: a list is a table in the order of the node's fields, with what
// other nodes have beside it, and harmless.
func TestAdminText(t *testing.T) {
	got := adminText(map[string]json.RawMessage{
		"b": json.RawMessage(`[{"name":"x\u001b[31m","max_bytes":1048576,"rights":["read","write"],"revoked":true}]`),
		"a": json.RawMessage(`[{"name":"y","max_bytes":4611686018427387904,"rights":[],"revoked":false,"new":{"k":1}}]`),
		"c": json.RawMessage(`{"running":false,"left":3,"spaces":[{"space":"","began":"12:00"},{"space":"s1","began":""}]}`),
		"d": json.RawMessage(`{"running":true,"left":4,"spaces":[{"space":"","began":"12:01"}]}`),
	})
	want := []string{
		"node name max_bytes rights revoked new",
		"a y - - no k=1",
		"b x?[31m 1.0 MiB read,write yes -",
		"",
		"node running left",
		"c no 3",
		"d yes 4",
		"",
		"node space began",
		"c - 12:00",
		"c s1 -",
		"d - 12:01",
	}
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
