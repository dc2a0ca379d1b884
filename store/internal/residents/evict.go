package residents

import (
	"errors"
	"math/rand/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Eviction takes items out of memory whose keys stay on the disk: in the base, or, if they
// are newer than that, in the log, where the shard's set leads to them. Which ones: of
// a few that are drawn at random, the one whose key was used least, as far as
// the sketch knows; among equals the oldest. A sample needs no list of items in
// the order of use, which would cost each item 16 bytes and each get a lock, and
// could not be kept at all for gets that the server never sees.
//
// An eviction is a step in the order of its shard: under the shard's lock, and
// so between two publishes.

const (
	// victimSample is how many items are drawn for one that goes.
	victimSample = 8
	// evictTries is how often a writer that finds no memory looks for a victim.
	evictTries = 4
)

// An Env is what all who look after the items in memory work on.
type Env struct {
	Memory *shard.Memory
	Shards []*shard.Shard // by number
	Disk   *disk.Disk     // the base
	Newest *newest.Reader // what is published, in the log or in the base
	Life   *base.Life
}

// A sampler has the buffers for drawing victims.
type sampler struct {
	places []layout.Place
	keys   [2][]byte // of the best so far, and of the one looked at
}

// coldest draws n items of a class and returns the coldest.
func (e *Evictor) coldest(class uint8, n int, buf *sampler) (best shard.Victim, ok bool) {
	buf.places = e.Memory.Slabs.Sample(class, n, rand.Uint64, buf.places[:0])
	for _, p := range buf.places {
		v, live := e.peek(p, class, &buf.keys[1])
		if live && (!ok || v.Colder(&best)) {
			best, ok = v, true
			buf.keys[0], buf.keys[1] = buf.keys[1], buf.keys[0]
		}
	}
	return best, ok
}

// peek describes the item at a place as a victim, if there is one.
func (e *Evictor) peek(p layout.Place, class uint8, key *[]byte) (shard.Victim, bool) {
	it, ok := e.Memory.PeekItem(p, class, key)
	if !ok {
		return shard.Victim{}, false
	}
	return e.Memory.Candidate(p, class, it), true
}

// evictOne frees a place of the class, if it has an item that may go.
func (e *Evictor) evictOne(class uint8, buf *sampler) bool {
	for range evictTries {
		v, ok := e.coldest(class, victimSample, buf)
		if !ok {
			return false
		}
		if e.Shards[v.Shard].Evict(&v) {
			return true
		}
	}
	return false
}

// Reserve takes memory for an item of size bytes; class 0 if there is none. Where memory has
// to be registered first it waits for that, or fails with ErrGrowing. Caller holds no lock.
func (e *Evictor) Reserve(size int, wait bool) (place layout.Place, class uint8, err error) {
	if wait {
		place, class, err = e.Memory.Slabs.Alloc(size)
	} else {
		place, class, err = e.Memory.Slabs.AllocWithin(size, 0)
	}
	switch {
	case err == nil:
		return place, class, nil
	case !wait && errors.Is(err, base.ErrGrowing):
		return 0, 0, base.ErrGrowing
	}
	if place, class, ok := e.MakeRoom(size); ok {
		return place, class, nil
	}
	e.Memory.Counts.NoMemory.Add(1)
	return 0, 0, nil
}

// MakeRoom finds memory for an item when none is free: it evicts another of
// its class. It waits for nothing but the lock of a shard, and after a few tries
// it gives up: then the key stays in Pebble only. Memory of other classes comes
// a lease later, if it is worth less (see clearer). Caller holds no lock.
func (e *Evictor) MakeRoom(size int) (place layout.Place, class uint8, ok bool) {
	class, ok = e.Memory.Slabs.Class(size)
	if !ok || !e.mayCache(class) {
		return 0, 0, false
	}
	e.Want(class)
	buf := e.samplers.Get().(*sampler)
	defer e.samplers.Put(buf)
	for range evictTries {
		if !e.evictOne(class, buf) {
			return 0, 0, false
		}
		if place, class, err := e.Memory.Slabs.AllocWithin(size, 0); err == nil {
			return place, class, true
		}
	}
	return 0, 0, false
}

// mayCache says whether an item of that class may push out others. One that
// would take a quarter of all memory may not: it comes in where there is room.
func (e *Evictor) mayCache(class uint8) bool {
	return uint64(layout.ClassSize(class)) <= e.limit/4
}

// A Touch says that a key was used: what clients tell of the gets that the
// server does not see.
type Touch struct {
	Hash  uint64 // Hash.Hi of the key
	Count uint8
}

// maxTouchCount bounds what one report can say of one key: whoever says more
// than it can have done is not to empty memory of everything else.
const maxTouchCount = 8

// Touched takes clients' reports of keys that they read one-sidedly. It costs
// little and never fails; what it says can only make memory hold other keys
// than it might.
func (e *Evictor) Touched(touches []Touch) {
	if !e.Memory.Slabs.Busy() {
		return
	}
	e.Memory.Counts.Touches.Add(uint64(len(touches)))
	for _, t := range touches {
		for range min(t.Count, maxTouchCount) {
			e.Memory.Sketch.Add(t.Hash)
		}
	}
}
