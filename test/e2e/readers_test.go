package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// A mapper is a client process that has a node's memory mapped and does nothing.
type mapper struct {
	t    *testing.T
	cmd  *exec.Cmd
	dead bool
}

// startMapper starts a client on a node and returns when it is connected.
func startMapper(t *testing.T, addr string) *mapper {
	t.Helper()
	m := &mapper{t: t, cmd: exec.Command(filepath.Join(bin, "kvclient"), "watch", "--fabric", "shm", "--server", addr)}
	m.cmd.Env = node.CleanEnv(os.Environ())
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	// It is connected once it has told of a change.
	told := make(chan bool, 1)
	go func() {
		told <- bufio.NewScanner(out).Scan()
		_, _ = io.Copy(io.Discard, out)
	}()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if r := runProgram(t, nil, []string{"RDMAKV_FABRIC=shm"}, "kvclient", "put", "--server", addr, "k", "v"); r.code != 0 {
			t.Fatalf("put: %+v", r)
		}
		select {
		case ok := <-told:
			if !ok {
				t.Fatal("the client ended")
			}
			return m
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the client told of no change")
		}
	}
}

func (m *mapper) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
}

// stop stops all threads of the client and returns when they stand still: until the
// first of them has met the signal, the others go on, and could yet let go.
func (m *mapper) stop() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", m.cmd.Process.Pid))
		if err != nil || len(names) == 0 {
			m.t.Fatalf("threads of the client: %v, %v", names, err)
		}
		still := 0
		for _, name := range names {
			stat, err := os.ReadFile(name)
			if err != nil {
				m.t.Fatal(err)
			}
			// proc(5): the state follows the command, which is in parentheses.
			if i := bytes.LastIndexByte(stat, ')'); i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T")) {
				still++
			}
		}
		if still == len(names) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%d of the client's %d threads have stopped", still, len(names))
		}
	}
}

func (m *mapper) kill() {
	if !m.dead {
		m.dead = true
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// TestReadersOfThePredecessor: after a crash of the node its memory is still there
// for every process that has it mapped. As long as one has, the next node serves
// nothing at all until the last lease is over; and at once if none has.
func TestReadersOfThePredecessor(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	const lease = time.Second
	const waits = "nothing is served before they let go"
	dir := t.TempDir()
	start := func(listen string) *node.Node {
		t.Helper()
		n, err := node.Start(t.Context(), node.Options{
			Bin: filepath.Join(bin, "kvserver"),
			Args: []string{"--data-dir", dir, "--listen", listen, "--admin-listen", "", "--fabric", "shm", "--log-level", "info",
				"--lease", lease.String(), "--memory-limit", "64MiB", "--expert-region-size", "8MiB", "--expert-index-region-size", "8MiB"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Kill() })
		return n
	}
	n := start(net.JoinHostPort(*hostFlag, "0"))
	listen := n.Data
	crash := func() {
		t.Helper()
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}

	// It holds the memory and cannot let go.
	m := startMapper(t, listen)
	m.stop()
	crash()
	begun := time.Now()
	n = start(listen)
	if took := time.Since(begun); took < lease || !strings.Contains(n.Stderr(), waits) {
		t.Errorf("the next node served %v after it was started, with a lease of %v and a stopped reader:\n%s", took, lease, n.Stderr())
	}
	m.kill()

	// It is dead, and so is its lock.
	m = startMapper(t, listen)
	m.stop()
	crash()
	m.kill()
	n = start(listen)
	if strings.Contains(n.Stderr(), waits) {
		t.Errorf("the next node waited for a reader that is dead:\n%s", n.Stderr())
	}

	// It lets go while the node waits.
	m = startMapper(t, listen)
	m.stop()
	crash()
	time.AfterFunc(lease/10, m.kill)
	n = start(listen)
	if r := runProgram(t, nil, []string{"RDMAKV_FABRIC=shm"}, "kvclient", "get", "--server", listen, "k"); r.code != 0 || strings.TrimSpace(r.stdout) != "v" {
		t.Errorf("get: %+v", r)
	}
}
