package layout

import (
	"bytes"
	"errors"
	"testing"
)

func testHeader(id uint32) RegionHeader {
	h := RegionHeader{
		Incarnation: 0x1122334455667788, Seed: 42, Shards: 32,
		RootOffset: PageSize, ReclaimOffset: 2 * PageSize, ReclaimEntries: 256,
		Region: Region{ID: id, Kind: KindIndex, Base: PlaceOfByte(uint64(id) << 20), Length: 1 << 20},
	}
	if id > 0 {
		h.Kind = KindItems
	}
	return h
}

func TestRegionHeader(t *testing.T) {
	for id := range uint32(3) {
		mem := testMem(PageSize)
		h := testHeader(id)
		PutRegionHeader(mem, h)
		got, err := ParseRegionHeader(mem[:RegionHeaderSize])
		if err != nil || got != h {
			t.Fatalf("got %+v, %v", got, err)
		}
		for bit := range RegionHeaderSize * 8 {
			mem[bit/8] ^= 1 << (bit % 8)
			if got, err := ParseRegionHeader(mem); err == nil {
				t.Fatalf("bit %d flipped: parses as %+v", bit, got)
			}
			mem[bit/8] ^= 1 << (bit % 8)
		}
	}
	if _, err := ParseRegionHeader(make([]byte, RegionHeaderSize)); !errors.Is(err, ErrFormat) {
		t.Errorf("zeroed memory: %v", err)
	}
	if _, err := ParseRegionHeader(make([]byte, RegionHeaderSize-1)); !errors.Is(err, ErrShort) {
		t.Errorf("short: %v", err)
	}
	mem := testMem(PageSize)
	PutRegionHeader(mem, testHeader(0))
	mem[8]++
	if _, err := ParseRegionHeader(mem); !errors.Is(err, ErrFormatVersion) {
		t.Errorf("newer version: %v", err)
	}
	for what, change := range map[string]func(*RegionHeader){
		"kind":            func(h *RegionHeader) { h.Kind = 3 },
		"base":            func(h *RegionHeader) { h.Base += 1 },
		"length":          func(h *RegionHeader) { h.Length += 8 },
		"no length":       func(h *RegionHeader) { h.Length = 0 },
		"beyond the end":  func(h *RegionHeader) { h.Base = PlaceOfByte(8<<40 - 1<<20); h.Length = 2 << 20 },
		"shards":          func(h *RegionHeader) { h.Shards = 0 },
		"too many shards": func(h *RegionHeader) { h.Shards = MaxShards + 1 },
		"root in header":  func(h *RegionHeader) { h.RootOffset = 0 },
		"ring over root":  func(h *RegionHeader) { h.ReclaimOffset = h.RootOffset },
		"no ring":         func(h *RegionHeader) { h.ReclaimEntries = 0 },
		"ring too long":   func(h *RegionHeader) { h.ReclaimEntries = 1 << 20 },
		"root of items":   func(h *RegionHeader) { h.Kind = KindItems },
	} {
		h := testHeader(0)
		change(&h)
		mustPanic(t, what, func() { PutRegionHeader(mem, h) })
	}
}

func TestBeat(t *testing.T) {
	mem := testMem(PageSize)
	if _, err := ParseBeat(mem[BeatOffset:][:BeatSize], 5); err != ErrIncarnation {
		t.Errorf("before the first beat: %v", err)
	}
	b := Beat{Counter: 3, Incarnation: 5, TimeMicros: 1e15, ViewVersion: 8, ReclaimVersion: 9}
	StoreBeat(mem, b)
	if got, err := ParseBeat(mem[BeatOffset:], 5); err != nil || got != b {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := ParseBeat(mem[BeatOffset:][:BeatSize-1], 5); err != ErrShort {
		t.Errorf("short: %v", err)
	}
	// Raised between beats, the versions do not go back with the next beat.
	StoreReclaimVersion(mem, 20)
	StoreViewVersion(mem, 30)
	b.Counter++
	StoreBeat(mem, b)
	got, _ := ParseBeat(mem[BeatOffset:], 5)
	if got.ReclaimVersion != 20 || got.ViewVersion != 30 || got.Counter != 4 {
		t.Errorf("after a late beat: %+v", got)
	}
	StoreReclaimVersion(mem, 19)
	if got, _ = ParseBeat(mem[BeatOffset:], 5); got.ReclaimVersion != 20 {
		t.Errorf("went back to %d", got.ReclaimVersion)
	}
}

func TestReclaimRing(t *testing.T) {
	h := testHeader(0)
	h.ReclaimEntries = 4
	mem := testMem(1 << 20)
	entry := func(v uint64) []byte { return mem[RetiredOffset(h, v):][:RetiredSize] }
	if _, err := ParseRetired(entry(1)); err != ErrFormat {
		t.Errorf("never written: %v", err)
	}
	for v := uint64(1); v <= 6; v++ {
		PutRetired(mem, h, Retired{Version: v, Place: Place(v * 512), Pages: uint32(v)})
	}
	for v := uint64(3); v <= 6; v++ {
		if got, err := ParseRetired(entry(v)); err != nil || got != (Retired{v, Place(v * 512), uint32(v)}) {
			t.Errorf("version %d: %+v, %v", v, got, err)
		}
	}
	if got, _ := ParseRetired(entry(2)); got.Version != 6 {
		t.Errorf("a lapped entry shows version %d", got.Version)
	}
	// The version of one entry with the place of the next is no entry.
	old := bytes.Clone(entry(3))
	PutRetired(mem, h, Retired{Version: 7, Place: 1024, Pages: 1})
	mixed := bytes.Clone(entry(7))
	copy(mixed[:8], old[:8])
	if _, err := ParseRetired(mixed); err != ErrTorn {
		t.Errorf("torn entry: %v", err)
	}
	r := Retired{Version: 1, Place: 512, Pages: 2}
	for p, want := range map[Place]bool{511: false, 512: true, 1535: true, 1536: false} {
		if r.Contains(p) != want {
			t.Errorf("Contains(%v) = %v", p, !want)
		}
	}
	mustPanic(t, "version 0", func() { PutRetired(mem, h, Retired{Pages: 1}) })
}

func TestView(t *testing.T) {
	v := testView()
	if err := v.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off    uint64
		n      int
		region int
		ok     bool
	}{
		{0, 8, 0, true}, {1<<20 - 8, 8, 0, true}, {1<<20 - 8, 16, 0, false}, {1 << 20, 8, 0, false},
		{2 << 20, 8, 1, true}, {4<<20 - 64, 64, 1, true}, {4 << 20, 8, 2, true}, {5 << 20, 8, 0, false}, {2 << 20, -8, 0, false},
	} {
		r, off, ok := v.Locate(PlaceOfByte(c.off), c.n)
		if ok != c.ok || ok && (r != c.region || off != c.off-v.Regions[r].Base.Byte()) {
			t.Errorf("Locate(%#x, %d) = %d %#x %v", c.off, c.n, r, off, ok)
		}
	}
	for what, change := range map[string]func(*View){
		"no regions":   func(v *View) { v.Regions = nil },
		"not sorted":   func(v *View) { v.Regions[1], v.Regions[2] = v.Regions[2], v.Regions[1] },
		"overlap":      func(v *View) { v.Regions[1].Length += 4 << 20 },
		"no root":      func(v *View) { v.Regions = v.Regions[1:] },
		"two roots":    func(v *View) { v.Regions[2].ID = 0 },
		"ring too far": func(v *View) { v.ReclaimEntries = 1 << 20 },
		"no shards":    func(v *View) { v.Shards = 0 },
	} {
		w := v.Clone()
		change(w)
		if err := w.Check(); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// testView is a small view: root region, a gap, items, index.
func testView() *View {
	return &View{
		Incarnation: 0x1122334455667788, Seed: 42, Version: 1, Shards: 4,
		RootOffset: PageSize, ReclaimOffset: 2 * PageSize, ReclaimEntries: 64,
		Regions: []Region{
			{ID: 0, Kind: KindIndex, Base: 0, Length: 1 << 20},
			{ID: 4, Kind: KindItems, Base: PlaceOfByte(2 << 20), Length: 2 << 20},
			{ID: 2, Kind: KindIndex, Base: PlaceOfByte(4 << 20), Length: 1 << 20},
		},
	}
}
