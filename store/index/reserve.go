package index

import (
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
)

// reserveLoad is the load at which Reserve fills segments. It is low enough
// that chance leaves most of them below the point where they must grow, so the
// index ends up less than 2 % larger than reserved.
const reserveLoad = 0.91

// Reserve prepares a new index for the given number of keys: a fill of known
// size then grows next to nothing. It does nothing once a slot was set or the
// index has grown (a segment's identity must not come back, see the package
// comment), or when memory is short: growth does the rest.
func (ix *Index) Reserve(keys int) {
	depth, step := shape(keys)
	if ix.touched || ix.segments > 1 || depth == 0 && step <= ix.dir[0].step {
		return
	}
	n := 1 << depth
	fresh := make([]*segment, 0, n)
	drop := func() {
		for _, s := range fresh {
			ix.dropSegment(s)
		}
	}
	for i := range n {
		s, err := ix.newSegment(uint32(i), depth, step)
		if err != nil {
			drop()
			return
		}
		fresh = append(fresh, s)
	}
	d, err := ix.newDirectory(depth)
	if err != nil {
		drop()
		return
	}
	copy(d.dir, fresh)

	old := ix.dir[0]
	ix.mark(old)
	for _, s := range fresh {
		s.slotless = old.slotless.heir(old.groups, s.groups, s.holds)
		ix.writeSegment(s, nil)
	}
	ix.segments = n
	ix.slots = n * fresh[0].capacity()
	ix.bytes += uint64(n*len(fresh[0].mem)) - uint64(len(old.mem))
	ix.publishDirectory(d)
	ix.retire(old.place, old.mem)
}

// shape is the smallest uniform index that holds keys at reserveLoad.
func shape(keys int) (depth, step uint8) {
	need := int(float64(keys) / reserveLoad)
	for depth = 0; depth <= layout.MaxDepth; depth++ {
		for step = 0; step < layout.SegmentSteps; step++ {
			if 3*layout.BucketSlots*layout.SegmentGroups(step)<<depth >= need {
				return depth, step
			}
		}
	}
	return layout.MaxDepth, layout.SegmentSteps - 1
}

// A Refusal is why Room last refused. A put accepts the refusal; a fill, which
// is in no hurry, waits where waiting helps.
type Refusal uint8

const (
	// NotRefused: Room has not said no yet.
	NotRefused Refusal = iota
	// Waiting: too much retired index memory rests, which is free a lease from
	// now; or memory is being registered. Then the segment grows.
	Waiting
	// NoMemory: the limit is reached.
	NoMemory
	// NoParting: no growth makes room for these keys, or one of them has no
	// hash.
	NoParting
)

// String names the refusal for logs and counters.
func (r Refusal) String() string {
	switch r {
	case NotRefused:
		return "not refused"
	case Waiting:
		return "waiting for memory"
	case NoMemory:
		return "no memory"
	case NoParting:
		return "no growth parts the keys"
	}
	return fmt.Sprintf("Refusal(%d)", uint8(r))
}

// Refusal returns why Room last said no.
func (ix *Index) Refusal() Refusal { return ix.refusal }

// refuse notes why, for Refusal.
func (ix *Index) refuse(why Refusal) bool {
	ix.refusal = why
	return false
}
