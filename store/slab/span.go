package slab

import (
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
)

// span describes a run of 4 KiB units for one large item, in the entry of its
// first unit. Guarded by the lock of its class.
type span struct {
	class uint8 // 0: no span starts here
	live  bool  // it holds an item; otherwise its class keeps it for the next
}

// allocSpan returns a kept span of the class or a new one; see alloc. Caller
// holds c.mu.
func (c *class) allocSpan(s *Slabs) (p layout.Place, seen int, ok bool) {
	if n := len(c.freeSpans); n > 0 {
		p := c.freeSpans[n-1]
		c.freeSpans = c.freeSpans[:n-1]
		r, unit := s.space.unitOf(p)
		r.spans[unit] = span{class: c.id, live: true}
		c.live++
		return p, 0, true
	}
	if p, seen, ok = s.space.takeSpan(c.units); !ok {
		return 0, seen, false
	}
	r, unit := s.space.unitOf(p)
	r.spans[unit] = span{class: c.id, live: true}
	c.live++
	return p, seen, true
}

// freeSpan gives a span back to its class, and the surplus to any class.
// Caller holds c.mu.
func (c *class) freeSpan(s *Slabs, p layout.Place) {
	r, unit := s.space.unitOf(p)
	if r == nil || r.spans == nil || r.spans[unit] != (span{class: c.id, live: true}) || p.Byte()%unitBytes != 0 {
		panic(fmt.Sprintf("slab: place %d is no allocated span of class %d: freed twice?", p, c.id))
	}
	r.spans[unit] = span{class: c.id}
	c.live--
	c.freeSpans = append(c.freeSpans, p)
	s.want.fails.Store(0) // there is something to find again
	for len(c.freeSpans) > keepEmpty(c.live) && !s.reclaim.Keeps() {
		c.retireSpan(s)
	}
}

// retireSpan sends the span that has been free for longest on its way.
// Caller holds c.mu.
func (c *class) retireSpan(s *Slabs) {
	p := c.freeSpans[0]
	c.freeSpans = append(c.freeSpans[:0], c.freeSpans[1:]...)
	r, unit := s.space.unitOf(p)
	r.spans[unit] = span{}
	s.retire(c, p, c.units*unitBytes, 1)
}
