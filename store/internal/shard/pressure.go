package shard

import (
	"time"

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

// DropNear makes room near a hash that found none, for whoever comes a lease
// later. Caller holds Mu.
func (sh *Shard) DropNear(h layout.Hash) {
	if !sh.mem.Backed || sh.mem.NoLease || !sh.Index.Filled() || len(sh.dropping) >= maxDropping {
		return
	}
	if sh.Index.Refusal() == index.Waiting {
		return // a lease from now there is room without it
	}
	var found []layout.Slot
	on := false // something there is on its way already
	sh.Index.Near(h, func(r index.Ref) bool {
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
		sh.dropSlots(found)
	case !on:
		sh.coolNear(h)
	}
}

// dropSlots counts the keys that those slots stand for, and clears the slots a
// lease later. Caller holds Mu.
func (s *Items) dropSlots(slots []layout.Slot) {
	if s.dropping == nil {
		s.dropping = make(map[layout.Slot]struct{})
	}
	for _, slot := range slots {
		h, _ := slot.PebbleHash()
		s.mem.Counts.SlotsDropped.Add(1)
		// For all keys that it stands for: no header will show less than this
		// until the segment is another, and no later one will leave the hash
		// out, since no key has it.
		s.Index.AddSlotless(h)
		s.dropping[slot] = struct{}{}
	}
	s.mem.afterLease(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropped(slots)
	})
}

// dropped clears slots whose keys were counted a lease ago. Caller holds Mu.
func (s *Items) dropped(slots []layout.Slot) {
	for _, slot := range slots {
		delete(s.dropping, slot)
		h, _ := slot.PebbleHash()
		s.Index.Near(h, func(r index.Ref) bool {
			if r.Slot() == slot {
				s.Index.Clear(r)
			}
			return true
		})
	}
}

// room is a slot for a key that has none; see index.Room. A cache makes one, if
// it must: what is evicted there leaves its slot at once. Caller holds Mu.
func (sh *Shard) room(h layout.Hash) (index.Ref, bool) {
	ref, ok := sh.Index.Room(time.Now(), h)
	if !ok && !sh.mem.Backed {
		sh.coolNear(h)
		ref, ok = sh.Index.Room(time.Now(), h)
	}
	return ref, ok
}

// coolNear evicts the coldest item in the four buckets of a hash: its slot will
// be the next to be dropped, or is free at once in a cache. Caller holds Mu.
func (sh *Shard) coolNear(h layout.Hash) {
	var best Victim
	var at index.Ref
	sh.Index.Near(h, func(r index.Ref) bool {
		it, ok := sh.mem.itemAt(r.Slot())
		if !ok || it.State != layout.Live {
			return true
		}
		v := sh.mem.Candidate(it.Slot.Place(), it.Slot.Class(), layout.Peek{
			Version: it.Version, State: it.State, Shard: sh.ID, Size: it.Size, Key: it.Key()})
		if sh.mayEvict(&v) && (best.Key == nil || v.Colder(&best)) {
			best, at = v, r
		}
		return true
	})
	if best.Key != nil {
		sh.evictAt(&best, at)
		if sh.mem.Backed {
			sh.dropSlots([]layout.Slot{layout.PebbleSlot(best.Hash)})
		}
	}
}

// coldShard is a shard's part in it. Guarded by the shard's lock.
type coldShard struct {
	gone     gone
	dropping map[layout.Slot]struct{} // Pebble-only slots that go a lease from their count
}
