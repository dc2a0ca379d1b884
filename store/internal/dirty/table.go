package dirty

import (
	"bytes"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A table finds the newest record of each key: heads of chains, through the links of the
// chunks. It grows by one bucket at a time and shrinks by one (linear hashing, Litwin
// 1980), because a table that doubles at once would hold the shard's lock for as long as it
// takes to link all its records anew.
//
//	bucket   0     1     2   | 3     4     5          buckets 6, so mask 7:
//	       +-----+-----+-----+-----+-----+-----+      a hash that ends in 6 or 7 is in
//	heads  |     |     |  .  |     |     |     |      bucket 2 or 3, until the table
//	       +-----+-----+--|--+-----+-----+-----+      grows and 2 is divided in 2 and 6
//	                      v
//	                    record -> record
type table struct {
	segments [][]uint32 // of heads: the number of the first record, and 1 more; 0: none
	buckets  uint32
	mask     uint32 // the power of two from buckets up, and 1 less
	keys     uint32
}

// A link leads from a record to the next of its chain. It has the record's hash, so that a
// lookup reads the records of other keys nearly never: each would be a cache miss.
type link struct {
	next uint32 // the number, and 1 more; 0: none
	hash uint32 // mixed
}

const (
	none        = 1<<32 - 1 // no record has this number
	segmentBits = 10
	perSegment  = 1 << segmentBits
	headBytes   = 4
	// A table shrinks when it has this many times more buckets than keys, so that growing
	// and shrinking do not take turns. A key that goes takes at most as many buckets along:
	// if it took one, a table would stay as large as in its largest moment.
	sparse = 2
)

// mix makes 32 bits of a hash. The hash's own parts choose the shard, the segment of the
// index and more, so that they are not spread within one shard.
func mix(h layout.Hash) uint32 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	x := (h.Lo ^ h.Hi>>1) * odd
	return uint32(x>>32) ^ uint32(x)
}

// head returns where the chain of a hash begins. The table has a bucket.
func (t *table) head(hash uint32) *uint32 {
	b := hash & t.mask
	if b >= t.buckets {
		b &= t.mask >> 1
	}
	return t.bucket(b)
}

func (t *table) bucket(b uint32) *uint32 {
	return &t.segments[b>>segmentBits][b&(perSegment-1)]
}

// find returns the number of the newest record of a key, or none.
func (t *table) find(s *store, hash uint32, key []byte) uint32 {
	if t.buckets == 0 {
		return none
	}
	for next := *t.head(hash); next != 0; {
		c, i := s.at(next - 1)
		if c.holds(i, hash, key) {
			return next - 1
		}
		next = c.links[i].next
	}
	return none
}

// holds reports whether a record is of a key.
func (c *chunk) holds(i, hash uint32, key []byte) bool {
	if c.links[i].hash != hash {
		return false
	}
	p := piece{blocks: c.blocks}
	return bytes.Equal(p.keyOf(&c.records[i]), key)
}

// link puts record n, the newest, into the table: in the place of the older one of its key.
func (t *table) link(s *store, n, hash uint32, key []byte) {
	if t.buckets == 0 {
		t.segments = append(t.segments, make([]uint32, perSegment))
		t.buckets, t.mask = 1, 0
	}
	c, i := s.at(n)
	head := t.head(hash)
	for at := head; *at != 0; {
		older, j := s.at(*at - 1)
		if older.holds(j, hash, key) {
			c.links[i] = older.links[j]
			*at = n + 1
			return
		}
		at = &older.links[j].next
	}
	c.links[i] = link{*head, hash}
	*head = n + 1
	if t.keys++; t.keys > t.buckets {
		t.grow(s)
	}
}

// unlink takes record n out, if it is the newest of its key.
func (t *table) unlink(s *store, n uint32) {
	c, i := s.at(n)
	for at := t.head(c.links[i].hash); *at != 0; {
		if *at == n+1 {
			*at = c.links[i].next
			t.keys--
			for i := 0; i < sparse && t.buckets > perSegment && t.buckets/sparse > t.keys; i++ {
				t.shrink(s)
			}
			return
		}
		other, j := s.at(*at - 1)
		at = &other.links[j].next
	}
}

// grow adds a bucket, and divides with it the one that its keys are in.
func (t *table) grow(s *store) {
	added := t.buckets
	if added > t.mask {
		t.mask = t.mask<<1 | 1
	}
	if added>>segmentBits == uint32(len(t.segments)) {
		t.segments = append(t.segments, make([]uint32, perSegment))
	}
	t.buckets++
	from, to := t.bucket(added&(t.mask>>1)), t.bucket(added)
	next := *from
	*from, *to = 0, 0
	for next != 0 {
		c, i := s.at(next - 1)
		at := from
		if c.links[i].hash&t.mask == added {
			at = to
		}
		this := next
		next, c.links[i].next, *at = c.links[i].next, *at, this
	}
}

// shrink takes the last bucket away, and puts its keys to those that they were divided from.
func (t *table) shrink(s *store) {
	t.buckets--
	last := t.buckets
	into := t.bucket(last & (t.mask >> 1))
	for next := *t.bucket(last); next != 0; {
		c, i := s.at(next - 1)
		this := next
		next, c.links[i].next, *into = c.links[i].next, *into, this
	}
	*t.bucket(last) = 0
	if last&(perSegment-1) == 0 {
		t.segments[len(t.segments)-1] = nil
		t.segments = t.segments[:len(t.segments)-1]
	}
	if last == t.mask>>1+1 {
		t.mask >>= 1
	}
}

// memory is what the heads take, in bytes.
func (t *table) memory() int64 { return int64(len(t.segments)) * perSegment * headBytes }
