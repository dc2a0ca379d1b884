package slab

import (
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// Memory that an earlier life has left has no bookkeeping, because that stood on the heap of its process. It is made again of the slots
// that lead to items:
//
//	Adopt     the regions, all units of them free
//	Claim     each slot's place, with the page or span that it lies in; in any order, from several goroutines
//	Settle    the pages go to the lists of their classes; from here on places are given out
//
// What no slot claims is free for any class at once: no reader of this incarnation has ever been led there, and what readers of
// an earlier one remember does not verify any more. Slots may be damaged: a place that does not fit what was claimed before is refused.

// Adopt takes over the items regions that the table has. Called first of all.
func (s *Slabs) Adopt(list []region.LeftRegion) {
	for _, r := range list {
		if r.Kind == layout.KindItems {
			s.space.include(r.Region, int(r.Length))
		}
	}
}

// Claim takes the places of slots, and calls refuse with the number of each slot whose place it could not take: it is in no region, its class is
// none, or it lies over another that was claimed before.
func (s *Slabs) Claim(slots []layout.Slot, refuse func(i int)) {
	var c *class
	for i, slot := range slots {
		id := slot.Class()
		if id == 0 || int(id) >= len(s.classes) {
			refuse(i)
			continue
		}
		if next := &s.classes[id]; next != c {
			if c != nil {
				c.mu.Unlock()
			}
			c = next
			c.mu.Lock()
		}
		ok := false
		if c.units == 0 {
			ok = c.claimPaged(s, slot.Place())
		} else {
			ok = c.claimSpan(s, slot.Place())
		}
		if !ok {
			refuse(i)
		}
	}
	if c != nil {
		c.mu.Unlock()
	}
}

// claimPaged takes one place in a page, and the page for the class if nobody has it. The caller holds c.mu.
func (c *class) claimPaged(s *Slabs, p layout.Place) bool {
	if c.size < minItem {
		return false
	}
	r, unit := s.space.unitOf(p)
	if r == nil {
		return false
	}
	at := unit / pageUnits
	pg := &r.pages[at]
	switch pg.class.Load() {
	case uint32(c.id):
	case 0:
		if !s.space.takeAt(r, at*pageUnits, pageUnits) {
			return false
		}
		pg.base, pg.r = r.Base+layout.Place(at*PageBytes/8), r
		c.adopt(pg)
	default:
		return false
	}
	off := int(p-pg.base) * 8
	i := off / c.size
	if off%c.size != 0 || i >= c.perPage || pg.used[i/64]>>(i%64)&1 != 0 {
		return false
	}
	pg.used[i/64] |= 1 << (i % 64)
	if pg.live++; pg.live == 1 {
		r.enter()
	}
	c.live++
	return true
}

// claimSpan takes a span. The caller holds c.mu.
func (c *class) claimSpan(s *Slabs, p layout.Place) bool {
	r, unit := s.space.unitOf(p)
	if r == nil || p.Byte()%unitBytes != 0 || !s.space.takeAt(r, unit, c.units) {
		return false
	}
	sp := &r.spans[unit]
	sp.class.Store(uint32(c.id))
	sp.live, sp.pos = true, int32(len(c.spans))
	c.spans = append(c.spans, p)
	c.live++
	r.enter()
	return true
}

// takeAt takes units of a region, if all of them are there and free.
func (sp *space) takeAt(r *itemRegion, unit, units int) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return unit+units <= r.ext.Units() && r.ext.TakeAt(unit, units)
}

// Settle ends the claims.
func (s *Slabs) Settle() {
	for i := range s.classes {
		c := &s.classes[i]
		c.mu.Lock()
		for _, pg := range c.all {
			c.file(pg)
		}
		c.mu.Unlock()
	}
}
