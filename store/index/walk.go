package index

import "github.com/rdmakv/rdmakv/store/layout"

// A Cursor is a position in the walk over an index. The zero Cursor is its
// beginning. It stays good while segments grow: a slot may then be visited
// twice or missed.
type Cursor struct {
	prefix uint32 // MaxDepth bits: where the segment begins
	slot   int    // in the segment
}

// Walk calls yield for slots from the cursor on that are not empty, until it
// returns false or most slots were looked at, empty ones too. It returns where to
// go on and how many it looked at; done: there are no more. yield must not change
// the index, except for Set and Clear of the slot it was given.
func (ix *Index) Walk(from Cursor, most int, yield func(Ref) bool) (next Cursor, looked int, done bool) {
	for {
		seg := ix.dir[from.prefix>>(layout.MaxDepth-ix.depth)]
		slots := 3 * seg.groups * layout.BucketSlots
		for ; from.slot < slots; from.slot++ {
			if looked == most {
				return from, looked, false
			}
			looked++
			b, i := from.slot/layout.BucketSlots, from.slot%layout.BucketSlots
			r := Ref{seg, int32(b*layout.BucketSize + layout.SlotOffset(i))}
			if r.Slot().Class() != 0 && !yield(r) {
				from.slot++
				return from, looked, false
			}
		}
		end := uint64(seg.prefix+1) << (layout.MaxDepth - seg.depth)
		if end >= 1<<layout.MaxDepth {
			return Cursor{}, looked, true
		}
		from = Cursor{prefix: uint32(end)}
	}
}
