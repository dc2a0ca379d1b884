package slab

import (
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// space is the item regions cut into 4 KiB units: what no class owns.
type space struct {
	table *region.Table
	// byID holds the items regions at their region ids, nil elsewhere.
	// Replaced whole under mu; read without a lock.
	byID atomic.Pointer[[]*itemRegion]

	mu      sync.Mutex
	regions []*itemRegion // in the order in which they were added
}

// itemRegion is one region of items with its bookkeeping.
type itemRegion struct {
	layout.Region
	ext   *region.Extents // guarded by space.mu
	pages []page          // by byte offset / PageBytes; each guarded by its class
	spans []span          // by unit; each guarded by its class
}

// takePage takes 64 KiB that start on a 64 KiB boundary of their region, so
// that a place leads to its page by a shift.
func (sp *space) takePage() (*page, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	r, unit, err := sp.take(pageUnits, pageUnits)
	if err != nil {
		return nil, err
	}
	pg := &r.pages[unit/pageUnits]
	pg.base = r.Base + layout.Place(unit*unitBytes/8)
	return pg, nil
}

// takeSpan takes units units in one piece.
func (sp *space) takeSpan(units int) (layout.Place, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	r, unit, err := sp.take(units, 1)
	if err != nil {
		return 0, err
	}
	return r.Base + layout.Place(unit*unitBytes/8), nil
}

// take finds units in the regions there are, oldest first, or adds a region.
// Caller holds sp.mu.
func (sp *space) take(units, align int) (*itemRegion, int, error) {
	for _, r := range sp.regions {
		if unit, ok := r.ext.Take(units, align); ok {
			return r, unit, nil
		}
	}
	// Alignment may cost up to align-1 units at the front of a region.
	r, err := sp.add(units + align - 1)
	if err != nil {
		return nil, 0, err
	}
	unit, ok := r.ext.Take(units, align)
	if !ok {
		panic("slab: a new region does not hold what it was made for")
	}
	return r, unit, nil
}

// add makes one more items region with room for units units.
func (sp *space) add(units int) (*itemRegion, error) {
	reg, mem, err := sp.table.AddAtLeast(layout.KindItems, uint64(units)*unitBytes)
	if err != nil {
		return nil, err
	}
	n := len(mem) / unitBytes
	r := &itemRegion{
		Region: reg,
		ext:    region.NewExtents(n),
		pages:  make([]page, (n+pageUnits-1)/pageUnits),
		spans:  make([]span, n),
	}
	r.ext.Take(1, 1) // the header page
	sp.regions = append(sp.regions, r)
	old := *sp.byID.Load()
	byID := make([]*itemRegion, reg.ID+1)
	copy(byID, old)
	byID[reg.ID] = r
	sp.byID.Store(&byID)
	return r, nil
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
