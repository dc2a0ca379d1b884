package layout

import (
	"math/rand/v2"
	"testing"
)

// newRand makes a source whose seed is printed when the test fails.
func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0x6c61796f7574))
}

func randBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

func TestPlaceAndVersion(t *testing.T) {
	if p := PlaceOfByte(4104); p.Byte() != 4104 || p != 513 {
		t.Errorf("place of byte 4104: %d, %d", p, p.Byte())
	}
	v := MakeVersion(7, 1<<40-1)
	if v.Epoch() != 7 || v.Sequence() != 1<<40-1 || v.String() != "7.1099511627775" {
		t.Errorf("version %v", v)
	}
	if MakeVersion(8, 0) <= v {
		t.Error("a later epoch must be a later version")
	}
	mustPanic(t, "sequence too long", func() { MakeVersion(0, 1<<40) })
}

func TestRegionContains(t *testing.T) {
	r := Region{ID: 1, Kind: KindItems, Base: PlaceOfByte(4 << 20), Length: 1 << 20}
	for _, c := range []struct {
		off  uint64
		n    uint64
		want bool
	}{
		{4 << 20, 1 << 20, true}, {4 << 20, 1<<20 + 1, false}, {5<<20 - 8, 8, true}, {5<<20 - 8, 16, false},
		{5 << 20, 0, false}, {4<<20 - 8, 8, false}, {4 << 20, 1<<64 - 1, false}, {1<<43 - 8, 8, false},
	} {
		if got := r.Contains(PlaceOfByte(c.off), c.n); got != c.want {
			t.Errorf("Contains(%#x, %d) = %v", c.off, c.n, got)
		}
	}
}

func TestStringers(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{Live.String(), "live"}, {Pending.String(), "pending"}, {Dead.String(), "dead"}, {Held.String(), "held"},
		{StateInvalid.String(), "invalid"}, {State(9).String(), "State(9)"},
		{KindIndex.String(), "index"}, {KindItems.String(), "items"}, {RegionKind(0).String(), "RegionKind(0)"},
		{ActionRead.String(), "read"}, {ActionFound.String(), "found"}, {ActionAbsent.String(), "absent"},
		{ActionAsk.String(), "ask"}, {Action(0).String(), "Action(0)"},
		{ReasonSlotless.String(), "slotless"}, {Reason(99).String(), "Reason(99)"},
		{Place(2).String(), "@0x10"}, {Slot(0).String(), "empty"},
		{MakeSlot(0xabcd, 3, 2).String(), "abcd class 3 @0x10"},
		{MakeSlot(0xabcd, ClassPebble, 2).String(), "abcd pebble prefix 00000"},
		{BucketHeader(0).String(), "no header (0x0)"},
		{MakeBucketHeader(1, 3, 17, 2, 5, 0b101).WithMarked().String(), "shard 5 segment 101/3 step 1 bucket 17 slotless 2 MARKED"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for r := range Reason(NumReasons) {
		if r.String() == "" {
			t.Errorf("reason %d has no name", r)
		}
	}
}

// Every size has a class that holds it, and the class below does not.
func TestClasses(t *testing.T) {
	prev := 0
	for c := uint8(1); c <= NumClasses; c++ {
		size := ClassSize(c)
		if size <= prev || size%wordSize != 0 {
			t.Fatalf("class %d: %d after %d", c, size, prev)
		}
		for _, s := range []int{prev + 1, size - 1, size} {
			if got, ok := ClassFor(s); s > prev && (!ok || got != c) {
				t.Fatalf("ClassFor(%d) = %d %v, want %d", s, got, ok, c)
			}
		}
		if prev >= fineLimit && size-prev > prev/8 {
			t.Errorf("class %d: %d after %d wastes more than an eighth", c, size, prev)
		}
		prev = size
	}
	if prev < MaxItemSize || ClassSize(NumClasses-1) >= MaxItemSize {
		t.Errorf("the last class is %d, the largest item %d", prev, MaxItemSize)
	}
	for _, s := range []int{0, -1, prev + 1, 1 << 40} {
		if c, ok := ClassFor(s); ok {
			t.Errorf("ClassFor(%d) = %d", s, c)
		}
	}
	if c, _ := ClassFor(ItemSize(16, 64, false)); ClassSize(c) != 104 {
		t.Errorf("an item of 16 + 64 bytes takes %d, want exactly 104", ClassSize(c))
	}
}

func TestSegmentShapes(t *testing.T) {
	for step, want := range []struct{ bytes, groups int }{{16384, 85}, {20480, 106}, {24576, 128}, {28672, 149}} {
		if b, g := SegmentBytes(uint8(step)), SegmentGroups(uint8(step)); b != want.bytes || g != want.groups {
			t.Errorf("step %d: %d bytes, %d groups; want %+v", step, b, g, want)
		}
	}
	mustPanic(t, "step 4", func() { SegmentBytes(4) })
}

func TestBucketHeaderFields(t *testing.T) {
	r := newRand(t, 1)
	for range 10000 {
		step, depth := uint8(r.IntN(4)), uint8(r.IntN(MaxDepth+1))
		bucket, count, shard := r.IntN(1<<14), uint8(r.Uint32()), uint16(r.IntN(MaxShards))
		key := Hash{Hi: r.Uint64(), Lo: r.Uint64()}
		h := MakeBucketHeader(step, depth, bucket, count, shard, key.Prefix(depth))
		if !h.Valid() || h.Marked() || h.Step() != step || h.Depth() != depth || h.Bucket() != bucket ||
			h.Slotless() != count || h.Shard() != shard || h.Prefix() != key.Prefix(depth) {
			t.Fatalf("fields of %v", h)
		}
		n := uint8(r.Uint32())
		m := h.WithMarked().WithSlotless(n)
		if !m.Marked() || m.Slotless() != n || m.WithSlotless(count) != h.WithMarked() {
			t.Fatalf("%v marked, count %d: %v", h, n, m)
		}
		if !h.Fits(shard, key, bucket, step) || !m.Fits(shard, key, bucket, step) {
			t.Fatalf("%v does not fit its own key", h)
		}
		// Every other bit matters: flip one and it fits no more. (Another depth
		// may be that of a larger or smaller segment with the same key, which
		// is why a Lookup compares it with the directory's.)
		bit := r.IntN(64)
		if bit >= hdrDepthPos && bit < hdrStepPos-1 {
			continue
		}
		if loose := uint64(hdrLoose)>>bit&1 == 1; (h^1<<bit).Fits(shard, key, bucket, step) != loose {
			t.Fatalf("%v with bit %d flipped: fits = %v", h, bit, !loose)
		}
	}
	mustPanic(t, "prefix wider than depth", func() { MakeBucketHeader(0, 3, 0, 0, 0, 8) })
	mustPanic(t, "shard", func() { MakeBucketHeader(0, 3, 0, 0, MaxShards, 0) })
	mustPanic(t, "depth", func() { MakeBucketHeader(0, 21, 0, 0, 0, 0) })
}

// Two groups, always different, spread evenly, inside the segment.
func TestMains(t *testing.T) {
	r := newRand(t, 2)
	for step := range uint8(SegmentSteps) {
		groups := SegmentGroups(step)
		seen := make([]int, SegmentBuckets(step))
		const n = 200000
		for range n {
			a, b := (Hash{Hi: r.Uint64(), Lo: r.Uint64()}).Mains(groups)
			if a.Group == b.Group || a.Group >= groups || b.Group >= groups || a.Side > 1 || b.Side > 1 {
				t.Fatalf("mains %+v %+v of %d groups", a, b, groups)
			}
			for _, m := range []Main{a, b} {
				seen[m.MainBucket()]++
				if p := m.PairBucket(); (m.MainBucket() != p || m.OverflowBucket() != p+1) &&
					(m.OverflowBucket() != p || m.MainBucket() != p+1) {
					t.Fatalf("pair of %+v is not two neighbours", m)
				}
			}
		}
		mean := float64(2*n) / float64(2*groups)
		for g := range groups {
			for _, m := range []int{3 * g, 3*g + 2} {
				if x := float64(seen[m]); x < 0.85*mean || x > 1.15*mean {
					t.Errorf("step %d: main bucket %d has %v of %v keys", step, m, x, mean)
				}
			}
			if seen[3*g+1] != 0 {
				t.Errorf("bucket %d is an overflow", 3*g+1)
			}
		}
	}
}

func TestSlotAndDirectoryWords(t *testing.T) {
	r := newRand(t, 3)
	for range 1000 {
		fp, class, p := uint16(r.Uint32()), uint8(r.Uint32()), Place(r.Uint64()&placeMask)
		s := MakeSlot(fp, class, p)
		if s.Fingerprint() != fp || s.Class() != class || s.Place() != p || s.Empty() != (class == 0) {
			t.Fatalf("slot %v", s)
		}
		depth, step := uint8(r.IntN(MaxDepth+1)), uint8(r.IntN(SegmentSteps))
		if gp, gd, ok := ParseRoot(MakeRoot(p, depth)); !ok || gp != p || gd != depth {
			t.Fatalf("root: %v %d %v", gp, gd, ok)
		}
		if gp, gd, gs, ok := ParseDirEntry(MakeDirEntry(p, depth, step)); !ok || gp != p || gd != depth || gs != step {
			t.Fatalf("entry: %v %d %d %v", gp, gd, gs, ok)
		}
		if _, _, _, ok := ParseDirEntry(MakeRoot(p, depth)); ok {
			t.Fatal("a root word parses as a directory entry")
		}
		if _, _, ok := ParseRoot(MakeDirEntry(p, depth, step)); ok {
			t.Fatal("a directory entry parses as a root word")
		}
	}
	if _, _, ok := ParseRoot(0); ok {
		t.Error("a zero root word parses")
	}
	if _, _, _, ok := ParseDirEntry(0); ok {
		t.Error("a zero directory entry parses")
	}
	if BucketHeader(0).Valid() || (BucketHeader(0)).Fits(0, Hash{}, 0, 0) {
		t.Error("zeroed memory parses as a bucket header")
	}
	if DirBytes(0) != 4096 || DirBytes(9) != 4096 || DirBytes(10) != 8192 || DirBytes(20) != 8<<20 {
		t.Error("DirBytes")
	}
	mustPanic(t, "place", func() { MakeSlot(0, 1, MaxPlace+1) })
	mustPanic(t, "root depth", func() { MakeRoot(0, 21) })
}

// TestNumberedVersion: a number and a shard come back, versions rise with numbers, and no two shards share one.
func TestNumberedVersion(t *testing.T) {
	seen := map[Version]bool{}
	for _, number := range []uint64{1, 2, 1 << 40, MaxNumber} {
		for _, shard := range []uint16{0, 1, MaxShards - 1} {
			v := NumberedVersion(number, shard)
			if v.Number() != number || v.NumberedShard() != shard || v > MaxVersion || seen[v] {
				t.Errorf("number %d of shard %d is %d", number, shard, v)
			}
			if number > 1 && v <= NumberedVersion(number-1, MaxShards-1) {
				t.Errorf("number %d of shard %d is not above the number before", number, shard)
			}
			seen[v] = true
		}
	}
	for _, bad := range []func(){func() { NumberedVersion(MaxNumber+1, 0) }, func() { NumberedVersion(1, MaxShards) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("what cannot be numbered was")
				}
			}()
			bad()
		}()
	}
}
