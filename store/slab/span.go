package slab

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
)

// span describes a run of 4 KiB units for one large item, in the entry of its
// first unit. The lock of its class guards it.
type span struct {
	// class is the class whose span starts here, or 0 if none does. As with a
	// page's, others read it to know which lock to take.
	class atomic.Uint32
	pos   int32 // in its class's spans, while live
	live  bool  // it holds an item; otherwise its class keeps it for the next
}

// allocSpan returns a kept span of the class or a new one; see alloc. The
// caller holds c.mu.
func (c *class) allocSpan(s *Slabs) (p layout.Place, seen int, ok bool) {
	if n := len(c.freeSpans); n > 0 {
		p = c.freeSpans[n-1]
		c.freeSpans = c.freeSpans[:n-1]
	} else if p, seen, ok = s.space.takeSpan(c.units); !ok {
		return 0, seen, false
	}
	r, unit := s.space.unitOf(p)
	r.enter()
	sp := &r.spans[unit]
	sp.class.Store(uint32(c.id))
	sp.live, sp.pos = true, int32(len(c.spans))
	c.spans = append(c.spans, p)
	c.live++
	return p, seen, true
}

// freeSpan gives a span back to its class, and the surplus to any class. The
// caller holds c.mu.
func (c *class) freeSpan(s *Slabs, p layout.Place) {
	r, unit := s.space.unitOf(p)
	if r == nil || r.spans[unit].class.Load() != uint32(c.id) || !r.spans[unit].live || p.Byte()%unitBytes != 0 {
		panic(fmt.Sprintf("slab: place %d is no allocated span of class %d: freed twice?", p, c.id))
	}
	r.leave()
	sp := &r.spans[unit]
	last := c.spans[len(c.spans)-1]
	c.spans[sp.pos] = last
	s.space.spanAt(last).pos = sp.pos
	c.spans = c.spans[:len(c.spans)-1]
	sp.live = false
	c.live--
	if to := c.clearing[p]; to != nil {
		delete(c.clearing, p)
		sp.class.Store(0)
		s.retire(c, p, c.units*unitBytes, 1, to)
		return
	}
	c.freeSpans = append(c.freeSpans, p)
	s.want.fails.Store(0) // there is something to find again
	for len(c.freeSpans) > keepEmpty(c.live) && !s.reclaim.Keeps() {
		c.retireSpan(s, 0)
	}
}

// retireSpan retires a kept span; the first has been free for longest.
// The caller holds c.mu.
func (c *class) retireSpan(s *Slabs, at int) {
	p := c.freeSpans[at]
	c.freeSpans = append(c.freeSpans[:at], c.freeSpans[at+1:]...)
	s.space.spanAt(p).class.Store(0)
	s.retire(c, p, c.units*unitBytes, 1, nil)
}
