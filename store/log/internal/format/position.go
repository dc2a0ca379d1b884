package format

import "fmt"

// A Position is a byte of the log: the number of its segment in the upper 32 bits, its
// offset in the file in the lower 32. Positions compare as numbers, in the order in which
// the log was written. The zero Position is before every other: numbers begin at 1.
type Position uint64

// At returns a position.
func At(segment uint64, offset int64) Position {
	return Position(segment<<offsetBits | uint64(offset))
}

const (
	offsetBits = 32
	// MaxSegment bounds the number of a segment. At one segment of 64 MiB a second it
	// lasts for 136 years.
	MaxSegment = 1<<32 - 2
	// MaxSize bounds the bytes of a segment file.
	MaxSize = 1<<offsetBits - 1<<20
)

// Segment is the number of the segment.
func (p Position) Segment() uint64 { return uint64(p >> offsetBits) }

// Offset is the offset in the segment's file, in bytes.
func (p Position) Offset() int64 { return int64(p & (1<<offsetBits - 1)) }

// Add returns the position n bytes further, in the same segment.
func (p Position) Add(n int64) Position { return p + Position(n) }

// inSegment reports whether a frame may begin or end at p: behind the header of a segment
// that there can be, and where records are aligned.
func (p Position) inSegment() bool {
	segment, offset := p.Segment(), p.Offset()
	return segment >= 1 && segment <= MaxSegment &&
		offset >= MinBlock && offset <= MaxSize && offset%Align == 0
}

// String writes a position as segment+offset, both in hexadecimal.
func (p Position) String() string { return fmt.Sprintf("%x+%x", p.Segment(), p.Offset()) }

// Pad returns n rounded up to a multiple of unit, a power of two.
func Pad(n, unit int64) int64 { return (n + unit - 1) &^ (unit - 1) }

// fold adds the checksum of the next part to the checksum of a sequence. For one sequence
// two parts never have the same result, and for one part two sequences, so a change of one
// part always changes the sum; another order of the parts has the same sum only by chance,
// once in 2^64. The parts are checksums of 64 bits themselves, so mixing them
// by a multiplication is enough; if the bytes were hashed again, every byte of a value
// would be read twice.
func fold(sequence, part uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	x := (sequence ^ part) * odd
	return x ^ x>>29
}

// Chain returns the sum of a segment's frames with one frame more. It begins at 0 with
// each segment.
func Chain(before uint64, frame uint64) uint64 { return fold(before, frame) }
