package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
)

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
	"cluster add":           "needs a cluster: TestChanges",
	"cluster remove":        "needs a cluster: TestChanges",
	"cluster replace":       "needs a cluster: TestChanges",
	"cluster rebalance":     "needs a cluster: TestChanges",
	"cluster replicas":      "needs a cluster: TestChanges",
	"cluster upgrade":       "needs a cluster: TestUpgradeCommand",
	"cluster tasks":         "needs a cluster: TestTasksJSON",
	"cluster cancel":        "needs a cluster: TestTaskTold",
	"cluster pause":         "needs a cluster: TestTasksJSON",
	"cluster resume":        "needs a cluster: TestTasksJSON",
	"cluster backup":        "needs a cluster with replicas: TestBackup of test/cluster",
	"cluster restore":       "needs a cluster with replicas: TestBackup of test/cluster",
	"cluster verify":        "needs a backup: TestVerify of internal/backups",
	"cluster backups":       "has commands below it",
	"cluster backups list":  "needs a backup: TestVerify of internal/backups",
	"cluster recover":       "needs a cluster: TestRecoverTold",
	"fabric perf":           "TestPerf",
	"admin gossip-keys":     "needs a cluster: test/doctor",
	"cluster init":          "needs a cluster: TestCommandsOverCluster, test/doctor",
	"admin revoke":          "needs a tenant: test/doctor",
	"admin allow":           "needs a tenant: test/doctor",
}

// TestEveryJSON pipes what each command prints with -o json through a parser. A
// command that is neither here nor in notJSON fails it.
func TestEveryJSON(t *testing.T) {
	addr := apptest.Alone(t)
	run := func(line string) (int, string, string) {
		var out, errOut bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(`{"key":"in","value":"x"}` + "\n"), Stdout: &out, Stderr: &errOut,
			Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		code := a.Run(t.Context(), strings.Fields(line), commands)
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
	root := (&app.App{Stdout: io.Discard, Stderr: io.Discard}).Root(commands)
	for _, line := range lines {
		cmd, _, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		tried[path] = true
		code, out, errOut := run(line + " -o json")
		if code == cli.ExitUsage || line != "export "+file && out == "" {
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

// parseAll demands nothing but JSON values in a text.
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

// TestWatchInterrupted: Ctrl-C is the normal end of a watch: no message, and the
// exit code that a shell gives a program which was interrupted.
func TestWatchInterrupted(t *testing.T) {
	addr := apptest.Alone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var errOut bytes.Buffer
	a := &app.App{Stdin: strings.NewReader(""), Stdout: in, Stderr: &errOut, Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
	code := make(chan int, 1)
	var position bytes.Buffer
	b := &app.App{Stdin: strings.NewReader(""), Stdout: &position, Stderr: &errOut, Env: a.Env}
	if c := b.Run(ctx, []string{"watch", "--position"}, commands); c != cli.ExitOK {
		t.Fatal(c, errOut.String())
	}
	go func() {
		code <- a.Run(ctx, []string{"watch", "--from", strings.TrimSpace(position.String())}, commands)
	}()
	if c := b.Run(ctx, []string{"put", "k", "v"}, commands); c != cli.ExitOK {
		t.Fatal(c, errOut.String())
	}
	line := make([]byte, 64)
	n, err := out.Read(line) // it watches
	if err != nil || string(line[:n]) != "put\tk\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	cancel()
	if got := <-code; got != cli.ExitInterrupted || errOut.Len() > 0 {
		t.Errorf("exit code %d, %q", got, &errOut)
	}
}
