package roce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
	"github.com/rdmakv/rdmakv/test/launch"
	"github.com/rdmakv/rdmakv/test/node"
)

const (
	serverAddr = "10.77.0.2:7400"
	deadline   = time.Second // of each call of the load
	// slack is what a call may take beyond its deadline before that counts as a
	// call that did not obey: three busy guests share the host's processors.
	slack = 3 * time.Second
	lease = 2 * time.Second
)

// A load is cmd/load at work in a guest.
type load struct {
	t    *testing.T
	p    *agent.Process
	errs *strings.Builder

	mu     sync.Mutex
	state  map[string]event // the last of each kind
	log    []event
	sums   map[string]summary
	change chan struct{} // closed and made anew at every line
}

// An event is a line of cmd/load, with the time when it came.
type event struct {
	Op   string
	OK   bool
	At   float64
	Took float64
	Err  string
	came time.Time
}

type summary struct {
	Op             string
	Calls, Failed  int
	Worst          float64
	Untyped, Wrong []string
	Classes        map[string]int
	Connects       uint64
	Done           bool
}

func startLoad(t *testing.T, g *lab.Guest) *load {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := g.Agent().Start(ctx, agent.Cmd{Input: true,
		Args: []string{"/mnt/bin/load", "-server", serverAddr, "-deadline", deadline.String()}})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{t: t, p: p, state: map[string]event{}, sums: map[string]summary{}, change: make(chan struct{}), errs: new(strings.Builder)}
	go func() { _, _ = io.Copy(l.errs, p.Stderr()) }()
	go l.read()
	t.Cleanup(func() { _ = p.Kill() })
	return l
}

func (l *load) read() {
	lines := bufio.NewScanner(l.p.Stdout())
	for lines.Scan() {
		var s summary
		e := event{came: time.Now()}
		if json.Unmarshal(lines.Bytes(), &s) != nil || json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		l.mu.Lock()
		if s.Done {
			l.sums[s.Op] = s
		} else {
			l.state[e.Op] = e
			l.log = append(l.log, e)
		}
		close(l.change)
		l.change = make(chan struct{})
		l.mu.Unlock()
	}
}

// wait waits until calls of a kind succeed, or fail, and returns the event
// since which they do.
func (l *load) wait(op string, ok bool, limit time.Duration) event {
	l.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		l.mu.Lock()
		e, change := l.state[op], l.change
		l.mu.Unlock()
		if e.Op != "" && e.OK == ok {
			return e
		}
		select {
		case <-change:
		case <-timer.C:
			l.t.Fatalf("after %v %ss still do not say %v; last: %+v", limit, op, ok, e)
		}
	}
}

// back waits until gets and puts succeed, and says how long after a moment.
func (l *load) back(what string, since time.Time) {
	l.t.Helper()
	get, put := l.wait("get", true, time.Minute), l.wait("put", true, time.Minute)
	l.t.Logf("%s: gets are back after %v, puts after %v", what, get.came.Sub(since).Round(time.Millisecond), put.came.Sub(since).Round(time.Millisecond))
}

// end stops the load and checks its books.
func (l *load) end() {
	l.t.Helper()
	_ = l.p.Stdin().Close()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	if err := l.p.Wait(ctx); err != nil {
		l.t.Fatalf("load: %v\n%s", err, l.errs)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		n := len(l.sums)
		l.mu.Unlock()
		if n == 2 || time.Now().After(end) {
			break
		}
	}
	for _, op := range []string{"get", "put"} {
		s, ok := l.sums[op]
		if !ok {
			l.t.Fatalf("no summary of %ss", op)
		}
		l.t.Logf("%ss: %d calls, %d failed %v, the longest took %.3f s; %d connects", op, s.Calls, s.Failed, s.Classes, s.Worst, s.Connects)
		if len(s.Untyped) > 0 {
			l.t.Errorf("%ss ended with errors of no class: %q", op, s.Untyped)
		}
		if len(s.Wrong) > 0 {
			l.t.Errorf("%ss answered wrongly: %q", op, s.Wrong)
		}
		if limit := (deadline + slack).Seconds(); s.Worst > limit {
			l.t.Errorf("a %s with a deadline of %v took %.3f s", op, deadline, s.Worst)
		}
	}
}

// startServer starts a node in a guest and returns when it is ready.
func startServer(t *testing.T, g *lab.Guest) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), node.Options{
		Bin: "/mnt/bin/kvserver", On: launch.On(g.Agent()),
		Args: []string{"--data-dir", "/mnt/tmp/faults", "--listen", serverAddr, "--admin-listen", "", "--fabric", "verbs",
			"--memory-limit", "256MiB", "--lease", lease.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFaults kills the server, cuts the link, loses packets and kills the
// server's machine under one client. Every call ends by its deadline with an
// error of a class that callers may rely on, no answer is wrong, and the client
// comes back by itself.
func TestFaults(t *testing.T) {
	wanted(t)
	dir := share(t)
	cl := guests(t, dir)
	n := startServer(t, cl.Guest(2))
	l := startLoad(t, cl.Guest(1))
	l.wait("get", true, time.Minute)
	l.wait("put", true, time.Minute)
	top := t
	run := func(name string, f func(t *testing.T)) {
		if top.Failed() {
			return // what the client does after a fault that it did not survive tells nothing
		}
		top.Run(name, func(t *testing.T) {
			l.t = t
			defer func() { l.t = top }()
			f(t)
		})
	}

	run("kill -9", func(t *testing.T) {
		for range 3 {
			killed := time.Now()
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
			down := l.wait("get", false, time.Minute)
			t.Logf("the first get failed %v after the kill: %s", down.came.Sub(killed).Round(time.Millisecond), down.Err)
			l.wait("put", false, time.Minute)
			n = startServer(t, cl.Guest(2))
			l.back("server ready again", time.Now())
		}
	})

	run("link cut for 3 s", func(t *testing.T) {
		cut := time.Now()
		cl.Switch.Cut(1, 2)
		down := l.wait("get", false, time.Minute)
		t.Logf("the first get failed %v after the cut: %s", down.came.Sub(cut).Round(time.Millisecond), down.Err)
		time.Sleep(time.Until(cut.Add(3 * time.Second)))
		cl.Switch.Heal()
		l.back("link healed", time.Now())
	})

	run("one way cut for 3 s", func(t *testing.T) {
		cut := time.Now()
		cl.Switch.CutOneWay(2, 1)
		l.wait("get", false, time.Minute)
		time.Sleep(time.Until(cut.Add(3 * time.Second)))
		cl.Switch.Heal()
		l.back("link healed", time.Now())
	})

	run("1 % loss", func(t *testing.T) {
		l.mu.Lock()
		before := len(l.log)
		l.mu.Unlock()
		cl.Switch.Lose(1, 2, 0.01)
		time.Sleep(15 * time.Second)
		cl.Switch.Heal()
		l.back("no loss any more", time.Now())
		l.mu.Lock()
		defer l.mu.Unlock()
		var lines []string
		for _, e := range l.log[before:] {
			lines = append(lines, fmt.Sprintf("%s ok=%v took %.3f s %s", e.Op, e.OK, e.Took, e.Err))
		}
		t.Logf("changes during 15 s: %d\n%s", len(lines), strings.Join(lines[:min(len(lines), 20)], "\n"))
	})

	run("guest paused", func(t *testing.T) {
		if err := cl.Guest(2).Pause(); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		down := l.wait("get", false, time.Minute)
		t.Logf("the first get failed %v after the pause: %s", down.came.Sub(paused).Round(time.Millisecond), down.Err)
		time.Sleep(time.Until(paused.Add(2 * lease)))
		if err := cl.Guest(2).Continue(); err != nil {
			t.Fatal(err)
		}
		l.back("guest goes on", time.Now())
	})

	run("guest killed", func(t *testing.T) {
		killed := time.Now()
		if err := cl.Guest(2).Kill(); err != nil {
			t.Fatal(err)
		}
		down := l.wait("get", false, time.Minute)
		t.Logf("the first get failed %v after the kill: %s", down.came.Sub(killed).Round(time.Millisecond), down.Err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := cl.Reboot(ctx, 2); err != nil {
			t.Fatal(err)
		}
		n = startServer(top, cl.Guest(2))
		l.back("server ready on a machine that was started anew", time.Now())
	})

	if t.Failed() {
		return
	}
	l.end()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if code, err := n.WaitExit(30 * time.Second); err != nil || code != 0 {
		t.Errorf("the server ended with %d, %v\n%s", code, err, n.Stderr())
	}
}
