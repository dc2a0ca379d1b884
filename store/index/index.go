package index

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

// Index is the index of one shard. The shard's lock guards every method.
type Index struct {
	table   *region.Table
	mem     *region.IndexMemory
	reclaim *reclaim.Reclaimer
	shard   uint16
	hashOf  func(layout.Slot) (layout.Hash, bool)

	// dir mirrors the directory: 2^depth entries by hash prefix. A segment of
	// a lower depth stands in several neighbouring entries.
	dir      []*segment
	depth    uint8
	dirPlace layout.Place
	dirMem   []byte // the registered directory

	keys     int
	pebble   int              // of them, Pebble-only slots
	touched  bool             // a slot was set once
	twins    map[Ref][]*Twins // both slots of each that waits for its lease
	segments int
	slots    int
	bytes    uint64 // segments and directory in use

	stage

	retired  atomic.Int64 // bytes of this shard that wait; Tick lowers it
	retryAt  time.Time    // no growth before: memory was short
	retryWhy Refusal      // in which way
	refusal  Refusal      // why Room last said no
	scratch  plan

	// onStore, set by tests only, runs after each store of a growth.
	onStore func(point string)
}

// A stage says how far an index is filled. There are three: every header shows 255; SetFilled was called,
// and the headers wait for a lease; they show the true counts. Unfill leads back to the first.
type stage struct {
	filled bool
	fills  uint64        // how often SetFilled was called
	shown  atomic.Bool   // the third stage is reached
	due    atomic.Uint64 // the fill whose lease is over: Tick asks for the third stage; 0: none
}

// segment is one segment in use.
type segment struct {
	mem      []byte // all of it
	place    layout.Place
	prefix   uint32 // top depth bits of its keys' hashes
	depth    uint8
	step     uint8
	groups   int
	keys     int
	slotless counts // of keys without slot
	// pause counts down the inserts and removals before growth is tried again,
	// after a split that could not separate the keys.
	pause int
}

// New makes an empty index of one segment and publishes it in the root table.
// hashOf returns the hash of the key that a slot stands for (false when it
// cannot be told, which blocks growth of that segment); it is called with the
// shard's lock held, while a segment grows.
// It fails with a *region.NoMemoryError.
func New(t *region.Table, r *reclaim.Reclaimer, shard uint16, hashOf func(layout.Slot) (layout.Hash, bool)) (*Index, error) {
	if hdr := t.Header(); uint32(shard) >= hdr.Shards {
		return nil, fmt.Errorf("index: shard %d of %d", shard, hdr.Shards)
	}
	ix := &Index{table: t, mem: t.Index(), reclaim: r, shard: shard, hashOf: hashOf}
	seg, err := ix.newSegment(0, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("index: shard %d: %w", shard, err)
	}
	d, err := ix.newDirectory(0)
	if err != nil {
		ix.dropSegment(seg)
		return nil, fmt.Errorf("index: shard %d: %w", shard, err)
	}
	ix.writeSegment(seg, nil)
	ix.segments, ix.slots, ix.bytes = 1, seg.capacity(), uint64(len(seg.mem))
	d.dir[0] = seg
	ix.publishDirectory(d)
	return ix, nil
}

// A Ref is a slot of the index. It is good until the next call of Room or
// Reserve, which may replace the segment it points into.
type Ref struct {
	seg *segment
	off int32 // byte offset of the slot's word in the segment
}

// Slot returns what the slot holds now; class 0 is empty.
func (r Ref) Slot() layout.Slot { return layout.Slot(layout.LoadWord(r.seg.mem, int(r.off))) }

// Place is where the slot's word itself stands, for messages and tests.
func (r Ref) Place() layout.Place { return r.seg.place + layout.Place(r.off/8) }

// segmentOf is the one segment that may hold a key.
func (ix *Index) segmentOf(h layout.Hash) *segment {
	if ix.due.Load() != 0 {
		ix.show()
	}
	return ix.dir[h.Prefix(ix.depth)]
}

// Find returns the slot that has h's fingerprint and for which eq says that it
// holds the key. eq is called for slots of that fingerprint only, and must not
// change the index.
func (ix *Index) Find(h layout.Hash, eq func(layout.Slot) bool) (Ref, bool) {
	seg := ix.segmentOf(h)
	fp := h.Fingerprint()
	x, y := h.Mains(seg.groups)
	for _, b := range [4]int{x.MainBucket(), y.MainBucket(), x.OverflowBucket(), y.OverflowBucket()} {
		bkt := bucketAt(seg.mem, b)
		for i := 1; i < len(bkt); i++ {
			s := layout.Slot(load(&bkt[i]))
			if s.Fingerprint() == fp && s.Class() != 0 && eq(s) {
				return Ref{seg, int32(b*layout.BucketSize + i*8)}, true
			}
		}
	}
	return Ref{}, false
}

// Ahead has memory fetched that Find will read: with a nil function the buckets in which a key of
// that hash is looked for first; else it calls yield with the slots of these that have its
// fingerprint, for the caller to fetch their items. Overflow buckets are left out, because few keys
// are in them. It changes nothing, and nor may yield.
func (ix *Index) Ahead(h layout.Hash, yield func(layout.Slot)) {
	seg := ix.segmentOf(h)
	fp := h.Fingerprint()
	x, y := h.Mains(seg.groups)
	for _, b := range [2]int{x.MainBucket(), y.MainBucket()} {
		bkt := bucketAt(seg.mem, b)
		if yield == nil {
			prefetch.Line(bkt)
			continue
		}
		for i := 1; i < len(bkt); i++ {
			s := layout.Slot(load(&bkt[i]))
			if s.Fingerprint() == fp && s.Class() != 0 {
				yield(s)
			}
		}
	}
}

// Room returns an empty slot for a key that is not in the index, growing its
// segment if it must. It reserves nothing: the caller Sets the slot before it
// calls Room again. It returns false if the key can have no slot now: memory is
// short or too much of it waits for a lease, or no growth parts the keys that
// crowd its buckets; Refusal says which. Then the caller calls AddSlotless.
//
// now paces attempts to grow when memory was short (the zero time tries at
// once). It is not the time of retirement, because it was read before the
// marks.
func (ix *Index) Room(now time.Time, h layout.Hash) (Ref, bool) {
	seg := ix.segmentOf(h)
	off, ok := seg.room(h)
	if !ok {
		if !ix.grow(now, seg, h) {
			return Ref{}, false
		}
		seg = ix.segmentOf(h)
		if off, ok = seg.room(h); !ok {
			panic(fmt.Sprintf("index: shard %d: growth to depth %d step %d made no room where its plan had it", ix.shard, seg.depth, seg.step))
		}
	}
	// If the key was counted, this segment goes on counting it, because its
	// slot is not set yet; the next one will not.
	seg.slotless.forget(h)
	return Ref{seg, off}, true
}

// Set stores s into the slot: one aligned 8-byte store. s is not empty.
func (ix *Index) Set(r Ref, s layout.Slot) {
	if s.Class() == 0 {
		panic(fmt.Sprintf("index: Set of the empty slot %#x: use Clear", uint64(s)))
	}
	if len(ix.twins) > 0 {
		ix.part(r)
	}
	switch r.Slot().Class() {
	case layout.ClassEmpty:
		r.seg.count(1)
		ix.keys++
	case layout.ClassPebble:
		ix.pebble--
	}
	if s.Class() == layout.ClassPebble {
		ix.pebble++
	}
	ix.touched = true
	layout.StoreWord(r.seg.mem, int(r.off), uint64(s))
}

// Clear empties the slot: one aligned 8-byte store.
func (ix *Index) Clear(r Ref) {
	if len(ix.twins) > 0 {
		ix.part(r)
	}
	switch r.Slot().Class() {
	case layout.ClassPebble:
		ix.pebble--
		fallthrough
	default:
		r.seg.count(-1)
		ix.keys--
	case layout.ClassEmpty:
	}
	layout.StoreWord(r.seg.mem, int(r.off), 0)
}

// All calls yield for every slot that is not empty, in no order, until it
// returns false. yield must not change the index, except for Set and Clear of
// the slot it was given.
func (ix *Index) All(yield func(Ref) bool) {
	var last *segment
	for _, seg := range ix.dir {
		if seg == last {
			continue
		}
		last = seg
		for b := range 3 * seg.groups {
			for i := 1; i <= layout.BucketSlots; i++ {
				r := Ref{seg, int32(b*layout.BucketSize + i*8)}
				if r.Slot().Class() != 0 && !yield(r) {
					return
				}
			}
		}
	}
}

// Keys is the number of slots that are not empty.
func (ix *Index) Keys() int { return ix.keys }

// Stats counts one shard's index.
type Stats struct {
	Keys     int     // slots that are not empty
	Pebble   int     // of them, Pebble-only ones
	Segments int     // in use
	Depth    uint8   // of the directory
	Slots    int     // of all segments in use
	Load     float64 // Keys / Slots
	Bytes    uint64  // segments and directory in use
	Retired  uint64  // bytes that wait for a lease
	Slotless int     // sum of the counts of keys without slot: an upper bound, 255 is "many"
	Filled   bool    // SetFilled was called
	Shown    bool    // headers show these counts, not 255
}

// Stats counts. It walks the directory.
func (ix *Index) Stats() Stats {
	s := Stats{
		Keys: ix.keys, Pebble: ix.pebble, Segments: ix.segments, Depth: ix.depth, Slots: ix.slots,
		Load: float64(ix.keys) / float64(ix.slots), Bytes: ix.bytes,
		Retired: uint64(max(0, ix.retired.Load())), Filled: ix.filled, Shown: ix.shown.Load(),
	}
	ix.eachSegment(func(seg *segment) {
		for _, n := range seg.slotless.shown {
			s.Slotless += int(n)
		}
	})
	return s
}

// eachSegment calls f once for each segment in use.
func (ix *Index) eachSegment(f func(*segment)) {
	var last *segment
	for _, seg := range ix.dir {
		if seg != last {
			last = seg
			f(seg)
		}
	}
}

// store is a store of growth: one aligned word, then the tests' observer.
func (ix *Index) store(mem []byte, off int, v uint64, point string) {
	layout.StoreWord(mem, off, v)
	if ix.onStore != nil {
		ix.onStore(point)
	}
}

// A Cursor is a position in the walk over an index. The zero Cursor is its
// beginning. It stays good while segments grow: a slot may then be visited
// twice or missed.
type Cursor struct {
	prefix uint32 // MaxDepth bits: where the segment begins
	slot   int    // in the segment
}

// Walk calls yield for slots from the cursor on that are not empty, until it
// returns false or most slots were looked at, empty ones too. It returns where to
// go on and how many it looked at; done: there are no more. yield must not change
// the index, except for Set and Clear of the slot it was given.
func (ix *Index) Walk(from Cursor, most int, yield func(Ref) bool) (next Cursor, looked int, done bool) {
	for {
		seg := ix.dir[from.prefix>>(layout.MaxDepth-ix.depth)]
		slots := 3 * seg.groups * layout.BucketSlots
		for from.slot < slots {
			if looked == most {
				return from, looked, false
			}
			b, first := from.slot/layout.BucketSlots, from.slot%layout.BucketSlots
			n := min(layout.BucketSlots-first, most-looked)
			words := bucketAt(seg.mem, b)
			for i := first; i < first+n; i++ {
				looked++
				from.slot++
				if layout.Slot(load(&words[1+i])).Class() == 0 {
					continue
				}
				if !yield(Ref{seg, int32(b*layout.BucketSize + layout.SlotOffset(i))}) {
					return from, looked, false
				}
			}
		}
		end := uint64(seg.prefix+1) << (layout.MaxDepth - seg.depth)
		if end >= 1<<layout.MaxDepth {
			return Cursor{}, looked, true
		}
		from = Cursor{prefix: uint32(end)}
	}
}
