// Package runs is what the tests of the examples have in common: it runs the
// program under test in processes of its own, as a reader would, and finds out
// whether this machine has an RDMA device.
//
// The program is the test binary itself: started with a variable in its
// environment, it plays the example's main. So one file holds the test and what
// it tests, and can be carried into a guest that has no Go.
package runs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// play is the variable that makes a test binary the program.
const play = "RDMAKV_PLAY_EXAMPLE"

// patience is the longest that a process may take: a guest without hardware
// virtualization on a loaded machine is slow.
const patience = 4 * time.Minute

// Main is the body of TestMain.
func Main(m *testing.M, main func()) {
	if os.Getenv(play) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A Proc is a process under test. What it prints, to either output, is kept line
// by line. It is killed when the test ends.
type Proc struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended and all its output was read
	code  int           // set before done is closed

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced at every line
}

// Start starts the program under test.
func Start(t testing.TB, args ...string) *Proc {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exe, []string{play + "=1"}, args)
}

// Command starts another program.
func Command(t testing.TB, name string, args ...string) *Proc {
	t.Helper()
	return start(t, name, nil, args)
}

func start(t testing.TB, exe string, env, args []string) *Proc {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	p := &Proc{
		t: t, name: strings.Join(append([]string{exe}, args...), " "), cmd: cmd,
		done: make(chan struct{}), more: make(chan struct{}),
	}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// A pipe for each output, so that a line of one never lands within one of
	// the other.
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	cmd.Stdout, cmd.Stderr = outW, errW
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	var readers sync.WaitGroup
	for _, r := range []io.Reader{outR, errR} {
		readers.Go(func() {
			s := bufio.NewScanner(r)
			s.Buffer(nil, 1<<20)
			for s.Scan() {
				p.add(s.Text())
			}
			_, _ = io.Copy(io.Discard, r) // of a line without end nothing is kept
		})
	}
	go func() {
		defer cancel()
		err := cmd.Wait()
		_, _ = outW.Close(), errW.Close()
		readers.Wait()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			p.code = exit.ExitCode()
		case err != nil:
			p.code = -1
		}
		close(p.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
		if t.Failed() {
			t.Logf("%s\nexit code %d\n%s", p.name, p.code, p.Output())
		}
	})
	return p
}

func (p *Proc) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	close(p.more)
	p.more = make(chan struct{})
}

// Output is all that was printed so far.
func (p *Proc) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n") + "\n"
}

// Type writes to the program's standard input, without an end.
func (p *Proc) Type(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, text); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// Line waits for a line that contains all of want and returns it.
func (p *Proc) Line(want ...string) string {
	p.t.Helper()
	for seen := 0; ; {
		p.mu.Lock()
		lines, more := p.lines[seen:], p.more
		p.mu.Unlock()
		for _, line := range lines {
			if containsAll(line, want) {
				return line
			}
		}
		seen += len(lines)
		select {
		case <-more:
		case <-p.done:
			if p.mu.Lock(); seen == len(p.lines) {
				p.mu.Unlock()
				p.t.Fatalf("%s ended with code %d without a line that has %q:\n%s", p.name, p.code, want, p.Output())
			}
			p.mu.Unlock()
		}
	}
}

func containsAll(s string, want []string) bool {
	for _, w := range want {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// Wait waits for the end and demands the given exit code. It returns the output.
func (p *Proc) Wait(code int) string {
	p.t.Helper()
	<-p.done
	if p.code != code {
		p.t.Fatalf("%s: exit code %d, want %d:\n%s", p.name, p.code, code, p.Output())
	}
	return p.Output()
}

// Ended delivers the exit code when the program has ended.
func (p *Proc) Ended() <-chan int {
	c := make(chan int, 1)
	go func() {
		<-p.done
		c <- p.code
	}()
	return c
}

// Interrupt is what Ctrl-C does.
func (p *Proc) Interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
}
