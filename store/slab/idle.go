package slab

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions that have been empty for a while are given back. A class keeps some empty
// pages and spans for its next items. In a region where there is nothing else these are
// retired as if they changed class, through the lease, and then the region is free from
// end to end:
//
//	in use ──last item freed──▶ empty ──a while──▶ kept pages retired ──a lease──▶ all free
//	  ▲                           │                       │                           │
//	  └────────── an item ────────┴───────────────────────┘      closed, handed to the caller
//
// An allocation and the end of a region meet under space.mu: either the units are taken
// first, and the region is not free, or it is taken whole, and no allocator finds it any
// more.

// idle is what tells that a region is empty, and since when.
type idle struct {
	used atomic.Int64  // pages and spans in it with an item
	uses atomic.Uint64 // how often one of them got its first

	// Of Idle alone.
	since  time.Time // seen empty since; zero: not seen so
	passed uint64    // uses at that time
}

// enter notes that a page or span has its first item.
func (i *idle) enter() {
	i.uses.Add(1)
	i.used.Add(1)
}

// leave notes that it lost its last one.
func (i *idle) leave() { i.used.Add(-1) }

// empty reports whether nothing has stood in the region for a while. Its two looks are
// in this order because the second sees an item that enters between them.
func (i *idle) empty(now time.Time, while time.Duration) bool {
	uses := i.uses.Load()
	switch {
	case i.used.Load() != 0:
		i.since = time.Time{}
		return false
	case i.since.IsZero() || i.passed != uses:
		i.since, i.passed = now, uses
		return false
	}
	return now.Sub(i.since) >= while
}

// Idle looks for regions in which nothing has stood for a while, as far as its
// calls can tell: they are to come more often than that, from one goroutine. It
// takes out of the allocator, and returns, those that are free from end to end:
// no place in them is given out any more, and none can lead there. The last
// region stays, and what the table cannot spare. now is any clock that does not go back.
func (s *Slabs) Idle(now time.Time, while time.Duration) (gone []layout.Region) {
	if s.reclaim.Keeps() {
		return nil // readers believe for ever what they have read there
	}
	sp := &s.space
	sp.busy.Store(sp.table.InUse() > sp.table.Limit()/2)
	sp.mu.Lock()
	all := slices.Clone(sp.regions)
	sp.mu.Unlock()
	bytes := uint64(0)
	for _, r := range all {
		if !r.empty(now, while) || !sp.table.Spare(bytes+r.Length) {
			continue
		}
		if sp.close(r) {
			gone, bytes = append(gone, r.Region), bytes+r.Length
		} else {
			s.trimRegion(r)
		}
	}
	return gone
}

// close takes a region that is free from end to end out of the space.
func (sp *space) close(r *itemRegion) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	units := r.ext.Units() - 1 // the header is taken for ever
	if len(sp.regions) < 2 || r.ext.Free() != units || !r.ext.TakeAt(1, units) {
		return false
	}
	sp.regions = slices.DeleteFunc(slices.Clone(sp.regions), func(o *itemRegion) bool { return o == r })
	byID := slices.Clone(*sp.byID.Load())
	byID[r.ID] = nil
	sp.byID.Store(&byID)
	return true
}

// trimRegion retires what classes keep in a region without any item.
func (s *Slabs) trimRegion(r *itemRegion) {
	for i := range r.pages {
		pg := &r.pages[i]
		id := pg.class.Load()
		if id == 0 {
			continue
		}
		c := &s.classes[id]
		c.mu.Lock()
		if pg.class.Load() == id && pg.on == &c.empty {
			c.retirePage(s, pg)
		}
		c.mu.Unlock()
	}
	for unit := range r.spans {
		id := r.spans[unit].class.Load()
		if id == 0 {
			continue
		}
		c := &s.classes[id]
		p := r.Base + layout.Place(unit*unitBytes/8)
		c.mu.Lock()
		if at := slices.Index(c.freeSpans, p); at >= 0 {
			c.retireSpan(s, at)
		}
		c.mu.Unlock()
	}
}
