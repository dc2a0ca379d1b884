package shard

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A value that is brought back from the disk has its old version. It must not
// come to a place where it stood, under that version, less than a lease ago: a
// reader proves that a slot belongs to another key by meeting the same version
// at its place twice, and takes that to mean that it stood there in between
// (docs/correctness.md, section 3).
//
// gone remembers what left, in two generations of bits. A pair is forgotten at
// the second turn after it was added, and turns are a lease apart. What shares
// a bit with a pair is taken for it, and then stays out a little longer.
// Guarded by the shard's lock.
type gone struct {
	young, old []uint64 // bits
	turning    bool     // a turn is on its way
	// any is set before the first place that is noted here is freed, and stays:
	// who was given a place and finds it unset knows without the lock.
	any atomic.Bool
}

const (
	// goneBits is the number of bits of all shards together, in a generation.
	goneBits = 1 << 21
	// goneLeast is the least for one shard.
	goneLeast = 1 << 10
)

// bit of a pair, in a set of a power of two.
func (g *gone) bit(p layout.Place, v layout.Version) (word int, mask uint64) {
	x := (uint64(p)*0x9e3779b97f4a7c15 ^ uint64(v)) * 0xbf58476d1ce4e5b9
	i := x >> 20 & uint64(len(g.young)*64-1)
	return int(i / 64), 1 << (i % 64)
}

// has reports whether the pair may have left less than a lease ago.
func (g *gone) has(p layout.Place, v layout.Version) bool {
	if g.young == nil {
		return false
	}
	w, m := g.bit(p, v)
	return (g.young[w]|g.old[w])&m != 0
}

// left notes that the item of version v at place p is no longer its key's,
// though v still is the key's newest version. Caller holds Mu.
func (s *Items) left(p layout.Place, v layout.Version) {
	g := &s.gone
	if g.young == nil {
		n := max(goneLeast, goneBits/(1<<bits.Len(uint(s.mem.Shards-1)))) / 64
		g.young, g.old = make([]uint64, n), make([]uint64, n)
	}
	g.any.Store(true)
	w, m := g.bit(p, v)
	g.young[w] |= m
	if !g.turning {
		g.turning = true
		s.mem.Reclaim.After(func() { s.turnGone() })
	}
}

// turnGone forgets the older generation, and comes again while there is
// something to forget.
func (s *Items) turnGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &s.gone
	g.young, g.old = g.old, g.young
	clear(g.young)
	g.turning = slices.ContainsFunc(g.old, func(w uint64) bool { return w != 0 })
	if g.turning {
		s.mem.Reclaim.After(func() { s.turnGone() })
	}
}
