package region

import (
	"fmt"
	"math/bits"
)

// Extents hands out runs of units (4 KiB pages) inside one region: first fit
// from the low end over a bitmap, one bit a unit. A bitmap coalesces by itself
// and costs 1/32768 of the memory; a free list of runs would need merging and
// more bytes when memory is fragmented. It is not safe for concurrent use.
type Extents struct {
	used  []uint64 // bit set: taken. Bits beyond units are set too
	units int
	free  int
	// Invariant: no unit below low is free.
	low int
	// Invariant: no free run of failed[a] or more units exists, where a is 1
	// for aligned takes; 0 means nothing is known. It makes a request to a full
	// region cheap.
	failed [2]int
}

// NewExtents returns an allocator of units units, all free.
func NewExtents(units int) *Extents {
	e := &Extents{used: make([]uint64, (units+63)/64), units: units, free: units}
	if tail := units % 64; tail != 0 {
		e.used[len(e.used)-1] = ^uint64(0) << tail
	}
	return e
}

// Take finds n free units in one run whose start is a multiple of align, and
// marks them taken. ok is false when there is no such run.
func (e *Extents) Take(n, align int) (start int, ok bool) {
	if n <= 0 || align <= 0 {
		panic(fmt.Sprintf("region: Extents.Take(%d units, align %d)", n, align))
	}
	kind := min(align-1, 1)
	if n > e.free || e.failed[kind] != 0 && n >= e.failed[kind] {
		return 0, false
	}
	e.low = e.next(e.low, false)
	for start = e.low; ; {
		start = (e.next(start, false) + align - 1) / align * align
		if start+n > e.units {
			break
		}
		if end := e.next(start, true); end-start >= n {
			e.set(start, n, true)
			return start, true
		} else if end > start {
			start = end
		} else {
			start++ // the aligned start itself is taken
		}
	}
	e.failed[kind] = n
	return 0, false
}

// Release gives back units that Take returned (or a part of them). Giving back
// a unit that is free already is a broken invariant and panics.
func (e *Extents) Release(start, n int) {
	if start < 0 || n <= 0 || start+n > e.units {
		panic(fmt.Sprintf("region: Extents.Release(%d, %d) of %d units", start, n, e.units))
	}
	e.set(start, n, false)
	e.low = min(e.low, start)
	e.failed = [2]int{}
}

// TakeAt marks n units from start taken, if all of them are free.
func (e *Extents) TakeAt(start, n int) bool {
	if start < 0 || n <= 0 || start+n > e.units || !e.allFree(start, n) {
		return false
	}
	e.set(start, n, true)
	return true
}

// allFree reports whether n units from start are free. It looks at no others.
func (e *Extents) allFree(start, n int) bool {
	for i := start; i < start+n; {
		take := min(64-i%64, start+n-i)
		if e.used[i/64]>>(i%64)<<(64-take) != 0 {
			return false
		}
		i += take
	}
	return true
}

// IsFree reports whether a unit is free.
func (e *Extents) IsFree(unit int) bool { return e.used[unit/64]>>(unit%64)&1 == 0 }

// Units is the number of units.
func (e *Extents) Units() int { return e.units }

// Free is the number of free units.
func (e *Extents) Free() int { return e.free }

// next returns the first unit at or after i that is taken (or free), or the
// number of units when there is none.
func (e *Extents) next(i int, taken bool) int {
	for w := i / 64; w < len(e.used); w++ {
		v := e.used[w]
		if !taken {
			v = ^v
		}
		if w == i/64 {
			v &= ^uint64(0) << (i % 64)
		}
		if v != 0 {
			return min(w*64+bits.TrailingZeros64(v), e.units)
		}
	}
	return e.units
}

// set marks n units from start taken or free, a word at a time.
func (e *Extents) set(start, n int, taken bool) {
	for i := start; i < start+n; {
		take := min(64-i%64, start+n-i)
		mask := (^uint64(0) >> (64 - take)) << (i % 64)
		w := &e.used[i/64]
		if taken && *w&mask != 0 || !taken && *w&mask != mask {
			panic(fmt.Sprintf("region: units %d..%d of %d..%d are already %s", i, i+take-1, start, start+n-1,
				map[bool]string{true: "taken", false: "free"}[taken]))
		}
		*w ^= mask
		i += take
	}
	if taken {
		e.free -= n
	} else {
		e.free += n
	}
}
