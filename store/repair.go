package store

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Repair of a damaged item: its key's value is read from Pebble, written to
// another place, and takes the slot over by the steps of a put. The read stands
// under a probe, as that of a promotion does: if a write of the key was ordered
// since, what was read is old and nothing is done (rule F6).
//
// Whose item it is, its bytes cannot be believed about. A key that they show is
// a guess, good if its hash leads to this very slot and Pebble has the key; else
// every key of the shard in Pebble is asked, which is the work of seconds, once
// in a pass.

// maxNameless bounds the damaged items that are looked for at a time.
const maxNameless = 256

// repair repairs the damaged item of a slot. Caller holds no lock; the item may
// have changed since it was seen. stale: it has not been live for a whole pass,
// so that its state is damage too, unless a write of its key is still in flight.
func (s *Store) repair(sh *shard, slot layout.Slot, stale bool) {
	sh.mu.Lock()
	_, found := sh.refOf(slot)
	if found && !teeth.Off(teeth.D5ScrubTrusts) {
		it, whole := s.inspectItem(slot)
		found = !whole || it.State != layout.Live && stale && sh.inflight(layout.HashKey(s.seed, it.Key()), it.Key()) == nil
	}
	if !found {
		sh.mu.Unlock()
		return
	}
	key := s.guessKey(slot)
	if s.db == nil {
		// Nobody else has it: it is evicted like any other.
		s.orphan(sh, slot)
		sh.mu.Unlock()
		return
	}
	sh.mu.Unlock()
	s.counts.damaged.Add(1)
	s.fence.report(levelError, "item in memory is damaged: repairing it from disk", "shard", sh.id, "place", slot.Place())
	if key != nil && s.repairAs(sh, slot, key) {
		return
	}
	// A report of another shard's waits for the pass to come there.
	if sc := &s.scrub; sh == s.shards[sc.shard] && len(sc.nameless) < maxNameless {
		sc.nameless = append(sc.nameless, slot)
	}
}

// refOf finds a slot by its word. The index is walked: it is for the few that
// are damaged. Caller holds mu.
func (sh *shard) refOf(slot layout.Slot) (ref index.Ref, found bool) {
	sh.ix.All(func(r index.Ref) bool {
		ref, found = r, r.Slot() == slot
		return !found
	})
	return ref, found
}

// guessKey returns the key that a damaged item shows, if it may be that of its
// slot. Caller holds mu.
func (s *Store) guessKey(slot layout.Slot) []byte {
	mem := s.table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	it, ok := layout.PeekItem(mem, nil)
	if ok && len(it.Key) > 0 && layout.HashKey(s.seed, it.Key).Fingerprint() == slot.Fingerprint() {
		return bytes.Clone(it.Key)
	}
	return nil
}

// repairAs repairs an item as that of key, or finds that it is not. done: there
// is no more to do.
func (s *Store) repairAs(sh *shard, slot layout.Slot, key []byte) (done bool) {
	h := layout.HashKey(s.seed, key)
	at := func(o layout.Slot) bool { return o == slot }
	sh.mu.Lock()
	if _, ok := sh.ix.Find(h, at); !ok {
		sh.mu.Unlock()
		return false // a key that does not lead here
	}
	if sh.inflight(h, key) != nil || len(sh.probes) >= maxPromotions {
		sh.mu.Unlock()
		s.counts.repairsLost.Add(1)
		return true // the next pass sees what became of it
	}
	if ref, ok := sh.find(h, key); ok && ref.Slot() != slot {
		// It was put again, to a slot of its own: this one leads nowhere.
		s.orphan(sh, slot)
		sh.mu.Unlock()
		return true
	}
	p := &probe{hash: h, key: key}
	sh.probes = append(sh.probes, p)
	sh.mu.Unlock()
	defer s.endPromotion(sh, p)

	rec, closer, err := s.readRecord(sh, key)
	if err != nil {
		return false
	}
	defer closer.Close()
	if teeth.Enabled {
		teeth.At("repair.read", uint64(sh.id), uint64(rec.version))
	}
	value := rec.value
	if teeth.Off(teeth.D5RepairFromMemory) {
		at := layout.ItemSize(len(key), 0, rec.expiry != 0)
		value = bytes.Clone(s.table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))[at : at+len(value)])
	}
	place, class := s.placeFor(sh, layout.ItemSize(len(key), len(value), rec.expiry != 0), rec.version)
	var mem []byte // nil: no room for a second copy, the key goes to Pebble only
	if class != 0 {
		mem = s.table.Bytes(place, layout.ClassSize(class))
		s.writePending(mem, place, layout.Item{Version: rec.version, Shard: sh.id, Key: key, Value: value, Expiry: rec.expiry})
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.linkRepaired(sh, p, slot, rec.version, place, class, mem) {
		s.counts.repaired.Add(1)
		return true
	}
	if class != 0 {
		layout.SetState(mem, rec.version, layout.Dead)
		s.slabs.Free(place, class)
	}
	s.counts.repairsLost.Add(1)
	return true
}

// placeFor returns a free place where an item of that version did not stand a
// lease ago or less (tooSoon); class 0 if there is none at hand.
func (s *Store) placeFor(sh *shard, size int, v layout.Version) (place layout.Place, class uint8) {
	const tries = 4
	for range tries {
		p, c, err := s.slabs.AllocWithin(size, time.Millisecond)
		if err != nil {
			return 0, 0
		}
		if !s.tooSoon(sh, p, v) {
			return p, c
		}
		defer s.slabs.Free(p, c) // not before another was found
	}
	return 0, 0
}

// linkRepaired puts the good copy into the damaged item's slot, unless
// something has changed. Caller holds mu.
func (s *Store) linkRepaired(sh *shard, p *probe, slot layout.Slot, v layout.Version, place layout.Place, class uint8, mem []byte) bool {
	if p.told && !teeth.Off(teeth.F6Repair) {
		return false
	}
	ref, found := sh.ix.Find(p.hash, func(o layout.Slot) bool { return o == slot })
	if !found || sh.held[slot.Place()] != nil || s.verifies(slot) && !teeth.Off(teeth.D5ScrubTrusts) {
		return false
	}
	s.left(sh, slot.Place(), v)
	if class == 0 {
		sh.fill.touch(p.key)
		s.demote(sh, p.hash, ref)
		return true
	}
	s.makeLive(sh, ref, layout.MakeSlot(p.hash.Fingerprint(), class, place), v, mem, slot, layout.Live)
	s.slabs.Free(slot.Place(), slot.Class())
	return true
}

// orphan has the slot of a damaged item cleared that is nobody's: the key has
// another, or is gone. Not at once: a reader may have looked for the key where
// it is now before it was there, and look here after. Caller holds mu.
func (s *Store) orphan(sh *shard, slot layout.Slot) {
	if sh.held[slot.Place()] != nil {
		return
	}
	mem := s.table.Bytes(slot.Place(), layout.ItemHeaderSize)
	s.kill(sh, slot)
	head := binary.LittleEndian.Uint64(mem)
	s.counts.orphans.Add(1)
	s.reclaim.After(func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		ref, found := sh.refOf(slot)
		if !found || binary.LittleEndian.Uint64(s.table.Bytes(slot.Place(), layout.ItemHeaderSize)) != head {
			return
		}
		sh.ix.Clear(ref)
		s.slabs.Free(slot.Place(), slot.Class())
		sh.slots--
	})
}

// repairNameless finds the keys of damaged items among those of the shard in
// Pebble. An item that could be that of several is given up: each of them is
// counted as one without slot, and the slot goes a lease later.
func (s *Store) repairNameless(sh *shard, slots []layout.Slot) {
	candidates := make(map[layout.Slot][][]byte)
	prints := make(map[uint16]bool)
	for _, slot := range slots {
		prints[slot.Fingerprint()] = true
	}
	if err := s.eachKey(sh, func(key []byte) bool {
		h := layout.HashKey(s.seed, key)
		if !prints[h.Fingerprint()] {
			return !s.stopping()
		}
		sh.mu.Lock()
		// One whose item verifies and is not live is found where it is.
		if ref, ok := sh.find(h, key); !ok || slices.Contains(slots, ref.Slot()) {
			sh.ix.Find(h, func(o layout.Slot) bool {
				if slices.Contains(slots, o) {
					candidates[o] = append(candidates[o], bytes.Clone(key))
				}
				return false
			})
		}
		sh.mu.Unlock()
		return !s.stopping()
	}); err != nil {
		s.fence.report(levelError, "repair: the keys of a shard cannot be read", "shard", sh.id, "err", err)
		return
	}
	if s.stopping() {
		return
	}
	for _, slot := range slots {
		keys := candidates[slot]
		if len(keys) == 1 && s.repairAs(sh, slot, keys[0]) {
			continue
		}
		sh.mu.Lock()
		if _, found := sh.refOf(slot); found && !s.verifies(slot) {
			for _, key := range keys {
				s.addSlotless(sh, layout.HashKey(s.seed, key))
			}
			s.orphan(sh, slot)
		}
		sh.mu.Unlock()
	}
}

// eachKey calls f for the keys of a shard in Pebble until it returns false.
func (s *Store) eachKey(sh *shard, f func(key []byte) bool) error {
	lower, upper := kindBounds(sh.id, kindData)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	for iter.First(); iter.Valid(); iter.Next() {
		if _, _, key, _ := parseKey(iter.Key()); !f(key) {
			break
		}
	}
	err = iter.Error()
	if closeErr := iter.Close(); err == nil {
		err = closeErr
	}
	return err
}
