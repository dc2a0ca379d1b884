package index

import (
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
)

// maxRemembered bounds the hashes that a segment keeps of the keys that it
// counts. More than this many keys without slot in one segment means that
// memory is short, and then it does not grow either.
const maxRemembered = 256

// counts are a segment's keys without slot.
type counts struct {
	// shown is, by main bucket (2*group + side), the count that the header
	// shows or will show once the shard is filled; nil while all are 0.
	shown []uint8
	// keys are the hashes of the keys counted, each once. They are not in the
	// registered memory: they make growth exact, and no reader needs them.
	keys []layout.Hash
	// vague: there were too many to remember them all.
	vague bool
}

// raise adds n to the count of a main bucket. It sticks at 255.
func (c *counts) raise(m layout.Main, n int, groups int) {
	if c.shown == nil {
		c.shown = make([]uint8, 2*groups)
	}
	v := &c.shown[2*m.Group+int(m.Side)]
	*v = uint8(min(layout.SlotlessMany, int(*v)+n))
}

// add counts a key. It returns false if the key was counted already.
func (c *counts) add(h layout.Hash, groups int) bool {
	if !c.vague && slices.Contains(c.keys, h) {
		return false
	}
	switch {
	case c.vague:
	case len(c.keys) == maxRemembered:
		c.keys, c.vague = nil, true
	default:
		c.keys = append(c.keys, h)
	}
	a, _ := h.Mains(groups)
	c.raise(a, 1, groups)
	return true
}

// AddSlotless counts a key that has no slot, before the put that left it
// without one is acknowledged, or before its slot is dropped. The count is
// raised at the first of the key's two main buckets: a reader looks at both,
// and accepts a miss only if both are zero. A key is counted once, however
// often it is put without a slot, and until Room has found one for it. Whether
// it has a slot at this moment does not matter, because the caller may be about
// to drop it.
func (ix *Index) AddSlotless(h layout.Hash) {
	seg := ix.segmentOf(h)
	if seg.slotless.add(h, seg.groups) && ix.shown.Load() {
		a, _ := h.Mains(seg.groups)
		b := a.MainBucket()
		ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.slotless")
	}
}

// RemoveSlotless says that a key which may have been counted was deleted. The
// header keeps its count, because a reader may see it beside an older slot;
// the segments that replace this one leave the key out. The call is optional:
// without it a count says too much.
func (ix *Index) RemoveSlotless(h layout.Hash) {
	seg := ix.segmentOf(h)
	seg.slotless.forget(h)
}

// forget takes a key out of what the next segment will count.
func (c *counts) forget(h layout.Hash) {
	if i := slices.Index(c.keys, h); i >= 0 {
		c.keys = slices.Delete(c.keys, i, i+1)
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
	ix.fills++
	fill := ix.fills
	if !ix.touched {
		ix.due.Store(fill)
		ix.show()
		return
	}
	// Tick has no shard lock; the next call that looks into the index has one.
	ix.reclaim.After(func() { ix.due.Store(fill) })
}

// Unfill says that the index is about to be emptied: each header shows 255 from here on, and Slotless says yes, as
// before SetFilled. The caller leaves the slots alone until no READ is left that was posted before, because the words
// of one READ come in any order, and an older header beside a slot that was cleared would prove a key absent. touched: some
// reader may have seen another header, so that this is to be waited for.
func Unfill(ix *Index) (touched bool) {
	if ix.due.Load() != 0 {
		ix.show() // else a fill's lease that is over would show its counts later
	}
	ix.filled = false
	if !ix.shown.Swap(false) {
		return false
	}
	ix.eachSegment(func(seg *segment) {
		for b := range 3 * seg.groups {
			ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.unfilled")
		}
	})
	return ix.touched
}

// Uncount forgets which keys have no slot. Between Unfill and SetFilled that is nobody's business, because every miss is asked.
func Uncount(ix *Index) {
	if ix.filled {
		panic("index: Uncount of an index whose misses are believed")
	}
	ix.eachSegment(func(seg *segment) { seg.slotless = counts{} })
}

// show rewrites every header with its true count. It may run under a shard
// lock held for reading: then several callers may arrive, and one does it.
func (ix *Index) show() {
	if fill := ix.due.Swap(0); !ix.filled || fill != ix.fills || ix.shown.Swap(true) {
		return
	}
	ix.eachSegment(func(seg *segment) {
		for b := range 3 * seg.groups {
			ix.store(seg.mem, b*layout.BucketSize, uint64(ix.header(seg, b)), "index.filled")
		}
	})
}

// heir returns the counts for a segment that takes over from this one, with
// another number of groups, the keys that mine selects.
func (c *counts) heir(from, groups int, mine func(layout.Hash) bool) (to counts) {
	if !c.vague {
		for _, h := range c.keys {
			if mine(h) {
				to.add(h, groups)
			}
		}
		return to
	}
	// It is not known which keys they were. A main bucket is a share of the
	// hash range on one side, so its keys can belong to each bucket whose share
	// meets that range: one to three of them. Each gets the whole count.
	to.vague = true
	for m, n := range c.shown {
		if n == 0 {
			continue
		}
		g, side := m/2, uint8(m%2)
		// A hash x has group g of from if x/2^31 lies in [g, g+1)/from.
		last := min(groups-1, ((g+1)*groups-1)/from)
		for i := g * groups / from; i <= last; i++ {
			to.raise(layout.Main{Group: i, Side: side}, int(n), groups)
		}
	}
	return to
}
