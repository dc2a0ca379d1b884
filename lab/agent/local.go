//go:build linux

package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process that has ended may leave others behind that hold its output open.
// Its own output is in the pipe then: at most pipeLen bytes, and at once, so if
// nothing comes for that long there is no more.
const (
	pipeLen = 64 << 10
	silence = 500 * time.Millisecond
)

// A local program is a process of this machine.
type local struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	tty    *os.File // the terminal's side that is ours, or nil
	done   chan struct{}
	err    error // set before done is closed
}

// Local is a Starter of processes of this machine. Each leads a process group
// of its own.
func Local(_ context.Context, c Cmd) (Program, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &local{cmd: cmd, done: make(chan struct{})}
	theirs, err := p.streams(c)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	go func() {
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			ws := exit.Sys().(syscall.WaitStatus)
			if ws.Signaled() {
				err = &ExitError{Code: 128 + int(ws.Signal()), Signal: ws.Signal()}
			} else {
				err = &ExitError{Code: ws.ExitStatus()}
			}
		}
		p.err = err
		p.stdout.exited()
		p.stderr.exited()
		close(p.done)
	}()
	return p, nil
}

// streams gives cmd its files and p the other ends. The files of cmd are also
// returned, to be closed once it has started.
func (p *local) streams(c Cmd) (theirs []*os.File, err error) {
	p.stdin, p.stdout, p.stderr = nothing{}, newOutput(nil), newOutput(nil)
	if c.Terminal {
		ours, tty, err := openTerminal()
		if err != nil {
			return nil, err
		}
		p.tty, p.stdin, p.stdout = ours, nothing{ours}, newOutput(ours)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		return []*os.File{tty}, nil
	}
	if c.Input {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, r)
		p.cmd.Stdin, p.stdin = r, w
	}
	for _, s := range []struct {
		to  *io.Writer
		out **output
	}{{&p.cmd.Stdout, &p.stdout}, {&p.cmd.Stderr, &p.stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, w)
		*s.to, *s.out = w, newOutput(r)
	}
	return theirs, nil
}

func (p *local) closeOurs() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

func (p *local) Pid() int              { return p.cmd.Process.Pid }
func (p *local) Stdin() io.WriteCloser { return p.stdin }
func (p *local) Stdout() io.ReadCloser { return p.stdout }
func (p *local) Stderr() io.ReadCloser { return p.stderr }

func (p *local) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// SignalGroup reaches the group also when its leader has ended.
func (p *local) SignalGroup(sig syscall.Signal) error {
	return syscall.Kill(-p.cmd.Process.Pid, sig)
}

func (p *local) Resize(rows, cols uint16) error {
	if p.tty == nil {
		return errors.New("agent: the program has no terminal")
	}
	return unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

func (p *local) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nothing is the input of a program that has none, or a terminal, which is
// closed together with its output.
type nothing struct{ io.Writer }

func (n nothing) Write(b []byte) (int, error) {
	if n.Writer == nil {
		return len(b), nil
	}
	return n.Writer.Write(b)
}

func (nothing) Close() error { return nil }

// An output is the reading end of a pipe whose writer may outlive the program.
type output struct {
	f *os.File // nil: there is no such output

	mu    sync.Mutex
	ended bool
	left  int // bytes still to be read once ended
}

func newOutput(f *os.File) *output { return &output{f: f, left: pipeLen} }

// exited is called when the program has ended.
func (o *output) exited() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if o.f != nil {
		_ = o.f.SetReadDeadline(time.Now()) // wakes a reader; the next Read waits a little
	}
}

// Read implements io.Reader. It is called by one goroutine.
func (o *output) Read(b []byte) (int, error) {
	if o.f == nil {
		return 0, io.EOF
	}
	for {
		o.mu.Lock()
		ended := o.ended
		if ended {
			if o.left == 0 {
				o.mu.Unlock()
				return 0, io.EOF
			}
			b = b[:min(len(b), o.left)]
			_ = o.f.SetReadDeadline(time.Now().Add(silence))
		}
		o.mu.Unlock()
		n, err := o.f.Read(b)
		if ended {
			o.left -= n
		}
		if n > 0 {
			return n, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !ended {
			continue
		}
		return 0, io.EOF // also EIO, which is how a terminal ends
	}
}

func (o *output) Close() error {
	if o.f == nil {
		return nil
	}
	return o.f.Close()
}
