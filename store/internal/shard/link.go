package shard

import (
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How items change hands in registered memory: each function here is a few
// aligned stores whose order a reader relies on.

// link makes a pending item the value of its key (put-order):
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
// a reader that meets a pending or dead item reads again. Caller holds the shard's lock.
func (sh *Shard) link(e *flight.Effect, mem []byte) {
	ref, found := sh.Find(e.Hash, e.Key)
	old := sh.hit
	if !found {
		var room bool
		if ref, room = sh.room(e.Hash); !room {
			layout.SetState(mem, e.Version, layout.Dead)
			sh.ruin(e.Place)
			sh.mem.Slabs.Free(e.Place, e.Class)
			sh.linkSlotless(e, ref, false)
			return
		}
	}
	slot := layout.MakeSlot(e.Hash.Fingerprint(), e.Class, e.Place)
	if !found {
		old = 0
	}
	sh.makeLive(ref, slot, e.Version, mem, old, e.Visible())
	if found {
		sh.mem.Slabs.Free(old.Place(), old.Class())
	} else {
		sh.slots++
	}
}

// makeLive runs the steps of link behind the first: kill the item of old, if
// that is not empty; swing; live. Caller holds Mu.
func (s *Items) makeLive(ref index.Ref, slot layout.Slot, v layout.Version, mem []byte, old layout.Slot, state layout.State) {
	if !old.Empty() {
		s.Kill(old)
	}
	s.Index.Set(ref, slot)
	if !old.Empty() {
		s.ruin(old.Place())
	}
	layout.SetState(mem, v, state)
}

// ruin sees to it that an item which was killed, and to which no slot leads any more, is believed by no later life: its checksum goes. Its state alone would
// not do, because no checksum covers that. Of one that is held for a reader the checksum goes with the last reader (Unpin). It is called
// before the write that replaces the item is acknowledged, and where an item is replaced before the new one is live. Caller holds Mu.
func (s *Items) ruin(place layout.Place) {
	if s.mem.Kept && s.held[place] == nil {
		layout.DestroyChecksum(s.mem.Table.Bytes(place, layout.ItemHeaderSize))
	}
}

// deadVersion is the version of an item that is killed and shows none. No write
// has it: epochs begin at 1, and a cache numbers from the time of day.
const deadVersion layout.Version = 1

// Kill makes the item of a slot unreadable. One that is held for a reader
// becomes Held instead: for everybody else that is as good as dead, and the
// reader who was given the place can still verify it. Caller holds Mu.
func (s *Items) Kill(slot layout.Slot) {
	mem := s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize)
	v, _ := layout.LoadState(mem)
	if v == 0 {
		// The header is damaged, and no item has version 0. Any version will do
		// that no write was given, because a dead item proves nothing.
		v = deadVersion
	}
	state := layout.Dead
	if h := s.held[slot.Place()]; h != nil {
		h.killed = true
		state = layout.Held
	}
	layout.SetState(mem, v, state)
}

// unlink publishes a delete: kill the item, clear the slot, free the place.
// Caller holds Mu.
func (sh *Shard) unlink(e *flight.Effect) {
	sh.fill.touch(e.Key)
	sh.Index.RemoveSlotless(e.Hash) // if it was counted, the next segment need not
	sh.Trace(e.Hash)
	ref, found := sh.Find(e.Hash, e.Key)
	if !found {
		return
	}
	old := sh.hit
	sh.Kill(old)
	sh.Index.Clear(ref)
	sh.ruin(old.Place())
	sh.mem.Slabs.Free(old.Place(), old.Class())
	sh.slots--
}

// linkSlotless publishes a put for which there is no memory: from now on the
// key is in Pebble only. Caller holds Mu. Its slot says so, or there is one that
// says so of all keys with its bits, or else the key is counted as one without
// a slot (slotless-keys-are-counted): before the put is acknowledged, so that no miss there is
// believed from then on. A cache drops the key instead.
func (sh *Shard) linkSlotless(e *flight.Effect, ref index.Ref, found bool) {
	pebbled := sh.pebbled && !found // find's; what follows asks for others
	sh.fill.touch(e.Key)
	switch {
	case found:
		sh.demote(e.Hash, ref)
	case !sh.mem.Backed:
		sh.mem.Counts.Dropped.Add(1)
	case pebbled:
	default:
		if ref, room := sh.Index.Room(time.Now(), e.Hash); room {
			sh.Index.Set(ref, layout.PebbleSlot(e.Hash))
			return
		}
		sh.AddSlotless(e.Hash)
	}
}

// demote takes the item of slot ref, of a key of that hash, out of memory: kill
// it, let the slot say that the key is in Pebble only, free the place. The key
// is there all the time: before the kill readers find it, and after that they
// ask. Caller holds Mu.
func (s *Items) demote(h layout.Hash, ref index.Ref) {
	old := ref.Slot()
	s.Kill(old)
	s.slots--
	switch {
	case !s.mem.Backed:
		// In a cache this is a delete.
		s.Index.Clear(ref)
		s.mem.Counts.Dropped.Add(1)
	default:
		s.Index.Set(ref, layout.PebbleSlot(h))
		s.pairTwins(h, ref)
	}
	s.ruin(old.Place())
	s.mem.Slabs.Free(old.Place(), old.Class())
}

// pairTwins has one of two Pebble-only slots that say the same cleared a lease
// from now. A key that was put again has one from before: nobody can tell
// whether that was its own, so it was left where it was. Caller holds Mu.
func (s *Items) pairTwins(h layout.Hash, ref index.Ref) {
	twins := s.Index.Pair(h, ref)
	if twins == nil {
		return
	}
	s.mem.afterLease(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Index.ClearTwin(twins)
	})
}

// LeftToAsk is for a key of that hash whose write is void: while the fill is not over, the fill
// has perhaps left the key to the write, so a miss of it must not be believed. Caller holds Mu.
func (s *Items) LeftToAsk(h layout.Hash) {
	if !s.full {
		s.mem.Counts.Slotless.Add(1)
		s.Index.AddSlotless(h)
	}
}

// AddSlotless counts a key that has no slot, and sees to it that there will be
// more of them. Caller holds Mu.
func (sh *Shard) AddSlotless(h layout.Hash) {
	sh.mem.Counts.Slotless.Add(1)
	sh.Index.AddSlotless(h)
	sh.DropNear(h)
}
