package layout

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Every parser takes any bytes: no panic, no length believed before it was
// compared with what is there, and what is accepted can be written back.

func FuzzParseItem(f *testing.F) {
	for _, sh := range []struct{ key, val int }{{1, 0}, {8, 30}, {100, 1000}, {3, ChunkSize + 1}} {
		for _, expiry := range []uint64{0, 77} {
			mem := testMem(ItemSize(sh.key, sh.val, expiry != 0))
			WriteItem(mem, testInc, 5, Item{Version: 3, Key: make([]byte, sh.key), Value: make([]byte, sh.val), Expiry: expiry}, Pending)
			// Of a chunked item the head: large inputs are slow to mutate.
			mem = mem[:HeadSize(sh.key, sh.val, expiry != 0)]
			f.Add(bytes.Clone(mem), uint64(testInc), uint64(5))
			f.Add(bytes.Clone(mem[:len(mem)/2]), uint64(testInc), uint64(5))
			SetState(mem, 3, Live)
			f.Add(bytes.Clone(mem), uint64(testInc), uint64(5))
		}
	}
	f.Add(make([]byte, 64), uint64(0), uint64(0))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, inc, place uint64) {
		p := Place(place & placeMask)
		keep := bytes.Clone(b)
		v, err := ParseItem(b, inc, p)
		if !bytes.Equal(b, keep) {
			t.Fatal("the buffer was changed")
		}
		key := []byte(nil)
		if err == nil {
			key = v.Key()
		}
		short, whole := AcceptWhole(b, inc, p, key)
		if want := err == nil && v.State == Live && v.Chunks == 0; whole != want || whole && !bytes.Equal(b[short.From:short.To], v.Value()) {
			t.Fatalf("AcceptWhole says %v, %+v of %+v", whole, short, v)
		}
		if err != nil {
			if err == ErrShort && (v.Need() <= len(b) || v.Need() > MaxItemSize) {
				t.Fatalf("short of %d with %d there", v.Need(), len(b))
			}
			return
		}
		// The parts lie in the buffer, and the same item written anew is the
		// same bytes.
		if len(v.Key()) == 0 || len(v.Key()) > MaxKeyLen || v.ValLen > MaxValueLen || v.Size%8 != 0 {
			t.Fatalf("%+v", v)
		}
		for i := range v.Chunks {
			v.Chunk(i)
			v.VerifyChunk(i, b[:min(len(b), ChunkSize)])
		}
		if v.Chunks > 0 {
			return
		}
		mem := testMem(v.Size)
		WriteItem(mem, inc, p, Item{Version: v.Version, Key: v.Key(), Value: v.Value(), Expiry: v.Expiry}, Pending)
		SetState(mem, v.Version, v.State)
		// Padding and the word of an expiry of zero may differ; the parts not.
		w, err := ParseItem(mem, inc, p)
		if err != nil || w.Version != v.Version || w.State != v.State || w.Expiry != v.Expiry ||
			!bytes.Equal(w.Key(), v.Key()) || !bytes.Equal(w.Value(), v.Value()) {
			t.Fatalf("written back: %+v, %v", w, err)
		}
	})
}

func FuzzBucketView(f *testing.F) {
	mem := testMem(BucketSize)
	StoreWord(mem, 0, uint64(MakeBucketHeader(2, 5, 77, 1, 3, 9)))
	StoreWord(mem, SlotOffset(0), uint64(MakeSlot(0xabcd, 9, 1234)))
	f.Add(bytes.Clone(mem), uint64(9)<<59, uint64(0), uint16(3), 77)
	f.Add(make([]byte, BucketSize), uint64(0), uint64(0), uint16(0), 0)
	f.Add(bytes.Repeat([]byte{0xff}, BucketSize), ^uint64(0), uint64(0), uint16(4095), 16383)
	f.Fuzz(func(t *testing.T, b []byte, hi, lo uint64, shard uint16, bucket int) {
		v, err := ParseBucket(b)
		if err != nil {
			if len(b) >= BucketSize {
				t.Fatal(err)
			}
			return
		}
		h := v.Header()
		_ = h.String()
		key := Hash{Hi: hi, Lo: lo}
		for step := range uint8(SegmentSteps) {
			if !h.Fits(shard, key, bucket, step) {
				continue
			}
			want := MakeBucketHeader(step, h.Depth(), bucket, h.Slotless(), shard, key.Prefix(h.Depth()))
			if h.Marked() {
				want = want.WithMarked()
			}
			if h != want {
				t.Fatalf("%v fits as %v", h, want)
			}
		}
		for i := range BucketSlots {
			s := v.Slot(i)
			_ = s.String()
			if MakeSlot(s.Fingerprint(), s.Class(), s.Place()) != s {
				t.Fatalf("slot %x", uint64(s))
			}
		}
	})
}

func FuzzDirectoryWords(f *testing.F) {
	f.Add(MakeRoot(5, 3))
	f.Add(MakeDirEntry(5, 3, 1))
	f.Add(uint64(0))
	f.Fuzz(func(t *testing.T, w uint64) {
		p, d, okRoot := ParseRoot(w)
		if okRoot && MakeRoot(p, d) != w {
			t.Fatalf("root %x", w)
		}
		p, d, s, ok := ParseDirEntry(w)
		if ok && (MakeDirEntry(p, d, s) != w || okRoot) {
			t.Fatalf("entry %x", w)
		}
	})
}

func FuzzRegionHeader(f *testing.F) {
	mem := testMem(PageSize)
	PutRegionHeader(mem, testHeader(0))
	f.Add(bytes.Clone(mem[:RegionHeaderSize]), false)
	f.Add(bytes.Clone(mem[:RegionHeaderSize]), true)
	f.Add(make([]byte, 200), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if b = bytes.Clone(b); seal && len(b) >= RegionHeaderSize { // get past the checksum
			setWord(b, offMagic, regionMagic)
			b[offKind], b[offKind+1] = FormatVersion, 0
			setWord(b, offHeaderSum, headerSum(b))
		}
		h, err := ParseRegionHeader(b)
		if err != nil {
			return
		}
		again := testMem(PageSize)
		PutRegionHeader(again, h) // panics if it accepted what may not be
		if got, err := ParseRegionHeader(again); err != nil || got != h {
			t.Fatalf("%+v written back: %+v, %v", h, got, err)
		}
		if off := RetiredOffset(h, ^uint64(0)); h.ID == 0 && off+RetiredSize > h.Length {
			t.Fatalf("ring entry at %d of %d", off, h.Length)
		}
	})
}

func FuzzBeat(f *testing.F) {
	mem := testMem(PageSize)
	StoreBeat(mem, Beat{1, 2, 3, 4, 5})
	f.Add(bytes.Clone(mem[BeatOffset:][:BeatSize]), uint64(2))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, inc uint64) {
		if beat, err := ParseBeat(b, inc); err == nil && (beat.Incarnation != inc || len(b) < BeatSize) {
			t.Fatalf("%+v of %d bytes", beat, len(b))
		}
	})
}

func FuzzRetired(f *testing.F) {
	mem := testMem(1 << 20)
	h := testHeader(0)
	PutRetired(mem, h, Retired{Version: 7, Place: 512, Pages: 3})
	f.Add(bytes.Clone(mem[RetiredOffset(h, 7):][:RetiredSize]), false)
	f.Add(make([]byte, RetiredSize), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if b = bytes.Clone(b); seal && len(b) >= RetiredSize {
			setWord(b, offRetiredSum, retiredSum(getWord(b, 0), getWord(b, 8)))
		}
		if r, err := ParseRetired(b); err == nil {
			PutRetired(mem, h, r)
			if !r.Contains(r.Place) {
				t.Fatalf("%+v does not contain its first place", r)
			}
		}
	})
}

func FuzzView(f *testing.F) {
	f.Add(uint32(4), uint32(PageSize), uint32(2*PageSize), uint32(64), uint64(0), uint64(1<<20), uint64(1<<20), uint64(1<<20), uint64(5000), 8)
	f.Fuzz(func(t *testing.T, shards, root, reclaim, entries uint32, b0, l0, b1, l1, off uint64, n int) {
		v := View{Shards: shards, RootOffset: root, ReclaimOffset: reclaim, ReclaimEntries: entries, Regions: []Region{
			{ID: 0, Kind: KindIndex, Base: PlaceOfByte(b0), Length: l0},
			{ID: 1, Kind: KindItems, Base: PlaceOfByte(b1), Length: l1},
		}}
		if v.Check() != nil {
			return
		}
		if i, o, ok := v.Locate(PlaceOfByte(off), n); ok && (n < 0 || o+uint64(n) > v.Regions[i].Length) {
			t.Fatalf("%d bytes at %#x: region %d, offset %#x", n, off, i, o)
		}
		for _, p := range []Place{v.RootPlace(uint16(shards - 1)), v.BeatPlace(), v.RetiredPlace(^uint64(0))} {
			if i, _, ok := v.Locate(p, 8); !ok || i != 0 {
				t.Fatalf("%v is not in region 0", p)
			}
		}
	})
}

// FuzzLookup gives a get hostile memory. It ends in bounded steps, READs only
// what the view has, accepts no item that does not verify, and calls a key
// absent only under headers that fit.
func FuzzLookup(f *testing.F) {
	for mode := range byte(4) {
		f.Add([]byte("some bytes"), uint64(mode), mode)
		f.Add(make([]byte, 4096), uint64(1), mode)
	}
	base := newWorld(1, modelHashSeed, twinKeys(), 8, false)
	base.clock = 1
	for range 200 {
		base.operation()
		for base.busy() {
			base.tickWriter()
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, mode byte) {
		r := rand.New(rand.NewPCG(seed, 2))
		k := base.keys[seed%uint64(len(base.keys))]
		cached := Loc{}
		if seed&8 != 0 {
			cached = Loc{Place: base.cellPlace(int(seed>>4) % base.ncell), Size: uint32(seed >> 32)}
		}
		var l Lookup
		var pairs [2][]byte
		dir := NewDir(&base.view)
		l.PairByPair = seed&4 != 0
		l.Start(&base.view, dir, 0, k.name, cached, uint32(seed>>16))
		for step := 0; ; step++ {
			if step > MaxSteps+2 {
				t.Fatalf("still going after %d steps", step)
			}
			switch a := l.Step(); a {
			case ActionRead:
				for i := range l.Reads {
					rd := &l.Reads[i]
					if _, _, ok := base.view.Locate(rd.Place, int(rd.Len)); !ok || rd.Len%8 != 0 {
						t.Fatalf("READ of %d bytes at %v", rd.Len, rd.Place)
					}
					rd.Buf = hostile(r, base.mem[rd.Place.Byte():][:rd.Len], data, mode)
					if rd.Len == PairSize && base.view.holds(rd.Place, PairSize, KindIndex) {
						pairs[i&1] = bytes.Clone(rd.Buf)
					}
				}
			case ActionFound:
				v, loc := l.Found()
				if _, err := ParseItem(v.b, base.view.Incarnation, loc.Place); err != nil || v.State != Live || !bytes.Equal(v.Key(), k.name) {
					t.Fatalf("accepted %+v: %v", v, err)
				}
				return
			case ActionAbsent:
				for _, b := range pairs {
					for j := range 2 {
						h := BucketHeader(getWord(b, j*BucketSize))
						if !h.Fits(0, k.hash, h.Bucket(), h.Step()) || h.Marked() || h.Slotless() != 0 {
							t.Fatalf("absent under %v", h)
						}
					}
				}
				return
			case ActionAsk:
				if l.Reason == ReasonNone || l.Reason >= numReasons {
					t.Fatalf("asks for reason %v", l.Reason)
				}
				return
			default:
				t.Fatalf("action %v", a)
			}
		}
	})
}

// hostile is what a READ brings: foreign bytes; the truth with some words
// replaced; the truth with some bits flipped; or words of the truth shuffled.
func hostile(r *rand.Rand, truth, data []byte, mode byte) []byte {
	b := bytes.Clone(truth)
	if len(data) == 0 {
		data = []byte{0}
	}
	switch mode % 4 {
	case 0:
		for i := range b {
			b[i] = data[(i+r.IntN(8))%len(data)]
		}
	case 1:
		for i := 0; i+8 <= len(b); i += 8 {
			if r.IntN(8) == 0 {
				for j := range 8 {
					b[i+j] = data[(i+j)%len(data)]
				}
			}
		}
	case 2:
		for range r.IntN(3) {
			i := r.IntN(len(b))
			b[i] ^= 1 << (data[i%len(data)] & 7)
		}
	case 3:
		for range r.IntN(4) {
			i, j := r.IntN(len(b)/8), r.IntN(len(b)/8)
			w := getWord(b, i*8)
			setWord(b, i*8, getWord(b, j*8))
			setWord(b, j*8, w)
		}
	}
	return b
}
