package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/test/launch"
	"github.com/rdmakv/rdmakv/test/node"
)

var (
	binFlag    = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")
	killsFlag  = flag.Int("kills", 5, "cycles of the kill -9 test")
	fabricFlag = flag.String("fabric", "iwarp", "fabric of nodes and clients: iwarp, verbs or shm")
	hostFlag   = flag.String("host", "127.0.0.1", "address that nodes listen on")
	agentFlag  = flag.String("agent", "", "HOST:PORT of an agent on another machine that nodes are to run on; empty: on this one. It must see -bin and the temporary directory under the same paths")
	seedFlag   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random choices; a failure prints it")
)

// bin is the directory of the programs.
var bin string

// elsewhere starts nodes on another machine; nil if there is none.
var elsewhere node.Launcher

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if *fabricFlag != "iwarp" && *fabricFlag != "verbs" && *fabricFlag != "shm" {
			fmt.Fprintf(os.Stderr, "-fabric is %q, want iwarp, verbs or shm\n", *fabricFlag)
			return 2
		}
		if *agentFlag != "" {
			on, err := launch.Dial(context.Background(), *agentFlag)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			elsewhere = on
		}
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
		} else if elsewhere == nil {
			dir, err := copyPrograms(bin)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer os.RemoveAll(dir)
			bin = dir
		}
		return m.Run()
	}())
}

// copyPrograms copies the programs to the temporary directory. In a guest they
// lie on a file system of the host that caches nothing: each page of them would
// be fetched when it is first executed, in the middle of a call with a deadline.
func copyPrograms(from string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "rdmakv-e2e-"); err != nil {
		return "", err
	}
	for _, name := range []string{"kvserver", "kvclient"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// newFabric is the fabric that the tests were told to use.
func newFabric() rdma.Fabric {
	switch *fabricFlag {
	case "verbs":
		return verbs.New(verbs.Options{})
	case "shm":
		return shm.New(shm.Options{})
	}
	return iwarp.New(iwarp.Options{})
}

// onlyIWARP skips a test that speaks TCP to the data port.
func onlyIWARP(t *testing.T) {
	if *fabricFlag != "iwarp" {
		t.Skipf("about the bytes of the iwarp fabric; this run is on %s", *fabricFlag)
	}
}

// serverArgs are the arguments of every node here: free ports, quiet, small.
func serverArgs(dir string, more ...string) []string {
	any := net.JoinHostPort(*hostFlag, "0")
	return append([]string{"--data-dir", dir, "--listen", any, "--admin-listen", any,
		"--fabric", *fabricFlag, "--log-level", "warn", "--memory-limit", "512MiB"}, more...)
}

// startNode starts a node and kills it at the end of the test.
func startNode(t testing.TB, dir string, more ...string) *node.Node {
	t.Helper()
	n, err := node.Start(context.Background(), node.Options{
		Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(dir, more...), On: elsewhere,
	})
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
	cfg := client.Config{Servers: []string{n.Data}, Fabrics: []rdma.Fabric{newFabric()}, Timeout: 20 * time.Second}
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

// runProgram runs one of our programs to its end, which must come in two minutes.
func runProgram(t testing.TB, stdin io.Reader, env []string, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	cmd.Env = append(append(node.CleanEnv(os.Environ()), "RDMAKV_FABRIC="+*fabricFlag), env...)
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
