package memory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/internal/server/base"
)

// A stageRig is a line without memory: who is let in when is all that it tells.
type stageRig struct {
	t     *testing.T
	line  *StageLine
	main  *Staging
	hits  map[*base.Account]int
	mu    sync.Mutex
	order []string // of those that were let in; those of one moment by name
	known int      // of them
}

func newStageRig(t *testing.T, limit, share int64) *stageRig {
	r := &stageRig{t: t, hits: make(map[*base.Account]int)}
	r.line = NewStageLine(limit, func() int64 { return share }, func(l *base.Account) { r.hits[l]++ })
	r.main = &Staging{limit: limit, line: r.line}
	return r
}

func (r *stageRig) space(limit int64) *Staging { return &Staging{limit: limit, line: r.line} }

// ask waits in the line under a name; done is closed when it was let in.
func (r *stageRig) ask(ctx context.Context, name string, g *Staging, l *base.Account, n int64) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		if err := r.line.reserve(ctx, g, l, stageClass(int(n))); err == nil {
			r.mu.Lock()
			r.order = append(r.order, name)
			r.mu.Unlock()
			close(done)
		} else if !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	}()
	r.settle()
	return done
}

func (r *stageRig) settle() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.order[r.known:])
	r.known = len(r.order)
}

func (r *stageRig) let(done chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (r *stageRig) back(g *Staging, l *base.Account, n int64) {
	r.line.unreserve(g, l, stageClass(int(n)))
	r.settle()
}

// empty fails unless nothing is left behind.
func (r *stageRig) empty(pools ...*Staging) {
	r.t.Helper()
	l := r.line
	if l.used != 0 || l.waiting != 0 || len(l.owners) != 0 || len(l.turns) != 0 {
		r.t.Errorf("%d bytes, %d waiting, %d tenants, %d lines are left", l.used, l.waiting, len(l.owners), len(l.turns))
	}
	for _, g := range append(pools, r.main) {
		if g.used != 0 || g.waiting != 0 {
			r.t.Errorf("%d bytes, %d waiting are left in a pool", g.used, g.waiting)
		}
	}
}

const mib = 1 << 20

// TestStagingShares: a tenant has his share and no more, counted in the sizes that
// are really taken; what he waits for keeps nobody else waiting.
func TestStagingShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStageRig(t, 256*mib, 64*mib)
		clerk, other := new(base.Account), new(base.Account)
		first := r.ask(t.Context(), "clerk", r.main, clerk, 33*mib)
		if !r.let(first) {
			t.Fatal("the first of a tenant waits")
		}
		var more []chan struct{}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			more = append(more, r.ask(ctx, "clerk again", r.main, clerk, 33*mib))
		}
		small := r.ask(ctx, "clerk small", r.main, clerk, mib)
		if slices.ContainsFunc(more, r.let) || r.let(small) {
			t.Error("33 MiB take 64: more than one of them is more than the share")
		}
		if r.hits[clerk] != 4 || r.line.used != 64*mib {
			t.Errorf("%d waits counted, %d bytes", r.hits[clerk], r.line.used)
		}
		for range 3 {
			if !r.let(r.ask(t.Context(), "other", r.main, other, 16*mib)) {
				t.Error("another tenant waits")
			}
			r.back(r.main, other, 16*mib)
		}
		own := r.space(64 * mib)
		if !r.let(r.ask(t.Context(), "space", own, other, 64*mib)) {
			t.Error("a space waits")
		}
		r.back(own, other, 64*mib)
		cancel()
		synctest.Wait()
		r.back(r.main, clerk, 33*mib)
		if slices.Contains(r.order, "clerk again") {
			t.Error("one who gave up was let in")
		}
		r.empty(own)
	})
}

// TestStagingTakesTurns: where the node's memory is short the tenants take turns,
// however many puts each has in his line, and a large one is not passed for ever.
func TestStagingTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStageRig(t, 64*mib, 64*mib)
		a, b, c := new(base.Account), new(base.Account), new(base.Account)
		r.ask(t.Context(), "a", r.main, a, 64*mib)
		var all []chan struct{}
		for range 3 {
			all = append(all, r.ask(t.Context(), "a", r.main, a, 32*mib))
		}
		all = append(all, r.ask(t.Context(), "b", r.main, b, 64*mib), r.ask(t.Context(), "c", r.main, c, mib))
		r.back(r.main, a, 64*mib)
		// a's turn came first; b's is next and needs all, so c's small one waits, too.
		if !slices.Equal(r.order, []string{"a", "a"}) {
			t.Errorf("let in: %v", r.order)
		}
		r.back(r.main, a, 32*mib)
		if !slices.Equal(r.order, []string{"a", "a", "b"}) {
			t.Errorf("let in: %v", r.order)
		}
		r.back(r.main, b, 64*mib)
		if want := []string{"a", "a", "b", "a", "c"}; !slices.Equal(r.order, want) {
			t.Errorf("let in: %v, want %v", r.order, want)
		}
		r.back(r.main, c, mib)
		r.back(r.main, a, 32*mib)
		r.back(r.main, a, 32*mib)
		for _, done := range all {
			if !r.let(done) {
				t.Error("somebody was never let in")
			}
		}
		r.empty()
	})
}

// TestStagingWanted: a piece is wanted back by those whom it would help, and by
// nobody else.
func TestStagingWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStageRig(t, 128*mib, 64*mib)
		a, b, c := new(base.Account), new(base.Account), new(base.Account)
		own := r.space(64 * mib)
		r.ask(t.Context(), "a", r.main, a, 64*mib)
		r.ask(t.Context(), "b", own, b, 32*mib)
		held := func(g *Staging, l *base.Account) *Stage { return &Stage{pool: g, tenant: l} }
		if r.line.wanted(held(r.main, a)) || r.line.wanted(held(own, b)) {
			t.Error("nobody waits")
		}
		ctx, cancel := context.WithCancel(t.Context())
		r.ask(ctx, "a", r.main, a, mib)
		if !r.line.wanted(held(r.main, a)) {
			t.Error("his own put waits for his share")
		}
		if r.line.wanted(held(own, b)) || r.line.wanted(held(r.main, b)) {
			t.Error("what waits for its own tenant's share wants nothing of others, in its own space neither")
		}
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		r.ask(ctx, "c", r.main, c, 64*mib) // 96 of 128 are in use
		if !r.line.wanted(held(r.main, a)) || !r.line.wanted(held(own, b)) {
			t.Error("somebody waits for the node's memory")
		}
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		r.ask(ctx, "d", own, new(base.Account), 32*mib+1) // counts as 64: the space has 32 left, the node 32, too
		r.back(r.main, a, 64*mib)                         // the node has room
		if !r.line.wanted(held(own, c)) || r.line.wanted(held(r.main, a)) {
			t.Error("somebody waits for the memory of his space alone")
		}
		cancel()
		synctest.Wait()
		r.back(own, b, 32*mib)
		r.empty(own)
	})
}
