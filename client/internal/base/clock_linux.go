package base

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// BootNanos is the clock of leases: nanoseconds that count time spent in suspend too.
// CLOCK_MONOTONIC, which time.Now reads, stands still while the machine sleeps, and a lease held
// over a sleep would look fresh. CLOCK_BOOTTIME counts the sleep, but Go reads it by a system
// call, which takes six times as long as time.Now. So a reading is that of the monotonic clock,
// plus what CLOCK_BOOTTIME was ahead of it by when the two were last compared.
//
// They are compared anew when a suspend may have been between. The kernel adds a suspend to
// CLOCK_BOOTTIME and to CLOCK_REALTIME by the same amount at the same moment
// (timekeeping_inject_sleeptime64 in kernel/time/timekeeping.c), and nothing else but a step of the
// wall clock changes how far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: adjtimex slews both. So
// a suspend shows in the two clocks that time.Now reads. Only a step back by just as much,
// within compareEvery, could hide one; hence the comparison after that time in any case.
//
// Safe for concurrent use.
func BootNanos() int64 { return boot.nanos() }

const (
	// compareEvery is for how long one comparison of the clocks is believed.
	compareEvery = int64(100 * time.Millisecond)
	// skewSlack is by how much the wall clock may seem to move against the monotonic one: the two
	// are read one after the other. A suspend that is shorter is noticed within compareEvery.
	skewSlack = int64(time.Millisecond)
	// compareTries bounds the readings of one comparison, and compareWithin is how long one of
	// them may take. A longer one makes the clock seem further ahead than it is, by that time at
	// most: a lease then ends early.
	compareTries  = 4
	compareWithin = int64(20 * time.Microsecond)
)

var boot = newBootClock(
	func() (mono, wall int64) {
		t := time.Now()
		return int64(t.Sub(monoStarted)), t.UnixNano()
	},
	func() int64 {
		var ts unix.Timespec
		// CLOCK_BOOTTIME exists since Linux 2.6.39; the call has no other way to fail.
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("client: CLOCK_BOOTTIME: " + err.Error())
		}
		return ts.Nano()
	},
)

// A bootClock is CLOCK_BOOTTIME by way of cheaper clocks, all in nanoseconds.
type bootClock struct {
	now  func() (mono, wall int64)
	boot func() int64

	mu   sync.Mutex // of compare
	last atomic.Pointer[comparison]
}

// A comparison of the clocks.
type comparison struct {
	at   int64 // when it was made, on the monotonic clock
	skew int64 // the wall clock less the monotonic one
	off  int64 // CLOCK_BOOTTIME less the monotonic one, or up to compareWithin more
}

func newBootClock(now func() (mono, wall int64), boot func() int64) *bootClock {
	c := &bootClock{now: now, boot: boot}
	c.last.Store(&comparison{at: -compareEvery})
	return c
}

// holds reports whether no suspend can have been since x, and x is not old.
func (x *comparison) holds(mono, wall int64) bool {
	moved, age := wall-mono-x.skew, mono-x.at
	return moved <= skewSlack && moved >= -skewSlack && age < compareEvery && age > -compareEvery
}

func (c *bootClock) nanos() int64 {
	mono, wall := c.now()
	x := c.last.Load()
	if !x.holds(mono, wall) {
		return c.compare()
	}
	return mono + x.off
}

// compare compares the clocks anew, unless another goroutine just has.
func (c *bootClock) compare() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var x comparison
	old := c.last.Load()
	for try := 1; ; try++ {
		mono, wall := c.now()
		if old.holds(mono, wall) {
			return mono + old.off
		}
		x = comparison{at: mono, skew: wall - mono, off: c.boot() - mono}
		if after, _ := c.now(); after-mono <= compareWithin || try == compareTries {
			break
		}
	}
	// The clock must not go back, because then a lease would seem to have more time left than it
	// has: of two comparisons of one moment the later one may be the better.
	if less := old.off - x.off; less > 0 && less <= skewSlack {
		x.off = old.off
	}
	c.last.Store(&x)
	return x.at + x.off
}
