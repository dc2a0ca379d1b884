package layout

import "fmt"

// A Pebble-only slot (class 255) stands for keys whose value has left memory. There is no item to take the key from,
// so its 40 place bits keep what growth needs of the hash:
//
//	│ fingerprint 16 │ 255 │ prefix 20 │ cell of x 9 │ side 1 │ cell of y 9 │ side 1 │
//
// x and y are the two 31-bit numbers that choose a key's groups. A segment only needs to know which of its groups
// they fall into, and there are but four numbers of groups. The borders of all four cut the range of x into 464
// cells, that of y into 438, so nine bits say it exactly: such a slot can be routed through every split and every
// step of growth, as if its key were at hand. (Twenty bits of x and twenty of y would not: a border may fall between
// two numbers that agree in them.)
//
// 56 bits do not identify a key: keys that have all of them in common share the slot. So one slot may stand for
// several keys, and it never becomes any key's own again (docs/correctness.md). It tells a reader to ask.
const (
	pebbleSideY  = 0
	pebbleCellY  = 1
	pebbleSideX  = 10
	pebbleCellX  = 11
	pebblePrefix = 20
	cellBits     = 9
	cellMask     = 1<<cellBits - 1
)

// xCells and yCells hold the first number of each cell, and behind the last
// cell the end of the range.
var xCells, yCells = firstOfCells(0), firstOfCells(1)

// firstOfCells cuts the range of 31-bit numbers at the borders of every number
// of groups, less minus.
func firstOfCells(minus int) []uint32 {
	first := make([]uint32, 1, 1<<cellBits)
	for x := uint32(0); ; {
		// The next border is the least number with a higher group at some step.
		next := uint64(1) << 31
		for step := range uint8(SegmentSteps) {
			n := uint64(SegmentGroups(step) - minus)
			g := uint64(x)*n>>31 + 1
			next = min(next, (g<<31+n-1)/n)
		}
		x = uint32(next)
		first = append(first, x)
		if next == 1<<31 {
			return first
		}
	}
}

// The cells must be told by their bits.
var _ [cellMask - (85 + 106 + 128 + 149 - 3)]struct{}

// cellOf is the cell of a 31-bit number: the last that begins at or below it.
func cellOf(cells []uint32, x uint32) uint64 {
	// The borders are nearly evenly spread: guess, then step.
	i := int(uint64(x) * uint64(len(cells)-1) >> 31)
	for cells[i] > x {
		i--
	}
	for cells[i+1] <= x {
		i++
	}
	return uint64(i)
}

// PebbleSlot is the Pebble-only slot of a key.
func PebbleSlot(h Hash) Slot {
	x, y := uint32(h.Lo>>32), uint32(h.Lo)
	bits := uint64(h.Prefix(MaxDepth))<<pebblePrefix |
		cellOf(xCells, x>>1)<<pebbleCellX | uint64(x&1)<<pebbleSideX |
		cellOf(yCells, y>>1)<<pebbleCellY | uint64(y&1)<<pebbleSideY
	return MakeSlot(h.Fingerprint(), ClassPebble, Place(bits))
}

// PebbleHash returns a hash that has everything in common with those of the
// keys that the slot stands for, as far as an index looks at it: fingerprint,
// prefix of every depth, and main buckets in segments of every step. The hash
// of such a hash's slot is itself. ok is false for any other slot, and for
// bits that PebbleSlot never makes.
func (s Slot) PebbleHash() (h Hash, ok bool) {
	bits := uint64(s.Place())
	x, y := bits>>pebbleCellX&cellMask, bits>>pebbleCellY&cellMask
	if s.Class() != ClassPebble || x >= uint64(len(xCells)-1) || y >= uint64(len(yCells)-1) {
		return Hash{}, false
	}
	half := func(first uint32, side uint64) uint64 { return uint64(first)<<1 | side&1 }
	return Hash{
		Hi: bits>>pebblePrefix<<(64-MaxDepth) | uint64(s.Fingerprint()),
		Lo: half(xCells[x], bits>>pebbleSideX)<<32 | half(yCells[y], bits>>pebbleSideY),
	}, true
}

// pebbleString describes such a slot.
func (s Slot) pebbleString() string {
	h, ok := s.PebbleHash()
	if !ok {
		return fmt.Sprintf("%04x pebble %#x, which no key has", s.Fingerprint(), uint64(s.Place()))
	}
	return fmt.Sprintf("%04x pebble prefix %05x", s.Fingerprint(), h.Prefix(MaxDepth))
}
