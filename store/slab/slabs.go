package slab

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

const (
	// PageBytes is the size of a page of small items. 64 KiB hold hundreds of
	// common items with under 0.1 % lost at the end, and a store with one key
	// of each size pays a few MiB.
	PageBytes = 64 << 10
	// MaxPaged is the largest class that lives in pages (at least eight places
	// in a page); larger ones are spans.
	MaxPaged = 8 << 10

	// minItem: no item is smaller, so every place has room for a checksum.
	minItem = 32

	unitBytes = layout.PageSize
	pageUnits = PageBytes / unitBytes
)

// SizeError says that no class is large enough for an item.
type SizeError struct{ Size int }

// Error names the size and the largest possible one.
func (e *SizeError) Error() string {
	return fmt.Sprintf("slab: no size class holds an item of %d bytes (the largest holds %d)",
		e.Size, layout.ClassSize(layout.NumClasses))
}

// Slabs allocates places for items. It is safe for concurrent use.
//
// Lock order: class.mu, then space.mu; class.mu, then the reclaimer. No two
// classes are locked at once. pins.mu is a leaf.
type Slabs struct {
	table   *region.Table
	reclaim *reclaim.Reclaimer
	classes []class // by class number; 0 is unused
	space   space
	pins    pins

	retired atomic.Int64 // bytes that wait for a lease
	want    pressure

	// full: the last look for memory outside the classes was in vain.
	full atomic.Bool
	// short is called when there is no memory outside the classes and few free
	// places are left in one: under its lock, so it must not call back.
	short func(classID uint8)
}

// New returns an empty allocator over item regions of t, which it adds as it
// needs them. Pages that change class go through r.
func New(t *region.Table, r *reclaim.Reclaimer) *Slabs {
	s := &Slabs{table: t, reclaim: r, classes: make([]class, layout.NumClasses+1)}
	s.space.table = t
	s.space.byID.Store(new([]*itemRegion))
	s.pins.m = make(map[layout.Place]pin)
	for i := 1; i < len(s.classes); i++ {
		c := &s.classes[i]
		c.id, c.size = uint8(i), layout.ClassSize(uint8(i))
		if c.size <= MaxPaged {
			c.perPage = PageBytes / c.size
		} else {
			c.units = (c.size + unitBytes - 1) / unitBytes
		}
	}
	return s
}

// Alloc returns a place for an item of size bytes (layout.ItemSize), and its
// class. The place holds what its former use left: an old dead item or zeros. It
// belongs to the caller until Free.
//
// Where there is no room but the limit allows another region, Alloc waits until
// that is registered; no other call waits for it meanwhile.
//
// Errors: *SizeError, and *region.NoMemoryError (region.ErrNoMemory) when the
// limit is reached or the system gives no memory. In the latter case Alloc has
// begun to retire memory of other classes, if there is any to spare, so that a
// later call may succeed; it never waits for that.
func (s *Slabs) Alloc(size int) (p layout.Place, classID uint8, err error) {
	return s.alloc(size, region.Forever, true)
}

// AllocSilent is Alloc for a caller on whose account nothing is to be freed: it
// takes a place that is there and calls no OnShort.
func (s *Slabs) AllocSilent(size int) (p layout.Place, classID uint8, err error) {
	return s.alloc(size, region.Forever, false)
}

// AllocMany appends to dst up to n places for small items of size bytes, one at
// least, out of the memory that the class has or gets now; else it is
// AllocSilent. For a caller that brings many items in.
func (s *Slabs) AllocMany(dst []layout.Place, size, n int) ([]layout.Place, uint8, error) {
	p, classID, err := s.AllocSilent(size)
	if err != nil {
		return dst, 0, err
	}
	dst = append(dst, p)
	c := &s.classes[classID]
	if c.units != 0 {
		return dst, classID, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(dst) < n {
		if p, _, ok := c.allocPaged(s, false); ok {
			dst = append(dst, p)
			continue
		}
		break // a new region is AllocSilent's to get
	}
	return dst, classID, nil
}

// AllocWithin is Alloc for a caller that waits for a bounded time only: after
// its patience (see region.Growth) it returns region.ErrGrowing. The region
// comes all the same; Growing tells when to call again.
func (s *Slabs) AllocWithin(size int, patience time.Duration) (p layout.Place, classID uint8, err error) {
	return s.alloc(size, patience, true)
}

// Growing returns a channel that is closed when no region is being added.
func (s *Slabs) Growing() <-chan struct{} { return s.space.growth.Done() }

// alloc looks for a place, and adds a region if the limit allows one. If not, it takes
// a place in a page that is being emptied, or relieves the class and fails.
func (s *Slabs) alloc(size int, patience time.Duration, tell bool) (p layout.Place, classID uint8, err error) {
	classID, ok := layout.ClassFor(max(size, minItem))
	if !ok {
		return 0, 0, &SizeError{size}
	}
	c := &s.classes[classID]
	for {
		p, seen, ok := c.alloc(s, false, tell)
		if ok {
			return p, classID, nil
		}
		switch err = s.space.grow(c.request(), seen, patience); {
		case err == nil:
			continue
		case errors.Is(err, region.ErrGrowing):
			return 0, 0, err
		}
		s.full.Store(true)
		if p, _, ok = c.alloc(s, true, tell); ok {
			return p, classID, nil
		}
		s.relieve(c)
		return 0, 0, err
	}
}

// Free gives a place back. No slot may lead to it any more and its item is dead;
// readers may still look, which is harmless. While the place is pinned the call
// is only noted, and takes effect at the last Unpin. Freeing a place that is not
// allocated is a broken invariant and panics.
func (s *Slabs) Free(p layout.Place, classID uint8) {
	if s.pins.count.Load() != 0 && s.pins.deferFree(p, classID) {
		return
	}
	s.free(p, classID)
}

// free gives back a place that is not pinned.
func (s *Slabs) free(p layout.Place, classID uint8) {
	if classID == 0 || int(classID) >= len(s.classes) {
		panic(fmt.Sprintf("slab: free of place %d in class %d", p, classID))
	}
	c := &s.classes[classID]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units == 0 {
		c.freePaged(s, p)
	} else {
		c.freeSpan(s, p)
	}
}

// Bytes returns the memory of a place of the given class: the whole of it, so
// that an item written there may be followed by zeros.
func (s *Slabs) Bytes(p layout.Place, classID uint8) []byte {
	return s.table.Bytes(p, s.classes[classID].size)
}

// alloc returns a place out of the regions that there are; it saw that many of
// them. If last is set it may take one in a page that is being emptied, where
// there is no other. If tell is set it calls OnShort when few are left.
func (c *class) alloc(s *Slabs, last, tell bool) (p layout.Place, seen int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units == 0 {
		p, seen, ok = c.allocPaged(s, last)
	} else {
		p, seen, ok = c.allocSpan(s)
	}
	if ok && tell && s.short != nil && s.full.Load() && c.needs() > 0 {
		s.short(c.id)
	}
	return p, seen, ok
}

// request is what the class takes from the space, in units.
func (c *class) request() request {
	if c.units == 0 {
		return request{pageUnits, pageUnits}
	}
	return request{c.units, 1}
}

// class is one size class with its pages, or with its spans.
type class struct {
	id      uint8
	size    int // bytes of a place
	perPage int // places in a page; 0 for spans
	units   int // 4 KiB units of a span; 0 for pages

	mu      sync.Mutex
	pages   int // pages owned, empty and draining ones included
	live    int // places allocated
	retired int // pages or spans that wait for a lease
	closed  int // pages that are being cleared

	partial  list // some places free, some not: where the next place comes from
	empty    list // every place free, kept against the next burst
	draining list // no place is given out here while others have one

	freeSpans []layout.Place // spans without an item, kept for the next one

	all   []*page        // every page owned
	spans []layout.Place // every span with an item
	// clearing has the spans that are given up when their item goes.
	clearing map[layout.Place]*Clearing
}

// Stats counts item memory. Bytes unless said otherwise. Free pages of the
// regions are not in use; retired ones are.
type Stats struct {
	InUse   uint64 // pages and spans that classes own
	Live    uint64 // places that hold items, at the size of their class
	Retired uint64 // pages and spans that wait for a lease
	Free    uint64 // in item regions, owned by no class
	Pinned  int    // places pinned
	Classes []ClassStats
}

// ClassStats counts one size class that has or had memory.
type ClassStats struct {
	Class    uint8 `json:"class"`
	Size     int   `json:"size"`     // bytes of a place
	Live     int   `json:"live"`     // places that hold items
	Pages    int   `json:"pages"`    // pages (or spans, live and kept) owned
	Empty    int   `json:"empty"`    // of these, without any item
	Draining int   `json:"draining"` // of these, closed to new items
	Retired  int   `json:"retired"`  // pages or spans that wait for a lease
}

// Stats counts class by class: each class at one instant, not all at the same.
func (s *Slabs) Stats() Stats {
	st := Stats{Retired: uint64(max(0, s.retired.Load())), Free: s.space.freeBytes(), Pinned: int(s.pins.count.Load())}
	for i := 1; i < len(s.classes); i++ {
		c := &s.classes[i]
		cs := c.stats()
		if cs.Pages == 0 && cs.Retired == 0 {
			continue
		}
		unit := PageBytes
		if c.units > 0 {
			unit = c.units * unitBytes
		}
		st.InUse += uint64(cs.Pages * unit)
		st.Live += uint64(cs.Live * cs.Size)
		st.Classes = append(st.Classes, cs)
	}
	return st
}

func (c *class) stats() ClassStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	cs := ClassStats{Class: c.id, Size: c.size, Live: c.live, Retired: c.retired}
	if c.units > 0 {
		cs.Pages, cs.Empty = c.live+len(c.freeSpans), len(c.freeSpans)
	} else {
		cs.Pages, cs.Empty, cs.Draining = c.pages, c.empty.n, c.draining.n+c.closed
	}
	return cs
}
