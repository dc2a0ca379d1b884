package store

import (
	"github.com/rdmakv/rdmakv/store/layout"
)

// An item is a key's item in registered memory, as the server looks at it.
// Good while the shard's lock is held, or the place is pinned.
type item struct {
	layout.ItemView
	slot layout.Slot
	mem  []byte // the whole place
}

// itemAt reads the item that a slot leads to. Memory that does not verify is
// damaged: slots lead to whole items at all times. Caller holds the shard's
// lock.
func (s *Store) itemAt(slot layout.Slot) (item, bool) {
	if slot.Empty() || slot.Class() > layout.NumClasses {
		return item{}, false
	}
	mem := s.table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	view, err := layout.ParseItem(mem, s.incarnation, slot.Place())
	if err != nil {
		s.counts.damaged.Add(1)
		s.fence.report(levelError, "item in memory does not verify", "place", slot.Place(), "err", err)
		return item{}, false
	}
	return item{ItemView: view, slot: slot, mem: mem}, true
}

// value is the item's value in place. Unlike ItemView.Value it is there for
// chunked items too, whose chunks it does not verify.
func (it *item) value() []byte {
	off := it.ValueOffset()
	return it.mem[off : off+it.ValLen : off+it.ValLen]
}

// verified reports whether the value is what was written. The head was
// verified by itemAt, and with it the value of an item that is not chunked.
func (it *item) verified(value []byte) bool {
	for i := range it.Chunks {
		off, n := it.ChunkRange(i)
		if !it.VerifyChunk(i, value[off:off+n]) {
			return false
		}
	}
	return true
}

// hashOf is what the index asks when it moves slots into new segments: the
// hash of the key that a slot leads to. Called under the shard's lock.
func (s *Store) hashOf(slot layout.Slot) (layout.Hash, bool) {
	it, ok := s.itemAt(slot)
	if !ok {
		return layout.Hash{}, false
	}
	return layout.HashKey(s.seed, it.Key()), true
}
