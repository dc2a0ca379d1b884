package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/test/node"
)

var (
	binFlag   = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")
	killsFlag = flag.Int("kills", 5, "cycles of the kill -9 test")
	seedFlag  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random choices; a failure prints it")
)

// bin is the directory of the programs.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if bin = *binFlag; bin == "" {
			dir, err := os.MkdirTemp("", "rdmakv-e2e-")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer os.RemoveAll(dir)
			cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/kvserver", "../../cmd/kvclient")
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
				return 1
			}
			bin = dir
		}
		return m.Run()
	}())
}

// serverArgs are the arguments of every node here: free ports, quiet, small.
func serverArgs(dir string, more ...string) []string {
	return append([]string{"--data-dir", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--fabric", "iwarp", "--log-level", "warn", "--memory-limit", "512MiB"}, more...)
}

// startNode starts a node and kills it at the end of the test.
func startNode(t testing.TB, dir string, more ...string) *node.Node {
	t.Helper()
	n, err := node.Start(context.Background(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(dir, more...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the node's standard error:\n%s", n.Stderr())
		}
	})
	return n
}

// dial connects a client to a node, and closes it at the end of the test.
func dial(t testing.TB, n *node.Node, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Servers: []string{n.Data}, Fabric: iwarp.New(iwarp.Options{}), Timeout: 20 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// A result is what a program left behind.
type result struct {
	stdout, stderr string
	code           int
}

// runProgram runs one of our programs to its end, which must come in a minute.
func runProgram(t testing.TB, stdin io.Reader, env []string, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	cmd.Env = append(node.CleanEnv(os.Environ()), env...)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %q did not end: %s", name, args, stderr.String())
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
