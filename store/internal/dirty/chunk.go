package dirty

import (
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A record is one write. It never changes.
//
//	0         8         16      20      24       26     27      32
//	+---------+---------+-------+-------+--------+------+-------+
//	| version | at      | part  | key   | keyLen | gone |       |
//	+---------+---------+-------+-------+--------+------+-------+
type record struct {
	version layout.Version
	at      log.Position
	part    uint32
	key     uint32 // the number of its block in the upper 16 bits, its offset there in the lower
	keyLen  uint16
	gone    bool
}

const (
	perChunk   = 1 << chunkBits // records of a chunk, at most
	chunkBits  = 12
	firstChunk = 64 // records of the first: a shard with one dirty key takes 11 KiB, not 220

	// Keys lie in blocks: of 16 bytes a record, which short keys fill, as many as it takes.
	blockShare = 16
	minBlock   = layout.MaxKeyLen // every key fits into one block
	offsetBits = 16
	_          = uint(1<<offsetBits - perChunk*blockShare) // a full block's offsets fit

	recordBytes = 32
	linkBytes   = 8
	orderBytes  = 2
)

// A piece is a sequence of records of one chunk with the blocks of their keys: what views
// and runs hold of it.
type piece struct {
	records []record
	blocks  [][]byte
}

// keyOf is the key of a record. Nobody may change it.
func (p *piece) keyOf(r *record) []byte {
	off := r.key & (1<<offsetBits - 1)
	end := off + uint32(r.keyLen)
	return p.blocks[r.key>>offsetBits][off:end:end]
}

func (r *record) entry() Entry {
	return Entry{Version: r.version, Gone: r.gone, At: r.at, Part: r.part}
}

// A chunk has up to perChunk records. Its capacity follows the number of records that there
// are, so that many shards with few dirty keys each take little.
type chunk struct {
	records []record // grows up to its capacity, in place
	blocks  [][]byte // of their full length from the beginning: a view reads these headers
	used    int      // bytes of the last block
	links   []link   // one for each record; the table's alone, no view reads them
	slot    uint32
	bytes   int64
}

// piece returns the records that the chunk has now, from one on.
func (c *chunk) piece(from int) piece {
	n := len(c.records)
	return piece{c.records[from:n:n], c.blocks[:len(c.blocks):len(c.blocks)]}
}

func (c *chunk) blockSize() int { return max(minBlock, cap(c.records)*blockShare) }

// A store has the records, in chunks. A record's number is that of its chunk's slot and its
// index there: it stays while the record does. A slot is used again.
type store struct {
	chunks  []*chunk // oldest first
	slots   []*chunk
	free    []uint32 // slots without a chunk
	left    int      // records of the oldest chunk that have left
	records int      // that have not left
	bytes   int64    // of all chunks
}

// current is the newest chunk, or nil.
func (s *store) current() *chunk {
	if len(s.chunks) == 0 {
		return nil
	}
	return s.chunks[len(s.chunks)-1]
}

// full reports whether the newest chunk has no room. A record takes one block more at most, so
// the number of a block is below perChunk, and fits.
func (s *store) full() bool {
	c := s.current()
	return c == nil || len(c.records) == cap(c.records)
}

// addChunk adds a chunk for as many records as there are, within its bounds.
func (s *store) addChunk() {
	size := firstChunk
	for size < perChunk && size < s.records {
		size *= 2
	}
	c := &chunk{
		records: make([]record, 0, size), links: make([]link, size),
		bytes: int64(size) * (recordBytes + linkBytes + orderBytes),
	}
	if n := len(s.free); n > 0 {
		c.slot, s.free = s.free[n-1], s.free[:n-1]
	} else {
		c.slot, s.slots = uint32(len(s.slots)), append(s.slots, nil)
	}
	if c.slot >= none>>chunkBits {
		panic(fmt.Sprintf("dirty: %d records and no checkpoint: the base must follow", s.records))
	}
	s.slots[c.slot] = c
	s.chunks = append(s.chunks, c)
	s.bytes += c.bytes
}

// add adds a record to the newest chunk, which has room, and returns its number.
func (s *store) add(key []byte, e Entry) uint32 {
	c := s.current()
	if size := c.blockSize(); len(c.blocks) == 0 || c.used+len(key) > size {
		c.blocks, c.used = append(c.blocks, make([]byte, size)), 0
		c.bytes += int64(size)
		s.bytes += int64(size)
	}
	block := len(c.blocks) - 1
	copy(c.blocks[block][c.used:], key)
	i := len(c.records)
	c.records = append(c.records, record{
		version: e.Version, at: e.At, part: e.Part, gone: e.Gone,
		key: uint32(block)<<offsetBits | uint32(c.used), keyLen: uint16(len(key)),
	})
	c.used += len(key)
	s.records++
	return c.slot<<chunkBits | uint32(i)
}

// at returns the chunk of a record and its index there.
func (s *store) at(n uint32) (*chunk, uint32) {
	return s.slots[n>>chunkBits], n & (perChunk - 1)
}

// drop gives the oldest chunks back, in a new list: the old one would keep them.
func (s *store) drop(n int) {
	for _, c := range s.chunks[:n] {
		s.slots[c.slot] = nil
		s.free = append(s.free, c.slot)
		s.bytes -= c.bytes
	}
	s.chunks = append([]*chunk(nil), s.chunks[n:]...)
	s.left = 0
}
