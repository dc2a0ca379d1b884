package slab

import (
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A Clearing is a run of memory in one items region that is being emptied for a
// class that has too little, or for one large item. All memory in the run is
// closed: pages and spans take no new item, and go on their way through the
// lease when the last item in them is freed (the code that clears frees them);
// units without an owner are taken. Parts that arrive are kept together until
// all of the run is there.
//
// An allocator cannot make room for a span of a mebibyte by freeing cold items,
// wherever they are: the pages between stay.
//
// mu is a leaf.
type Clearing struct {
	s     *Slabs
	c     *class // the class that it is for
	r     *itemRegion
	first int // units
	units int
	list  []block // what it consists of, as drawn

	mu      sync.Mutex
	got     []block // arrived
	arrived int     // units of got
	over    bool    // cancelled, or complete: a part that arrives is free for any class
}

// A block is what lies in a run: a page, a span, or units that are free.
type block struct {
	unit, units int
	class       uint8 // 0: free
}

const maxSpanUnits = (72<<20 + unitBytes - 1) / unitBytes

// maxBlocks bounds a run. A page of 64 KiB holds 16 units.
const maxBlocks = 4096

// Look draws a run that would do for an item of the class, at random. It
// changes nothing. ok is false if the place that was drawn cannot be cleared,
// or there are no items at all.
func (s *Slabs) Look(classID uint8, random uint64) (*Clearing, bool) {
	c := &s.classes[classID]
	q := c.request()
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	total := 0
	for _, r := range s.space.regions {
		total += r.ext.Units()
	}
	if total == 0 {
		return nil, false
	}
	unit := int(random % uint64(total))
	for _, r := range s.space.regions {
		if unit >= r.ext.Units() {
			unit -= r.ext.Units()
			continue
		}
		end := r.ext.Units()
		unit = min(unit, end-q.units) / q.align * q.align
		if unit < 0 {
			return nil, false
		}
		w := &Clearing{s: s, c: c, r: r}
		b, ok := s.blockAt(r, unit)
		if !ok {
			return nil, false
		}
		w.first = b.unit
		if q.align == 1 {
			unit = b.unit // the run may begin anywhere
		}
		for at := b.unit; at < unit+q.units; at += b.units {
			if at >= end || len(w.list) == maxBlocks {
				return nil, false
			}
			if b, ok = s.blockAt(r, at); !ok || at != b.unit {
				return nil, false
			}
			for b.class == 0 && at+b.units < unit+q.units && r.ext.IsFree(at+b.units) {
				b.units++
			}
			w.list = append(w.list, b)
			w.units = b.unit + b.units - w.first
		}
		return w, true
	}
	return nil, false
}

// blockAt returns what covers a unit, as far as can be told without locks of
// classes. It returns false if the unit waits for a lease, is the header, or
// cannot be told. The caller holds space.mu.
func (s *Slabs) blockAt(r *itemRegion, unit int) (block, bool) {
	if id := r.pages[unit/pageUnits].class.Load(); id != 0 {
		return block{unit / pageUnits * pageUnits, pageUnits, uint8(id)}, true
	}
	if r.ext.IsFree(unit) {
		return block{unit, 1, 0}, true
	}
	// A span that covers the unit begins at it or before.
	for at := unit; at >= 0 && unit-at < maxSpanUnits; at-- {
		if at%pageUnits == pageUnits-1 && at != unit && r.pages[at/pageUnits].class.Load() != 0 {
			break
		}
		if id := r.spans[at].class.Load(); id != 0 {
			b := block{at, s.classes[id].units, uint8(id)}
			return b, unit < at+b.units
		}
	}
	return block{}, false
}

// place is where a unit of the run is.
func (w *Clearing) place(unit int) layout.Place {
	return w.r.Base + layout.Place(unit*unitBytes/8)
}

// All reports whether the run is of that class already.
func (w *Clearing) All(classID uint8) bool {
	for _, b := range w.list {
		if b.class != classID {
			return false
		}
	}
	return true
}

// Bytes is how much memory the run is.
func (w *Clearing) Bytes() int { return w.units * unitBytes }

// Items appends places in the run that hold items, with their classes, to
// out: at most most of each page (all if 0). They may be freed at any moment.
func (w *Clearing) Items(most int, out []Item) []Item {
	for _, b := range w.list {
		if b.class != 0 {
			out = w.s.itemsOf(w, b, most, out)
		}
	}
	return out
}

// An Item is a place with its class.
type Item struct {
	Place layout.Place
	Class uint8
	Of    int // how many items its page has, of which this is a sample
}

// itemsOf appends the items of one block, or a sample of at most most.
func (s *Slabs) itemsOf(w *Clearing, b block, most int, out []Item) []Item {
	c := &s.classes[b.class]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units > 0 {
		if sp := &w.r.spans[b.unit]; sp.class.Load() == uint32(c.id) && sp.live {
			out = append(out, Item{w.place(b.unit), c.id, 1})
		}
		return out
	}
	pg := &w.r.pages[b.unit/pageUnits]
	if pg.class.Load() != uint32(c.id) || pg.live == 0 {
		return out
	}
	if most == 0 || most > int(pg.live) {
		most = int(pg.live)
	}
	step := max(1, c.perPage/most)
	for n, i := 0, 0; n < most; n++ {
		at, ok := pg.next1(i, c.perPage)
		if !ok || at < i {
			break // gone round
		}
		out = append(out, Item{pg.base + layout.Place(at*c.size/8), c.id, int(pg.live)})
		if i = at + 1; most < int(pg.live) {
			i = max(i, at-at%step+step)
		}
		if i >= c.perPage {
			break
		}
	}
	return out
}

// Begin closes the run. It returns false, and closes nothing, if something in
// the run has changed hands since Look. Afterwards the caller frees the items
// that Items lists, until Done; or gives up, with Cancel.
func (w *Clearing) Begin() bool {
	if w.s.reclaim.Keeps() {
		return false // retired memory would not become free
	}
	for _, b := range w.list {
		if !w.close(b) {
			w.Cancel()
			return false
		}
	}
	return true
}

// close closes one block.
func (w *Clearing) close(b block) bool {
	if b.class == 0 {
		w.s.space.mu.Lock()
		ok := w.r.ext.TakeAt(b.unit, b.units)
		w.s.space.mu.Unlock()
		if ok {
			w.arrive(b)
		}
		return ok
	}
	c := &w.s.classes[b.class]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units > 0 {
		return w.closeSpan(c, b)
	}
	pg := &w.r.pages[b.unit/pageUnits]
	if pg.class.Load() != uint32(c.id) || pg.clearing != nil {
		return false
	}
	if pg.on != nil {
		pg.on.remove(pg)
	}
	pg.clearing = w
	c.closed++
	if pg.live == 0 {
		c.clearedPage(w.s, pg)
	}
	return true
}

// closeSpan closes a span. The caller holds c.mu.
func (w *Clearing) closeSpan(c *class, b block) bool {
	p, sp := w.place(b.unit), &w.r.spans[b.unit]
	if sp.class.Load() != uint32(c.id) || c.clearing[p] != nil {
		return false
	}
	if sp.live {
		if c.clearing == nil {
			c.clearing = make(map[layout.Place]*Clearing)
		}
		c.clearing[p] = w
		return true
	}
	for i, free := range c.freeSpans {
		if free == p {
			c.freeSpans = append(c.freeSpans[:i], c.freeSpans[i+1:]...)
			sp.class.Store(0)
			w.s.retire(c, p, b.units*unitBytes, 1, w)
			return true
		}
	}
	return false
}

// clearedPage retires a page that is being cleared and has no item left. The
// caller holds c.mu.
func (c *class) clearedPage(s *Slabs, pg *page) {
	to := pg.clearing
	pg.clearing = nil
	c.closed--
	c.disown(pg)
	s.retire(c, pg.base, PageBytes, c.perPage, to)
}

// give hands on memory whose lease is over: to the clearing that it was retired
// for, or to any class.
func (s *Slabs) give(p layout.Place, bytes int, to *Clearing) {
	if to == nil {
		s.space.give(p, bytes)
		s.full.Store(false)
		return
	}
	_, unit := s.space.unitOf(p)
	to.arrive(block{unit: unit, units: bytes / unitBytes})
}

// arrive takes a part of the run that is empty. With the last one the run
// belongs to the class: as one kept span, or as pages for whichever allocation
// is first.
func (w *Clearing) arrive(b block) {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		w.release(b)
		return
	}
	w.got = append(w.got, b)
	w.arrived += b.units
	w.over = w.arrived == w.units
	over := w.over
	w.mu.Unlock()
	if !over {
		return
	}
	span := w.c.units // 0: pages
	if span > 0 {
		w.c.mu.Lock()
		w.r.spans[w.first].class.Store(uint32(w.c.id))
		w.c.freeSpans = append(w.c.freeSpans, w.place(w.first))
		w.c.mu.Unlock()
	}
	if span < w.units {
		w.release(block{unit: w.first + span, units: w.units - span})
	}
}

// release makes a part free for any class.
func (w *Clearing) release(b block) {
	w.s.space.give(w.place(b.unit), b.units*unitBytes)
	w.s.full.Store(false)
}

// Done reports whether no item is left in the run, or none that is still to be
// freed for it. Retired parts may still wait for their lease.
func (w *Clearing) Done() bool {
	for _, b := range w.list {
		if b.class == 0 {
			continue
		}
		c := &w.s.classes[b.class]
		c.mu.Lock()
		left := c.clearing[w.place(b.unit)] == w
		if c.units == 0 {
			pg := &w.r.pages[b.unit/pageUnits]
			left = pg.class.Load() == uint32(c.id) && pg.clearing == w
		}
		c.mu.Unlock()
		if left {
			return false
		}
	}
	return true
}

// Complete reports whether all of the run has come, or it was cancelled.
func (w *Clearing) Complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// Cancel gives up: closed memory opens again, and parts that have arrived
// become free for any class. It does nothing once the run is complete.
func (w *Clearing) Cancel() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	w.over = true
	got := w.got
	w.mu.Unlock()
	for _, b := range got {
		w.release(b)
	}
	for _, b := range w.list {
		if b.class != 0 {
			w.reopen(b)
		}
	}
}

// reopen lets a block take items again.
func (w *Clearing) reopen(b block) {
	c := &w.s.classes[b.class]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.units > 0 {
		if p := w.place(b.unit); c.clearing[p] == w {
			delete(c.clearing, p)
		}
		return
	}
	if pg := &w.r.pages[b.unit/pageUnits]; pg.class.Load() == uint32(c.id) && pg.clearing == w {
		pg.clearing = nil
		c.closed--
		c.file(pg)
	}
}
