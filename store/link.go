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
	if !found {
		var room bool
		if ref, room = sh.ix.Room(time.Now(), w.hash); !room {
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

// kill makes the item of a slot unreadable. One that is held for a reader
// becomes Held instead: for everybody else that is as good as dead, and the
// reader who was given the place can still verify it. Caller holds mu.
func (s *Store) kill(sh *shard, slot layout.Slot) {
	mem := s.table.Bytes(slot.Place(), layout.ItemHeaderSize)
	v, _ := layout.LoadState(mem)
	state := layout.Dead
	if h := sh.held[slot.Place()]; h != nil {
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
	ref, found := sh.find(w.hash, w.Key)
	if !found {
		return
	}
	old := sh.hit
	s.kill(sh, old)
	sh.ix.Clear(ref)
	s.slabs.Free(old.Place(), old.Class())
	sh.slots--
}

// linkSlotless publishes a put for which there is no memory: the key is
// counted as one without a slot (rule F7), before the put is acknowledged, so
// that no miss there is believed from now on. Caller holds mu.
//
// If the key has a slot, its old item is killed at once and the slot stays for
// a lease, leading to a dead item, which makes readers ask. It may not be
// cleared earlier: the words of one READ come in any order, so a reader may
// have fetched the bucket's header before the count was raised and fetch the
// slots after they were cleared, and would call an existing key absent. After
// a lease no such READ counts any more.
func (s *Store) linkSlotless(sh *shard, w *Write, ref index.Ref, found bool) {
	sh.fill.touch(w.Key)
	s.addSlotless(sh, w.hash)
	if !found {
		return
	}
	old := sh.hit
	mem := s.table.Bytes(old.Place(), layout.ItemHeaderSize)
	v, state := layout.LoadState(mem)
	if state != layout.Live {
		return // on its way out already
	}
	s.kill(sh, old)
	if teeth.Off(teeth.F7CountSlotless) {
		s.clearParted(sh, w.hash, old, v)
		return
	}
	hash := w.hash // w is reused by its caller
	s.reclaim.After(func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		s.clearParted(sh, hash, old, v)
	})
}

// addSlotless counts a key that has no slot.
func (s *Store) addSlotless(sh *shard, h layout.Hash) {
	s.counts.slotless.Add(1)
	if teeth.Off(teeth.F7CountSlotless) {
		return
	}
	sh.ix.AddSlotless(h)
}

// clearParted clears a slot that has led to a dead item for a lease, unless
// the key was put or deleted since. Caller holds mu.
func (s *Store) clearParted(sh *shard, h layout.Hash, old layout.Slot, v layout.Version) {
	ref, found := sh.ix.Find(h, func(slot layout.Slot) bool { return slot == old })
	if !found {
		return
	}
	// The same slot word may lead to a newer item at the same place.
	if now, state := layout.LoadState(s.table.Bytes(old.Place(), layout.ItemHeaderSize)); now != v || state == layout.Live {
		return
	}
	sh.ix.Clear(ref)
	s.slabs.Free(old.Place(), old.Class())
	sh.slots--
}
