package index

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// headerSays returns the greater of the two counts that a reader of the key
// would see.
func (w *world) headerSays(h layout.Hash) uint8 {
	seg := w.ix.segmentOf(h)
	a, b := h.Mains(seg.groups)
	n := uint8(0)
	for _, m := range []layout.Main{a, b} {
		n = max(n, layout.BucketHeader(layout.LoadWord(seg.mem, m.MainBucket()*layout.BucketSize)).Slotless())
	}
	return n
}

// From any number of groups to any other, the range that a count is carried
// to holds the bucket of every key that it may have counted.
func TestCarriedCountsCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for from := range uint8(layout.SegmentSteps) {
		for to := range uint8(layout.SegmentSteps) {
			g, h := layout.SegmentGroups(from), layout.SegmentGroups(to)
			widest := 0
			for range 20_000 {
				key := layout.Hash{Hi: rng.Uint64(), Lo: rng.Uint64()}
				if rng.IntN(10) == 0 {
					key.Lo = []uint64{0, ^uint64(0), 1 << 63, 1<<63 - 1}[rng.IntN(4)]
				}
				a, _ := key.Mains(g)
				old := counts{vague: true}
				old.raise(a, 1, g)
				heir := old.heir(g, h, everyKey)
				n, _ := key.Mains(h)
				if heir.shown[2*n.Group+int(n.Side)] == 0 {
					t.Fatalf("%d to %d groups: the count of group %d misses group %d (hash %x)", g, h, a.Group, n.Group, key)
				}
				sum := 0
				for _, c := range heir.shown {
					sum += int(c)
				}
				widest = max(widest, sum)
			}
			if widest > 3 {
				t.Errorf("%d to %d groups: one count was carried to %d buckets", g, h, widest)
			}
		}
	}
}

// Counted keys stay counted over quarter steps, splits and doublings until
// they have a slot or are deleted, and hardly anything else shows a count.
func TestCountsSurviveGrowth(t *testing.T) {
	w := newWorld(t, 64*mib)
	w.ix.SetFilled()
	counted := map[uint64]bool{}
	for k := uint64(1 << 30); k < 1<<30+60; k++ {
		counted[k] = true
		w.ix.AddSlotless(hashOf(k))
		w.ix.AddSlotless(hashOf(k)) // put again: still one key
	}
	if got := w.ix.Stats().Slotless; got != 60 {
		t.Errorf("60 keys without slot are counted as %d", got)
	}
	for k := uint64(1); k < 40_000; k++ {
		if !w.insert(k) {
			t.Fatal("no room")
		}
		if k == 20_000 {
			for c := uint64(1 << 30); c < 1<<30+20; c++ {
				if c%2 == 0 {
					w.insert(c)
				} else {
					w.ix.RemoveSlotless(hashOf(c))
				}
				delete(counted, c)
			}
		}
		if k%5000 == 0 {
			w.pass(4 * time.Second)
			w.check()
			for c := range counted {
				if !w.ix.Slotless(hashOf(c)) || w.headerSays(hashOf(c)) == 0 {
					t.Fatalf("with %d keys: key %d is no longer counted", k, c)
				}
			}
		}
	}
	if got := w.ix.Stats().Slotless; got != len(counted) {
		t.Errorf("%d keys without slot are counted as %d after growth", len(counted), got)
	}
}

// A key is counted while its slot is still there, as when the slot is dropped
// a lease later; growth in between keeps the count.
func TestCountedBeforeItsSlotIsDropped(t *testing.T) {
	w := newWorld(t, 64*mib)
	w.ix.SetFilled()
	const dropped = 1 << 30
	w.insert(dropped)
	w.ix.AddSlotless(hashOf(dropped))
	next := uint64(1)
	for range 6 {
		w.untilGrowth(&next)
	}
	r, ok := w.ix.Find(hashOf(dropped), is(dropped))
	if !ok {
		t.Fatal("lost")
	}
	w.ix.Clear(r)
	if w.headerSays(hashOf(dropped)) == 0 || !w.ix.Slotless(hashOf(dropped)) {
		t.Error("the key has no slot and is not counted")
	}
}

// A counted key for which Room finds a slot in a new segment is counted there
// too until the next growth: its slot is set only after the segment is found.
func TestCountedUntilItsSlotIsSet(t *testing.T) {
	w := newWorld(t, 64*mib)
	w.ix.SetFilled()
	next := uint64(1)
	for {
		if _, ok := w.ix.segmentOf(hashOf(next)).room(hashOf(next)); !ok {
			break
		}
		w.insert(next)
		next++
	}
	w.ix.AddSlotless(hashOf(next))
	w.ix.onStore = func(point string) {
		if w.ix.dir[0].step > 0 && w.headerSays(hashOf(next)) == 0 {
			t.Fatal("a new segment is found, and the key is neither in it nor counted")
		}
	}
	if _, ok := w.ix.Room(w.now, hashOf(next)); !ok || w.ix.dir[0].step == 0 {
		t.Fatal("no growth")
	}
	if w.headerSays(hashOf(next)) == 0 {
		t.Error("not counted, and its slot is not set")
	}
}

// Too many to remember: the counts grow vague, never small.
func TestVagueCounts(t *testing.T) {
	w := newWorld(t, 64*mib)
	w.ix.SetFilled()
	const counted = 3 * maxRemembered
	for k := uint64(1 << 30); k < 1<<30+counted; k++ {
		w.ix.AddSlotless(hashOf(k))
	}
	for k := uint64(1); k < 20_000; k++ {
		w.insert(k)
	}
	w.check()
	for k := uint64(1 << 30); k < 1<<30+counted; k++ {
		if !w.ix.Slotless(hashOf(k)) || w.headerSays(hashOf(k)) == 0 {
			t.Fatalf("key %d is no longer counted", k)
		}
	}
}

func TestCountSticks(t *testing.T) {
	w := newWorld(t, 16*mib)
	w.ix.SetFilled()
	h := hashOf(9)
	for i := range 1000 {
		// Other keys of the same buckets.
		w.ix.AddSlotless(layout.Hash{Hi: h.Hi&^0xffff00 | uint64(i)<<8, Lo: h.Lo})
		if got, want := w.headerSays(h), uint8(min(i+1, layout.SlotlessMany)); got != want {
			t.Fatalf("after %d keys the header says %d", i+1, got)
		}
	}
	w.check()
}

// Before SetFilled every header says that nothing is known, new segments too;
// after it the headers keep saying so for a lease, because of READs that saw
// a slot before it was filled in.
func TestFilledIsShownALeaseLater(t *testing.T) {
	w := newWorld(t, 16*mib)
	counted, other := hashOf(1<<40-5), hashOf(1<<40-6)
	for k := uint64(1); k < 5000; k++ {
		w.insert(k)
	}
	w.ix.AddSlotless(counted)
	if w.ix.Stats().Segments < 2 || w.headerSays(other) != layout.SlotlessMany || !w.ix.Slotless(other) || w.ix.Filled() {
		t.Errorf("before SetFilled: %+v, the header says %d", w.ix.Stats(), w.headerSays(other))
	}
	w.check()

	w.ix.SetFilled()
	w.ix.SetFilled()
	start := w.now
	if !w.ix.Filled() || w.ix.Slotless(other) || !w.ix.Slotless(counted) {
		t.Error("the shard's own answers are not the true counts")
	}
	for w.now.Before(start.Add(reclaim.Wait(lease))) {
		if got := w.headerSays(other); got != layout.SlotlessMany {
			t.Fatalf("%v after SetFilled the header says %d", w.now.Sub(start), got)
		}
		w.check()
		w.pass(reclaim.BeatMargin)
	}
	w.pass(time.Second)
	if got := w.headerSays(other); got != 0 {
		t.Errorf("a lease after SetFilled the header of a key that is not counted says %d", got)
	}
	if got := w.headerSays(counted); got != 1 {
		t.Errorf("a lease after SetFilled the header of a counted key says %d", got)
	}
	w.check()
	for k := uint64(5000); k < 10_000; k++ { // new segments are born with true counts
		w.insert(k)
	}
	w.check()
}

func TestReserve(t *testing.T) {
	for _, keys := range []int{0, 1000, 1600, 2000, 10_000, 62_500} {
		if keys > 100_000/scale {
			continue
		}
		w := newWorld(t, 64*mib)
		w.ix.AddSlotless(hashOf(1 << 39))
		w.ix.Reserve(keys)
		w.check()
		before := w.ix.Stats()
		for k := uint64(1); k <= uint64(keys); k++ {
			if !w.insert(k) {
				t.Fatalf("reserved for %d: no room for key %d", keys, k)
			}
		}
		after := w.ix.Stats()
		grown := float64(after.Bytes-before.Bytes) / float64(before.Bytes)
		perKey := float64(after.Bytes) / float64(max(1, keys))
		t.Logf("reserved for %d: %d segments, %d after the fill, load %.2f, %.1f B a key", keys, before.Segments, after.Segments, after.Load, perKey)
		if grown > 0.05 {
			t.Errorf("reserved for %d: grew by %.0f %% all the same", keys, 100*grown)
		}
		if keys >= 10_000 && perKey > 12.5 {
			t.Errorf("reserved for %d: %.1f B a key", keys, perKey)
		}
		if !w.ix.Slotless(hashOf(1 << 39)) {
			t.Error("a count was lost")
		}
		w.check()
		w.ix.Reserve(10 * keys) // no longer new: nothing happens
		if w.ix.Stats() != after && keys > 0 {
			t.Errorf("Reserve of an index in use: %+v, before %+v", w.ix.Stats(), after)
		}
	}
	w := newWorld(t, 2*mib)
	w.ix.Reserve(1 << 30) // more than there is: growth will have to do
	w.check()
	if !w.insert(1) {
		t.Error("no room after a Reserve that was too large")
	}
}

func TestNewRefuses(t *testing.T) {
	w := newWorld(t, 16*mib)
	if _, err := New(w.table, w.rec, 4, hashOfSlot); err == nil {
		t.Error("shard 4 of 4 was made")
	}
	for {
		if _, _, err := w.table.Index().Alloc(4); err != nil {
			break
		}
	}
	if _, err := New(w.table, w.rec, 1, hashOfSlot); err == nil {
		t.Error("an index without memory")
	}
}

// TestUnfill: an index that is emptied and filled again shows 255 from the first moment to a lease behind the second fill, whatever
// of the first one's is still to come, and counts anew.
func TestUnfill(t *testing.T) {
	w := newWorld(t, 4*mib)
	h, counted := hashOf(1), hashOf(2)
	many := func(when string) {
		t.Helper()
		if n := w.headerSays(h); n != layout.SlotlessMany || !w.ix.Slotless(h) {
			t.Errorf("%s: the header shows %d, Slotless says %v", when, n, w.ix.Slotless(h))
		}
	}
	if Unfill(w.ix) {
		t.Error("an index that never showed its counts is said to have been believed")
	}
	w.ix.SetFilled()
	if n := w.headerSays(h); n != 0 {
		t.Fatalf("an empty index that is filled shows %d", n)
	}
	if Unfill(w.ix) {
		t.Error("nobody has read a slot, and it is to be waited for")
	}
	many("unfilled")
	w.insert(1)
	w.ix.AddSlotless(counted)
	w.ix.SetFilled() // its lease runs
	if n := w.headerSays(h); n != layout.SlotlessMany {
		t.Errorf("before the lease is over the header shows %d", n)
	}
	if Unfill(w.ix) {
		t.Error("the headers never showed a count since")
	}
	Uncount(w.ix)
	w.ix.SetFilled() // another lease runs behind it
	if w.ix.Slotless(counted) {
		t.Error("a key of the first fill is counted still")
	}
	Unfill(w.ix)
	w.pass(time.Minute)
	many("behind the leases of two fills that were taken back")
	w.ix.SetFilled()
	w.pass(time.Minute)
	if n := w.headerSays(h); n != 0 || w.ix.Slotless(h) {
		t.Errorf("a lease behind the fill the header shows %d", n)
	}
	if !Unfill(w.ix) {
		t.Error("readers may have believed a miss, and nobody waits for them")
	}
	many("unfilled again")
}
