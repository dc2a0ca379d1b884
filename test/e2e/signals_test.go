package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

// TestSignals: SIGTERM and SIGINT end a node with exit code 0, with clients
// connected and under load too, and the next start finds a clean store.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			n := startNode(t, dir)
			c := dial(t, n)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					if c.Put(ctx, []byte("k"), []byte("v")) != nil {
						return
					}
				}
			}()
			time.Sleep(50 * time.Millisecond)
			if err := n.Signal(sig); err != nil {
				t.Fatal(err)
			}
			code, err := n.WaitExit(20 * time.Second)
			if err != nil || code != 0 {
				t.Fatalf("exit code %d, %v\n%s", code, err, n.Stderr())
			}
			cancel()
			<-done
		})
	}
}

// TestSecondSignal: two signals, one right after the other, end a node at once
// in one way or the other, and nothing that was acknowledged is lost.
func TestSecondSignal(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	c := dial(t, n)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	code, err := n.WaitExit(10 * time.Second)
	if err != nil || code != 0 && code != 1 {
		t.Fatalf("exit code %d, %v\n%s", code, err, n.Stderr())
	}
	again := dial(t, startNode(t, dir))
	if v, err := again.Get(t.Context(), []byte("k")); err != nil || string(v) != "v" {
		t.Errorf("after the restart: %q, %v", v, err)
	}
}

// TestPausedServer stops a server's process for longer than a lease, as a
// suspended machine would. Meanwhile nothing is answered, least of all from
// memory, for on this fabric the process is the card; afterwards everything goes
// on.
func TestPausedServer(t *testing.T) {
	if *fabricFlag != "iwarp" {
		t.Skip("a device goes on answering until the lease ends: TestStoppedServer")
	}
	n := startNode(t, t.TempDir(), "--lease", "1s")
	c := dial(t, n)
	if err := c.Put(t.Context(), []byte("k"), []byte("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), []byte("k")); err != nil {
		t.Fatal(err)
	}
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitStopped(t, n)
	for start := time.Now(); time.Since(start) < 1500*time.Millisecond; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if v, err := c.Get(ctx, []byte("k")); err == nil {
			t.Errorf("a paused server answered %q", v)
		}
		cancel()
	}
	if err := n.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(t.Context(), []byte("k")); err != nil || string(v) != "old" {
		t.Errorf("after the pause: %q, %v", v, err)
	}
	if err := c.Put(t.Context(), []byte("k"), []byte("new")); err != nil {
		t.Error(err)
	}
}

// waitStopped waits until every thread of a node stands still, which takes a
// moment after the signal, and longer on a busy machine.
func waitStopped(t *testing.T, n *node.Node) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		data, err := n.ReadProc("task/*/stat")
		if err != nil {
			t.Fatal(err)
		}
		tasks := strings.Split(strings.TrimSpace(string(data)), "\n")
		stopped := 0
		for _, task := range tasks {
			// The state stands behind the name, which is in parentheses.
			if i := strings.LastIndexByte(task, ')'); i >= 0 && strings.HasPrefix(task[i:], ") T") {
				stopped++
			}
		}
		if stopped == len(tasks) {
			return
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d of %d threads stand still", stopped, len(tasks))
		}
	}
}

// TestClosedStandardStreams: a node whose standard input is closed and whose
// standard output is a closed pipe serves all the same.
func TestClosedStandardStreams(t *testing.T) {
	addr := freeAddr(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close() // every write to w fails from now on
	if elsewhere != nil {
		t.Skip("its standard streams are those of an agent when it runs on another machine")
	}
	cmd := exec.Command(filepath.Join(bin, "kvserver"), serverArgs(t.TempDir(), "--listen", addr)...)
	cmd.Env = node.CleanEnv(os.Environ())
	cmd.Stdout = w
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := client.Dial(t.Context(), client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{newFabric()}, Timeout: 2 * time.Second})
		if err == nil {
			if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("the node does not serve: %v\n%s", err, stderr.String())
		}
	}
}

// freeAddr is an address without a listener just now. (For a node on another
// machine, or a fabric with ports of its own, that is likely and no more.)
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(localHost(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(*hostFlag, port)
}

// localHost is an address of this machine.
func localHost() string {
	if elsewhere != nil {
		return "127.0.0.1"
	}
	return *hostFlag
}
