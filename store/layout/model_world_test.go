package layout

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// The model: one store in a few regions of plain memory, written by this
// package's writers in the order that the design prescribes, and read by
// Lookups whose words are sampled one by one. Everything runs on one goroutine
// under one seed: at each tick either the writer makes its next store or a
// reader samples its next word, whichever the seed says.
//
// Stores of one step (an item's body, the headers of a new segment) are made
// in random order and partly in halves, as plain copying may show them; steps
// follow each other in order, as atomic stores do.

// A wstore is one store by the writer: 8 bytes, or 4 of a plain copy.
type wstore struct {
	off  int
	n    int
	data uint64
}

// A wstep is what the writer does between two orderings: its stores, computed
// when it begins, and what is true once they are made.
type wstep struct {
	stores func() []wstore
	after  func()
}

// An mkey is a key of the model and its history: a register with one
// sequential writer. Its writes are numbered 1, 2, …; write n left it absent or
// not; 0 is the beginning, absent.
type mkey struct {
	id   byte
	name []byte
	hash Hash

	newest    int    // begun, and committed
	effective int    // taken effect: its live or dead word has been stored
	acked     int    // finished
	returned  int    // the newest write that a finished get has returned
	absent    []bool // by write
	version   Version
	cell      int // of its item, -1: none
	seg       *mseg
	slotOff   int // byte offset of its slot in memory, 0: none
	pebble    bool
	stale     []int // Pebble-only slots that were left when the key got another
	counted   bool  // present without slot, counted in a main bucket
}

func (k *mkey) present() bool { return !k.absent[k.newest] }

// An mseg is a segment.
type mseg struct {
	place       Place
	step, depth uint8
	prefix      uint32
}

// A retirement is index memory that waits for its lease.
type retirement struct {
	place   Place
	retired int // clock
}

const (
	worldCellSize  = 64
	worldRegions   = 3
	worldItemBase  = RegionGranule
	worldIndexBase = 2 * RegionGranule
	worldUnit      = 7 * PageSize // the largest segment
)

type world struct {
	r      *rand.Rand
	mem    []byte
	view   View
	clock  int
	rest   int // clock until which the writer rests
	growth int // percent of the operations

	keys  []*mkey
	cells []bool // in use
	ncell int

	segs     []*mseg
	dir      Place
	dirDepth uint8
	free     []Place // index memory, in units of worldUnit
	nextPage Place
	waiting  []retirement
	filled   bool

	version Version
	bug     bug
	steps   []wstep
	stores  []wstore // of the step under way
	after   func()

	readers []*mreader
	tally   tally
}

// newWorld builds a store with an empty segment. With recovering set it looks
// as after a start: every count at 255, keys that only Pebble has.
func newWorld(seed uint64, hashSeed uint64, keys [][]byte, cells int, recovering bool) *world {
	growth := []int{1, 1, 4, 10}[seed/2%4]
	w := &world{
		growth: growth, r: rand.New(rand.NewPCG(seed, 1)), mem: testMem(worldRegions * RegionGranule),
		cells: make([]bool, cells), ncell: cells, filled: !recovering,
		nextPage: PlaceOfByte(worldIndexBase + PageSize), version: MakeVersion(1, 0),
	}
	w.view = View{
		Incarnation: 0xabcdef0123456789, Seed: hashSeed, Version: 1, Shards: 1,
		RootOffset: PageSize, ReclaimOffset: 2 * PageSize, ReclaimEntries: 16,
		Regions: []Region{
			{ID: 0, Kind: KindIndex, Base: 0, Length: RegionGranule},
			{ID: 1, Kind: KindItems, Base: PlaceOfByte(worldItemBase), Length: RegionGranule},
			{ID: 2, Kind: KindIndex, Base: PlaceOfByte(worldIndexBase), Length: RegionGranule},
		},
	}
	for i, name := range keys {
		k := &mkey{id: byte(i), name: name, hash: HashKey(hashSeed, name), cell: -1, absent: []bool{true}}
		if recovering && w.r.IntN(2) == 0 {
			k.newest, k.effective, k.acked, k.absent = 1, 1, 1, []bool{true, false}
		}
		w.keys = append(w.keys, k)
	}
	seg := &mseg{place: w.allocIndex()}
	w.segs = []*mseg{seg}
	w.apply(w.buildSegment(seg, nil))
	w.dir = w.allocIndex()
	StoreWord(w.mem, int(w.dir.Byte()), MakeDirEntry(seg.place, 0, 0))
	StoreWord(w.mem, int(w.view.RootPlace(0).Byte()), MakeRoot(w.dir, 0))
	return w
}

func (w *world) apply(stores []wstore) {
	for _, s := range stores {
		w.store(s)
	}
}

func (w *world) store(s wstore) {
	if s.n == 4 {
		binary.LittleEndian.PutUint32(w.mem[s.off:], uint32(s.data))
		return
	}
	StoreWord(w.mem, s.off, s.data)
}

// capture runs f, which writes memory [off, off+n) with this package's
// writers, undoes it, and returns the stores that it amounts to. Behind
// tornFrom (relative to off) words may come in halves.
func (w *world) capture(off, n, tornFrom int, f func(mem []byte)) []wstore {
	m := w.mem[off : off+n]
	old := append([]byte(nil), m...)
	f(m)
	var out []wstore
	for i := 0; i < n; i += wordSize {
		now := getWord(m, i)
		switch {
		case now == getWord(old, i):
		case i >= tornFrom && w.r.IntN(4) == 0:
			out = append(out, wstore{off + i, 4, now & (1<<32 - 1)}, wstore{off + i + 4, 4, now >> 32})
		default:
			out = append(out, wstore{off + i, 8, now})
		}
	}
	copy(m, old)
	return out
}

// word is a step of one atomic store.
func word(off int, v uint64) wstep {
	return wstep{stores: func() []wstore { return []wstore{{off, 8, v}} }}
}

func (w *world) cellOff(cell int) int     { return worldItemBase + PageSize + cell*worldCellSize }
func (w *world) cellPlace(cell int) Place { return PlaceOfByte(uint64(w.cellOff(cell))) }

// takeCell finds a free cell: mostly the one that was freed last, as a free
// list would.
func (w *world) takeCell() (int, bool) {
	var free []int
	for i, used := range w.cells {
		if !used {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		return -1, false
	}
	c := free[w.r.IntN(len(free))]
	w.cells[c] = true
	return c, true
}

// allocIndex hands out index memory of one size for segments of every step and
// for directories, last freed first: what is freed soon becomes something else.
func (w *world) allocIndex() Place {
	if n := len(w.free); n > 0 {
		p := w.free[n-1]
		w.free = w.free[:n-1]
		return p
	}
	p := w.nextPage
	w.nextPage += PlaceOfByte(worldUnit)
	if w.nextPage.Byte() > worldRegions*RegionGranule {
		panic("model: out of index memory")
	}
	return p
}

func (w *world) retire(p Place) { w.waiting = append(w.waiting, retirement{p, w.clock}) }

// lease lets a lease pass that began at the given time: gets that started
// before are out of time. Gets that started later are not.
func (w *world) lease(since int) {
	for _, r := range w.readers {
		if r.active && r.started <= since {
			r.expired = true
		}
	}
}

func (w *world) segmentOf(h Hash) *mseg {
	for _, s := range w.segs {
		if h.Prefix(s.depth) == s.prefix {
			return s
		}
	}
	panic("model: no segment")
}

// emptySlot finds an empty slot for the key in its segment: any of the 28.
func (w *world) emptySlot(k *mkey) int {
	seg := w.segmentOf(k.hash)
	a, b := k.hash.Mains(SegmentGroups(seg.step))
	for {
		m := []Main{a, b}[w.r.IntN(2)]
		bucket := m.PairBucket() + w.r.IntN(2)
		off := int(seg.place.Byte()) + bucket*BucketSize + SlotOffset(w.r.IntN(BucketSlots))
		if Slot(LoadWord(w.mem, off)).Empty() {
			return off
		}
	}
}

// item makes the item of a write of a key; the value says which it is.
func (w *world) item(k *mkey, n int, version Version) Item {
	value := make([]byte, 25+w.r.IntN(8))
	for i := range value {
		value[i] = byte(n) ^ byte(i*7)
	}
	value[0] = k.id
	binary.LittleEndian.PutUint32(value[1:], uint32(n))
	return Item{Version: version, Key: k.name, Value: value}
}

// check says whether a finished get's answer is one that the register could
// have given: some write n with lo ≤ n ≤ effective; for absent any write that
// left the key so, the oldest of them, because it binds later gets least.
//
// One writer and gets that are checked one by one make a complete test: a
// violation of linearizability is a get that returns what has not taken effect,
// or a chain of gets of which a later one returns an older write.
func (k *mkey) check(lo, n int, absent bool) error {
	if absent {
		for n = lo; n <= k.effective && !k.absent[n]; n++ {
		}
	}
	switch {
	case n < lo || n > k.effective:
		return fmt.Errorf("key %d: got write %d (absent %v), must be %d to %d", k.id, n, absent, lo, k.effective)
	case k.absent[n] != absent:
		return fmt.Errorf("key %d: got write %d as absent %v", k.id, n, absent)
	}
	k.returned = max(k.returned, n)
	return nil
}
