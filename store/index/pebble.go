package index

import (
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
)

// layout.PebbleSlot says what is in a Pebble-only slot. It tells a reader to
// ask, for every key that has these bits, and has no other use. So of two slots
// that say the same one is too many, and one may be taken away for a count of
// keys without slot. But a reader may have looked at one of them before it was
// set, and look at the other after it was cleared. Therefore
//
//   - of two that say the same, one is cleared a lease after both were set;
//   - one is cleared for good a lease after its keys were counted;
//   - growth leaves out either at once: a new segment has no old readers.

// four are the buckets in which a key of that hash may stand.
func (seg *segment) four(h layout.Hash) [4]int {
	x, y := h.Mains(seg.groups)
	return [4]int{x.MainBucket(), y.MainBucket(), x.OverflowBucket(), y.OverflowBucket()}
}

// sameBefore says whether slot word s, of hash h, also stands in the segment
// before slot i of bucket b.
func (seg *segment) sameBefore(h layout.Hash, s layout.Slot, b, i int) bool {
	for _, o := range seg.four(h) {
		words := bucketAt(seg.mem, o)
		for j := 1; j < len(words) && (o < b || o == b && j < i); j++ {
			if layout.Slot(load(&words[j])) == s {
				return true
			}
		}
	}
	return false
}

// Near calls yield for every slot that is not empty in the four buckets of h,
// until it returns false. yield must not change the index, except for Set and
// Clear of the slot it was given.
func (ix *Index) Near(h layout.Hash, yield func(Ref) bool) {
	seg := ix.segmentOf(h)
	for _, b := range seg.four(h) {
		for i := 1; i <= layout.BucketSlots; i++ {
			r := Ref{seg, int32(b*layout.BucketSize + i*8)}
			if r.Slot().Class() != 0 && !yield(r) {
				return
			}
		}
	}
}

// Twins are two Pebble-only slots of one segment that say the same.
type Twins struct {
	hash   layout.Hash
	slot   layout.Slot
	a, b   Ref
	parted bool // one of them has changed since
}

// maxTwins bounds the twins that wait for their lease. Beyond it the second
// slot stays until its segment grows.
const maxTwins = 4096

// Pair finds a slot that says the same as the Pebble-only slot r, which was
// just set, and records the two. It returns nil if there is none. The caller
// calls ClearTwin a lease later.
func (ix *Index) Pair(h layout.Hash, r Ref) *Twins {
	s := r.Slot()
	var t *Twins
	ix.Near(h, func(o Ref) bool {
		if o != r && o.Slot() == s {
			t = &Twins{hash: h, slot: s, a: o, b: r}
		}
		return t == nil
	})
	if t == nil || len(ix.twins) >= maxTwins {
		return nil
	}
	if ix.twins == nil {
		ix.twins = make(map[Ref][]*Twins)
	}
	ix.twins[t.a] = append(ix.twins[t.a], t)
	ix.twins[t.b] = append(ix.twins[t.b], t)
	return t
}

// part notes that slot r changes.
func (ix *Index) part(r Ref) {
	for _, t := range ix.twins[r] {
		t.parted = true
	}
}

// ClearTwin clears the younger of the two, if both have stood all the time
// since Pair, which is a lease now: a reader that sees the one go has seen the
// other.
func (ix *Index) ClearTwin(t *Twins) bool {
	for _, r := range [2]Ref{t.a, t.b} {
		rest := slices.DeleteFunc(ix.twins[r], func(o *Twins) bool { return o == t })
		if len(rest) == 0 {
			delete(ix.twins, r)
		} else {
			ix.twins[r] = rest
		}
	}
	if t.parted || ix.segmentOf(t.hash) != t.a.seg {
		return false
	}
	ix.Clear(t.b)
	return true
}
