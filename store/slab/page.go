package slab

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
)

// page describes 64 KiB of an items region. The lock of the class that owns it
// guards its fields; while no class owns it, nothing uses them.
type page struct {
	used []uint64 // bit set: place allocated. Its capacity survives the class
	base layout.Place
	r    *itemRegion // it lies in
	live int32       // bits set
	// Invariant: no place below word hint is free.
	hint int32
	pos  int32 // in its class's all
	// class is the class that owns it, or 0 for none. It is written under that
	// class's lock; others read it to know which lock to take, and look again
	// under it.
	class      atomic.Uint32
	clearing   *Clearing // it is emptied for this; no place is given out
	on         *list     // the list it stands on; nil when it is full
	next, prev *page
}

// allocPaged returns a place from the fullest end of what the class has, or
// from a new page; see alloc. The caller holds c.mu.
func (c *class) allocPaged(s *Slabs, last bool) (p layout.Place, seen int, ok bool) {
	pg := c.partial.head
	if pg == nil {
		pg = c.empty.head
	}
	if pg == nil {
		if pg, seen = s.space.takePage(); pg != nil {
			c.adopt(pg)
		}
	}
	if pg == nil && last {
		pg = c.draining.head
	}
	if pg == nil {
		return 0, seen, false
	}
	i := pg.take()
	c.live++
	c.file(pg)
	return pg.base + layout.Place(i*c.size/8), seen, true
}

// adopt makes a fresh page one of this class, every place free.
func (c *class) adopt(pg *page) {
	words := (c.perPage + 63) / 64
	if cap(pg.used) < words {
		pg.used = make([]uint64, words)
	}
	pg.used = pg.used[:words]
	clear(pg.used)
	if tail := c.perPage % 64; tail != 0 {
		pg.used[words-1] = ^uint64(0) << tail // places that do not exist
	}
	pg.live, pg.hint, pg.pos = 0, 0, int32(len(c.all))
	pg.class.Store(uint32(c.id))
	c.all = append(c.all, pg)
	c.pages++
}

// take allocates the lowest free place of a page that has one.
func (pg *page) take() int {
	for w := int(pg.hint); w < len(pg.used); w++ {
		if v := ^pg.used[w]; v != 0 {
			i := bits.TrailingZeros64(v)
			pg.used[w] |= 1 << i
			pg.hint = int32(w)
			if pg.live++; pg.live == 1 {
				pg.r.enter()
			}
			return w*64 + i
		}
	}
	panic(fmt.Sprintf("slab: page at place %d with %d live items was listed, but is full", pg.base, pg.live))
}

// freePaged gives a place back to its page. The caller holds c.mu.
func (c *class) freePaged(s *Slabs, p layout.Place) {
	pg := s.space.pageOf(p)
	if pg == nil || pg.class.Load() != uint32(c.id) {
		panic(fmt.Sprintf("slab: place %d is in no page of class %d", p, c.id))
	}
	off := int(p-pg.base) * 8
	i := off / c.size
	if off%c.size != 0 || i >= c.perPage || pg.used[i/64]>>(i%64)&1 == 0 {
		panic(fmt.Sprintf("slab: place %d of class %d is not allocated (page at %d, offset %d): freed twice?", p, c.id, pg.base, off))
	}
	pg.used[i/64] &^= 1 << (i % 64)
	pg.hint = min(pg.hint, int32(i/64))
	if pg.live--; pg.live == 0 {
		pg.r.leave()
	}
	c.live--
	if pg.clearing != nil {
		if pg.live == 0 {
			c.clearedPage(s, pg)
		}
		return
	}
	c.file(pg)
	if pg.live == 0 {
		s.want.fails.Store(0) // there is something to find again
		c.trimPages(s)
	}
}

// file puts a page on the list that fits its state. A draining page that has
// run empty goes with the empty ones, whose surplus is retired.
func (c *class) file(pg *page) {
	var to *list
	switch {
	case pg.clearing != nil:
		return // on no list until it is empty
	case pg.live == 0:
		to = &c.empty
	case int(pg.live) == c.perPage:
		to = nil
	case pg.on == &c.draining:
		return
	default:
		to = &c.partial
	}
	if to == pg.on {
		return
	}
	if pg.on != nil {
		pg.on.remove(pg)
	}
	if to != nil {
		to.push(pg)
	}
}

// keepEmpty is how many empty pages (or spans) a class of n keeps: an eighth,
// so that a class whose number swings does not retire and take pages in turn.
func keepEmpty(n int) int { return max(1, n/8) }

// trimPages retires the surplus of empty pages. The caller holds c.mu.
func (c *class) trimPages(s *Slabs) {
	if s.reclaim.Keeps() {
		return // it would be lost for this class too
	}
	for c.empty.n > keepEmpty(c.pages) {
		c.retirePage(s, c.empty.tail)
	}
}

// retirePage takes an empty page out of the class and retires it, on the way to
// any other. The caller holds c.mu.
func (c *class) retirePage(s *Slabs, pg *page) {
	if pg.live != 0 || pg.on != &c.empty {
		panic(fmt.Sprintf("slab: page at place %d retired with %d live items", pg.base, pg.live))
	}
	c.empty.remove(pg)
	c.disown(pg)
	s.retire(c, pg.base, PageBytes, c.perPage, nil)
}

// disown takes a page out of the class. The caller holds c.mu.
func (c *class) disown(pg *page) {
	last := c.all[len(c.all)-1]
	c.all[pg.pos], last.pos = last, pg.pos
	c.all[len(c.all)-1] = nil
	c.all = c.all[:len(c.all)-1]
	pg.class.Store(0)
	c.pages--
}

// list is a list of pages, newest first.
type list struct {
	head, tail *page
	n          int
}

func (l *list) push(pg *page) {
	pg.on, pg.prev, pg.next = l, nil, l.head
	if l.head != nil {
		l.head.prev = pg
	} else {
		l.tail = pg
	}
	l.head = pg
	l.n++
}

func (l *list) remove(pg *page) {
	if pg.prev != nil {
		pg.prev.next = pg.next
	} else {
		l.head = pg.next
	}
	if pg.next != nil {
		pg.next.prev = pg.prev
	} else {
		l.tail = pg.prev
	}
	pg.on, pg.prev, pg.next = nil, nil, nil
	l.n--
}
