// Package servers starts the servers that are compared, each as a process of its
// own on the loopback interface and UNIX sockets, with a directory of its own, and
// ends it.
//
// A server gets ports that were free a moment ago, none of them well-known, and no
// configuration file of the machine's. It is ended when it is not needed any more,
// and by the kernel if this program dies first.
package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Server is a process that answers.
type Server struct {
	Name string // of the program
	// Command is what was run, the directories shortened: for the report.
	Command string
	// TCP and Unix are where it listens; "" for nowhere.
	TCP, Unix string
	// Fabrics and ShmDir are of rdmakv: what its ready line says, and the directory
	// that its clients on this host find it by.
	Fabrics, ShmDir string
	// Dir has the server's files, and is removed when it has stopped.
	Dir string
	// Others are the other nodes where this one is the first of a cluster. They end with it.
	Others []*Server

	sockets string
	core    int // it runs on; -1: any
	cmd     *exec.Cmd
	out     *tail
	done    chan struct{} // closed when the process is gone
	err     error         // of Wait; read after done
}

// A Place is where servers have their directories: files on the disk that is
// measured, sockets where the path is short, because the address of one has 108
// bytes.
type Place struct {
	Disk, Sockets string
	// Pinned puts the servers on processor Core.
	Pinned bool
	Core   int
}

// server makes the directories of a server that is to be started.
func (p Place) server(name string) (*Server, error) {
	dir, err := os.MkdirTemp(p.Disk, name+"-")
	if err != nil {
		return nil, err
	}
	sockets, err := os.MkdirTemp(p.Sockets, "s")
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	s := &Server{Name: name, Dir: dir, sockets: sockets, core: -1}
	if p.Pinned {
		s.core = p.Core
	}
	return s, nil
}

func (s *Server) remove() error {
	return errors.Join(os.RemoveAll(s.Dir), os.RemoveAll(s.sockets))
}

// Bounds of a server's life.
const (
	startLimit = 60 * time.Second
	stopLimit  = 30 * time.Second
	tailBytes  = 4096
)

// PID is the process's number.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// start runs a program whose output is kept for errors; each whole line of its
// standard output goes to line, if that is not nil.
func start(s *Server, path string, args []string, line func(string)) error {
	s.out = &tail{line: line}
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir = s.Dir
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.cmd.SysProcAttr = Attached()
	s.cmd.Env = cleanEnv(os.Environ())
	s.Command = strings.NewReplacer(s.Dir, "DIR", s.sockets, "SOCKETS").Replace(strings.Join(append([]string{s.Name}, quoted(args)...), " "))
	s.done = make(chan struct{})
	if err := StartOn(s.cmd, s.core); err != nil {
		return fmt.Errorf("%s does not start: %w", s.Name, err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	return nil
}

// cleanEnv leaves out variables that would configure rdmakv or etcd. ETCD_UNSUPPORTED_ARCH stays:
// without it, etcd does not start on some machines.
func cleanEnv(env []string) (out []string) {
	for _, v := range env {
		if strings.HasPrefix(v, "RDMAKV_") || strings.HasPrefix(v, "ETCD_") && !strings.HasPrefix(v, "ETCD_UNSUPPORTED_ARCH=") {
			continue
		}
		out = append(out, v)
	}
	return out
}

// quoted makes empty arguments visible.
func quoted(args []string) (out []string) {
	for _, a := range args {
		if a == "" {
			a = `""`
		}
		out = append(out, a)
	}
	return out
}

// await calls ready every few milliseconds until it succeeds, the process has
// ended, or time is up.
func (s *Server) await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended at once (%v): %s", s.Name, s.err, s.out)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%v): %s", s.Name, err, ctx.Err(), s.out)
		case <-tick.C:
		}
	}
}

// Stop ends the process, waits until it is gone and removes its directory; so it does with the
// other nodes, all at a time. It is called once.
func (s *Server) Stop() error {
	errs := make([]error, 1+len(s.Others))
	var ends sync.WaitGroup
	for i, one := range s.nodes() {
		ends.Go(func() { errs[i] = errors.Join(one.end(syscall.SIGTERM), one.remove()) })
	}
	ends.Wait()
	return errors.Join(errs...)
}

// end sends a signal and waits; a process that does not end is killed.
func (s *Server) end(sig syscall.Signal) error {
	select {
	case <-s.done:
		return fmt.Errorf("%s had ended by itself (%v): %s", s.Name, s.err, s.out)
	default:
	}
	_ = s.cmd.Process.Signal(sig) // if it is gone by now, done tells
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-s.done:
		return nil
	case <-limit.C:
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("%s did not end within %v and was killed: %s", s.Name, stopLimit, s.out)
	}
}

// Alive says whether the process still runs, and those of the other nodes; the error is what
// the one that does not last said.
func (s *Server) Alive() error {
	for _, one := range s.nodes() {
		select {
		case <-one.done:
			return fmt.Errorf("%s has ended (%v): %s", one.Name, one.err, one.out)
		default:
		}
	}
	return nil
}

// A tail keeps the end of a process's output.
type tail struct {
	line func(string)

	mu   sync.Mutex
	last []byte
	part []byte // of the line that is being written
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	if t.line == nil {
		return len(p), nil
	}
	t.part = append(t.part, p...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok {
			break
		}
		t.line(string(line))
		t.part = rest
	}
	if len(t.part) > tailBytes {
		t.part = nil
	}
	return len(p), nil
}

// String is the last few lines, in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.last)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], " | ")
}

// freePort returns a port of the loopback interface without a listener. A moment
// later another process may take it, so starts are tried again.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// tries is how often a start is tried that chose its port itself.
const tries = 3

// asks sends a line to a server and demands an answer that begins with want.
func asks(network, addr, line, want string) error {
	got, err := says(network, addr, line)
	if err == nil && !strings.HasPrefix(got, want) {
		err = fmt.Errorf("%s answers %.256q to %q", addr, got, strings.TrimSpace(line))
	}
	return err
}

// says sends a line to a server and returns the beginning of its answer.
func says(network, addr, line string) (string, error) {
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(line)); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
