package store

import (
	"bytes"
	"context"
	"sync"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A shard is the unit of order. Its lock covers what happens to its keys in
// memory: ordering a write and publishing one are each a short critical
// section; nothing under it waits for the disk.
//
// Lock order: shard.mu, then queue.mu; shard.mu, then the locks of slab,
// reclaim and region. Never two shards at once.
type shard struct {
	id uint16

	mu sync.Mutex
	// The three marks, as versions of this shard's writes. ordered is the
	// newest given out, durable the newest that a crash cannot take (as far
	// as the sync policy goes), published the newest that readers can see.
	// Invariant: ordered >= durable >= published; each only rises.
	ordered   layout.Version
	durable   layout.Version
	published layout.Version

	ix *index.Index

	// overlay holds the writes that are ordered and not published, by hash,
	// newest first (Write.older). Published state plus overlay is the
	// ordered state, against which conditions are judged.
	overlay map[layout.Hash]*Write
	// probes are readers of Pebble that must learn of writes ordered while
	// they read (order.go).
	probes []*probe
	// waiting are those who may speak once published has reached a version.
	waiting []publishWaiter

	// For find: eq asks holds whether a slot is that of key, and the answer
	// stays in hit. One function for the shard's life, none per lookup.
	eq      func(layout.Slot) bool
	key     []byte
	hit     layout.Slot // the slot that find found
	hash    layout.Hash
	damaged bool // a candidate did not verify: whose it is is unknown
	pebbled bool // find met a Pebble-only slot that may be the key's

	nextDue uint64 // no listed key is due before this second (expire.go)

	withheld bool // withhold.go
	full     bool // the fill is over

	coldShard
	sweptShard
	fill  fillState
	held  map[layout.Place]*pinned // live items that are kept for a reader
	slots uint64                   // keys whose slot leads to an item
}

// A publishWaiter waits until published >= version.
type publishWaiter struct {
	version layout.Version
	ready   chan struct{}
}

// overlayPut adds a write that was just ordered. Caller holds mu.
func (sh *shard) overlayPut(w *Write) {
	w.older = sh.overlay[w.hash]
	sh.overlay[w.hash] = w
	if !teeth.Off(teeth.F7SweepTold) {
		sh.keep(w.hash)
	}
}

// overlayRemove takes out a write that was just published: the oldest of its
// hash, since a shard publishes in order. Caller holds mu.
func (sh *shard) overlayRemove(w *Write) {
	newest := sh.overlay[w.hash]
	if newest == w {
		delete(sh.overlay, w.hash)
		return
	}
	for newest.older != w {
		newest = newest.older
	}
	newest.older = nil
}

// inflight returns the newest write of key that is ordered and not published,
// or nil. Caller holds mu.
func (sh *shard) inflight(h layout.Hash, key []byte) *Write {
	for w := sh.overlay[h]; w != nil; w = w.older {
		if bytes.Equal(w.Key, key) {
			return w
		}
	}
	return nil
}

// find returns the slot of key; what it says is in sh.hit. Caller holds mu.
func (sh *shard) find(h layout.Hash, key []byte) (index.Ref, bool) {
	sh.key, sh.hash, sh.pebbled = key, h, false
	ref, ok := sh.ix.Find(h, sh.eq)
	sh.key = nil
	return ref, ok
}

// holds reports whether slot leads to the item of sh.key. Caller holds mu.
func (sh *shard) holds(s *Store, slot layout.Slot) bool {
	if slot.Class() == layout.ClassPebble {
		sh.pebbled = sh.pebbled || slot == layout.PebbleSlot(sh.hash)
		return false
	}
	it, ok := s.itemAt(slot)
	if !ok {
		sh.damaged = true
		return false
	}
	sh.hit = slot
	return bytes.Equal(it.Key(), sh.key)
}

// raisePublished moves the mark and lets those speak who waited for it.
// Caller holds mu.
func (sh *shard) raisePublished(v layout.Version) {
	sh.published = v
	kept := sh.waiting[:0]
	for _, w := range sh.waiting {
		if w.version <= v {
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	clear(sh.waiting[len(kept):])
	sh.waiting = kept
}

// waitPublished returns once published has reached v: rule F5, the one place
// through which everything goes that was learnt from elsewhere than published
// memory. Without it a value could be told that a crash takes back, or one
// that a one-sided reader does not see yet.
func (s *Store) waitPublished(ctx context.Context, sh *shard, v layout.Version) error {
	if teeth.Off(teeth.F5Published) {
		return nil
	}
	sh.mu.Lock()
	if sh.published >= v {
		sh.mu.Unlock()
		return nil
	}
	w := publishWaiter{version: v, ready: make(chan struct{})}
	sh.waiting = append(sh.waiting, w)
	sh.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		sh.dropWaiter(w)
		return ctx.Err()
	case <-s.fence.down:
		sh.dropWaiter(w)
		return s.fence.failed()
	}
}

// dropWaiter removes a waiter that gave up.
func (sh *shard) dropWaiter(w publishWaiter) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
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
