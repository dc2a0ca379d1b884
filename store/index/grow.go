package index

import (
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// retryAfter is how long growth pauses after memory was short: each attempt
// hashes every key of a segment, which a full store should not pay per put.
const retryAfter = 50 * time.Millisecond

// pauseAfter is how many inserts and removals go by before another attempt to
// grow a segment whose keys could not be parted.
const pauseAfter = 16

// plan is the private memory in which growth is worked out. It is kept between
// growths; one growth uses it at a time.
type plan struct {
	keys  []planKey
	twins int // Pebble-only slots left out, because there is the same again
	img   [2]image
}

type planKey struct {
	hash layout.Hash
	slot layout.Slot
}

// image is a segment as it will be: the words of its slots (header words 0).
type image struct {
	step  uint8
	words []uint64
	used  []uint8 // slots taken, by bucket
	keys  int
}

// grow replaces the segment by larger or more ones in which h finds room. If it
// returns false, nothing was changed.
func (ix *Index) grow(now time.Time, seg *segment, h layout.Hash) bool {
	switch {
	case !now.IsZero() && now.Before(ix.retryAt):
		return ix.refuse(ix.retryWhy)
	case seg.pause > 0:
		return ix.refuse(NoParting)
	}
	waiting, most := ix.waiting()
	if waiting+uint64(len(seg.mem)) > most {
		return ix.refuse(Waiting) // for leases to end
	}
	if !ix.gather(seg) {
		seg.pause = pauseAfter
		return ix.refuse(NoParting)
	}
	// In a hurry the quarter steps are left out: they make the index denser but
	// retire five times the memory of a plain split.
	if hurry := waiting > most/2; !hurry || seg.depth == layout.MaxDepth {
		for step := seg.step + 1; step < layout.SegmentSteps; step++ {
			if ix.scratch.img[0].place(step, ix.scratch.keys, h, true, everyKey) {
				return ix.replace(now, seg, 1)
			}
		}
	}
	if seg.depth < layout.MaxDepth && ix.planSplit(seg, h) {
		return ix.replace(now, seg, 2)
	}
	seg.pause = pauseAfter
	return ix.refuse(NoParting)
}

// waiting returns the index memory that waits for leases, and the most that
// may: an eighth of the index, or a thirty-second of all memory if that is
// more (a young index that grows fast retires several times its size within a
// lease, and to stop it there would leave keys without slots for no gain).
func (ix *Index) waiting() (now, most uint64) {
	inUse, retired := ix.mem.Used()
	if ix.reclaim.Keeps() {
		retired = 0 // it does not wait: it is gone
	}
	return retired, max(inUse/8, ix.table.Limit()/32, 1<<20)
}

// gather hashes every key of the segment into the plan. Of Pebble-only slots
// that say the same, it keeps one: no reader of the new segment has ever seen
// two (see pebble.go).
func (ix *Index) gather(seg *segment) bool {
	ix.scratch.keys, ix.scratch.twins = ix.scratch.keys[:0], 0
	for b := range 3 * seg.groups {
		words := bucketAt(seg.mem, b)
		for i := 1; i < len(words); i++ {
			s := layout.Slot(load(&words[i]))
			if s.Class() == 0 {
				continue
			}
			h, ok := s.PebbleHash()
			switch {
			case !ok:
				if h, ok = ix.hashOf(s); !ok {
					return false
				}
			case seg.sameBefore(h, s, b, i):
				ix.scratch.twins++
				continue
			}
			ix.scratch.keys = append(ix.scratch.keys, planKey{h, s})
		}
	}
	return true
}

// planSplit places the keys into two children, each of the smallest step that
// takes them.
func (ix *Index) planSplit(seg *segment, h layout.Hash) bool {
	depth := seg.depth + 1
	for side := range uint32(2) {
		prefix := seg.prefix<<1 | side
		mine := func(h layout.Hash) bool { return h.Prefix(depth) == prefix }
		placed := false
		for step := uint8(0); step < layout.SegmentSteps && !placed; step++ {
			placed = ix.scratch.img[side].place(step, ix.scratch.keys, h, mine(h), mine)
		}
		if !placed {
			return false
		}
	}
	return true
}

func everyKey(layout.Hash) bool { return true }

// place fills the image with those keys that mine selects. It returns false
// when one of them, or extra (if withExtra), finds no room at this step.
func (im *image) place(step uint8, keys []planKey, extra layout.Hash, withExtra bool, mine func(layout.Hash) bool) bool {
	groups := layout.SegmentGroups(step)
	im.step, im.keys = step, 0
	im.words = resized(im.words, 3*groups*layout.BucketSize/8)
	im.used = resized(im.used, 3*groups)
	used := func(b int) int { return int(im.used[b]) }
	for i := range keys {
		k := &keys[i]
		if !mine(k.hash) {
			continue
		}
		a, b := k.hash.Mains(groups)
		bkt, ok := choose(a, b, used)
		if !ok {
			return false
		}
		im.used[bkt]++
		im.words[bkt*layout.BucketSize/8+int(im.used[bkt])] = uint64(k.slot)
		im.keys++
	}
	if !withExtra {
		return true
	}
	a, b := extra.Mains(groups)
	_, ok := choose(a, b, used)
	return ok
}

// resized returns s with n zeroed elements.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// replace carries the plan out: its first n images take the place of seg.
// All memory is reserved before the first store that a reader could see; from
// the mark on nothing can fail.
func (ix *Index) replace(now time.Time, seg *segment, n int) bool {
	var fresh [2]*segment
	var d *directory
	var err error
	depth, prefix := seg.depth, seg.prefix
	if n == 2 {
		depth, prefix = depth+1, prefix<<1
	}
	for i := 0; i < n && err == nil; i++ {
		fresh[i], err = ix.newSegment(prefix|uint32(i), depth, ix.scratch.img[i].step)
	}
	if err == nil && depth > ix.depth {
		d, err = ix.newDirectory(depth)
	}
	if err != nil {
		for _, s := range fresh {
			if s != nil {
				ix.dropSegment(s)
			}
		}
		ix.retryAt, ix.retryWhy = now.Add(retryAfter), NoMemory
		if errors.Is(err, region.ErrGrowing) {
			ix.retryWhy = Waiting
		}
		return ix.refuse(ix.retryWhy)
	}

	ix.mark(seg)
	for i, s := range fresh[:n] {
		s.keys = ix.scratch.img[i].keys
		s.slotless = seg.slotless.heir(seg.groups, s.groups, s.holds)
		ix.writeSegment(s, ix.scratch.img[i].words)
		ix.slots += s.capacity()
		ix.bytes += uint64(len(s.mem))
	}
	ix.keys -= ix.scratch.twins
	ix.pebble -= ix.scratch.twins
	ix.segments += n - 1
	ix.slots -= seg.capacity()
	ix.bytes -= uint64(len(seg.mem))
	if d != nil {
		ix.fillDirectory(d, fresh[:n])
		ix.publishDirectory(d)
	} else {
		for _, s := range fresh[:n] {
			ix.publishSegment(s)
		}
	}
	ix.retire(seg.place, seg.mem)
	return true
}

// retire hands index memory to package reclaim. It need not be listed, because a client
// verifies by bucket headers what it has cached of index memory.
func (ix *Index) retire(p layout.Place, mem []byte) {
	pages := len(mem) / layout.PageSize
	ix.mem.Retired(pages)
	ix.retired.Add(int64(len(mem)))
	ix.reclaim.Retire(time.Time{}, p, uint32(pages), false, func() {
		ix.mem.FreeRetired(p, pages)
		ix.retired.Add(-int64(len(mem)))
	})
}
