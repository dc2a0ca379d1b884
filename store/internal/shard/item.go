package shard

import (
	"bytes"
	"log/slog"

	"github.com/rdmakv/rdmakv/store/layout"
)

// An Item is a key's item in registered memory, as the server looks at it.
// Good while the shard's lock is held, or the place is pinned.
type Item struct {
	layout.ItemView
	Slot layout.Slot
	Mem  []byte // the whole place
}

// InPlace is the item's value in place. Unlike ItemView.Value it is there for
// chunked items too, whose chunks it does not verify.
func (it *Item) InPlace() []byte {
	off := it.ValueOffset()
	return it.Mem[off : off+it.ValLen : off+it.ValLen]
}

// Verified reports whether the value is what was written. The head was
// verified by itemAt, and with it the value of an item that is not chunked.
func (it *Item) Verified(value []byte) bool {
	for i := range it.Chunks {
		off, n := it.ChunkRange(i)
		if !it.VerifyChunk(i, value[off:off+n]) {
			return false
		}
	}
	return true
}

// itemAt reads the item that a slot leads to. Memory that does not verify is
// damaged: slots lead to whole items at all times. Caller holds the shard's
// lock.
func (m *Memory) itemAt(slot layout.Slot) (Item, bool) {
	if slot.Empty() || slot.Class() > layout.NumClasses {
		return Item{}, false
	}
	mem := m.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	view, err := layout.ParseItem(mem, m.Incarnation, slot.Place())
	if left := m.left.Load(); err != nil && left != nil {
		view, ok := m.believe(left, slot, mem)
		return Item{ItemView: view, Slot: slot, Mem: mem}, ok
	}
	if err != nil {
		m.Counts.Damaged.Add(1)
		m.Fence.Report(slog.LevelError, "item in memory does not verify", "place", slot.Place(), "err", err)
		return Item{}, false
	}
	return Item{ItemView: view, Slot: slot, Mem: mem}, true
}

// Verifies says whether the item of a slot in force is whole, and live. Caller
// holds Mu.
func (m *Memory) Verifies(slot layout.Slot) bool {
	it, whole := m.InspectItem(slot)
	return whole && it.State == layout.Live
}

// InspectItem reads the item of a slot in force; whole: all its checksums hold.
// Unlike itemAt it reports nothing. One that is whole and not live is no damage
// in itself: a write in flight may have hidden it. Caller holds Mu.
func (m *Memory) InspectItem(slot layout.Slot) (it Item, whole bool) {
	mem := m.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	view, err := layout.ParseItem(mem, m.Incarnation, slot.Place())
	if left := m.left.Load(); err != nil && left != nil {
		view, ok := m.believe(left, slot, mem)
		return Item{ItemView: view, Slot: slot, Mem: mem}, ok
	}
	if err != nil {
		return Item{}, false
	}
	it = Item{ItemView: view, Slot: slot, Mem: mem}
	return it, it.Verified(it.InPlace())
}

// GuessKey returns the key that a damaged item shows, if it may be that of its
// slot. Caller holds Mu.
func (m *Memory) GuessKey(slot layout.Slot) []byte {
	mem := m.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	it, ok := layout.PeekItem(mem, nil)
	if ok && len(it.Key) > 0 && layout.HashKey(m.Seed, it.Key).Fingerprint() == slot.Fingerprint() {
		return bytes.Clone(it.Key)
	}
	return nil
}

// Pinned counts the holders of a live item. Guarded by the shard's lock.
type Pinned struct {
	holders int
	killed  bool // overwritten or deleted meanwhile: its state is Held
}

// Pin keeps the live item at a place for one reader more, until unpin. Caller holds Mu.
func (s *Items) Pin(place layout.Place) *Pinned {
	p := s.held[place]
	if p == nil {
		p = &Pinned{}
		s.held[place] = p
	}
	p.holders++
	s.mem.Slabs.Pin(place)
	return p
}

// Unpin ends a pin. The item of that version dies if it was killed meanwhile and this
// was its last reader. Caller does not hold Mu.
func (s *Items) Unpin(p *Pinned, place layout.Place, version layout.Version) {
	s.mu.Lock()
	if p.holders--; p.holders == 0 {
		delete(s.held, place)
		if p.killed {
			mem := s.mem.Table.Bytes(place, layout.ItemHeaderSize)
			layout.SetState(mem, version, layout.Dead)
			if s.mem.Kept {
				layout.DestroyChecksum(mem)
			}
		}
	}
	s.mu.Unlock()
	s.mem.Slabs.Unpin(place)
}
