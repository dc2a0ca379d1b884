package index

import (
	"github.com/rdmakv/rdmakv/store/layout"
)

// AddSlotless counts a key that has no slot, before the put that left it
// without one is acknowledged, or before its slot is dropped. The count is
// raised at the first of the key's two main buckets: a reader looks at both,
// and believes a miss only if both are zero.
func (ix *Index) AddSlotless(h layout.Hash) {
	seg := ix.segmentOf(h)
	if seg.slotless == nil {
		seg.slotless = make([]uint8, 2*seg.groups)
	}
	a, _ := h.Mains(seg.groups)
	n := &seg.slotless[2*a.Group+int(a.Side)]
	if *n == layout.SlotlessMany {
		return
	}
	*n++
	if ix.shown.Load() {
		b := a.MainBucket()
		ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.slotless")
	}
}

// Slotless says whether the key might exist without having a slot. Before
// SetFilled every key might.
func (ix *Index) Slotless(h layout.Hash) bool {
	if !ix.filled {
		return true
	}
	seg := ix.segmentOf(h)
	a, _ := h.Mains(seg.groups)
	return seg.slotlessAt(a.MainBucket()) != 0
}

// Filled says whether SetFilled was called.
func (ix *Index) Filled() bool { return ix.filled }

// SetFilled says that every key of the shard now has a slot, with a live item,
// or is counted. Slotless answers by the true counts from here on. The headers
// show them only a lease later (at once if no slot was ever set): a count may
// be lowered under a reader's eyes only when no READ is left that saw the slot
// of a key before it was filled in, since the words of one READ come in any
// order and an old empty slot beside a new count of zero would prove a key
// absent that was there all the time. Calling SetFilled again does nothing.
func (ix *Index) SetFilled() {
	if ix.filled {
		return
	}
	ix.filled = true
	if !ix.touched {
		ix.show()
		return
	}
	// Tick has no shard lock; whoever looks into the index next has.
	ix.reclaim.After(func() { ix.due.Store(true) })
}

// show rewrites every header with its true count. It may run under a shard
// lock held for reading: then several callers may arrive, and one does it.
func (ix *Index) show() {
	ix.due.Store(false)
	if ix.shown.Swap(true) {
		return
	}
	ix.eachSegment(func(seg *segment) {
		for b := range 3 * seg.groups {
			ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.filled")
		}
	})
}

// carrySlotless gives the counts of the segment to one that replaces it, with
// another number of groups. A main bucket is a share of the hash range on one
// side, so its keys can belong to each bucket whose share meets that range:
// one to three of them. Each gets the whole count.
func (seg *segment) carrySlotless(groups int) []uint8 {
	if seg.slotless == nil {
		return nil
	}
	to := make([]uint8, 2*groups)
	for m, n := range seg.slotless {
		if n == 0 {
			continue
		}
		g, side := m/2, m%2
		// x*seg.groups>>31 == g holds for x/2^31 in [g, g+1)/seg.groups.
		first := g * groups / seg.groups
		last := ((g+1)*groups - 1) / seg.groups
		for i := first; i <= min(last, groups-1); i++ {
			c := &to[2*i+side]
			*c = uint8(min(layout.SlotlessMany, int(*c)+int(n)))
		}
	}
	return to
}
