//go:build linux

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of these tests; nothing is measured by it.
const patience = 30 * time.Second

// dialLocal returns a client of an agent in this process, and what the agent's
// Serve returns.
func dialLocal(t *testing.T) (*Client, <-chan error) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), theirs, Local) }()
	c := NewClient(ours)
	t.Cleanup(func() { c.Close() })
	return c, served
}

func sh(script string) Cmd { return Cmd{Args: []string{"/bin/sh", "-c", script}} }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestRun(t *testing.T) {
	c, _ := dialLocal(t)
	var out, errs bytes.Buffer
	code, err := c.Run(within(t), Cmd{Args: []string{"sh", "-c", "echo $A in $(pwd); echo oh >&2; exit 42"}, Env: []string{"A=b"}, Dir: "/"}, &out, &errs)
	if err != nil || code != 42 || out.String() != "b in /\n" || errs.String() != "oh\n" {
		t.Errorf("code %d, %v, output %q and %q", code, err, &out, &errs)
	}
	if code, err := c.Run(within(t), sh("exit 0"), nil, nil); code != 0 || err != nil {
		t.Errorf("success: code %d, %v", code, err)
	}
	if code, err := c.Run(within(t), sh("kill -9 $$"), nil, nil); code != 128+9 || err != nil {
		t.Errorf("killed: code %d, %v", code, err)
	}
	if _, err := c.Run(within(t), Cmd{Args: []string{"/no/such/program"}}, nil, nil); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("missing program: %v", err)
	}
	if _, err := c.Run(within(t), Cmd{}, nil, nil); err == nil {
		t.Error("no program at all is started")
	}
	if _, err := c.Run(within(t), Cmd{Args: []string{"echo", strings.Repeat("x", MaxBody)}}, nil, nil); err == nil {
		t.Error("a command line longer than a frame is sent")
	}
}

// TestMuch sends more than a window through both directions of several
// programs at once.
func TestMuch(t *testing.T) {
	c, _ := dialLocal(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 5*Window/16)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := sh("cat; echo done >&2")
			cmd.Input = true
			p, err := c.Start(within(t), cmd)
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				if _, err := p.Stdin().Write(want); err != nil {
					t.Error(err)
				}
				p.Stdin().Close()
			}()
			var out, errs bytes.Buffer
			code, err := p.Copy(within(t), &out, &errs)
			if code != 0 || err != nil || !bytes.Equal(out.Bytes(), want) || errs.String() != "done\n" {
				t.Errorf("code %d, %v, %d of %d bytes, %q", code, err, out.Len(), len(want), &errs)
			}
		})
	}
	wg.Wait()
}

// TestUnread: a program whose output is not read waits; others go on, and it
// goes on too once it is read.
func TestUnread(t *testing.T) {
	c, _ := dialLocal(t)
	const much = 3 * Window
	p, err := c.Start(within(t), sh(fmt.Sprintf("head -c %d /dev/zero; exit 5", much)))
	if err != nil {
		t.Fatal(err)
	}
	// It has no credit for all of it, so it cannot have ended. Others can.
	for range 3 {
		if code, err := c.Run(within(t), sh("exit 3"), nil, nil); code != 3 || err != nil {
			t.Fatalf("beside it: code %d, %v", code, err)
		}
	}
	select {
	case <-p.Exited():
		t.Fatal("a program with unread output has ended")
	default:
	}
	n, err := io.Copy(io.Discard, p.Stdout())
	if n != much || err != nil {
		t.Errorf("read %d of %d, %v", n, much, err)
	}
	var exit *ExitError
	if err := p.Wait(within(t)); !errors.As(err, &exit) || exit.Code != 5 {
		t.Errorf("wait: %v", err)
	}
}

func TestSignal(t *testing.T) {
	c, _ := dialLocal(t)
	p, err := c.Start(within(t), sh("trap 'echo got it; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 6)
	if _, err := io.ReadFull(p.Stdout(), buf); err != nil || string(buf) != "ready\n" {
		t.Fatalf("%q, %v", buf, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *ExitError
	if err := p.Wait(within(t)); !errors.As(err, &exit) || exit.Code != 7 || exit.Signal != 0 {
		t.Errorf("wait: %v", err)
	}
	if rest, _ := io.ReadAll(p.Stdout()); string(rest) != "got it\n" {
		t.Errorf("output %q", rest)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
	if err := p.Signal(99); err == nil {
		t.Error("signal 99 is sent")
	}
}

// TestContext: a program whose time is up is killed, with all its group.
func TestContext(t *testing.T) {
	c, _ := dialLocal(t)
	p, err := c.Start(within(t), sh("sleep 1000 & echo $!; wait"))
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	n, err := p.Stdout().Read(line)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Copy(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("copy: %v", err)
	}
	gone(t, child)
}

// gone waits until a process is no more, or a zombie whose parent has not waited
// for it.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d lives: %s", pid, stat)
		}
	}
}

// TestClose: what runs ends with the connection, at both ends.
func TestClose(t *testing.T) {
	c, served := dialLocal(t)
	p, err := c.Start(within(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := p.Wait(within(t)); err == nil || !strings.Contains(err.Error(), "connection lost") {
		t.Errorf("wait: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	gone(t, p.Pid())
	if _, err := c.Start(within(t), sh("true")); err == nil {
		t.Error("a program starts on a closed connection")
	}
}

// TestOutlived: a background process that holds the output open does not keep
// its parent's end from being seen.
func TestOutlived(t *testing.T) {
	c, _ := dialLocal(t)
	var out bytes.Buffer
	code, err := c.Run(within(t), sh("sleep 1000 & echo $!; exit 6"), &out, nil)
	if code != 6 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the background process is gone: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	c, _ := dialLocal(t)
	cmd := sh("[ -t 0 ] && [ -t 1 ] && stty -echo && stty size && read x && stty size && echo got $x")
	cmd.Terminal, cmd.Input = true, true
	p, err := c.Start(within(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(31, 77); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin().Write([]byte("word\n")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code, err := p.Copy(within(t), &out, nil); code != 0 || err != nil {
		t.Errorf("code %d, %v: %q", code, err, &out)
	}
	if !strings.Contains(out.String(), "31 77") || !strings.Contains(out.String(), "got word") {
		t.Errorf("output %q", &out)
	}
}

func TestTooMany(t *testing.T) {
	c, _ := dialLocal(t)
	var ps []*Process
	for range MaxPrograms {
		p, err := c.Start(within(t), sh("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	if _, err := c.Start(within(t), sh("true")); err == nil {
		t.Error("one too many is started")
	}
	if err := ps[0].Kill(); err != nil {
		t.Fatal(err)
	}
	_ = ps[0].Wait(within(t))
	if code, err := c.Run(within(t), sh("exit 3"), nil, nil); code != 3 || err != nil {
		t.Errorf("after one has ended: code %d, %v", code, err)
	}
}

// TestForward passes programs on through an agent in the middle.
func TestForward(t *testing.T) {
	inner, _ := dialLocal(t)
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), theirs, Forward(inner)) }()
	outer := NewClient(ours)
	var out, errs bytes.Buffer
	if code, err := outer.Run(within(t), sh("echo one; echo two >&2; exit 9"), &out, &errs); code != 9 || err != nil || out.String() != "one\n" || errs.String() != "two\n" {
		t.Errorf("code %d, %v, output %q and %q", code, err, &out, &errs)
	}
	if code, err := outer.Run(within(t), sh("kill -9 $$"), nil, nil); code != 128+9 || err != nil {
		t.Errorf("killed: code %d, %v", code, err)
	}
	if _, err := outer.Run(within(t), Cmd{Args: []string{"/no/such/program"}}, nil, nil); err == nil {
		t.Error("missing program")
	}
	p, err := outer.Start(within(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	outer.Close() // kills what it started, and nothing else of the inner client
	if err := <-served; err != nil {
		t.Error(err)
	}
	gone(t, p.Pid())
	if code, err := inner.Run(within(t), sh("exit 4"), nil, nil); code != 4 || err != nil {
		t.Errorf("the inner client: code %d, %v", code, err)
	}
}

// TestHostileClient: frames that have no place end the connection and nothing
// else.
func TestHostileClient(t *testing.T) {
	start := appendFrame(nil, kindStart, 1, []byte(`{"Args":["sleep","1000"]}`)...)
	for name, frames := range map[string][]byte{
		"start twice":         append(bytes.Clone(start), start...),
		"no JSON":             appendFrame(nil, kindStart, 1, []byte("{")...),
		"no program":          appendFrame(nil, kindStart, 1, []byte("{}")...),
		"exit from a client":  appendFrame(nil, kindExit, 1, 0, 0, 0, 0, 0),
		"input at stdout":     appendFrame(bytes.Clone(start), kindData, 1, stdout, 'x'),
		"beyond the window":   bytes.Repeat(appendFrame(nil, kindData, 1, append([]byte{stdin}, make([]byte, Window/2)...)...), 3),
		"credit for nothing":  appendFrame(bytes.Clone(start), kindCredit, 1, stdout, 0xff, 0xff, 0xff, 0xff),
		"credit for input":    appendFrame(bytes.Clone(start), kindCredit, 1, stdin, 0, 0, 0, 1),
		"unknown kind":        appendFrame(nil, 77, 1),
		"longer than allowed": {1, 0, 0, 0, byte(kindData), 0, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			served := make(chan error, 1)
			block := make(chan struct{})
			go func() {
				served <- Serve(context.Background(), theirs, func(ctx context.Context, c Cmd) (Program, error) {
					if name == "beyond the window" {
						<-block // the input has no reader
					}
					return Local(ctx, c)
				})
			}()
			go io.Copy(io.Discard, ours)
			if name == "beyond the window" {
				frames = append(bytes.Clone(start), frames...)
				time.AfterFunc(100*time.Millisecond, func() { close(block) })
			}
			_, _ = ours.Write(frames) // ends early when the other side closes
			select {
			case err := <-served:
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("serve: %v", err)
				}
			case <-time.After(patience):
				t.Error("the connection goes on")
			}
			ours.Close()
		})
	}
}

// TestHostileAgent is the same for the other side.
func TestHostileAgent(t *testing.T) {
	started := appendFrame(nil, kindStarted, 1, 0, 0, 0, 9)
	with := func(more ...byte) []byte { return append(bytes.Clone(started), more...) }
	for name, frames := range map[string][]byte{
		"unknown program":   appendFrame(nil, kindStarted, 2, 0, 0, 0, 9),
		"process 0":         appendFrame(nil, kindStarted, 1, 0, 0, 0, 0),
		"started twice":     with(started...),
		"end before start":  appendFrame(nil, kindExit, 1, 0, 0, 0, 0, 0),
		"output at stdin":   with(appendFrame(nil, kindData, 1, stdin, 'x')...),
		"beyond the window": with(bytes.Repeat(appendFrame(nil, kindData, 1, append([]byte{stdout}, make([]byte, Window/2)...)...), 3)...),
		"signal":            with(appendFrame(nil, kindSignal, 1, 9, 0)...),
		"failed later":      with(appendFrame(nil, kindFailed, 1, 'x')...),
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			c := NewClient(ours)
			defer c.Close()
			go func() {
				if _, err := readFrame(theirs); err == nil {
					_, _ = theirs.Write(frames)
				}
				_, _ = io.Copy(io.Discard, theirs)
				theirs.Close()
			}()
			p, err := c.Start(within(t), sh("true"))
			if err == nil {
				err = p.Wait(within(t))
			}
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLateCredit: credit for input may come after the end of the program that
// did not read it. The connection, and the programs beside it, go on.
func TestLateCredit(t *testing.T) {
	ours, theirs := net.Pipe()
	c := NewClient(ours)
	t.Cleanup(func() { c.Close() })
	agentErr := make(chan error, 1)
	go func() {
		agent := &conn{rw: theirs}
		for i := range uint32(2) {
			f, err := readFrame(theirs)
			if err != nil || f.kind != kindStart {
				agentErr <- fmt.Errorf("%v: %v", f.kind, err)
				return
			}
			_ = agent.send(kindStarted, f.program, 0, 0, 0, byte(i+1))
			_ = agent.send(kindExit, f.program, 0, 0, 0, 0, 0)
			_ = agent.send(kindCredit, f.program, stdin, 0, 0, 0, 1)
		}
		agentErr <- nil
	}()
	for range 2 {
		if code, err := c.Run(within(t), Cmd{Args: []string{"x"}, Input: true}, nil, nil); code != 0 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
	}
	if err := <-agentErr; err != nil {
		t.Error(err)
	}
	// Credit for a program that was never started is none.
	_ = (&conn{rw: theirs}).send(kindCredit, 99, stdin, 0, 0, 0, 1)
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Error("credit for nobody is taken")
	}
}

// TestTCP: Dial finds the port by itself.
func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = Serve(context.Background(), conn, Local)
		}
		done <- err
	}()
	c, err := Dial(within(t), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if code, err := c.Run(within(t), sh("exit 8"), nil, nil); code != 8 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
