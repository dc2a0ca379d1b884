// Package sketch estimates how often keys were used lately, for the choice of what
// leaves a full memory.
package sketch

import (
	"math/bits"
	"sync/atomic"
)

// A Sketch estimates how often keys were used lately: a count-min sketch of
// 4-bit counters that age (TinyLFU, Einziger and others 2017). A key has four
// counters, all in one line of 64 bytes; a use raises the lowest of them
// (conservative update), and the lowest is the estimate. It knows keys that
// have no item, which is what admission is about: a key that is asked for once
// in a scan does not push out one that is asked for all day.
//
// Ageing is a slow sweep: for every 16 counters raised, the next 16 are halved.
// So a sweep takes as many uses as there are counters, and nothing ever stops.
//
// Its memory is taken at the first use that is counted, because while memory is far from
// full nobody counts (shard.Memory.Used).
//
// Updates may be lost when two goroutines meet in one word; it is an estimate.
// Safe for concurrent use.
type Sketch struct {
	words  atomic.Pointer[[]atomic.Uint64] // 16 counters each; nil before the first use
	lines  uint64                          // a power of two
	raised atomic.Uint64
	hand   atomic.Uint64
}

const (
	// Max is the highest estimate.
	Max = 15
	// Share of the memory limit is spent on a sketch, on the heap: at 128
	// bytes an item that is 8 counters for each item in memory. Half of that
	// costs 2 % of the hits of a Zipf trace, twice as much brings 1 %.
	Share = 32

	sketchLine = 8 // words
	halfOfEach = 0x7777777777777777
)

// New makes a sketch of about that many bytes.
func New(size uint64) *Sketch {
	size = min(max(size, 4<<10), 64<<20)
	return &Sketch{lines: uint64(1) << (bits.Len64(size/(8*sketchLine)) - 1)}
}

// Bytes is what the sketch takes on the heap: nothing before the first use.
func (k *Sketch) Bytes() uint64 {
	if all := k.words.Load(); all != nil {
		return uint64(len(*all)) * 8
	}
	return 0
}

// made returns the counters, and takes memory for them at the first use.
func (k *Sketch) made() []atomic.Uint64 {
	if all := k.words.Load(); all != nil {
		return *all
	}
	all := make([]atomic.Uint64, k.lines*sketchLine)
	if k.words.CompareAndSwap(nil, &all) {
		return all
	}
	return *k.words.Load()
}

// at returns the four counters of a key, out of all: word and shift of each. hi is the
// upper half of its hash.
func (k *Sketch) at(all []atomic.Uint64, hi uint64) (words [4]*atomic.Uint64, shifts [4]uint) {
	// The upper half's own bits name a segment and a fingerprint: keys of one
	// shard would crowd.
	x := (hi ^ hi>>32) * 0x9e3779b97f4a7c15
	line := (x >> 32 & (k.lines - 1)) * sketchLine
	for i := range words {
		pick := x >> (5 * i) & 31
		words[i] = &all[line+uint64(2*i)+pick>>4]
		shifts[i] = uint(pick&15) * 4
	}
	return words, shifts
}

// Add counts a use.
func (k *Sketch) Add(hi uint64) {
	all := k.made()
	words, shifts := k.at(all, hi)
	var old [4]uint64
	least := uint64(Max)
	for i, w := range words {
		old[i] = w.Load()
		least = min(least, old[i]>>shifts[i]&Max)
	}
	if least == Max {
		return
	}
	for i, w := range words {
		if old[i]>>shifts[i]&Max == least {
			w.CompareAndSwap(old[i], old[i]+1<<shifts[i])
		}
	}
	if n := k.raised.Add(1); n%16 == 0 {
		k.age(all)
	}
}

// age halves the counters of the next word.
func (k *Sketch) age(all []atomic.Uint64) {
	w := &all[(k.hand.Add(1)-1)%uint64(len(all))]
	old := w.Load()
	w.CompareAndSwap(old, old>>1&halfOfEach)
}

// Estimate returns how often a key was used lately, 0 to 15.
func (k *Sketch) Estimate(hi uint64) uint8 {
	all := k.words.Load()
	if all == nil {
		return 0
	}
	words, shifts := k.at(*all, hi)
	least := uint64(Max)
	for i, w := range words {
		least = min(least, w.Load()>>shifts[i]&Max)
	}
	return uint8(least)
}
