package slab

import (
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// retire sends memory that a class gives up through the lease: every place in it
// loses its checksum, then it is listed, then it waits, then any class may take
// it. Neither destroyed checksums nor the list alone is enough. Without the
// destroyed checksums a client that posts a READ during the wait would find a
// valid item in memory that has no owner; without the list a client that learned
// of a place an hour ago would read it after the reuse, under a lease that is
// quite fresh. The caller holds c.mu.
func (s *Slabs) retire(c *class, p layout.Place, bytes, places int, to *Clearing) {
	mem := s.table.Bytes(p, bytes)
	for i := range places {
		layout.DestroyChecksum(mem[i*c.size : (i+1)*c.size])
	}
	c.retired++
	s.retired.Add(int64(bytes))
	s.reclaim.Retire(time.Time{}, p, uint32(bytes/unitBytes), true, func() {
		s.give(p, bytes, to)
		s.retired.Add(-int64(bytes))
		c.mu.Lock()
		c.retired--
		c.mu.Unlock()
	})
}

// pressure is what is remembered between calls that found no memory.
type pressure struct {
	next  atomic.Uint32 // class where the next look begins
	fails atomic.Uint32 // fruitless looks in a row
}

const (
	// lookEvery spares a full store the look at every class on each call.
	lookEvery = 32
	// lookPages is how many pages of a class are compared for the emptiest.
	lookPages = 8
	// drainBelow: a page is emptied out only when at most 1/4 of it is live.
	drainBelow = 4
	// maxDraining pages a class are closed to new items at a time.
	maxDraining = 4
)

// relieve starts to make room for class c, which found none: empty pages and
// kept spans of other classes are retired until the memory that waits would do;
// failing that, the emptiest page seen is closed to new items, so that it runs
// empty as its items are overwritten. It takes one class lock at a time, none on
// entry, and never waits.
func (s *Slabs) relieve(c *class) {
	if s.reclaim.Keeps() {
		return // retired memory would not become free
	}
	need := int64(max(c.units*unitBytes, PageBytes))
	if s.retired.Load() >= 2*need {
		return // enough is on its way
	}
	if n := s.want.fails.Load(); n != 0 && n%lookEvery != 0 {
		s.want.fails.Add(1)
		return
	}
	var found int64
	var best *class
	bestLive, bestOf := 1, drainBelow // share of the emptiest page so far
	first := int(s.want.next.Add(1))
	for i := range len(s.classes) - 1 {
		o := &s.classes[1+(first+i)%(len(s.classes)-1)]
		if o == c {
			continue
		}
		o.mu.Lock()
		for o.empty.n > 0 && found < need {
			o.retirePage(s, o.empty.tail)
			found += PageBytes
		}
		for len(o.freeSpans) > 0 && found < need {
			o.retireSpan(s, 0)
			found += int64(o.units) * unitBytes
		}
		if pg := o.emptiest(); pg != nil && int(pg.live)*bestOf <= bestLive*o.perPage {
			best, bestLive, bestOf = o, int(pg.live), o.perPage
		}
		o.mu.Unlock()
		if found >= need {
			s.want.fails.Store(0)
			return
		}
	}
	if found == 0 && (best == nil || !best.drain()) {
		s.want.fails.Add(1)
		return
	}
	s.want.fails.Store(0)
}

// emptiest returns the page with the fewest items among the first few, or nil.
// The caller holds c.mu.
func (c *class) emptiest() (best *page) {
	if c.draining.n >= maxDraining || c.partial.n < 2 {
		return nil // its only page is where the class lives
	}
	pg := c.partial.tail
	for range lookPages {
		if pg == nil {
			break
		}
		if best == nil || pg.live < best.live {
			best = pg
		}
		pg = pg.prev
	}
	return best
}

// drain closes the emptiest page to new items, if there still is one.
func (c *class) drain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pg := c.emptiest()
	if pg == nil {
		return false
	}
	c.partial.remove(pg)
	c.draining.push(pg)
	return true
}
