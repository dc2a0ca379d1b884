package layout

import (
	"bytes"
	"testing"
)

// How many batches a get takes: 4 cold, 2 with the directory known, 1 with the
// place known; a miss 1.
func TestLookupBatches(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.want(&l, k, Loc{}, ActionAbsent, 0, 3) // root, page, pairs
	g.want(&l, k, Loc{}, ActionAbsent, 0, 1)
	g.put(k)
	g.want(&l, k, Loc{}, ActionFound, 0, 2)
	v, loc := l.Found()
	if !bytes.Equal(v.Key(), k.name) || v.Version != k.version || loc != (Loc{g.cellPlace(k.cell), worldCellSize, k.version}) {
		t.Fatalf("found %+v at %+v", v, loc)
	}
	g.want(&l, k, loc, ActionFound, 0, 1)
	if g.reads != 1 {
		t.Errorf("%d READs with the place known", g.reads)
	}
	g.put(k) // the item is elsewhere now
	g.want(&l, k, loc, ActionFound, 0, 3)
	if l.Counts.Stale != 1 {
		t.Errorf("%+v", l.Counts)
	}
	g.dir.ForgetAll()
	g.want(&l, k, Loc{}, ActionFound, 0, 4)
	g.delete(k)
	g.want(&l, k, Loc{}, ActionAbsent, 0, 1)
	// A cached place outside of everything is no reason for trouble.
	for _, loc := range []Loc{{MaxPlace, 64, 1}, {g.cellPlace(0), 63, 1}, {g.cellPlace(0), 8, 1}, {g.cellPlace(0), 1 << 31, 1}, {0, 64, 1}} {
		g.want(&l, k, loc, ActionAbsent, 0, 1)
	}
}

// Growth: the directory that a client has becomes old, is noticed by the
// headers and refreshed; doubling changes the root as well.
func TestLookupFollowsGrowth(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.put(k)
	g.want(&l, k, Loc{}, ActionFound, 0, 4)
	marked := false
	for range 20 {
		g.grow()
		g.want(&l, k, Loc{}, ActionFound, 0, 0)
		marked = marked || l.Counts.Marked > 0
		g.want(&l, k, Loc{}, ActionFound, 0, 2) // the directory is good again
	}
	if !marked {
		t.Error("no get met a retired segment")
	}
	g.delete(k)
	g.want(&l, k, Loc{}, ActionAbsent, 0, 0)
	if g.dir.Pages() == 0 {
		t.Error("no page is cached")
	}
	// Each key's get ends well from any age of directory.
	for range 10 {
		g.grow()
		for _, k := range g.keys {
			g.want(&l, k, Loc{}, ActionAbsent, 0, 0)
		}
	}
}

// While its segment is being copied, marked and not yet replaced, a key is
// found through the marked buckets.
func TestLookupDuringGrowth(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.put(k)
	g.want(&l, k, Loc{}, ActionFound, 0, 4)
	seg := g.segs[0]
	for b := range SegmentBuckets(seg.step) {
		off := int(seg.place.Byte()) + b*BucketSize
		StoreWord(g.mem, off, uint64(BucketHeader(LoadWord(g.mem, off)).WithMarked()))
	}
	g.want(&l, k, Loc{}, ActionFound, 0, 4) // pairs; root and page; pairs; item
	// What is absent is so only when the copy is done.
	g.want(&l, g.keys[3], Loc{}, ActionAsk, ReasonRetries, 0)
}

// A segment that was retired long ago keeps its last slots. A client whose
// directory still leads there must not follow them: the place may lie in a page
// that was given to another class, where a hostile value looks like the item
// that once was there.
func TestLookupLeavesOldSegments(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.put(k)
	g.want(&l, k, Loc{}, ActionFound, 0, 4)
	cell, version := g.cellOff(k.cell), k.version
	g.grow()
	g.put(k)
	WriteItem(g.mem[cell:], g.view.Incarnation, PlaceOfByte(uint64(cell)), g.item(k, 1000, version), Pending)
	SetState(g.mem[cell:], version, Live)
	g.want(&l, k, Loc{}, ActionFound, 0, 0)
	if v, _ := l.Found(); v.Version != k.version {
		t.Fatalf("found version %v, which somebody forged; the key is at %v", v.Version, k.version)
	}
}

func TestLookupAsks(t *testing.T) {
	var l Lookup
	item := func(k *mkey, v Version, n int) Item { return Item{Version: v, Key: k.name, Value: make([]byte, n)} }

	t.Run("slotless", func(t *testing.T) {
		g := newRig(t)
		g.do(func() { g.putSlotless(g.keys[2]) })
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonSlotless, 3)
		g.put(g.keys[2]) // the count stays, and the item is found all the same
		g.want(&l, g.keys[2], Loc{}, ActionFound, 0, 2)
	})
	t.Run("pebble", func(t *testing.T) {
		g := newRig(t)
		g.put(g.keys[2])
		g.do(func() { g.evict(g.keys[2]) })
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonPebble, 3)
	})
	t.Run("pending", func(t *testing.T) {
		g := newRig(t)
		g.raw(g.keys[2], PageSize, item(g.keys[2], 5, 30), Pending)
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonRetries, 0)
		if l.Counts.Pending != MaxRounds || l.Counts.Rounds != MaxRounds {
			t.Errorf("%+v", l.Counts)
		}
	})
	t.Run("held", func(t *testing.T) {
		g := newRig(t)
		g.raw(g.keys[2], PageSize, item(g.keys[2], 5, 30), Held)
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonRetries, 0)
	})
	t.Run("candidates", func(t *testing.T) {
		g := newRig(t)
		for i := range MaxCandidates + 1 {
			g.raw(g.keys[2], PageSize*(i+1), item(g.keys[3], Version(i+1), 30), Live)
		}
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonCandidates, 3)
	})
	t.Run("class", func(t *testing.T) {
		g := newRig(t)
		g.slot(g.keys[2], NumClasses+1, 0)
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonRetries, 0)
	})
	t.Run("region of an item", func(t *testing.T) {
		g := newRig(t)
		g.slot(g.keys[2], 8, PlaceOfByte(64<<20))
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonUnknownRegion, 3)
	})
	t.Run("item in the index", func(t *testing.T) {
		g := newRig(t)
		g.slot(g.keys[2], 8, 0)
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonUnknownRegion, 3)
	})
	t.Run("region of a segment", func(t *testing.T) {
		g := newRig(t)
		StoreWord(g.mem, int(g.world.dir.Byte()), MakeDirEntry(PlaceOfByte(64<<20), 0, 0))
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonUnknownRegion, 3) // root, page, both again
	})
	t.Run("region of a directory", func(t *testing.T) {
		g := newRig(t)
		StoreWord(g.mem, int(g.view.RootPlace(0).Byte()), MakeRoot(PlaceOfByte(64<<20), 0))
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonUnknownRegion, 2)
	})
	t.Run("no root", func(t *testing.T) {
		g := newRig(t)
		StoreWord(g.mem, int(g.view.RootPlace(0).Byte()), 0)
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonRetries, MaxRounds)
	})
	t.Run("no directory", func(t *testing.T) {
		g := newRig(t)
		ZeroWords(g.mem[g.world.dir.Byte():][:PageSize])
		g.want(&l, g.keys[2], Loc{}, ActionAsk, ReasonRetries, 0)
	})
	t.Run("shard", func(t *testing.T) {
		g := newRig(t)
		l.Start(&g.view, g.dir, 9, g.keys[2].name, Loc{}, 1<<20)
		if a := l.Step(); a != ActionAsk || l.Reason != ReasonUnknownRegion {
			t.Errorf("shard that the view does not have: %v %v", a, l.Reason)
		}
	})
}

// Another key's item under the key's fingerprint is looked at twice before it
// counts for absence.
func TestLookupProof(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k, twin := g.keys[0], g.keys[1]
	g.raw(k, PageSize, Item{Version: 5, Key: twin.name, Value: []byte("another key's value")}, Live)
	g.want(&l, k, Loc{}, ActionAbsent, 0, 6) // root, page, pairs, item; pairs, item
	if l.Counts.Proofs != 1 || l.Counts.Mismatch != 1 {
		t.Errorf("%+v", l.Counts)
	}
	// Whatever changes between the two looks makes it begin again.
	for what, change := range map[string]func(g *rig, off int){
		"version": func(g *rig, off int) {
			WriteItem(g.mem[off:], g.view.Incarnation, PlaceOfByte(uint64(off)), Item{Version: 6, Key: twin.name, Value: []byte("another key's value")}, Pending)
			SetState(g.mem[off:], 6, Live)
		},
		"state": func(g *rig, off int) { SetState(g.mem[off:], 5, Dead) },
	} {
		g := newRig(t)
		g.raw(k, PageSize, Item{Version: 5, Key: twin.name, Value: []byte("another key's value")}, Live)
		seen := 0
		g.before = func(r *Read) {
			if r.Len > wordSize && r.Len < PairSize { // the item
				if seen++; seen == 2 {
					change(g, int(r.Place.Byte()))
				}
			}
		}
		a := g.get(&l, k, Loc{}, 1<<20)
		if l.Counts.Rounds == 0 || what == "version" && a != ActionAbsent {
			t.Errorf("%s changed between the looks: %v, %+v", what, a, l.Counts)
		}
	}
}

// The segment is retired between the first look at a slot and the second: its
// slots stay as they are, so the same word again says nothing. Without the
// second look at the headers this get would call a key absent that was there
// all the time.
func TestLookupProofNeedsUnmarkedHeaders(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k, other := g.keys[2], g.keys[3]
	g.put(k)
	place := g.cellPlace(k.cell)
	moved := false
	g.before = func(r *Read) {
		if r.Place != place || moved {
			return
		}
		moved = true
		g.grow() // marks, copies, publishes; then the key moves on …
		g.put(k)
		for other.cell < 0 || g.cellPlace(other.cell) != place { // … and its place goes to another
			g.put(other)
		}
	}
	if a := g.get(&l, k, Loc{}, 1<<20); a == ActionAbsent {
		t.Fatalf("a key that was there all the time is absent; %+v", l.Counts)
	}
	if !moved || l.Counts.Mismatch == 0 || l.Counts.Marked == 0 {
		t.Fatalf("the scene did not happen: %+v", l.Counts)
	}
}

// A client's directory leads to memory that was retired long ago and is being
// made into a new segment while the READ is under way: slots from before, a
// header from after, which fits the key's own hash. The depth, by which the
// directory named the segment, tells.
func TestLookupComparesDepth(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.want(&l, k, Loc{}, ActionAbsent, 0, 3) // the client knows segment 0/0
	old := g.segs[0].place
	g.put(k)
	// The segment grows into step 1 and on, its memory comes back zeroed and
	// becomes the segment of one more bit, with the key in it.
	fresh := &mseg{place: old, depth: 1, prefix: k.hash.Prefix(1)}
	mixed := false
	g.before = func(r *Read) {
		if r.Place >= old && r.Len == PairSize && !mixed {
			// Header words of the new segment over the slots of the zeroed.
			ZeroWords(g.mem[old.Byte():][:SegmentBytes(0)])
			for b := range SegmentBuckets(0) {
				StoreWord(g.mem, int(old.Byte())+b*BucketSize, uint64(MakeBucketHeader(0, 1, b, 0, 0, fresh.prefix)))
			}
		}
	}
	if a := g.get(&l, k, Loc{}, 1<<20); a == ActionAbsent || l.Counts.Misfit == 0 {
		t.Fatalf("%v, %+v: a header of another depth was believed", a, l.Counts)
	}
}

// A client remembers a root word from long ago and has not got the page of its
// directory. The memory of that directory has since been another shard's, and still
// names a segment that has gone, too: its memory is just being made into a segment
// of the key's own shard, of the same depth and step. Headers from after, slots
// from before: they fit, and the key is in none of them. It stands where the root
// leads that is in force.
func TestLookupRereadsRoot(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	g.put(k)
	seg := g.segs[0]
	// The fresh one stands behind everything, and so does the old directory.
	place := PlaceOfByte(uint64(worldItemBase)) - PlaceOfByte(uint64(SegmentBytes(0)))
	page := place - PlaceOfByte(PageSize)
	for _, used := range []Place{g.world.dir, seg.place} {
		if page <= used && used < PlaceOfByte(worldItemBase) {
			t.Fatalf("the memory at %v is used: %v", page, used)
		}
	}
	for b := range SegmentBuckets(seg.step) {
		StoreWord(g.mem, int(place.Byte())+b*BucketSize, uint64(MakeBucketHeader(seg.step, seg.depth, b, 0, 0, seg.prefix)))
	}
	StoreWord(g.mem, int(page.Byte()), MakeDirEntry(place, seg.depth, seg.step))
	g.dir.setRoot(0, MakeRoot(page, 0))
	g.want(&l, k, Loc{}, ActionFound, 0, 0)
}
