package slab

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// space is the item regions cut into 4 KiB units: what no class owns.
type space struct {
	table  *region.Table
	growth region.Growth
	// byID holds the items regions at their region ids, nil elsewhere.
	// Replaced whole under mu; read without a lock.
	byID atomic.Pointer[[]*itemRegion]

	busy atomic.Bool // more than half of the limit is registered

	mu      sync.Mutex
	regions []*itemRegion // in the order in which they were added
	added   int           // how many there ever were
}

// itemRegion is one region of items with its bookkeeping.
type itemRegion struct {
	layout.Region
	ext   *region.Extents // guarded by space.mu
	pages []page          // by byte offset / PageBytes; each guarded by its class
	spans []span          // by unit; each guarded by its class

	idle // idle.go
}

// A request is units in one piece, starting at a multiple of align.
type request struct{ units, align int }

// takePage takes 64 KiB that start on a 64 KiB boundary of their region, so
// that a place leads to its page by a shift. It returns nil if there is no room
// in the regions, and how many regions it has seen.
func (sp *space) takePage() (pg *page, seen int) {
	r, unit, seen := sp.take(request{pageUnits, pageUnits})
	if r == nil {
		return nil, seen
	}
	pg = &r.pages[unit/pageUnits]
	pg.base, pg.r = r.Base+layout.Place(unit*unitBytes/8), r
	return pg, seen
}

// takeSpan takes units units in one piece.
func (sp *space) takeSpan(units int) (p layout.Place, seen int, ok bool) {
	r, unit, seen := sp.take(request{units, 1})
	if r == nil {
		return 0, seen, false
	}
	return r.Base + layout.Place(unit*unitBytes/8), seen, true
}

// take finds units in the regions that there are, oldest first. It returns nil
// if none of them has room.
func (sp *space) take(q request) (r *itemRegion, unit, seen int) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, r := range sp.regions {
		if unit, ok := r.ext.Take(q.units, q.align); ok {
			return r, unit, 0
		}
	}
	return nil, 0, sp.added
}

// grow ensures that there is a region which the caller has not seen, and waits
// for at most the caller's patience. It returns nil if the caller shall look
// again; else a *region.NoMemoryError, or region.ErrGrowing. The caller holds
// no lock.
func (sp *space) grow(q request, seen int, patience time.Duration) error {
	// Alignment may cost up to align-1 units at the front of a region.
	need := uint64(q.units+q.align-1) * unitBytes
	if sp.count() > seen {
		return nil
	}
	// In this order: the region that took what the limit allowed is on its way,
	// or it is there.
	if _, err := sp.table.CanAdd(layout.KindItems, need); err != nil && !sp.growth.Running() {
		if sp.count() > seen {
			return nil
		}
		return err
	}
	return sp.growth.Run(patience, func() error {
		if sp.count() > seen {
			return nil
		}
		return sp.add(need)
	})
}

// count is how many regions there ever were.
func (sp *space) count() int {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.added
}

// add makes one more items region with room for need bytes.
func (sp *space) add(need uint64) error {
	reg, mem, err := sp.table.AddAtLeast(layout.KindItems, need)
	if err != nil {
		return err
	}
	sp.include(reg, len(mem))
	return nil
}

// include cuts a region of the table into units, all free but the header page.
func (sp *space) include(reg layout.Region, bytes int) {
	n := bytes / unitBytes
	r := &itemRegion{
		Region: reg,
		ext:    region.NewExtents(n),
		pages:  make([]page, (n+pageUnits-1)/pageUnits),
		spans:  make([]span, n),
	}
	r.ext.Take(1, 1) // the header page
	sp.busy.Store(sp.table.InUse() > sp.table.Limit()/2)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.regions = append(sp.regions, r)
	sp.added++
	old := *sp.byID.Load()
	byID := make([]*itemRegion, max(int(reg.ID)+1, len(old)))
	copy(byID, old)
	byID[reg.ID] = r
	sp.byID.Store(&byID)
}

// give takes back what a class had, after its lease.
func (sp *space) give(p layout.Place, bytes int) {
	r, unit := sp.unitOf(p)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	r.ext.Release(unit, bytes/unitBytes)
}

// unitOf returns the items region of p and p's unit there; nil outside.
func (sp *space) unitOf(p layout.Place) (*itemRegion, int) {
	reg, off, ok := sp.table.Locate(p)
	if !ok {
		return nil, 0
	}
	byID := *sp.byID.Load()
	if int(reg.ID) >= len(byID) || byID[reg.ID] == nil {
		return nil, 0
	}
	return byID[reg.ID], int(off / unitBytes)
}

// spanAt returns the entry of the unit of p; nil outside items regions.
func (sp *space) spanAt(p layout.Place) *span {
	r, unit := sp.unitOf(p)
	if r == nil {
		return nil
	}
	return &r.spans[unit]
}

// pageOf returns the page that p would lie in; nil outside items regions.
func (sp *space) pageOf(p layout.Place) *page {
	r, unit := sp.unitOf(p)
	if r == nil {
		return nil
	}
	return &r.pages[unit/pageUnits]
}

// freeBytes counts what no class owns and no lease holds.
func (sp *space) freeBytes() (n uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, r := range sp.regions {
		n += uint64(r.ext.Free()) * unitBytes
	}
	return n
}
