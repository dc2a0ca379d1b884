package shard

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// RefOf finds a slot by its word. The index is walked: it is for the few that
// are damaged. Caller holds Mu.
func (s *Items) RefOf(slot layout.Slot) (ref index.Ref, found bool) {
	s.Index.All(func(r index.Ref) bool {
		ref, found = r, r.Slot() == slot
		return !found
	})
	return ref, found
}

// LinkRepaired puts the good copy into the damaged item's slot, unless
// something has changed. Caller holds Mu.
func (sh *Shard) LinkRepaired(p *Probe, slot layout.Slot, v layout.Version, place layout.Place, class uint8, mem []byte) bool {
	if p.told {
		return false
	}
	ref, found := sh.Index.Find(p.Hash, func(o layout.Slot) bool { return o == slot })
	if !found || sh.held[slot.Place()] != nil || sh.mem.Verifies(slot) {
		return false
	}
	sh.left(slot.Place(), v)
	if class == 0 {
		sh.fill.touch(p.Key)
		sh.demote(p.Hash, ref)
		return true
	}
	sh.makeLive(ref, layout.MakeSlot(p.Hash.Fingerprint(), class, place), v, mem, slot, layout.Live)
	sh.mem.Slabs.Free(slot.Place(), slot.Class())
	return true
}

// Orphan has the slot of a damaged item cleared that is nobody's: the key has
// another, or is gone. Not at once: a reader may have looked for the key where
// it is now before it was there, and look here after. Caller holds Mu.
func (s *Items) Orphan(slot layout.Slot) {
	if s.held[slot.Place()] != nil {
		return
	}
	mem := s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize)
	s.Kill(slot)
	head := binary.LittleEndian.Uint64(mem)
	s.mem.Counts.Orphans.Add(1)
	s.mem.Reclaim.After(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		ref, found := s.RefOf(slot)
		if !found || binary.LittleEndian.Uint64(s.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize)) != head {
			return
		}
		s.Index.Clear(ref)
		s.ruin(slot.Place())
		s.mem.Slabs.Free(slot.Place(), slot.Class())
		s.slots--
	})
}
