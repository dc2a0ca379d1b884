package memory

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// testSink is a device of which every registration must be gone at the end of the test.
func testSink(t *testing.T) Sink {
	t.Helper()
	dev, err := iwarp.New(iwarp.Options{}).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(pd.Close(), dev.Close()); err != nil {
			t.Errorf("registrations are left: %v", err)
		}
	})
	return Sink{pd, dev.Attr()}
}

// soon waits until cond holds.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestStaging: memory is handed out in the order in which it was asked for, within the
// bound, and what is kept gives way to another size.
func TestStaging(t *testing.T) {
	sink := testSink(t)
	line := NewStageLine(256<<10, func() int64 { return 256 << 10 }, func(*base.Account) {})
	g := NewStaging([]Sink{sink}, 256<<10, mem.Heap, line)
	ctx := context.Background()
	a, err := g.Get(ctx, nil, 0, 100, nil) // 64 KiB
	if err != nil || len(a.Bytes()) != 100 {
		t.Fatal(err)
	}
	b, err := g.Get(ctx, nil, 0, 64<<10+1, nil) // 128 KiB
	if err != nil {
		t.Fatal(err)
	}
	// 64 KiB are left. Who wants more waits, and who comes later waits behind.
	type got struct {
		name string
		s    *Stage
		err  error
	}
	order := make(chan got, 2)
	var wg sync.WaitGroup
	ask := func(name string, n int) {
		wg.Go(func() {
			s, err := g.Get(ctx, nil, 0, n, nil)
			order <- got{name, s, err}
		})
	}
	ask("large", 128<<10)
	soon(t, "one waits", func() bool { _, n := g.InUse(); return n == 1 })
	ask("small", 1)
	soon(t, "two wait", func() bool { _, n := g.InUse(); return n == 2 })
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.Get(canceled, nil, 0, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	a.Release()
	first := <-order
	if first.name != "large" || first.err != nil {
		t.Errorf("%q was let in first", first.name)
	}
	b.Release()
	second := <-order
	if second.err != nil {
		t.Error(second.err)
	}
	wg.Wait()
	if used, waiting := g.InUse(); used != 192<<10 || waiting != 0 {
		t.Errorf("%d bytes in use, %d wait", used, waiting)
	}
	first.s.Release()
	second.s.Release()
	// Kept memory gives way to another size.
	for _, n := range []int{256 << 10, 1, 200 << 10} {
		s, err := g.Get(ctx, nil, 0, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		if used, _ := g.InUse(); used+g.kept > g.limit {
			t.Errorf("%d in use and %d kept are beyond %d", used, g.kept, g.limit)
		}
		g.mu.Unlock()
		s.Release()
	}
	g.Close()
}

func TestStageClasses(t *testing.T) {
	for n, want := range map[int]int64{0: 64 << 10, 1: 64 << 10, 64 << 10: 64 << 10, 64<<10 + 1: 128 << 10, 1 << 20: 1 << 20, 64 << 20: 64 << 20} {
		if got := stageSize(stageClass(n)); got != want || got < int64(n) {
			t.Errorf("%d bytes take %d, want %d", n, got, want)
		}
	}
	if c := stageClass(layout.MaxValueLen); c != stageClasses-1 {
		t.Errorf("the largest value is of class %d of %d", c, stageClasses)
	}
}

// stagingNode is the staging memory of a node and of two spaces, which share a line of
// the largest value.
func stagingNode(t *testing.T) (line *StageLine, main, a, b *Staging) {
	const most = layout.MaxValueLen
	line = NewStageLine(most, func() int64 { return most }, func(*base.Account) {})
	sink := testSink(t)
	pool := func() *Staging {
		g := NewStaging([]Sink{sink}, most, mem.Heap, line)
		t.Cleanup(g.Close)
		return g
	}
	return line, pool(), pool(), pool()
}

func (l *StageLine) keptInAll() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// TestStagingOfSpaces: the bound of the node's staging memory holds for all
// its spaces together, and who gives up waiting leaves nothing behind.
func TestStagingOfSpaces(t *testing.T) {
	const most = layout.MaxValueLen
	line, main, a, b := stagingNode(t)
	held, err := a.Get(t.Context(), new(base.Account), 0, most/2, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	type got struct {
		s   *Stage
		err error
	}
	results := make(chan got, 2)
	ask := func(ctx context.Context, g *Staging) {
		s, err := g.Get(ctx, new(base.Account), 0, most, nil)
		results <- got{s, err}
	}
	waits := func() bool { _, waiting := line.InUse(); return waiting == 1 }
	go ask(ctx, b)
	soon(t, "b waits", waits)
	cancel()
	if r := <-results; !errors.Is(r.err, context.Canceled) {
		t.Errorf("%v", r.err)
	}
	if used, waiting := b.InUse(); used != 0 || waiting != 0 {
		t.Errorf("%d bytes in use and %d waiting after giving up", used, waiting)
	}
	go ask(t.Context(), b)
	soon(t, "b waits", waits)
	held.Release()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.s.Release()
	for _, g := range []*Staging{a, b, main} {
		if used, waiting := g.InUse(); used != 0 || waiting != 0 || g.Kept() > most {
			t.Errorf("in use %d, kept %d, waiting %d", used, g.Kept(), waiting)
		}
	}
	if used, waiting := line.InUse(); used != 0 || waiting != 0 || line.Most() != 0 {
		t.Errorf("in use %d, waiting %d, by one tenant %d", used, waiting, line.Most())
	}
	kept := line.keptInAll()
	a.Close()
	b.Close()
	if kept == 0 || line.keptInAll() != 0 {
		t.Errorf("kept %d with the spaces, %d without them", kept, line.keptInAll())
	}
}

// TestKeptStagingIsBounded: what a space keeps of staging memory is freed when
// another space needs as much: in use and kept together stay within the node's bound.
func TestKeptStagingIsBounded(t *testing.T) {
	const most = layout.MaxValueLen
	line, main, a, b := stagingNode(t)
	for _, g := range []*Staging{a, b, main, a} {
		s, err := g.Get(t.Context(), new(base.Account), 0, most, nil)
		if err != nil {
			t.Fatal(err)
		}
		line.mu.Lock()
		used, kept, own := line.used, line.kept, g.used
		line.mu.Unlock()
		if used+kept > most || own != most {
			t.Errorf("%d bytes are in use, %d kept: the bound is %d", used, kept, int64(most))
		}
		s.Release()
		if line.keptInAll() == 0 {
			t.Error("nothing is kept")
		}
	}
	if len(line.pools) != 3 {
		t.Errorf("%d pools", len(line.pools))
	}
}

// TestStageRights: no peer has a right on staging memory, and it is kept registered.
// Where the sink of a READ needs REMOTE_WRITE it has that right until it is sealed, and
// is not kept.
func TestStageRights(t *testing.T) {
	sink := testSink(t)
	for _, exposed := range []bool{false, true} {
		if sink.Attr.Caps &^= rdma.CapReadSinkWrite; exposed {
			sink.Attr.Caps |= rdma.CapReadSinkWrite
		}
		line := NewStageLine(1<<20, func() int64 { return 1 << 20 }, func(*base.Account) {})
		g := NewStaging([]Sink{sink}, 1<<20, mem.Heap, line)
		s, err := g.Get(t.Context(), new(base.Account), 0, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.MR().Access()&rdma.AccessRemoteMask != 0; got != exposed || s.Exposed() != exposed {
			t.Errorf("a peer has rights: %v, %v; want %v", got, s.Exposed(), exposed)
		}
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		if gone := s.MR() == nil; gone != exposed {
			t.Errorf("exposed %v: after the seal the registration is gone: %v", exposed, gone)
		}
		s.Release()
		if kept := g.Kept() != 0; kept == exposed {
			t.Errorf("exposed %v: it is kept: %v", exposed, kept)
		}
		g.Close()
	}
}
