package store

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How items change hands in registered memory: each function here is a few
// aligned stores whose order a reader relies on.

// link makes a pending item the value of its key (rule F1):
//
//	write the item into free memory, pending   (writePending)
//	mark the old item dead
//	swing the slot
//	set the new item live                      <- the put takes effect here
//	free the old place
//
// Freed places of a class are used again at once, so a client may remember
// this very place from an earlier life of this key. Were the new item readable
// before the old one is dead, one client could read the new value there and
// another, later, the old one. Were it live before the slot leads to it, a
// client could read it at the remembered place and another find no slot. So
// between the old item's death and the new one's life nobody gets an answer:
// who meets pending or dead reads again. Caller holds the shard's lock.
func (s *Store) link(sh *shard, w *Write, mem []byte) {
	ref, found := sh.find(w.hash, w.Key)
	old := sh.hit
	if !found && teeth.Off(teeth.F7TakeOver) {
		ref, found = sh.ix.Find(w.hash, func(slot layout.Slot) bool { return slot.Class() == layout.ClassPebble })
		if found {
			s.makeLive(sh, ref, layout.MakeSlot(w.hash.Fingerprint(), w.class, w.place), w.Version, mem, 0, w.visible())
			sh.slots++
			return
		}
	}
	if !found {
		var room bool
		if ref, room = s.room(sh, w.hash); !room {
			layout.SetState(mem, w.Version, layout.Dead)
			s.slabs.Free(w.place, w.class)
			s.linkSlotless(sh, w, ref, false)
			return
		}
	}
	slot := layout.MakeSlot(w.hash.Fingerprint(), w.class, w.place)
	if !found {
		old = 0
	}
	s.makeLive(sh, ref, slot, w.Version, mem, old, w.visible())
	if found {
		s.slabs.Free(old.Place(), old.Class())
	} else {
		sh.slots++
	}
}

// makeLive runs the steps of link behind the first: kill the item of old, if
// that is not empty; swing; live. Caller holds mu.
func (s *Store) makeLive(sh *shard, ref index.Ref, slot layout.Slot, v layout.Version, mem []byte, old layout.Slot, state layout.State) {
	if teeth.Off(teeth.F1PutOrder) {
		sh.ix.Set(ref, slot)
		teeth.At("publish.swung", uint64(v), uint64(slot.Place()))
		if !old.Empty() {
			s.kill(sh, old)
		}
		return
	}
	if !old.Empty() {
		s.kill(sh, old)
	}
	if teeth.Enabled {
		teeth.At("publish.killed", uint64(v), uint64(slot.Place()))
	}
	sh.ix.Set(ref, slot)
	if teeth.Enabled {
		teeth.At("publish.swung", uint64(v), uint64(slot.Place()))
	}
	layout.SetState(mem, v, state)
	if teeth.Enabled {
		teeth.At("publish.live", uint64(v), uint64(slot.Place()))
	}
}

// deadVersion is the version of an item that is killed and shows none. No write
// has it: epochs begin at 1, and a cache numbers from the time of day.
const deadVersion layout.Version = 1

// kill makes the item of a slot unreadable. One that is held for a reader
// becomes Held instead: for everybody else that is as good as dead, and the
// reader who was given the place can still verify it. Caller holds mu.
func (s *Store) kill(sh *shard, slot layout.Slot) {
	mem := s.table.Bytes(slot.Place(), layout.ItemHeaderSize)
	v, _ := layout.LoadState(mem)
	if v == 0 {
		// The header is damaged, and no item has version 0. Any version will do
		// that no write was given, because a dead item proves nothing.
		v = deadVersion
	}
	state := layout.Dead
	if h := sh.held[slot.Place()]; h != nil && !teeth.Off(teeth.F11HeldState) {
		h.killed = true
		state = layout.Held
	}
	layout.SetState(mem, v, state)
}

// unlink publishes a delete: kill the item, clear the slot, free the place.
// Caller holds mu.
func (s *Store) unlink(sh *shard, w *Write) {
	sh.fill.touch(w.Key)
	sh.ix.RemoveSlotless(w.hash) // if it was counted, the next segment need not
	s.trace(sh, w.hash)
	ref, found := sh.find(w.hash, w.Key)
	if !found {
		return
	}
	old := sh.hit
	if !teeth.Off(teeth.D4DeleteKills) {
		s.kill(sh, old)
	}
	sh.ix.Clear(ref)
	s.slabs.Free(old.Place(), old.Class())
	sh.slots--
}

// linkSlotless publishes a put for which there is no memory: from now on the
// key is in Pebble only. Caller holds mu. Its slot says so, or there is one that
// says so of all keys with its bits, or else the key is counted as one without
// a slot (rule F7): before the put is acknowledged, so that no miss there is
// believed from then on. A cache drops the key instead.
func (s *Store) linkSlotless(sh *shard, w *Write, ref index.Ref, found bool) {
	pebbled := sh.pebbled && !found // find's; what follows asks for others
	if !teeth.Off(teeth.F6FillSlotless) {
		sh.fill.touch(w.Key)
	}
	switch {
	case found:
		s.demote(sh, w.hash, ref)
	case s.db == nil:
		s.counts.dropped.Add(1)
	case teeth.Off(teeth.F7CountSlotless):
	case pebbled:
	default:
		if ref, room := sh.ix.Room(time.Now(), w.hash); room {
			sh.ix.Set(ref, layout.PebbleSlot(w.hash))
			return
		}
		s.addSlotless(sh, w.hash)
	}
}

// demote takes the item of slot ref, of a key of that hash, out of memory: kill
// it, let the slot say that the key is in Pebble only, free the place. The key
// is there all the time: before the kill readers find it, and after that they
// ask. Caller holds mu.
func (s *Store) demote(sh *shard, h layout.Hash, ref index.Ref) {
	old := ref.Slot()
	if !teeth.Off(teeth.D4EvictKills) {
		s.kill(sh, old)
	}
	sh.slots--
	switch {
	case s.db == nil:
		// In a cache this is a delete.
		sh.ix.Clear(ref)
		s.counts.dropped.Add(1)
	case teeth.Off(teeth.F7CountSlotless):
		sh.ix.Clear(ref)
	default:
		sh.ix.Set(ref, layout.PebbleSlot(h))
		s.pairTwins(sh, h, ref)
	}
	s.slabs.Free(old.Place(), old.Class())
}

// pairTwins has one of two Pebble-only slots that say the same cleared a lease
// from now. A key that was put again has one from before: nobody can tell
// whether that was its own, so it was left where it was. Caller holds mu.
func (s *Store) pairTwins(sh *shard, h layout.Hash, ref index.Ref) {
	twins := sh.ix.Pair(h, ref)
	if twins == nil {
		return
	}
	if teeth.Off(teeth.D4TwinLease) {
		sh.ix.ClearTwin(twins)
		return
	}
	s.afterLease(func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.ix.ClearTwin(twins)
	})
}

// afterLease calls f when no READ can count any more that was posted before.
// Without leases that is never.
func (s *Store) afterLease(f func()) {
	if !s.cfg.NoLease {
		s.reclaim.After(f)
	}
}

// addSlotless counts a key that has no slot, and sees to it that there will be
// more of them. Caller holds mu.
func (s *Store) addSlotless(sh *shard, h layout.Hash) {
	s.counts.slotless.Add(1)
	if teeth.Off(teeth.F7CountSlotless) {
		return
	}
	sh.ix.AddSlotless(h)
	s.dropNear(sh, h)
}
