package shard

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Shard is the unit of order. Its lock covers what happens to its keys in
// memory: ordering a write and publishing one are each a short critical
// section; nothing under it waits for the disk.
//
// Lock order: Mu, then that of the pipeline's queue; Mu, then the locks of dedup's
// stripes, of the clock, of slab, reclaim and region, and of the fence's reports.
// Never two shards at once.
type Shard struct {
	ID uint16
	// Agreed: the shard has replicas, and whether a key has expired is agreed upon by all of them, as a write is: nobody says so
	// before the key's removal is published (R9). Then nothing has to be hidden from readers, and no clock but that of
	// the leader who orders the removal counts. Begin sets it.
	Agreed atomic.Bool

	Mu sync.Mutex // guards Order, Items and Dirty
	Order
	Items
	// Dirty has the keys that are newer than the base: of each that was published since the
	// base's position its newest write. Without a log, so also in a cache, it is empty.
	//
	// A start raises its clean mark to the version that the base has reached (Leave), and
	// notes the records behind that (Note), before anybody else knows the shard. All of these
	// versions are below the first that the shard gives out (New: none).
	Dirty dirty.Set
}

// An Order is what is in flight in a shard.
type Order struct {
	// The three marks, as versions of this shard's writes. ordered is the
	// newest given out, durable the newest that a crash cannot take (as far
	// as the sync policy goes), published the newest that readers can see.
	// Invariant: ordered >= durable >= published; each only rises.
	ordered   layout.Version
	durable   layout.Version
	published layout.Version

	// overlay holds the writes that are ordered and not published, by hash,
	// newest first (Effect.Older). Published state plus overlay is the
	// ordered state, against which conditions are judged.
	overlay map[layout.Hash]*flight.Effect
	// probes are readers of the disk that must learn of writes ordered while
	// they read (probe).
	probes []*Probe
	// waiting are those who may speak once published has reached a version.
	waiting []publishWaiter

	nextDue uint64 // no listed key is due before this second
	// relisted is the earliest second under which keys were listed since TakeRelisted.
	relisted uint64
}

// Items are the keys of a shard that memory knows: their slots in the index, and
// the items that these lead to.
type Items struct {
	mu  *sync.Mutex // the shard's: for what comes by itself, or a lease later
	mem *Memory

	Index *index.Index
	slots uint64                   // keys whose slot leads to an item
	held  map[layout.Place]*Pinned // live items that are kept for a reader

	// For find: eq asks holds whether a slot is that of key, and the answer
	// stays in hit. One function for the shard's life, none per lookup.
	eq      func(layout.Slot) bool
	likely  func(layout.Slot) // for ahead; likewise one function
	key     []byte
	hit     layout.Slot // the slot that find found
	hash    layout.Hash
	damaged bool // a candidate did not verify: whose it is is unknown
	pebbled bool // find met a Pebble-only slot that may be the key's

	withheld bool // its misses are not this node's to vouch for
	full     bool // the fill is over
	fill     fillState
	content  atomic.Uint64 // how often it was emptied
	giving   bool          // it is about to be emptied: between Unfill and Empty
	awaits   bool          // between Await and Reached

	coldShard
	sweptShard
}

// New returns an empty shard. none is the version before the first that it may be
// given.
func New(id uint16, m *Memory, none layout.Version, withheld bool) (*Shard, error) {
	sh := newShard(id, m, none, withheld)
	var err error
	sh.Index, err = index.New(m.Table, m.Reclaim, id, m.hashOf)
	return sh, err
}

// newShard is a shard without an index.
func newShard(id uint16, m *Memory, none layout.Version, withheld bool) *Shard {
	sh := &Shard{ID: id}
	sh.Order = Order{
		ordered: none, durable: none, published: none,
		overlay: make(map[layout.Hash]*flight.Effect), nextDue: clock.NeverDue, relisted: clock.NeverDue,
	}
	sh.Items = Items{mu: &sh.Mu, mem: m, held: make(map[layout.Place]*Pinned), withheld: withheld}
	sh.eq, sh.likely = sh.holds, m.aheadItem
	return sh
}

// A publishWaiter waits until published >= version.
type publishWaiter struct {
	version layout.Version
	ready   chan struct{}
}

// NoteOrdered notes a write that was queued under this hold of the lock: it is in
// flight from here on. Caller holds Mu.
func (sh *Shard) NoteOrdered(f *flight.Flight) {
	sh.ordered = f.Version
	for _, e := range f.Effects {
		if !e.Noop {
			sh.overlayPut(e)
			sh.keep(e.Hash)
			sh.tellProbes(e)
		}
		e.State = flight.KeyState{} // it refers to others
	}
}

// overlayPut adds a write that was just ordered. Caller holds Mu.
func (o *Order) overlayPut(e *flight.Effect) {
	e.Older = o.overlay[e.Hash]
	o.overlay[e.Hash] = e
}

// overlayRemove takes out a write that was just published: the oldest of its
// hash, since a shard publishes in order. Caller holds Mu.
func (o *Order) overlayRemove(e *flight.Effect) {
	newest := o.overlay[e.Hash]
	if newest == e {
		delete(o.overlay, e.Hash)
		return
	}
	for newest.Older != e {
		newest = newest.Older
	}
	newest.Older = nil
}

// Inflight returns the newest write of key that is ordered and not published,
// or nil. Caller holds Mu.
func (o *Order) Inflight(h layout.Hash, key []byte) *flight.Effect {
	for e := o.overlay[h]; e != nil; e = e.Older {
		if bytes.Equal(e.Key, key) {
			return e
		}
	}
	return nil
}

// Find returns the slot of key; what it says is in sh.hit. Caller holds Mu.
func (s *Items) Find(h layout.Hash, key []byte) (index.Ref, bool) {
	s.key, s.hash, s.pebbled = key, h, false
	ref, ok := s.Index.Find(h, s.eq)
	s.key = nil
	return ref, ok
}

// holds reports whether slot leads to the item of sh.key. Caller holds Mu.
func (s *Items) holds(slot layout.Slot) bool {
	if slot.Class() == layout.ClassPebble {
		s.pebbled = s.pebbled || slot == layout.PebbleSlot(s.hash)
		return false
	}
	it, ok := s.mem.itemAt(slot)
	if !ok {
		s.damaged = true
		return false
	}
	s.hit = slot
	return bytes.Equal(it.Key(), s.key)
}

// raisePublished moves the mark and lets those speak who waited for it.
// Caller holds Mu.
func (o *Order) raisePublished(v layout.Version) {
	o.published = v
	kept := o.waiting[:0]
	for _, w := range o.waiting {
		if w.version <= v {
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	clear(o.waiting[len(kept):])
	o.waiting = kept
}

// WaitPublished returns once published has reached v. It is for whoever depends on a write in
// flight: an answer that a key has expired, a cache that has lost an item, the end of the fill.
// If these did not wait, they would tell what a crash takes back, or what a one-sided reader does
// not see yet.
func (sh *Shard) WaitPublished(ctx context.Context, v layout.Version) error {
	sh.Mu.Lock()
	if sh.published >= v || v > sh.ordered { // what is not ordered any more is void
		sh.Mu.Unlock()
		return nil
	}
	w := publishWaiter{version: v, ready: make(chan struct{})}
	sh.waiting = append(sh.waiting, w)
	sh.Mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		sh.dropWaiter(w)
		return ctx.Err()
	case <-sh.mem.Fence.Down:
		sh.dropWaiter(w)
		return sh.mem.Fence.Failed()
	}
}

// dropWaiter removes a waiter that gave up.
func (sh *Shard) dropWaiter(w publishWaiter) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	for i := range sh.waiting {
		if sh.waiting[i].ready == w.ready {
			last := len(sh.waiting) - 1
			sh.waiting[i] = sh.waiting[last]
			sh.waiting[last] = publishWaiter{}
			sh.waiting = sh.waiting[:last]
			return
		}
	}
}

// Marks are the three marks of a shard at one moment, as versions of its writes.
type Marks struct {
	Ordered, Durable, Published layout.Version
	Flying                      int // keys, by hash, of which a write is ordered and not published
}

// Marks returns the shard's marks.
func (sh *Shard) Marks() Marks {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	return Marks{Ordered: sh.ordered, Durable: sh.durable, Published: sh.published, Flying: len(sh.overlay)}
}

// Counts returns what the index counts, and the keys whose slot leads to an item.
func (sh *Shard) Counts() (index.Stats, uint64) {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	return sh.Index.Stats(), sh.slots
}
