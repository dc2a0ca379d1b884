package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// evict takes a key's item out of memory.
func (r *rig) evict(key string) {
	r.t.Helper()
	if !r.Evict(r.victim(key)) {
		r.t.Fatalf("%s cannot be evicted", key)
	}
}

// TestJudgeAsks: the disk is asked only for what neither a write in flight nor memory
// knows, and its answer is what the write is judged on.
func TestJudgeAsks(t *testing.T) {
	r := newRig(t, true)
	incr := base.Op{Key: []byte("n"), Kind: base.OpIncrement, Delta: 1}
	for i, step := range []struct {
		before func()
		asks   int
		number int64
	}{
		{func() {}, 0, 1}, // memory proves that it is absent
		{func() {}, 0, 2}, // memory has it
		{func() { r.evict("n") }, 1, 3},
	} {
		step.before()
		r.asks = 0
		if f := r.do(incr); f.Result.Number != step.number || r.asks != step.asks {
			t.Errorf("step %d: %d after %d questions; want %d after %d", i, f.Result.Number, r.asks, step.number, step.asks)
		}
	}
	r.evict("n")
	flying := r.order(put("n", "40"))
	r.asks = 0
	f := r.order(incr)
	if f.Result.Number != 41 || r.asks != 0 {
		t.Errorf("%d after %d questions beside a write in flight", f.Result.Number, r.asks)
	}
	r.publish(flying)
	r.publish(f)
	r.want("n", "41", InMemory)
}

// TestProbe: a write that is ordered while the disk is asked is what the next one is
// judged on, whether it is published by then or not.
func TestProbe(t *testing.T) {
	for _, published := range []bool{false, true} {
		for _, c := range []struct {
			op   base.Op // a delete asks the disk too
			want int64
		}{
			{put("n", "10"), 11},
			{del("n"), 1},
			{base.Op{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("m"), Value: []byte("30")}, {Key: []byte("n"), Value: []byte("20")}}}, 21},
			{base.Op{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("m"), Value: []byte("30")}}}, 2},
		} {
			r := newRig(t, true)
			r.do(put("n", "1"))
			r.evict("n")
			var meanwhile *flight.Flight
			r.during = func() {
				meanwhile = r.order(c.op)
				if published {
					r.publish(meanwhile)
				}
			}
			f := r.order(base.Op{Key: []byte("n"), Kind: base.OpIncrement, Delta: 1})
			if f.Result.Number != c.want {
				t.Errorf("published %v, beside %v: %d; want %d", published, c.op.Kind, f.Result.Number, c.want)
			}
			if len(r.probes) != 0 {
				t.Errorf("%d probes are left", len(r.probes))
			}
			if !published {
				r.publish(meanwhile)
			}
			r.publish(f)
		}
	}
}

// TestProbeFails: after an error the shard is not locked and no probe is left; where
// nobody may wait for the disk, that is an error.
func TestProbeFails(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	r.evict("k")
	broken := errors.New("a damaged block")
	for want, disk := range map[error]Ask{
		base.ErrMustAsk: nil,
		broken:          func(*Shard, []byte, bool) (flight.KeyState, error) { return flight.KeyState{}, broken },
	} {
		if _, err := r.LockJudged(r.hash("k"), []byte("k"), disk); err != want {
			t.Errorf("%v; want %v", err, want)
		}
		if !r.Mu.TryLock() {
			t.Fatal("the shard is locked")
		}
		if len(r.probes) != 0 {
			t.Errorf("%v: %d probes are left", want, len(r.probes))
		}
		r.Mu.Unlock()
	}
	// What was ordered meanwhile decides, whatever became of the look.
	state, err := r.LockJudged(r.hash("k"), []byte("k"), func(*Shard, []byte, bool) (flight.KeyState, error) {
		r.do(put("k", "newer"))
		return flight.KeyState{}, broken
	})
	if err != nil || !state.Exists || state.Version != r.next-1 {
		t.Errorf("%+v, %v", state, err)
		return
	}
	r.Mu.Unlock()
}

// TestCacheNeverAsks: without a disk memory is the truth.
func TestCacheNeverAsks(t *testing.T) {
	r := newRig(t, false)
	r.do(put("k", "v"))
	r.evict("k")
	r.want("k", "", Nowhere)
	if f := r.do(base.Op{Key: []byte("k"), Kind: base.OpDelete}); f.Result.Existed || r.asks != 0 {
		t.Errorf("existed %v after %d questions", f.Result.Existed, r.asks)
	}
	if n := r.mem.Counts.Dropped.Load(); n != 1 {
		t.Errorf("%d keys were dropped", n)
	}
}

// TestHide: an item on whose life a write in flight depends is unreadable from the
// order on, and what a read finds then is that it has to wait; nobody sees the key
// expire first.
func TestHide(t *testing.T) {
	r := newRig(t, true)
	op := put("k", "v")
	op.TTL = 10 * time.Second
	r.do(op)
	slot := r.slot("k")
	touch := r.order(base.Op{Key: []byte("k"), Kind: base.OpTouch, TTL: 100 * time.Second})
	if s := r.state(slot); s != layout.Dead {
		t.Errorf("the item is in state %d", s)
	}
	r.wall = r.wall.Add(50 * time.Second)
	r.want("k", "", InPebble)
	r.publish(touch)
	r.want("k", "v", InMemory)
	r.wall = r.wall.Add(100 * time.Second)
	r.want("k", "", Nowhere)
}

// TestHideChain: what a touch depends on is never live, however many writes in flight are
// between the expiry and the touch.
func TestHideChain(t *testing.T) {
	r := newRig(t, true)
	op := put("n", "5")
	op.TTL = 10 * time.Second
	chain := []*flight.Flight{r.order(op)}
	chain = append(chain,
		r.order(base.Op{Key: []byte("n"), Kind: base.OpIncrement, Delta: 1}), // with the life of what it found
		r.order(base.Op{Key: []byte("n"), Kind: base.OpTouch, TTL: 100 * time.Second}))
	for i, f := range chain {
		r.publish(f)
		want := layout.Dead
		if i == len(chain)-1 {
			want = layout.Live
		}
		if s := r.state(r.slot("n")); s != want {
			t.Errorf("write %d is published in state %d, want %d", i, s, want)
		}
	}
	r.want("n", "6", InMemory)
}

// TestHideTooLate: a key that expired before it could be hidden is as it was.
func TestHideTooLate(t *testing.T) {
	r := newRig(t, true)
	op := put("k", "v")
	op.TTL = 10 * time.Second
	r.do(op)
	slot := r.slot("k")
	f := &flight.Flight{Op: &base.Op{Key: []byte("k"), Kind: base.OpTouch, TTL: time.Minute}, Result: new(base.Result)}
	f.Reset(r.mem.Seed)
	if err := r.LockEffects(f.Effects, r.ask); err != nil {
		t.Fatal(err)
	}
	f.Evaluate(r.mem.Clock)
	r.wall = r.wall.Add(time.Minute)
	if r.Hide(f) {
		t.Error("hidden behind its expiry")
	}
	if s := r.state(slot); s != layout.Live {
		t.Errorf("the item is in state %d", s)
	}
	r.Mu.Unlock()
}
