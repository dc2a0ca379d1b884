package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestPublish follows a key: it is what was published last, and never what is only
// ordered. Its old item is dead before its place is anybody else's.
func TestPublish(t *testing.T) {
	r := newRig(t, true)
	r.want("k", "", Nowhere)
	first := r.order(put("k", "one"))
	r.want("k", "", Nowhere)
	r.publish(first)
	r.want("k", "one", InMemory)
	old := r.slot("k")
	second := r.order(put("k", "two"))
	if e := second.Effects[0]; e.Place == old.Place() {
		t.Fatal("the place of a live item was given out")
	}
	r.want("k", "one", InMemory)
	r.publish(second)
	r.want("k", "two", InMemory)
	if s := r.state(old); s != layout.Dead {
		t.Errorf("the old item is in state %d", s)
	}
	last := r.slot("k")
	r.do(del("k"))
	r.want("k", "", Nowhere)
	if s := r.state(last); s != layout.Dead {
		t.Errorf("the item of a deleted key is in state %d", s)
	}
	if ix, items := r.Counts(); items != 0 || ix.Keys != 0 || r.mem.Slabs.Stats().Live != 0 {
		t.Errorf("%d items, %d slots, %d bytes are left", items, ix.Keys, r.mem.Slabs.Stats().Live)
	}
}

// TestMarks: ordered >= durable >= published at each step, and what is in flight is
// counted by key.
func TestMarks(t *testing.T) {
	r := newRig(t, true)
	none := r.Marks().Published
	a, b := r.order(put("a", "1")), r.order(put("b", "1"))
	for _, step := range []struct {
		f                  *flight.Flight
		ordered, published layout.Version
		flying             int
	}{{nil, none + 2, none, 2}, {a, none + 2, none + 1, 1}, {b, none + 2, none + 2, 0}} {
		if step.f != nil {
			r.publish(step.f)
		}
		if m := r.Marks(); m.Ordered != step.ordered || m.Published != step.published || m.Flying != step.flying || m.Durable != m.Published {
			t.Errorf("%+v; want %+v", m, step)
		}
	}
}

// TestOverlay: the ordered state of a key is that after its newest write in flight,
// whichever of them are published meanwhile. Keys with the same hash do not mix.
func TestOverlay(t *testing.T) {
	r := newRig(t, true)
	judge := func(key string) string {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		state, sure := r.Judge(r.hash(key), []byte(key), true)
		if !sure {
			return "unknown"
		}
		return string(state.Value)
	}
	var all []*flight.Flight
	for _, v := range []string{"1", "2", "3"} {
		all = append(all, r.order(put("k", v)))
	}
	// A key of the same hash: it is told from k by its bytes alone.
	other := &flight.Effect{Effect: base.Effect{Key: []byte("other")}, Hash: r.hash("k")}
	r.Mu.Lock()
	r.overlayPut(other)
	if got := r.Inflight(other.Hash, []byte("other")); got != other {
		t.Error("the other key of a hash is not found")
	}
	if got := r.Newest(other.Hash, []byte("third")); got != 0 {
		t.Errorf("a third key has version %v in flight", got)
	}
	r.Mu.Unlock()
	for _, f := range all {
		if got := judge("k"); got != "3" {
			t.Errorf("judged on %q", got)
		}
		r.publish(f)
	}
	if got := judge("k"); got != "3" {
		t.Errorf("judged on %q when all is published", got)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.overlayRemove(other)
	if len(r.overlay) != 0 {
		t.Errorf("%d hashes are in flight", len(r.overlay))
	}
}

// TestBatch: no part of a batch is readable before all old items are dead, and a batch
// whose condition fails changes nothing.
func TestBatch(t *testing.T) {
	r := newRig(t, true)
	r.do(put("a", "old"))
	r.do(put("b", "old"))
	a, b := r.slot("a"), r.slot("b")
	parts := []base.Part{{Key: []byte("a"), Value: []byte("new")}, {Key: []byte("b"), Delete: true}, {Key: []byte("c"), Value: []byte("new")}}
	f := r.do(base.Op{Kind: base.OpBatch, Parts: parts})
	if f.Result.Version != f.Effects[2].Version || f.Effects[0].Version+2 != f.Result.Version {
		t.Errorf("versions %v to %v, result %v", f.Effects[0].Version, f.Effects[2].Version, f.Result.Version)
	}
	r.want("a", "new", InMemory)
	r.want("b", "", Nowhere)
	r.want("c", "new", InMemory)
	if r.state(a) != layout.Dead || r.state(b) != layout.Dead {
		t.Errorf("the old items are in states %d and %d", r.state(a), r.state(b))
	}
	parts = []base.Part{{Key: []byte("a"), Value: []byte("newer")}, {Key: []byte("c"), If: base.CondAbsent, Value: []byte("newer")}}
	before := r.slot("a")
	f = r.do(base.Op{Kind: base.OpBatch, Parts: parts})
	if f.Result.Err != base.ErrCondition || f.Result.Part != 1 || r.Marks().Published != f.Version {
		t.Errorf("result %+v, published %v of %v", f.Result, r.Marks().Published, f.Version)
	}
	r.want("a", "new", InMemory)
	if r.slot("a") != before {
		t.Error("a refused batch moved an item")
	}
}

// TestWaitPublished: a wait ends when its version is published, not before, or with its
// context, and leaves nothing behind then.
func TestWaitPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		first, second := r.order(put("k", "1")), r.order(put("k", "2"))
		over := make(map[layout.Version]bool)
		for _, f := range []*flight.Flight{first, second} {
			go func() {
				if err := r.WaitPublished(t.Context(), f.Version); err != nil {
					t.Error(err)
				}
				over[f.Version] = true
			}()
		}
		synctest.Wait()
		if len(over) != 0 {
			t.Errorf("%v are said to be published", over)
		}
		r.publish(first)
		synctest.Wait()
		if !over[first.Version] || over[second.Version] {
			t.Errorf("behind the first of two: %v", over)
		}
		if err := r.WaitPublished(ended(t), second.Version); !errors.Is(err, context.Canceled) || len(r.waiting) != 1 {
			t.Errorf("%v; %d wait", err, len(r.waiting))
		}
		r.publish(second)
		synctest.Wait()
		if !over[second.Version] || len(r.waiting) != 0 {
			t.Errorf("behind both: %v; %d wait", over, len(r.waiting))
		}
		if err := r.WaitPublished(ended(t), second.Version); err != nil {
			t.Errorf("a wait for what is published: %v", err)
		}
		if err := r.WaitFlight(ended(t), 0); err != nil {
			t.Errorf("a wait for nothing in flight: %v", err)
		}
	})
}

// TestWaitFenced: nothing is told any more once the store is fenced.
func TestWaitFenced(t *testing.T) {
	r := newRig(t, true)
	r.mem.Fence.Opening.Store(true) // the fault is not reported
	f := r.order(put("k", "1"))
	r.mem.Fence.Fail(errors.New("the disk is gone"))
	if err := r.WaitPublished(t.Context(), f.Version); !errors.Is(err, base.ErrFatal) || len(r.waiting) != 0 {
		t.Errorf("%v; %d wait", err, len(r.waiting))
	}
}

// TestDue: the mark of the next key that is due only falls between two looks, so that
// none is missed.
func TestDue(t *testing.T) {
	r := newRig(t, true)
	now := uint64(r.wall.Unix())
	if r.TakeDue(now + 1000) {
		t.Error("something is due in an empty shard")
	}
	for _, second := range []uint64{100, 10, 50} {
		r.Relist(now + second)
	}
	if r.TakeDue(now + 5) {
		t.Error("due before the first second")
	}
	if !r.TakeDue(now+10) || r.TakeDue(now+1000) {
		t.Error("not due at the first second, or the mark was not taken")
	}
	r.DueAt(now + 20)
	r.DueAt(now + 30)
	if r.TakeDue(now+19) || !r.TakeDue(now+20) {
		t.Error("the mark is not the lower of two")
	}
}
