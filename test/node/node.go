// Package node runs kvserver as a process of its own, for tests and for the
// demo: on this machine, or wherever a Launcher can start it.
package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options says how to start a node.
type Options struct {
	Bin  string        // the kvserver binary
	Args []string      // its arguments
	Env  []string      // variables beside those of this process, of which RDMAKV_ ones are left out
	On   Launcher      // where it runs; nil means on this machine
	Log  io.Writer     // gets a copy of its standard error; may be nil
	Wait time.Duration // limit for the time until it is ready; 0 means a minute
}

// A Node is a running kvserver.
type Node struct {
	Data    string        // address for RDMA connections
	Admin   string        // address of the admin port; empty if there is none
	ID      string        // node id, and
	Gossip  string        // gossip address; empty for a server that is alone
	Startup time.Duration // from exec to the ready line

	on     Launcher
	proc   Process
	errOut *tail
	exited chan struct{} // closed when the process is gone
	code   int           // its exit code; read after exited is closed
}

// An ExitError is a kvserver that ended before it was ready.
type ExitError struct {
	Code   int
	Stderr string // the last of its standard error
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("kvserver ended with exit code %d: %s", e.Code, strings.TrimSpace(e.Stderr))
}

// Start starts a node and returns when it is ready. A process that ends
// before that is an *ExitError.
func Start(ctx context.Context, opt Options) (*Node, error) {
	n := &Node{errOut: &tail{also: opt.Log}, exited: make(chan struct{}), on: opt.On}
	if n.on == nil {
		n.on = local{}
	}
	stdout, feed := io.Pipe()
	start := time.Now()
	var err error
	if n.proc, err = n.on.Start(Command{Path: opt.Bin, Args: opt.Args, Env: opt.Env, Stdout: feed, Stderr: n.errOut}); err != nil {
		return nil, err
	}
	first := make(chan string, 1)
	go func() {
		out := bufio.NewReader(stdout)
		line, _ := out.ReadString('\n')
		first <- line
		_, _ = io.Copy(io.Discard, out)
	}()
	go func() {
		n.code, _ = n.proc.Wait()
		_ = feed.Close()
		close(n.exited)
	}()
	wait := opt.Wait
	if wait == 0 {
		wait = time.Minute
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case line := <-first:
		n.Startup = time.Since(start)
		if err := n.parseReady(line); err != nil {
			_ = n.Kill()
			if line == "" {
				return nil, &ExitError{n.code, n.Stderr()}
			}
			return nil, err
		}
		return n, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), n.Kill())
	case <-timer.C:
		_ = n.Kill()
		return nil, fmt.Errorf("kvserver was not ready after %v: %s", wait, n.Stderr())
	}
}

// parseReady reads "ready data=HOST:PORT admin=HOST:PORT node=ID gossip=HOST:PORT".
func (n *Node) parseReady(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ready" {
		return fmt.Errorf("the first line of kvserver is %q, want \"ready data=...\"", line)
	}
	for _, w := range words[1:] {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "data":
			n.Data = value
		case "admin":
			n.Admin = value
		case "node":
			n.ID = value
		case "gossip":
			n.Gossip = value
		}
	}
	if n.Data == "" {
		return fmt.Errorf("the ready line names no data address: %q", line)
	}
	return nil
}

// PID is the process id.
func (n *Node) PID() int { return n.proc.PID() }

// ReadProc reads from the node's directory in /proc: "stat", "task/*/stat".
func (n *Node) ReadProc(pattern string) ([]byte, error) {
	return n.on.ReadFiles(fmt.Sprintf("/proc/%d/%s", n.PID(), pattern))
}

// Signal sends a signal.
func (n *Node) Signal(s syscall.Signal) error { return n.proc.Signal(s) }

// Kill ends the node by SIGKILL, at once and without warning, and waits until
// it is gone. Killing a node that is gone is harmless.
func (n *Node) Kill() error {
	err := n.proc.Signal(syscall.SIGKILL)
	<-n.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop ends the node by SIGTERM and returns its exit code. One that does not
// end in time is killed, and that is the error.
func (n *Node) Stop(limit time.Duration) (code int, err error) {
	if err := n.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return -1, err
	}
	return n.WaitExit(limit)
}

// WaitExit waits for the node to end by itself and returns its exit code.
func (n *Node) WaitExit(limit time.Duration) (code int, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-n.exited:
		return n.code, nil
	case <-timer.C:
		_ = n.Kill()
		return -1, fmt.Errorf("kvserver did not end within %v: %s", limit, n.Stderr())
	}
}

// Exited is closed when the process is gone.
func (n *Node) Exited() <-chan struct{} { return n.exited }

// Stderr is the last of what the node wrote to standard error.
func (n *Node) Stderr() string { return n.errOut.String() }

// CleanEnv is an environment without our variables: a test must not depend on
// them, and kvserver refuses those it does not know.
func CleanEnv(env []string) []string {
	out := make([]string, 0, len(env))
	for _, v := range env {
		if !strings.HasPrefix(v, "RDMAKV_") {
			out = append(out, v)
		}
	}
	return out
}

// A tail keeps the last bytes written to it. It is safe for concurrent use.
type tail struct {
	also io.Writer

	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf.Write(p)
	if extra := t.buf.Len() - tailSize; extra > 0 {
		t.buf.Next(extra)
	}
	t.mu.Unlock()
	if t.also != nil {
		_, _ = t.also.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
