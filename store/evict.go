package store

import (
	"math/rand/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Eviction takes items out of memory whose keys stay in Pebble. Which ones: of
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

// A victim is an item that could go, as it was a moment ago.
type victim struct {
	place   layout.Place
	class   uint8
	shard   uint16
	use     uint8 // by the sketch
	version layout.Version
	hash    layout.Hash
	key     []byte // good until the next sample
}

// colder is the policy: which of two items is worth less. A version is older
// if its key was written earlier.
func (v *victim) colder(o *victim) bool {
	if v.use != o.use {
		return v.use < o.use
	}
	return v.version < o.version
}

// yields is the policy of admission: whether an item goes for a key that comes
// back from Pebble and was used so often. What was used as often stays: the
// newcomer would soon be in its place.
func (v *victim) yields(use uint8) bool { return use > v.use }

// candidate describes an item as a victim.
func (s *Store) candidate(p layout.Place, class uint8, it layout.Peek) victim {
	h := layout.HashKey(s.seed, it.Key)
	return victim{place: p, class: class, shard: it.Shard, use: s.sketch.estimate(h.Hi),
		version: it.Version, hash: h, key: it.Key}
}

// A sampler has the buffers for drawing victims.
type sampler struct {
	places []layout.Place
	keys   [2][]byte // of the best so far, and of the one looked at
}

// coldest draws n items of a class and returns the coldest.
func (s *Store) coldest(class uint8, n int, buf *sampler) (best victim, ok bool) {
	buf.places = s.slabs.Sample(class, n, rand.Uint64, buf.places[:0])
	for _, p := range buf.places {
		v, live := s.peek(p, class, &buf.keys[1])
		if live && (!ok || v.colder(&best)) {
			best, ok = v, true
			buf.keys[0], buf.keys[1] = buf.keys[1], buf.keys[0]
		}
	}
	return best, ok
}

// peek describes the item at a place as a victim, if there is one.
func (s *Store) peek(p layout.Place, class uint8, key *[]byte) (victim, bool) {
	it, ok := s.peekItem(p, class, key)
	if !ok {
		return victim{}, false
	}
	return s.candidate(p, class, it), true
}

// peekItem is what stands at a place of a class. The key is put into a buffer.
func (s *Store) peekItem(p layout.Place, class uint8, key *[]byte) (it layout.Peek, ok bool) {
	// Nobody holds the place: its region may be on its way out.
	s.table.Look(p, layout.ClassSize(class), func(mem []byte) { it, ok = layout.PeekItem(mem, *key) })
	if !ok || int(it.Shard) >= len(s.shards) {
		return layout.Peek{}, false
	}
	*key = it.Key
	return it, true
}

// evictOne frees a place of the class, if it has an item that may go.
func (s *Store) evictOne(class uint8, buf *sampler) bool {
	for range evictTries {
		v, ok := s.coldest(class, victimSample, buf)
		if !ok {
			return false
		}
		if s.evict(&v) {
			return true
		}
	}
	return false
}

// evict evicts an item, if it still is what it was. Caller holds no lock.
func (s *Store) evict(v *victim) bool {
	sh := s.shards[v.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ref, ok := sh.ix.Find(v.hash, func(slot layout.Slot) bool {
		return slot.Place() == v.place && slot.Class() == v.class
	})
	if !ok || !sh.mayEvict(v) {
		return false
	}
	version, state := layout.LoadState(s.table.Bytes(v.place, layout.ItemHeaderSize))
	if version != v.version || state != layout.Live {
		return false
	}
	s.evictAt(sh, v, ref)
	return true
}

// mayEvict says whether nothing stands against evicting: a write in flight,
// which was judged on what is there now and is about to replace it anyway, or
// somebody who was given the place. Caller holds mu.
func (sh *shard) mayEvict(v *victim) bool {
	return (sh.overlay[v.hash] == nil || teeth.Off(teeth.D5EvictIdle)) && sh.held[v.place] == nil
}

// evictAt evicts the item of slot ref. Caller holds mu.
func (s *Store) evictAt(sh *shard, v *victim, ref index.Ref) {
	if !teeth.Off(teeth.F6EvictFill) {
		// The fill's snapshot may have an older value, and would find no item
		// that is in its way.
		sh.fill.touch(v.key)
	}
	s.left(sh, v.place, v.version)
	if teeth.Enabled {
		teeth.At("evict", uint64(v.version), uint64(v.place))
	}
	s.demote(sh, v.hash, ref)
	s.counts.evicted.Add(1)
}

// makeRoom finds memory for an item when none is free: it evicts another of
// its class. It waits for nothing but the lock of a shard, and after a few tries
// it gives up: then the key stays in Pebble only. Memory of other classes comes
// a lease later, if it is worth less (see clearer). Caller holds no lock.
func (s *Store) makeRoom(size int) (place layout.Place, class uint8, ok bool) {
	class, ok = s.slabs.Class(size)
	if !ok || !s.mayCache(class) {
		return 0, 0, false
	}
	s.evictor.want(class)
	buf := s.samplers.Get().(*sampler)
	defer s.samplers.Put(buf)
	for range evictTries {
		if !s.evictOne(class, buf) {
			return 0, 0, false
		}
		if place, class, err := s.slabs.AllocWithin(size, 0); err == nil {
			return place, class, true
		}
	}
	return 0, 0, false
}

// mayCache says whether an item of that class may push out others. One that
// would take a quarter of all memory may not: it comes in where there is room.
func (s *Store) mayCache(class uint8) bool {
	return uint64(layout.ClassSize(class)) <= s.cfg.itemsLimit()/4
}
