package verbs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// partEnv makes a re-executed test binary the server of a fault test. A fork
// would not do: a child that shares the device's descriptor keeps QPs alive.
const partEnv = "VERBS_TEST_SERVER"

// TestFaultServer is that server; run by itself it has nothing to do. It accepts
// every peer, grants READ and tells where.
func TestFaultServer(t *testing.T) {
	how := os.Getenv(partEnv)
	if how == "" {
		return
	}
	time.AfterFunc(4*time.Minute, func() { os.Exit(3) })
	r := newRig(t, verbs.Options{Connect: how})
	m := r.region(4096, mem.Mmap, rdma.AccessRemoteRead|rdma.AccessLocalWrite)
	addr := r.listen(func(req rdma.ConnRequest) {
		q := r.qp(rdma.QPConfig{Access: rdma.AccessRemoteRead})
		if _, err := req.Accept(context.Background(), q, rdma.ConnParams{}); err != nil {
			fmt.Printf("accept: %v\n", err)
		}
	})
	fmt.Printf("serving %s %d %d\n", addr, m.Addr(), m.RKey())
	select {}
}

// A faultServer is the other process.
type faultServer struct {
	cmd    *exec.Cmd
	addr   string
	remote rdma.RemoteAddr
}

func startServer(t *testing.T, how string) *faultServer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &faultServer{cmd: exec.Command(exe, "-test.run=^TestFaultServer$", "-test.timeout=5m")}
	s.cmd.Env = append(os.Environ(), partEnv+"="+how)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "serving %s %d %d", &s.addr, &s.remote.Addr, &s.remote.RKey); err == nil {
			return s
		}
	}
	t.Fatal("the server did not start")
	return nil
}

func (s *faultServer) kill() {
	_ = s.cmd.Process.Kill() // fails if it is gone
	_ = s.cmd.Wait()
}

// stop stops the process, and returns when it is: each of its threads hears of the signal in its own time, and one that runs on
// another processor may answer still.
func (s *faultServer) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("the threads of the server: %v, %v", threads, err)
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			// Its name, in parentheses, may have any characters; the state is behind the last one.
			if i := bytes.LastIndex(text, []byte(") ")); err == nil && (i < 0 || text[i+2] != 'T') {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(10 * time.Second); !stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server runs 10 s after SIGSTOP")
		}
	}
}

// TestStoppedServer: a server that is stopped answers no request to connect,
// ever. The dial ends at its deadline, or at the fabric's own, and the same
// server is reached once it goes on. What is connected READs on meanwhile: the
// device answers, not the process.
func TestStoppedServer(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		s := startServer(t, opts.Connect)
		opts.SetupTimeout = time.Second
		r := newRig(t, opts)
		before := r.qp(rdma.QPConfig{})
		_, err := before.Connect(t.Context(), s.addr, rdma.ConnParams{})
		r.check(err)
		sink := r.region(64, mem.Mmap, rdma.AccessLocalWrite)
		s.stop(t)

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		q := r.qp(rdma.QPConfig{})
		_, err = q.Connect(ctx, s.addr, rdma.ConnParams{})
		t.Logf("with a deadline of 300 ms: %v after %v", err, time.Since(start).Round(time.Millisecond))
		if err := isAny(err, context.DeadlineExceeded); err != nil || !errors.Is(q.Err(), rdma.ErrDeadline) {
			t.Errorf("Connect: %v, Err: %v", err, q.Err())
		}
		_, err = r.qp(rdma.QPConfig{}).Connect(context.Background(), s.addr, rdma.ConnParams{})
		if err := isAny(err, rdma.ErrDeadline); err != nil {
			t.Errorf("Connect without a deadline: %v", err)
		}
		for range 100 {
			if st := r.post(before, read(sink, 64, s.remote)); st != rdma.StatusSuccess {
				t.Fatalf("READ from a stopped process: %v", st)
			}
		}
		r.check(s.cmd.Process.Signal(syscall.SIGCONT))
		_, err = r.qp(rdma.QPConfig{}).Connect(t.Context(), s.addr, rdma.ConnParams{})
		r.check(err)
	})
}

// TestKilledServer: READs under way when the peer's process dies end soon, and
// not by the device's own timeouts.
func TestKilledServer(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		s := startServer(t, opts.Connect)
		r := newRig(t, opts)
		q := r.qp(rdma.QPConfig{})
		_, err := q.Connect(t.Context(), s.addr, rdma.ConnParams{})
		r.check(err)
		sink := r.region(64, mem.Mmap, rdma.AccessLocalWrite)
		for range 10 {
			if st := r.post(q, read(sink, 64, s.remote)); st != rdma.StatusSuccess {
				t.Fatal(st)
			}
		}
		start := time.Now()
		s.kill()
		for {
			st := r.post(q, read(sink, 64, s.remote))
			if st == rdma.StatusSuccess {
				continue
			}
			t.Logf("%v, %v after the kill", st, time.Since(start).Round(100*time.Microsecond))
			if !errors.Is(st.Err(), rdma.ErrPeerGone) && !errors.Is(st.Err(), rdma.ErrFlushed) {
				t.Errorf("READ: %v", st)
			}
			break
		}
		<-q.Done()
		t.Logf("Done: %v, %v after the kill", q.Err(), time.Since(start).Round(100*time.Microsecond))
		if err := isAny(q.Err(), rdma.ErrPeerGone); err != nil {
			t.Error(err)
		}
		// The port is free again, without a listener.
		q = r.qp(rdma.QPConfig{})
		start = time.Now()
		_, err = q.Connect(t.Context(), s.addr, rdma.ConnParams{})
		t.Logf("no listener: %v after %v", err, time.Since(start).Round(time.Millisecond))
		if err := isAny(err, rdma.ErrPeerGone); err != nil {
			t.Errorf("no listener: %v", err)
		}
	})
}

// TestNobodyThere: addresses that lead nowhere.
func TestNobodyThere(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		opts.SetupTimeout = 2 * time.Second
		r := newRig(t, opts)
		host := listenAddr(t)
		silent := host[:strings.LastIndexByte(host, '.')] + ".251:4000" // in our own network
		for addr, want := range map[string][]error{
			silent:                   {rdma.ErrPeerGone, rdma.ErrDeadline},
			"192.0.2.1:1":            {rdma.ErrPeerGone, rdma.ErrDeadline, rdma.ErrNoDevice}, // unassigned, RFC 5737
			"no-such-host.invalid:1": {rdma.ErrInvalid},
		} {
			start := time.Now()
			q := r.qp(rdma.QPConfig{})
			_, err := q.Connect(t.Context(), addr, rdma.ConnParams{})
			t.Logf("%s: %v after %v", addr, err, time.Since(start).Round(time.Millisecond))
			if err := isAny(err, want...); err != nil {
				t.Errorf("%s: %v", addr, err)
			}
			if q.State() != rdma.QPError {
				t.Errorf("%s: state %v", addr, q.State())
			}
		}
	})
}

// TestBacklog: requests that the program does not take are refused beyond the
// limit and dropped after the set-up time.
func TestBacklog(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		const limit, dials = 3, 8
		opts.MaxPending = limit
		opts.SetupTimeout = time.Second
		r := newRig(t, opts)
		l, err := r.dev.Listen(t.Context(), listenAddr(t))
		r.check(err)
		r.later(l.Close)
		results := make(chan error, dials)
		for range dials {
			q := r.qp(rdma.QPConfig{})
			go func() {
				_, err := q.Connect(context.Background(), l.Addr().String(), rdma.ConnParams{})
				results <- err
			}()
		}
		refused := 0
		for range dials {
			err := <-results
			if isAny(err, rdma.ErrRejected) == nil {
				refused++
			} else if err := isAny(err, rdma.ErrDeadline, rdma.ErrPeerGone); err != nil {
				t.Errorf("a dial that nobody took: %v", err)
			}
		}
		if refused < dials-limit {
			t.Errorf("%d of %d dials were refused, the backlog takes %d", refused, dials, limit)
		}
		q := r.qp(rdma.QPConfig{})
		done := make(chan error, 1)
		go func() {
			_, err := q.Connect(context.Background(), l.Addr().String(), rdma.ConnParams{})
			done <- err
		}()
		// The first to be taken may be one whose peer has just given up.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		go func() {
			for {
				req, err := l.Accept(ctx)
				if err != nil {
					return
				}
				_ = req.Reject([]byte("now"))
			}
		}()
		err = <-done
		cancel()
		if err := isAny(err, rdma.ErrRejected); err != nil {
			t.Error(err)
		}
	})
}

// rdmaResources is what the kernel counts of one kind, over all processes; -1
// without the tool rdma.
func rdmaResources(t *testing.T, kind string) int {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show", kind).Output()
	if err != nil {
		if os.Getenv("RDMAKV_LAB") == "1" {
			t.Fatalf("rdma resource: %v", err)
		}
		return -1
	}
	return strings.Count(string(out), "\n")
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestThousandConnections: nothing stays behind, in this process or in the
// kernel. With -short there are fewer: one that leaves something is seen in fifty.
func TestThousandConnections(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		const warm = 10
		cycles := 1000
		if opts.Connect == verbs.ConnectTCP {
			cycles = 200 // what is below is the same
		}
		if testing.Short() {
			cycles /= 4
		}
		r := newRig(t, opts)
		incoming := make(chan rdma.QP)
		accepted := make(chan error)
		addr := r.listen(func(req rdma.ConnRequest) {
			_, err := req.Accept(context.Background(), <-incoming, rdma.ConnParams{})
			accepted <- err
		})
		m := r.region(64, mem.Mmap, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
		cycle := func() {
			cfg := rdma.QPConfig{SendCQ: r.cq, RecvCQ: r.cq, Access: rdma.AccessRemoteRead}
			qa, err := r.pd.CreateQP(cfg)
			r.check(err)
			qb, err := r.pd.CreateQP(cfg)
			r.check(err)
			dialed := make(chan error, 1)
			go func() {
				_, err := qa.Connect(context.Background(), addr, rdma.ConnParams{PrivateData: []byte("x")})
				dialed <- err
			}()
			incoming <- qb
			r.check(<-accepted)
			r.check(<-dialed)
			if st := r.post(qa, read(m, 64, at(m))); st != rdma.StatusSuccess {
				t.Fatal(st)
			}
			r.check(qa.Close())
			r.check(qb.Close())
		}
		for range warm {
			cycle()
		}
		count := func() map[string]int {
			return map[string]int{
				"goroutines": runtime.NumGoroutine(), "descriptors": descriptors(t),
				"QPs": rdmaResources(t, "qp"), "CM identifiers": rdmaResources(t, "cm_id"),
				"MRs": rdmaResources(t, "mr"), "CQs": rdmaResources(t, "cq"),
			}
		}
		before := count()
		start := time.Now()
		for range cycles {
			cycle()
		}
		t.Logf("%d connections in %v", cycles, time.Since(start).Round(time.Millisecond))
		deadline := time.Now().Add(patience)
		for {
			after, more := count(), ""
			for what, n := range after {
				if n > before[what] {
					more += fmt.Sprintf(" %d %s (%d before)", n, what, before[what])
				}
			}
			if more == "" {
				t.Logf("left behind: nothing; there are %v", after)
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("left behind:%s", more)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}
