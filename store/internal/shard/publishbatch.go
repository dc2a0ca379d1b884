package shard

import (
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// publishBatch makes a batch visible (batch-goes-live-at-once): write all of it pending, then
// under one hold of the shard's lock kill all old items, swing all slots, and
// set all new items live. Whoever has seen one new value sees no old one:
// before the first is live, the last of the old ones is dead. Who asks by SEND
// takes the same lock; and the log and the base show what is published, which a batch is
// when this hold ends.
func (sh *Shard) publishBatch(f *flight.Flight, results *dedup.Table) {
	for _, e := range f.Effects {
		if e.Class != 0 {
			sh.mem.WritePending(sh.mem.Table.Bytes(e.Place, layout.ClassSize(e.Class)), e.Place, e.Item())
		}
	}
	sh.Mu.Lock()
	sh.durable = f.Version
	if f.Noop {
		sh.settle(f, results)
		return
	}
	old := make([]layout.Slot, len(f.Effects)) // what each replaces; empty: nothing
	for i, e := range f.Effects {
		if !e.Noop {
			old[i] = sh.batchKill(e)
		}
	}
	for i, e := range f.Effects {
		sh.batchSwing(e, &old[i])
	}
	for _, slot := range old {
		if !slot.Empty() {
			sh.ruin(slot.Place())
		}
	}
	for _, e := range f.Effects {
		sh.batchLive(e)
	}
	for _, slot := range old {
		if !slot.Empty() {
			sh.mem.Slabs.Free(slot.Place(), slot.Class())
		}
	}
	sh.settle(f, results)
}

// batchKill kills the item that e replaces, and returns its slot if the item's
// place is to be freed at the end. A key that will have no slot is counted
// first. Caller holds Mu.
func (sh *Shard) batchKill(e *flight.Effect) layout.Slot {
	ref, found := sh.Find(e.Hash, e.Key)
	old := sh.hit
	if e.Puts() && e.Class == 0 {
		sh.linkSlotless(e, ref, found) // its slot stays for a lease
		return 0
	}
	if e.Removes() {
		sh.fill.touch(e.Key)
		sh.Index.RemoveSlotless(e.Hash)
		sh.Trace(e.Hash)
	}
	if !found {
		return 0
	}
	sh.Kill(old)
	return old
}

// batchSwing leads the key's slot to its new item, or clears it. *old is empty
// if the key has no slot yet. Caller holds Mu.
func (sh *Shard) batchSwing(e *flight.Effect, old *layout.Slot) {
	if e.Noop || e.Puts() && e.Class == 0 {
		return
	}
	ref, found := sh.Find(e.Hash, e.Key)
	switch {
	case e.Removes():
		if found {
			sh.Index.Clear(ref)
			sh.slots--
		}
		return
	case !found:
		var room bool
		if ref, room = sh.room(e.Hash); !room {
			layout.SetState(sh.mem.Table.Bytes(e.Place, layout.ItemHeaderSize), e.Version, layout.Dead)
			sh.ruin(e.Place)
			sh.mem.Slabs.Free(e.Place, e.Class)
			e.Class = 0
			sh.linkSlotless(e, ref, false)
			return
		}
		sh.slots++
	}
	sh.Index.Set(ref, layout.MakeSlot(e.Hash.Fingerprint(), e.Class, e.Place))
}

// batchLive sets the key's new item live. Caller holds Mu.
func (sh *Shard) batchLive(e *flight.Effect) {
	if e.Puts() && e.Class != 0 {
		layout.SetState(sh.mem.Table.Bytes(e.Place, layout.ItemHeaderSize), e.Version, e.Visible())
	}
}
