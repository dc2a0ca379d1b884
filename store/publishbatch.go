package store

import (
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// publishBatch makes a batch visible (rule F13): write all of it pending, then
// under one hold of the shard's lock kill all old items, swing all slots, and
// set all new items live. Whoever has seen one new value sees no old one:
// before the first is live, the last of the old ones is dead. Who asks by SEND
// takes the same lock, and whoever reads a key out of Pebble waits until the
// batch is published.
func (s *Store) publishBatch(sh *shard, w *Write) {
	for _, e := range w.effects {
		if e.class != 0 {
			s.writePending(s.table.Bytes(e.place, layout.ClassSize(e.class)), e.place, e.item())
		}
	}
	sh.mu.Lock()
	sh.durable = w.Version
	if w.noop {
		s.settle(sh, w)
		return
	}
	old := make([]layout.Slot, len(w.effects)) // what each replaces; empty: nothing
	for i, e := range w.effects {
		if !e.noop {
			old[i] = s.batchKill(sh, e)
		}
		if teeth.Off(teeth.F13BatchOrder) {
			// Key by key, as if they were single writes.
			s.batchSwing(sh, e, &old[i])
			s.batchLive(sh, e)
			teeth.At("batch.one", uint64(e.Version))
		}
	}
	if teeth.Enabled {
		teeth.At("batch.killed", uint64(w.Version))
	}
	if !teeth.Off(teeth.F13BatchOrder) {
		for i, e := range w.effects {
			s.batchSwing(sh, e, &old[i])
		}
		if teeth.Enabled {
			teeth.At("batch.swung", uint64(w.Version))
		}
		for _, e := range w.effects {
			s.batchLive(sh, e)
		}
	}
	if teeth.Enabled {
		teeth.At("batch.live", uint64(w.Version))
	}
	for _, slot := range old {
		if !slot.Empty() {
			s.slabs.Free(slot.Place(), slot.Class())
		}
	}
	s.settle(sh, w)
}

// batchKill kills the item that e replaces, and returns its slot if the item's
// place is to be freed at the end. A key that will have no slot is counted
// first. Caller holds mu.
func (s *Store) batchKill(sh *shard, e *Write) layout.Slot {
	ref, found := sh.find(e.hash, e.Key)
	old := sh.hit
	if e.puts() && e.class == 0 {
		s.linkSlotless(sh, e, ref, found) // its slot stays for a lease
		return 0
	}
	if e.removes() {
		sh.fill.touch(e.Key)
		sh.ix.RemoveSlotless(e.hash)
		s.trace(sh, e.hash)
	}
	if !found {
		return 0
	}
	s.kill(sh, old)
	return old
}

// batchSwing leads the key's slot to its new item, or clears it. *old is empty
// if the key has no slot yet. Caller holds mu.
func (s *Store) batchSwing(sh *shard, e *Write, old *layout.Slot) {
	if e.noop || e.puts() && e.class == 0 {
		return
	}
	ref, found := sh.find(e.hash, e.Key)
	switch {
	case e.removes():
		if found {
			sh.ix.Clear(ref)
			sh.slots--
		}
		return
	case !found:
		var room bool
		if ref, room = s.room(sh, e.hash); !room {
			layout.SetState(s.table.Bytes(e.place, layout.ItemHeaderSize), e.Version, layout.Dead)
			s.slabs.Free(e.place, e.class)
			e.class = 0
			s.linkSlotless(sh, e, ref, false)
			return
		}
		sh.slots++
	}
	sh.ix.Set(ref, layout.MakeSlot(e.hash.Fingerprint(), e.class, e.place))
}

// batchLive sets the key's new item live. Caller holds mu.
func (s *Store) batchLive(sh *shard, e *Write) {
	if e.puts() && e.class != 0 {
		layout.SetState(s.table.Bytes(e.place, layout.ItemHeaderSize), e.Version, e.visible())
	}
}
