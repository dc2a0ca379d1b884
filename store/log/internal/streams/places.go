package streams

import (
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Places are where the entries of a stream stand, in chunks of consecutive indexes:
//
//	chunks    | origin          | origin+1        | ...             |
//	          +-----------------+-----------------+-----------------+
//	indexes   | ..63 of origin  | chunkLen each   | up to the last  |
//
// An entry takes 12 bytes, and a chunk and a half of each stream are empty on average. A
// trim gives whole chunks back. A slice of entries would not: to give back its front it
// would have to be copied, and in between it would hold up to twice what counts.
type places struct {
	chunks []*chunk
	origin uint64 // the index of the first chunk's first entry, divided by chunkLen
}

// chunkLen is small enough for 65,536 streams with a few entries each (50 MB), and large
// enough that the pointer to a chunk does not count. A chunk has a size class of its own.
const chunkLen = 64

type chunk struct {
	at   [chunkLen]format.Position
	size [chunkLen]uint32
}

// put notes entry i, the one behind the last, or the first one.
func (p *places) put(i uint64, at format.Position, size uint32) {
	if len(p.chunks) == 0 {
		p.origin = i / chunkLen
	}
	k := i/chunkLen - p.origin
	if k == uint64(len(p.chunks)) {
		p.chunks = append(p.chunks, new(chunk))
	}
	c := p.chunks[k]
	c.at[i%chunkLen], c.size[i%chunkLen] = at, size
}

// get returns where entry i stands, which is there.
func (p *places) get(i uint64) (format.Position, uint32) {
	c := p.chunks[i/chunkLen-p.origin]
	return c.at[i%chunkLen], c.size[i%chunkLen]
}

// keep forgets all entries but those from first to last, which are there: first is behind
// last if there are none.
func (p *places) keep(first, last uint64) {
	if first > last {
		*p = places{}
		return
	}
	if len(p.chunks) == 0 {
		return
	}
	front := first/chunkLen - p.origin
	end := last/chunkLen - p.origin + 1
	if front == 0 && end == uint64(len(p.chunks)) {
		return
	}
	clear(p.chunks[:front])
	clear(p.chunks[end:])
	rest := p.chunks[front:end]
	if uint64(len(rest)) < front {
		rest = slices.Clone(rest) // give back the pointers in front; else append does so
	}
	p.chunks, p.origin = rest, p.origin+front
}
