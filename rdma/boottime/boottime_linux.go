package boottime

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Nanos is CLOCK_BOOTTIME in nanoseconds, as the package comment says. Safe for concurrent use; it
// does not allocate but for one comparison in a tenth of a second.
func Nanos() int64 { return machine.nanos() }

// The two bounds below make up Slack.
const _ = uint64(int64(Slack) - skewSlack - compareWithin)

const (
	// compareEvery is for how long one comparison of the clocks is believed, in nanoseconds.
	compareEvery = int64(100 * time.Millisecond)
	// skewSlack is by how much the wall clock may seem to move against the monotonic one: time.Now
	// reads one after the other. A suspend that is shorter is noticed within compareEvery.
	skewSlack = int64(time.Millisecond)
	// compareWithin is how long a comparison may take that is used again: by so much at most it finds
	// CLOCK_BOOTTIME less ahead than it is.
	compareWithin = int64(200 * time.Microsecond)
)

// started is where the monotonic clock counts from.
var started = time.Now()

var machine = clock{
	now: func() (mono, wall int64, ok bool) {
		t := time.Now()
		return int64(t.Sub(started)), t.UnixNano(), t != t.Round(0)
	},
	boot: func() int64 {
		var ts unix.Timespec
		// CLOCK_BOOTTIME exists since Linux 2.6.39; the call has no other way to fail.
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("boottime: CLOCK_BOOTTIME: " + err.Error())
		}
		return ts.Nano()
	},
}

// A clock is CLOCK_BOOTTIME by way of cheaper clocks, all in nanoseconds.
type clock struct {
	// now is time.Now; ok is false where that has no monotonic clock, as in a bubble of testing/synctest.
	now  func() (mono, wall int64, ok bool)
	boot func() int64

	mu   sync.Mutex                 // of compare
	last atomic.Pointer[comparison] // nil: none yet
}

// A comparison of the clocks. Immutable.
type comparison struct {
	at   int64 // when it was made, on the monotonic clock
	skew int64 // the wall clock less the monotonic one, before CLOCK_BOOTTIME was read
	off  int64 // CLOCK_BOOTTIME less the monotonic one, which was read after it; never less than before
}

// holds reports whether no suspend can have been since x, and x is not old.
func (x *comparison) holds(mono, wall int64) bool {
	moved, age := wall-mono-x.skew, mono-x.at
	return moved <= skewSlack && moved >= -skewSlack && age < compareEvery && age > -compareEvery
}

func (c *clock) nanos() int64 {
	mono, wall, ok := c.now()
	if !ok {
		return c.boot()
	}
	if x := c.last.Load(); x != nil && x.holds(mono, wall) {
		return mono + x.off
	}
	return c.compare()
}

// compare reads CLOCK_BOOTTIME, and compares the clocks anew, unless another goroutine just has.
func (c *clock) compare() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.last.Load()
	mono, wall, _ := c.now()
	if old != nil && old.holds(mono, wall) {
		return mono + old.off
	}
	boot := c.boot()
	after, _, _ := c.now()
	if after-mono > compareWithin {
		return boot // something came between: the next reading tries again
	}
	// A suspend within these lines is in off or is not, and never in skew, so the next reading
	// finds that the wall clock has moved.
	x := comparison{at: after, skew: wall - mono, off: boot - after}
	// CLOCK_BOOTTIME never falls back against the monotonic clock, so of two comparisons the one
	// that finds it further ahead is the better. Else the clock could go back, and a lease would
	// seem to have more time left than it has.
	if old != nil {
		x.off = max(x.off, old.off)
	}
	c.last.Store(&x)
	return boot
}
