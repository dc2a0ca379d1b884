package shard

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/sketch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// A Memory is the registered memory of a store, and what the shards share to work in
// it. Whoever opens the store makes it, whole, before the first shard; nothing in it
// changes from then on. What its fields lead to is safe for concurrent use, by locks
// of its own that may be taken under a shard's.
type Memory struct {
	Incarnation uint64
	Seed        uint64 // of the hash of keys
	Shards      int    // how many there are
	Backed      bool   // what leaves memory is on the disk; else it is gone
	NoLease     bool   // nothing that waits for a lease ever happens
	Kept        bool   // the memory outlives the process: what is replaced must not be found by the next one (ruin)

	Table   *region.Table      // the regions, and the view that readers have of them
	Reclaim *reclaim.Reclaimer // what comes a lease later
	Slabs   *slab.Slabs        // places for items
	Sketch  *sketch.Sketch     // how often keys were used; fed while memory is not far from full
	Clock   *clock.Clock       // the server's time, by which keys expire
	Fence   *base.Fence        // ends the waits for what is published
	Counts  *base.Counters

	// left is what is known of items of an earlier life that are not believed yet; nil: there are none (left.go).
	left atomic.Pointer[Left]
}

// afterLease calls f when no READ can count any more that was posted before.
// Without leases that is never.
func (m *Memory) afterLease(f func()) {
	if !m.NoLease {
		m.Reclaim.After(f)
	}
}

// Used notes that a key was put or read by SEND. While memory is far from
// full, nobody keeps count.
func (m *Memory) Used(h layout.Hash) {
	if m.Slabs.Busy() {
		m.Sketch.Add(h.Hi)
	}
}

// PeekItem is what stands at a place of a class, if it is an item of one of the shards. The
// key is put into a buffer. Nothing keeps the item as it is meanwhile, so what is said of it
// is a hint, to be judged again under its shard's lock.
func (m *Memory) PeekItem(p layout.Place, class uint8, key *[]byte) (it layout.Peek, ok bool) {
	// Nobody holds the place: its region may be on its way out.
	m.Table.Look(p, layout.ClassSize(class), func(mem []byte) { it, ok = layout.PeekItem(mem, *key) })
	if !ok || int(it.Shard) >= m.Shards {
		return layout.Peek{}, false
	}
	*key = it.Key
	return it, true
}

// Candidate describes an item as a victim.
func (m *Memory) Candidate(p layout.Place, class uint8, it layout.Peek) Victim {
	h := layout.HashKey(m.Seed, it.Key)
	return Victim{Place: p, Class: class, Shard: it.Shard, Use: m.Sketch.Estimate(h.Hi),
		Version: it.Version, Hash: h, Key: it.Key}
}

// hashOf is what the index asks when it moves slots into new segments: the
// hash of the key that a slot leads to. Called under the shard's lock.
func (m *Memory) hashOf(slot layout.Slot) (layout.Hash, bool) {
	it, ok := m.itemAt(slot)
	if !ok {
		return layout.Hash{}, false
	}
	return layout.HashKey(m.Seed, it.Key()), true
}
