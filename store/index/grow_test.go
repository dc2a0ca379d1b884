package index

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// untilGrowth inserts keys from *next on until a segment is replaced, and
// returns that segment with a copy of its memory from just before.
func (w *world) untilGrowth(next *uint64) (old *segment, before []byte) {
	w.t.Helper()
	for {
		seg := w.ix.segmentOf(hashOf(*next))
		if _, ok := seg.room(hashOf(*next)); !ok {
			old, before = seg, bytes.Clone(seg.mem)
		}
		if !w.insert(*next) {
			w.t.Fatalf("no room for key %d", *next)
		}
		*next++
		if old != nil {
			return old, before
		}
	}
}

// Until the lease is over a replaced segment shows the slots that it had,
// under marked headers, however much the index grows meanwhile: a READ that
// saw an unmarked header may still be fetching the slots. Afterwards the
// memory is used again.
func TestRetiredSegmentRests(t *testing.T) {
	w := newWorld(t, 64*mib)
	next := uint64(1)
	old, before := w.untilGrowth(&next)
	changed := func() bool {
		for off := 0; off < len(before); off += 8 {
			want := layout.LoadWord(before, off)
			if off%layout.BucketSize == 0 && off/layout.BucketSize < 3*old.groups {
				want = uint64(layout.BucketHeader(want).WithMarked())
			}
			if layout.LoadWord(old.mem, off) != want {
				return true
			}
		}
		return false
	}
	for w.now.Before(time.Unix(1000, 0).Add(reclaim.Wait(lease))) {
		w.untilGrowth(&next)
		if changed() {
			t.Fatalf("the segment changed %v after it was retired", w.now.Sub(time.Unix(1000, 0)))
		}
		w.pass(reclaim.BeatMargin)
	}
	w.pass(time.Second)
	for range 50 {
		if w.untilGrowth(&next); changed() {
			return
		}
		w.pass(reclaim.BeatMargin)
	}
	t.Error("the memory was never used again")
}

// The stores of one growth come in the order of the design.
func TestOrderOfStores(t *testing.T) {
	w := newWorld(t, 64*mib)
	rank := map[string]int{"index.mark": 1, "index.wipe": 2, "index.slot": 3, "index.header": 4, "index.newdir": 5, "index.root": 6, "index.entry": 6}
	last, splits, marks := 0, 0, 0
	w.ix.onStore = func(point string) {
		now := rank[point]
		if now == 0 {
			t.Errorf("unknown point %q", point)
		}
		// The second child is written after the first.
		if now < last && !(now == 2 && last == 4) {
			t.Errorf("%s after step %d", point, last)
		}
		switch point {
		case "index.root":
			splits++
		case "index.mark":
			marks++
		}
		last = now
	}
	for k := uint64(1); k < 15_000; k++ {
		last = 0
		if !w.insert(k) {
			t.Fatal("no room")
		}
	}
	if splits < 2 || marks == 0 {
		t.Errorf("%d directory doublings, %d headers marked", splits, marks)
	}
}

// While memory is short a growth changes nothing, the caller counts the key,
// and later it works.
func TestGrowthWithoutMemory(t *testing.T) {
	w := newWorld(t, mib) // the root region and no more
	next, refused := uint64(1), 0
	for ; refused < 2000; next++ {
		if !w.insert(next) {
			refused++
			w.ix.AddSlotless(hashOf(next))
		}
	}
	w.check()
	if w.ix.Refusal() != NoMemory {
		t.Errorf("refused because of %v", w.ix.Refusal())
	}
	if st := w.ix.Stats(); st.Bytes+st.Retired > mib || st.Load < 0.8 || st.Slotless < 1000 {
		t.Errorf("a full index: %+v", st)
	}
	w.ix.SetFilled()
	w.pass(4 * time.Second)
	for k := uint64(1); k < next; k++ {
		if _, ok := w.ix.Find(hashOf(k), is(k)); !ok && !w.ix.Slotless(hashOf(k)) {
			t.Fatalf("key %d has no slot and is not counted", k)
		}
	}
	w.check()
}

// At most so much may wait for leases; then growth waits, too.
func TestRetiredIsBounded(t *testing.T) {
	w := newWorld(t, 16*mib)
	most := uint64(0)
	for k := uint64(1); k < 120_000; k++ {
		if !w.insert(k) {
			w.ix.AddSlotless(hashOf(k))
		}
		st := w.table.Index().Stats()
		most = max(most, st.Retired)
		if bound := max(st.InUse/8, mib); st.Retired > bound+2*28<<10 {
			t.Fatalf("%d bytes wait for a lease, %d are in use", st.Retired, st.InUse)
		}
	}
	if most < mib/2 || w.ix.Refusal() != Waiting {
		t.Errorf("at most %d bytes waited, refused because of %v: the test is too easy", most, w.ix.Refusal())
	}
}

// Keys that no split parts are refused, and refusing them again is cheap.
func TestUnpartableKeys(t *testing.T) {
	w := newWorld(t, 16*mib)
	one := hashOf(1)
	w.ix.hashOf = func(layout.Slot) (layout.Hash, bool) { return one, true }
	n := 0
	for k := uint64(1); ; k++ {
		r, ok := w.ix.Room(w.now, one)
		if !ok {
			break
		}
		w.ix.Set(r, layout.MakeSlot(one.Fingerprint(), 18, layout.Place(k)))
		n++
	}
	if w.ix.Refusal() != NoParting {
		t.Errorf("refused because of %v", w.ix.Refusal())
	}
	if n != 4*layout.BucketSlots {
		t.Errorf("%d keys of one hash have slots, four buckets hold %d", n, 4*layout.BucketSlots)
	}
	w.check()
	before := w.ix.Stats()
	calls := 0
	w.ix.hashOf = func(layout.Slot) (layout.Hash, bool) { calls++; return one, true }
	for range 1000 {
		if _, ok := w.ix.Room(w.now, one); ok {
			t.Fatal("room after all")
		}
	}
	if calls > 0 || w.ix.Stats() != before {
		t.Errorf("%d keys were hashed again; %+v, before %+v", calls, w.ix.Stats(), before)
	}
}

// A slot whose key cannot be told blocks growth and nothing else.
func TestUnroutableSlot(t *testing.T) {
	w := newWorld(t, 16*mib)
	w.ix.hashOf = func(s layout.Slot) (layout.Hash, bool) { return hashOf(uint64(s.Place())), s.Place() != 77 }
	refused := false
	for k := uint64(1); k < 3000; k++ {
		refused = !w.insert(k) || refused
	}
	if st := w.ix.Stats(); !refused || st.Segments != 1 {
		t.Errorf("grew over a slot that has no hash: %+v", st)
	}
	w.check()
}
