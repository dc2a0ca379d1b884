package index

import (
	"github.com/rdmakv/rdmakv/store/layout"
)

// newSegment allocates a segment. Its memory holds what its former use left
// there; no reader knows of it yet.
func (ix *Index) newSegment(prefix uint32, depth, step uint8) (*segment, error) {
	p, mem, err := ix.mem.Alloc(layout.SegmentBytes(step) / layout.PageSize)
	if err != nil {
		return nil, err
	}
	return &segment{mem: mem, place: p, prefix: prefix, depth: depth, step: step, groups: layout.SegmentGroups(step)}, nil
}

// dropSegment gives back a segment that was never published.
func (ix *Index) dropSegment(seg *segment) {
	ix.mem.Free(seg.place, len(seg.mem)/layout.PageSize)
}

// holds says whether a key of that hash belongs to the segment.
func (seg *segment) holds(h layout.Hash) bool { return h.Prefix(seg.depth) == seg.prefix }

// count notes that a slot was taken (1) or emptied (-1).
func (seg *segment) count(n int) {
	seg.keys += n
	seg.pause = max(0, seg.pause-1)
}

// capacity is the number of slots.
func (seg *segment) capacity() int { return 3 * seg.groups * layout.BucketSlots }

// writeSegment writes every word of a new segment from a plan's image of its
// slots (nil: all empty). Old headers are wiped before the first slot is
// written and the new ones come last, so that no instant shows a header over
// slots that are not its own.
func (ix *Index) writeSegment(seg *segment, image []uint64) {
	buckets := 3 * seg.groups
	for b := range buckets {
		ix.store(seg.mem, b*layout.BucketSize, 0, "index.wipe")
	}
	for off := 0; off < len(seg.mem); off += 8 {
		if off%layout.BucketSize == 0 && off < buckets*layout.BucketSize {
			continue
		}
		var v uint64
		if off/8 < len(image) {
			v = image[off/8]
		}
		ix.store(seg.mem, off, v, "index.slot")
	}
	for b := range buckets {
		ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.header")
	}
}

// header is the header that bucket b of the segment shows now.
func (ix *Index) header(seg *segment, b int) layout.BucketHeader {
	n := uint8(layout.SlotlessMany)
	if ix.shown.Load() {
		n = seg.slotlessAt(b)
	}
	return layout.MakeBucketHeader(seg.step, seg.depth, b, n, ix.shard, seg.prefix)
}

// slotlessAt is the true count of bucket b; overflow buckets have none.
func (seg *segment) slotlessAt(b int) uint8 {
	if seg.slotless.shown == nil || b%3 == 1 {
		return 0
	}
	return seg.slotless.shown[b/3*2+b%3/2]
}

// mark marks every header of a segment as retired. The rest of the headers and
// all slots stay as they are.
func (ix *Index) mark(seg *segment) {
	for b := range 3 * seg.groups {
		h := layout.BucketHeader(layout.LoadWord(seg.mem, b*layout.BucketSize))
		ix.store(seg.mem, b*layout.BucketSize, uint64(h.WithMarked()), "index.mark")
	}
}

// room returns the offset of an empty slot for h in the segment.
func (seg *segment) room(h layout.Hash) (off int32, ok bool) {
	a, b := h.Mains(seg.groups)
	bkt, ok := choose(a, b, seg.used)
	if !ok {
		return 0, false
	}
	words := bucketAt(seg.mem, bkt)
	for i := 1; i < len(words); i++ {
		if layout.Slot(load(&words[i])).Class() == 0 {
			return int32(bkt*layout.BucketSize + i*8), true
		}
	}
	return 0, false
}

// used counts the slots of bucket b that are not empty.
func (seg *segment) used(b int) (n int) {
	words := bucketAt(seg.mem, b)
	for i := 1; i < len(words); i++ {
		if layout.Slot(load(&words[i])).Class() != 0 {
			n++
		}
	}
	return n
}

// choose picks the bucket for a new key of mains a and b: the less loaded main
// while one has room, then the less loaded overflow. used counts the slots
// taken in a bucket. ok is false when all four are full.
//
// Two choices between mains, overflow last: overflow slots serve both mains of
// a group, so they are worth more and are kept for where both mains are full.
func choose(a, b layout.Main, used func(bucket int) int) (bucket int, ok bool) {
	am, bm := a.MainBucket(), b.MainBucket()
	ua, ub := used(am), used(bm)
	if min(ua, ub) < layout.BucketSlots {
		if ub < ua {
			return bm, true
		}
		return am, true
	}
	ao, bo := a.OverflowBucket(), b.OverflowBucket()
	ua, ub = used(ao), used(bo)
	if min(ua, ub) < layout.BucketSlots {
		if ub < ua {
			return bo, true
		}
		return ao, true
	}
	return 0, false
}
