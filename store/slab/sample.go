package slab

import (
	"github.com/rdmakv/rdmakv/store/layout"
)

// maxKept bounds the free places that are kept ahead of writers in a class.
const maxKept = 64

// OnShort has f called when there is no memory outside the classes and few
// places are free in one: it is time to free some. f runs under a lock of the
// allocator: it must not block and must not call back. It must be set before
// the allocator is used.
func (s *Slabs) OnShort(f func(classID uint8)) { s.short = f }

// Full reports whether the last look for memory that no class owns was in vain.
func (s *Slabs) Full() bool { return s.full.Load() }

// Busy reports whether more than half of what the limit allows is registered:
// from then on it may matter which items are used.
func (s *Slabs) Busy() bool { return s.space.busy.Load() || s.full.Load() }

// Needs is how many places of a class should be freed so that the next items
// find room without waiting.
func (s *Slabs) Needs(classID uint8) int {
	c := &s.classes[classID]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.needs()
}

// needs counts by pages that have a free place, of which each has at least one:
// places that are freed at random are spread over them. The caller holds c.mu.
func (c *class) needs() int {
	if c.units > 0 {
		if len(c.freeSpans) == 0 && c.live > 1 {
			return 1
		}
		return 0
	}
	if c.empty.n > 0 || c.pages < 2 {
		return 0
	}
	return max(0, min(maxKept, c.pages/16+1)-c.partial.n)
}

// Live is the number of items of a class.
func (s *Slabs) Live(classID uint8) int {
	c := &s.classes[classID]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

// Class returns the class for an item of size bytes.
func (s *Slabs) Class(size int) (classID uint8, ok bool) { return layout.ClassFor(max(size, minItem)) }

// Sample appends up to n places of a class that hold items, drawn at random
// (and possibly twice), to out. They may be freed at any moment.
func (s *Slabs) Sample(classID uint8, n int, random func() uint64, out []layout.Place) []layout.Place {
	c := &s.classes[classID]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == 0 {
		return out
	}
	for range n {
		if c.units > 0 {
			out = append(out, c.spans[random()%uint64(len(c.spans))])
			continue
		}
		pg := c.all[random()%uint64(len(c.all))]
		if i, ok := pg.next1(int(random()%uint64(c.perPage)), c.perPage); ok {
			out = append(out, pg.base+layout.Place(i*c.size/8))
		}
	}
	return out
}

// next1 is the first allocated place at or behind i, going round.
func (pg *page) next1(i, perPage int) (int, bool) {
	if pg.live == 0 {
		return 0, false
	}
	for range perPage {
		if pg.used[i/64]>>(i%64) == 0 {
			i = (i/64 + 1) * 64 // no place behind it in this word
		} else if pg.used[i/64]>>(i%64)&1 != 0 {
			return i, true
		} else {
			i++
		}
		if i >= perPage {
			i = 0
		}
	}
	return 0, false
}
