package write

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// pairs are n pairs, of which each fifth is large.
func pairs(n int) (list []base.Pair) {
	for i := range n {
		v := []byte("small")
		if i%5 == 4 {
			v = large()
		}
		list = append(list, base.Pair{Key: fmt.Appendf(nil, "k%d", i), Value: v})
	}
	return list
}

// once reports a pair that did not take effect exactly once.
func (r *rig) once(list []base.Pair) {
	r.t.Helper()
	for _, pair := range list {
		if n := r.done[string(pair.Key)]; n != 1 {
			r.t.Errorf("the put of %s took effect %d times", pair.Key, n)
		}
	}
}

// Of many puts as many are under way as there are names, each under its own; what was lost or
// refused goes again under the name that it had.
func TestManyKeepTheirNames(t *testing.T) {
	for _, inflight := range []int{1, 4} {
		inBubble(t, func(_ *rig, cfg *base.Config) { cfg.MaxInflight = inflight }, func(t *testing.T, r *rig) {
			list := pairs(12)
			r.draw(answered, lostAfter, overloaded, lostBefore, closing, answered, unknown)
			if err := Many(t.Context(), r.router, list); err != nil {
				t.Fatal(err)
			}
			r.once(list)
			names := map[wire.RequestID]string{}
			for _, c := range r.sent() {
				name := wire.RequestID{Slot: c.id.Slot, Seq: c.id.Seq}
				if was, ok := names[name]; ok && was != c.key {
					t.Errorf("%s goes under the name of %s", c.key, was)
				}
				names[name] = c.key
				if int(c.id.Slot) >= inflight {
					t.Errorf("%s goes under %+v", c.key, c.id)
				}
			}
		})
	}
}

// Small puts are under way together: none waits for the answer of another.
func TestManyAreUnderWayTogether(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		const n = 4 // as many as there are names
		r.drawing(func(copied) fate { return unheard })
		done := make(chan error)
		list := pairs(n)
		go func() { done <- Many(t.Context(), r.router, list) }()
		synctest.Wait()
		if got := len(r.sent()); got != n {
			t.Errorf("%d of %d are under way", got, n)
		}
		r.draw()
		r.LastQP().Die(rdma.ErrPeerGone)
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.once(list)
	})
}

// Each pair has its own outcome, which the error tells by the pair's index.
func TestManyFailSingly(t *testing.T) {
	inBubble(t, func(r *rig, _ *base.Config) {
		r.Welcome = func(w *wire.Welcome) { w.MaxValue = 200_000 }
	}, func(t *testing.T, r *rig) {
		list := pairs(9)
		list[1].Key = nil
		list[3].Value = make([]byte, 200_001)
		r.drawing(func(c copied) fate {
			switch c.key {
			case "k0":
				return notNumber
			case "k5":
				return unheard
			}
			return answered
		})
		err := Many(t.Context(), r.router, list)
		part := (*base.PartialError)(nil)
		if !errors.As(err, &part) || part.Total != len(list) {
			t.Fatal(err)
		}
		want := map[int]error{0: base.ErrNotNumber, 1: base.ErrKeyEmpty, 3: base.ErrTooLarge, 5: base.ErrOutcomeUnknown}
		if len(part.Failures) != len(want) {
			t.Error(err)
		}
		for _, f := range part.Failures {
			if want[f.Index] == nil || !errors.Is(f.Err, want[f.Index]) {
				t.Errorf("pair %d: %v", f.Index, f.Err)
			}
		}
		for i, pair := range list {
			if n := r.done[string(pair.Key)]; (n == 1) != (want[i] == nil || i == 5) {
				t.Errorf("pair %d took effect %d times", i, n)
			}
		}
		r.LastQP().Die(errors.New("the test ends"))
	})
}

// When the server cannot be reached the pairs that were not sent fail with the reason, after
// one wait for all of them; those that may have taken effect are unknown.
func TestManyWithoutAServer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.drawing(func(copied) fate {
			r.Connect = func(context.Context) error { return errors.New("away") }
			return lostAfter
		})
		list := pairs(20)
		begun := time.Now()
		err := Many(t.Context(), r.router, list)
		part := (*base.PartialError)(nil)
		if !errors.As(err, &part) || len(part.Failures) != len(list) {
			t.Fatal(err)
		}
		unknown := 0
		for _, f := range part.Failures {
			if errors.Is(f.Err, base.ErrOutcomeUnknown) {
				unknown++
			} else if !errors.Is(f.Err, base.ErrUnavailable) {
				t.Errorf("pair %d: %v", f.Index, f.Err)
			}
		}
		if n := len(r.sent()); unknown < n || unknown > r.c.Config().MaxInflight || n == 0 {
			t.Errorf("%d outcomes unknown, %d copies came to the server", unknown, n)
		}
		// Those that may have taken effect are waited for one by one; the others share a wait.
		if took, most := time.Since(begun), time.Duration(unknown+1)*6*time.Second; took > most {
			t.Errorf("it took %v, with %d outcomes unknown", took, unknown)
		}
		r.Connect = nil
	})
}
