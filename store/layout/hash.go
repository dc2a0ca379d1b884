package layout

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// A Hash is a key's 128-bit hash. Its bits are used once each:
//
//	Hi │ directory prefix, from the top: at most 20 │ … │ fingerprint 16 │
//	Lo │ first group 31 │ side 1 │ second group 31 │ side 1 │
type Hash struct{ Hi, Lo uint64 }

// HashKey hashes a key (XXH3-128) under the store's seed, which is random per
// store, so an attacker cannot prepare keys that all meet in one bucket.
func HashKey(seed uint64, key []byte) Hash {
	u := xxh3.Hash128Seed(key, seed)
	return Hash{Hi: u.Hi, Lo: u.Lo}
}

// Fingerprint is what a slot shows of the key.
func (h Hash) Fingerprint() uint16 { return uint16(h.Hi) }

// Prefix is the top depth bits (depth ≤ MaxDepth): the index into a directory
// of that depth, and what a bucket header shows of its segment.
func (h Hash) Prefix(depth uint8) uint32 {
	if depth > MaxDepth {
		panic(fmt.Sprintf("layout: depth %d exceeds %d", depth, MaxDepth))
	}
	return uint32(h.Hi >> (64 - depth)) // depth 0 shifts everything out
}

// Mains returns the two main buckets where the key may be, in two different
// groups of a segment that has that many (at least 2). The group is a
// multiply-shift of 31 hash bits, so that any number of groups will do and a
// segment can grow by quarters.
func (h Hash) Mains(groups int) (a, b Main) {
	x, y := uint32(h.Lo>>32), uint32(h.Lo)
	a = Main{Group: spread(x, groups), Side: uint8(x & 1)}
	b = Main{Group: spread(y, groups-1), Side: uint8(y & 1)}
	if b.Group >= a.Group { // the second chooses among the others
		b.Group++
	}
	return a, b
}

func spread(x uint32, n int) int { return int(uint64(x>>1) * uint64(n) >> 31) }

// A Main names one main bucket of a segment. A group is three buckets: main,
// overflow, main; the two mains share the overflow:
//
//	bucket    3g        3g+1       3g+2
//	       ┌────────┬──────────┬────────┐
//	       │ main 0 │ overflow │ main 1 │     64 bytes each
//	       └────────┴──────────┴────────┘
//	side 0 └── one READ ──┘
//	side 1          └──── one READ ─────┘     128 bytes
type Main struct {
	Group int
	Side  uint8 // 0 or 1
}

// PairBucket is the first bucket of the 128 contiguous bytes that hold the
// main bucket and the overflow bucket.
func (m Main) PairBucket() int { return 3*m.Group + int(m.Side) }

// MainBucket is the main bucket itself.
func (m Main) MainBucket() int { return 3*m.Group + 2*int(m.Side) }

// OverflowBucket is the bucket that both mains of the group share.
func (m Main) OverflowBucket() int { return 3*m.Group + 1 }
