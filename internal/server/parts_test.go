package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
)

// TestSlowClient: a client that takes no replies is bounded in what it holds,
// and is ended after Config.SendTimeout; another on the same lane is served.
func TestSlowClient(t *testing.T) {
	srv := startServer(t, nil)
	s, q := deafSession(t, srv, true)
	s.allowed.Store(1000)
	l := s.lane
	depth := l.dev.sendDepth
	for range depth + 20 { // sends are never completed
		b, err := l.recvs.get()
		if err != nil {
			t.Fatal(err)
		}
		b.n, b.sess = copy(b.mem, wire.AppendViewRequest(nil, 1, wire.ViewRequest{})), s
		q.seal.Seal(b.mem[:b.n])
		l.pollMu.Lock()
		l.receive(s, b)
		l.dirty = l.dirty[:0]
		s.dirty = false
		l.pollMu.Unlock()
		s.flush()
	}
	q.mu.Lock()
	posted := len(q.types)
	q.mu.Unlock()
	if posted > depth {
		t.Errorf("%d replies posted, the bound is %d", posted, depth)
	}
	s.check(srv.now())
	if s.why != causeNone {
		t.Fatalf("ended at once: %v", s.why)
	}
	s.check(srv.now() + int64(srv.cfg.SendTimeout) + 1)
	if s.why != causeSlow {
		t.Errorf("not ended: %v", s.why)
	}
	q.mu.Lock()
	q.sends = nil // flushed
	q.mu.Unlock()
	endDeaf(t, s, q)
}

// TestLargeRepliesAreShared: a client that takes no replies cannot have all
// large buffers.
func TestLargeRepliesAreShared(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.ReplyBytes = 64 * int64(64<<10) * 2 })
	s, q := deafSession(t, srv, true)
	l := s.lane
	var held []*buf
	for {
		b, err := l.newReply(s, 60<<10)
		if err != nil {
			if !errors.Is(err, errPoolFull) {
				t.Fatal(err)
			}
			break
		}
		held = append(held, b)
	}
	if limit := l.replies[bigClass].limit; len(held) == 0 || len(held) > limit/4 {
		t.Errorf("one session got %d of %d large buffers", len(held), limit)
	}
	// A value that fits none of its buffers is refused with a status.
	other := dial(t, srv, peerOptions{})
	if err := other.put("k", strings.Repeat("x", 10000)); err != nil {
		t.Fatal(err)
	}
	feed(t, s, q, wire.AppendGet(nil, 5, wire.Get{Key: []byte("k"), MaxInline: 1 << 20}))
	if n := srv.met.ops[wire.TypeGet][wire.StatusOverloaded].Load(); n != 1 {
		t.Errorf("%d refusals", n)
	}
	// Others are served.
	if r, err := other.get("k", 1<<20); err != nil || len(r.Value) != 10000 {
		t.Errorf("the other client: %v", err)
	}
	for _, b := range held {
		l.putReply(b)
	}
	endDeaf(t, s, q)
}

// TestReceivesRunShort: while receives are scarce a session gets one credit,
// and one that gets none is told so.
func TestReceivesRunShort(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) { change(c); c.ReceiveBytes = 2 * 32 * int64(16<<10) })
		var all []*peer
		credits := map[int]int{}
		for {
			p, err := tryDial(t, srv, peerOptions{receives: 80})
			if err != nil {
				wantStatus(t, err, wire.StatusBusy)
				break
			}
			if err := p.put("k", "v"); err != nil {
				t.Fatal(err)
			}
			credits[p.credits-1]++ // put has given its own back
			if all = append(all, p); len(all) > 64 {
				t.Fatal("more sessions than receives")
			}
		}
		if credits[8] == 0 || credits[1] < 4 {
			t.Errorf("sessions by credits: %v", credits)
		}
		for _, p := range all {
			if err := p.ping(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestStaging(t *testing.T) {
	dev, err := iwarp.New(iwarp.Options{}).Open(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	d := &device{pd: pd, attr: dev.Attr()}
	line := &stageLine{limit: 256 << 10, share: func() int64 { return 256 << 10 }, owners: make(map[*login]*stageOwner), hit: func(*login) {}}
	g := newStaging([]*device{d}, 256<<10, memory.Heap, line)
	ctx := context.Background()
	a, err := g.get(ctx, nil, 0, 100) // 64 KiB
	if err != nil || len(a.bytes()) != 100 {
		t.Fatal(err)
	}
	b, err := g.get(ctx, nil, 0, 64<<10+1) // 128 KiB
	if err != nil {
		t.Fatal(err)
	}
	// 64 KiB are left. Who wants more waits, and who comes later waits behind.
	type got struct {
		name string
		s    *stage
		err  error
	}
	order := make(chan got, 2)
	var wg sync.WaitGroup
	ask := func(name string, n int) {
		wg.Go(func() {
			s, err := g.get(ctx, nil, 0, n)
			order <- got{name, s, err}
		})
	}
	ask("large", 128<<10)
	eventually(t, "one waits", func() bool { _, n := g.inUse(); return n == 1 })
	ask("small", 1)
	eventually(t, "two wait", func() bool { _, n := g.inUse(); return n == 2 })
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.get(canceled, nil, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	a.release()
	first := <-order
	if first.name != "large" || first.err != nil {
		t.Errorf("%q was let in first", first.name)
	}
	b.release()
	second := <-order
	if second.err != nil {
		t.Error(second.err)
	}
	wg.Wait()
	if used, waiting := g.inUse(); used != 192<<10 || waiting != 0 {
		t.Errorf("%d bytes in use, %d wait", used, waiting)
	}
	first.s.release()
	second.s.release()
	// Kept memory gives way to another size.
	for _, n := range []int{256 << 10, 1, 200 << 10} {
		s, err := g.get(ctx, nil, 0, n)
		if err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		if used, _ := g.inUse(); used+g.kept > g.limit {
			t.Errorf("%d in use and %d kept are beyond %d", used, g.kept, g.limit)
		}
		g.mu.Unlock()
		s.release()
	}
	g.close()
	if err := errors.Join(pd.Close(), dev.Close()); err != nil {
		t.Errorf("registrations are left: %v", err)
	}
}

func TestStageClasses(t *testing.T) {
	for n, want := range map[int]int64{0: 64 << 10, 1: 64 << 10, 64 << 10: 64 << 10, 64<<10 + 1: 128 << 10, 1 << 20: 1 << 20, 64 << 20: 64 << 20} {
		if got := stageSize(stageClass(n)); got != want || got < int64(n) {
			t.Errorf("%d bytes take %d, want %d", n, got, want)
		}
	}
	if c := stageClass(maxValue); c != stageClasses-1 {
		t.Errorf("the largest value is of class %d of %d", c, stageClasses)
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 {
		t.Error("quantile of nothing")
	}
	for range 99 {
		h.observe(1500) // 1.5 µs: below 2 µs
	}
	h.observe(int64(time.Hour))
	h.observe(-1)
	if got := h.quantile(0.5); got != 2000 {
		t.Errorf("p50 = %d ns", got)
	}
	if got := h.quantile(1); got != histBound(histBuckets-1) {
		t.Errorf("max = %d ns", got)
	}
}

func TestLimitedLog(t *testing.T) {
	var out strings.Builder
	l := newLimitedLog(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Now()
	l.now = func() time.Time { return now }
	for range 100 {
		l.Warn(limitEnded, "ended")
		l.Info("rare")
	}
	if n := strings.Count(out.String(), "msg=ended"); n != limitLines {
		t.Errorf("%d lines of a kind, the budget is %d", n, limitLines)
	}
	if n := strings.Count(out.String(), "msg=rare"); n != 100 {
		t.Errorf("%d of 100 lines without a budget", n)
	}
	l.Warn(limitRefused, "another kind")
	now = now.Add(limitPeriod + 1)
	l.Warn(limitEnded, "ended")
	if !strings.Contains(out.String(), "another kind") || !strings.Contains(out.String(), "similar_lines_dropped=90") {
		t.Error("budgets are not apart, or what was dropped is not told")
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Status
		text bool
	}{
		{store.ErrNotFound, wire.StatusNotFound, false},
		{&store.CorruptError{Key: []byte("k"), Detail: "bit rot"}, wire.StatusCorrupt, true},
		{store.ErrReadOnlyDisk, wire.StatusNoSpace, false},
		{errors.New("secret path /var/x"), wire.StatusInternal, false},
		{errPoolFull, wire.StatusOverloaded, false},
		{fmt.Errorf("%w: %w", store.ErrFatal, store.ErrOutcomeUnknown), wire.StatusUnknown, true},
	} {
		st, text := statusOf(c.err)
		if st != c.want || (text != "") != c.text {
			t.Errorf("%v: %v, %q", c.err, st, text)
		}
	}
}

func TestNames(t *testing.T) {
	for c := range causeCount {
		if s := c.String(); s == "" || strings.HasPrefix(s, "cause(") {
			t.Errorf("cause %d has no name", c)
		}
	}
	for _, err := range []error{rdma.ErrPeerGone, rdma.ErrAccess, rdma.ErrReceiverNotReady, rdma.ErrProtocol} {
		if causeOf(err) == causeNone {
			t.Errorf("%v has no cause", err)
		}
	}
}
