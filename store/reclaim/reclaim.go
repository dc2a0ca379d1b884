package reclaim

import (
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// BeatMargin is added to every wait: one interval of the beat.
const BeatMargin = 200 * time.Millisecond

// Reclaimer holds retired memory of one store for a lease. It is safe for
// concurrent use, except that Tick is called by one goroutine at a time.
//
// Lock order: mu, then the table's beat lock. No callback runs under mu.
type Reclaimer struct {
	table *region.Table
	wait  time.Duration // from the stamp to the reuse
	keep  bool          // nothing is used again

	mu sync.Mutex
	// queue is in the order of retirement, which is nearly that of the stamps;
	// an entry behind one that must wait longer waits with it.
	queue   []entry
	head    int    // queue[:head] has been freed
	ticks   uint64 // calls of Tick that have begun
	pending uint64 // bytes in queue[head:]
}

// entry is one piece of memory that waits for the end of leases.
type entry struct {
	place layout.Place
	pages uint32
	// stamp is when the wait began; zero until it is known.
	stamp time.Time
	// tick is the value of ticks at retirement, for entries without a stamp.
	tick uint64
	free func()
}

// New returns a reclaimer for the memory of t. lease is the L that clients
// are promised.
func New(t *region.Table, lease time.Duration) *Reclaimer {
	if lease < 0 {
		panic(fmt.Sprintf("reclaim: lease of %v", lease))
	}
	return &Reclaimer{table: t, wait: Wait(lease)}
}

// NewKeeping returns a reclaimer that never lets memory be used again, so that
// a reader may believe it without any lease. Functions given to After are
// called as before.
func NewKeeping(t *region.Table, lease time.Duration) *Reclaimer {
	r := New(t, lease)
	r.keep = true
	return r
}

// Keeps reports whether retired memory is lost until the table is closed. A
// caller that can do without retiring memory should do so then.
func (r *Reclaimer) Keeps() bool { return r.keep }

// Wait is how long memory rests for a lease of L: L, one per cent for clocks
// whose rates differ, and one beat.
func Wait(lease time.Duration) time.Duration { return lease + (lease+99)/100 + BeatMargin }

// Retire takes over pages pages of 4 KiB at p that no reader is led to any
// more, and calls free, once and on the goroutine of Tick, when they may be
// used for something else.
//
// A reclaimer that keeps everything takes the memory and calls nothing.
//
// listed says that clients may hold places in them: they are published in the
// ring and the reclaim version is raised and stored in the beat line before
// Retire returns and before the wait begins. Items are listed, index memory
// need not be: a client verifies every bucket by its header.
//
// now is a reading of the clock of Tick, taken *after* the memory had become
// unreachable (after the last mark, or the destroyed checksums). A caller that
// has no such reading passes the zero time: then the wait begins at the second
// call of Tick from here, because the time handed to the first may have been
// read before this moment. With listed, now is always treated as zero, since
// the version reaches the beat line only now.
func (r *Reclaimer) Retire(now time.Time, p layout.Place, pages uint32, listed bool, free func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if listed {
		r.table.Retired(p, pages)
		now = time.Time{}
	}
	if r.keep && pages > 0 {
		return
	}
	r.queue = append(r.queue, entry{place: p, pages: pages, stamp: now, tick: r.ticks, free: free})
	r.pending += uint64(pages) * layout.PageSize
}

// After calls f, once and on the goroutine of Tick, when no reader can be left
// that posted a READ before this call.
func (r *Reclaimer) After(f func()) { r.Retire(time.Time{}, 0, 0, false, f) }

// Tick frees what has waited long enough and returns how many pieces that
// were. now must come from a monotonic clock that counts suspend, read after
// the previous Tick returned.
func (r *Reclaimer) Tick(now time.Time) (freed int) {
	due := r.take(now)
	for i := range due {
		due[i].free()
	}
	return len(due)
}

// take stamps and removes what is due.
func (r *Reclaimer) take(now time.Time) []entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks++
	for i := len(r.queue) - 1; i >= r.head; i-- {
		e := &r.queue[i]
		// The entry was retired when tick e.tick had begun, so possibly after
		// the time of tick e.tick+1 was read; that of e.tick+2 was read after
		// it.
		if e.stamp.IsZero() && r.ticks >= e.tick+2 {
			e.stamp = now
		}
	}
	n := r.head
	for n < len(r.queue) {
		e := &r.queue[n]
		if e.stamp.IsZero() || now.Sub(e.stamp) < r.wait {
			break
		}
		r.pending -= uint64(e.pages) * layout.PageSize
		n++
	}
	if n == r.head {
		return nil
	}
	due := append([]entry(nil), r.queue[r.head:n]...)
	clear(r.queue[r.head:n])
	r.head = n
	if r.head*2 >= len(r.queue) {
		// Give the front back, or the queue would grow for ever.
		rest := copy(r.queue, r.queue[r.head:])
		clear(r.queue[rest:])
		r.queue, r.head = r.queue[:rest], 0
	}
	return due
}

// Version is the newest reclaim version: it stands in the beat line.
func (r *Reclaimer) Version() uint64 { return r.table.ReclaimVersion() }

// Pending is the bytes that wait.
func (r *Reclaimer) Pending() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}
