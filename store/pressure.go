package store

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// When the index is short of room, cold keys lose their slots. That is done
// where room was wanted: in the four buckets of a key that found none.
//
// A slot is dropped in two steps, because the words of one READ come in any
// order. First its key is counted as one without slot; from then on readers
// that find nothing there ask. A lease later, when no reader is left that may
// have seen the header before, the slot is cleared. Only Pebble-only slots go
// this way: where there is none the coldest item becomes one.

// maxDropping bounds the slots of a shard that are on their way.
const maxDropping = 8192

// dropNear makes room near a hash that found none, for whoever comes a lease
// later. Caller holds mu.
func (s *Store) dropNear(sh *shard, h layout.Hash) {
	if s.db == nil || s.cfg.NoLease || !sh.ix.Filled() || len(sh.dropping) >= maxDropping {
		return
	}
	if sh.ix.Refusal() == index.Waiting {
		return // a lease from now there is room without it
	}
	var found []layout.Slot
	on := false // something there is on its way already
	sh.ix.Near(h, func(r index.Ref) bool {
		slot := r.Slot()
		if slot.Class() != layout.ClassPebble {
			return true
		}
		if _, is := sh.dropping[slot]; is {
			on = true
		} else {
			found = append(found, slot)
		}
		return true
	})
	switch {
	case len(found) > 0:
		s.dropSlots(sh, found)
	case !on:
		s.coolNear(sh, h)
	}
}

// dropSlots counts the keys that those slots stand for, and clears the slots a
// lease later. Caller holds mu.
func (s *Store) dropSlots(sh *shard, slots []layout.Slot) {
	if sh.dropping == nil {
		sh.dropping = make(map[layout.Slot]struct{})
	}
	for _, slot := range slots {
		h, _ := slot.PebbleHash()
		s.counts.slotsDropped.Add(1)
		if !teeth.Off(teeth.F7DropCounted) {
			// For all keys that it stands for: no header will show less
			// than this until the segment is another, and no later one will
			// leave the hash out, since no key has it.
			sh.ix.AddSlotless(h)
		}
		sh.dropping[slot] = struct{}{}
	}
	if teeth.Off(teeth.F7DropLease) {
		s.dropped(sh, slots)
		return
	}
	s.afterLease(func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		s.dropped(sh, slots)
	})
}

// dropped clears slots whose keys were counted a lease ago. Caller holds mu.
func (s *Store) dropped(sh *shard, slots []layout.Slot) {
	for _, slot := range slots {
		delete(sh.dropping, slot)
		h, _ := slot.PebbleHash()
		sh.ix.Near(h, func(r index.Ref) bool {
			if r.Slot() == slot {
				sh.ix.Clear(r)
			}
			return true
		})
	}
}

// room is a slot for a key that has none; see index.Room. A cache makes one, if
// it must: what is evicted there leaves its slot at once. Caller holds mu.
func (s *Store) room(sh *shard, h layout.Hash) (index.Ref, bool) {
	ref, ok := sh.ix.Room(time.Now(), h)
	if !ok && s.db == nil {
		s.coolNear(sh, h)
		ref, ok = sh.ix.Room(time.Now(), h)
	}
	return ref, ok
}

// coolNear evicts the coldest item in the four buckets of a hash: its slot will
// be the next to be dropped, or is free at once in a cache. Caller holds mu.
func (s *Store) coolNear(sh *shard, h layout.Hash) {
	var best victim
	var at index.Ref
	sh.ix.Near(h, func(r index.Ref) bool {
		it, ok := s.itemAt(r.Slot())
		if !ok || it.State != layout.Live {
			return true
		}
		v := s.candidate(it.slot.Place(), it.slot.Class(), layout.Peek{
			Version: it.Version, State: it.State, Shard: sh.id, Size: it.Size, Key: it.Key()})
		if sh.mayEvict(&v) && (best.key == nil || v.colder(&best)) {
			best, at = v, r
		}
		return true
	})
	if best.key != nil {
		s.evictAt(sh, &best, at)
		if s.db != nil {
			s.dropSlots(sh, []layout.Slot{layout.PebbleSlot(best.hash)})
		}
	}
}
