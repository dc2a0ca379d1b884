// Package clock is the server's time, by which keys expire (server-decides-expiry): only the
// server decides what has expired, and what it once called expired it never shows
// again.
//
//	within an incarnation  the machine's monotonic clock, drawn towards the
//	                       wall clock by at most slewPPM, or at half speed
//	                       after a crash; it may stand still, it never jumps
//	                       and never goes back
//	from one to the next   it begins at max(wall clock, bound), where bound is
//	                       durable and no time above it was ever shown
//
// Clients carry a time that they were shown forward with a rate of 1 %; a jump
// would break what they conclude from that (client/servertime.go).
//
// The bound is written ahead of time, only in a store that has ever been given
// a key that expires: before the first one is ordered, then every two seconds.
// A disk that stalls makes the clock stand still at the bound.
//
// Each crash makes the clock begin at the bound, so crashes would add up if the
// bound were kept ahead of the clock whatever that shows. Therefore the bound is
// never raised to more than BoundAhead over the wall clock: after any number of
// crashes the clock is at most that much early. A clock that begins at its bound
// stands still until the wall clock allows a higher one, and runs at half speed
// while it is ahead by more than wallStep, so that it and its bound part again.
// Where the wall clock was set back there is nothing to go back to: the clock is
// ahead of it by as much more as it was set back (Clock.most), and that is drawn
// in by slewPPM.
package clock

import (
	"math"
	"sync"
	"time"
)

const (
	// Every is how often Tick is to be called.
	Every = 500 * time.Millisecond
	// BoundAhead is how far the durable bound may be ahead of the wall clock.
	BoundAhead = 6 * time.Second

	slewPPM      = 5000                   // 0.5 %
	crashPPM     = 500_000                // half speed, while the clock is early because of a crash
	boundRefresh = 4 * time.Second        // the bound is raised when it is nearer than that
	boundStep    = 250 * time.Millisecond // by this much at least
	wallStep     = 50 * time.Millisecond  // by less the wall clock is not set, it wanders
)

// A Source is where a clock gets its time from: the wall clock, and a
// reading that rises with real time and nothing else.
type Source func() (wall time.Time, mono time.Duration)

// systemTime is the machine's.
func systemTime() Source {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(start)
	}
}

// A Clock is the server's time in microseconds since 1970. Safe for
// concurrent use; nothing is held over a wait.
type Clock struct {
	source Source

	mu    sync.Mutex
	mono  time.Duration // the reading at which
	base  uint64        // the time was this,
	ppm   int64         // and from which on it runs so much too fast
	last  uint64        // the newest time shown
	bound uint64        // durable: no time above it may be shown
	most  int64         // how far the bound may be ahead of the wall clock, in µs: BoundAhead, or what the wall clock was set back and that

	drawn     time.Duration // the monotonic clock and
	drawnWall time.Time     // the wall clock at the last draw

	write   func(bound uint64) error // makes a bound durable; nil: there is no disk
	raising turn                     // one writer of the bound at a time; held over a write to the disk
}

// New makes a clock that starts behind every time that was shown before.
// shown is the durable bound of the last incarnation, 0 if there is none.
func New(source Source, shown uint64) *Clock {
	if source == nil {
		source = systemTime()
	}
	wall, mono := source()
	c := &Clock{source: source, mono: mono, bound: math.MaxUint64, most: BoundAhead.Microseconds(),
		drawn: mono, drawnWall: wall, raising: make(turn, 1)}
	c.base = max(uint64(max(wall.UnixMicro(), 1)), shown)
	if shown != 0 {
		c.bound = shown
		c.most = max(c.most, int64(shown)-wall.UnixMicro())
	}
	c.last = c.base
	return c
}

// Now is the server's time.
func (c *Clock) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.source()
	return c.nowLocked(mono)
}

func (c *Clock) nowLocked(mono time.Duration) uint64 {
	passed := max(int64(mono-c.mono), 0) / 1000
	t := c.base + uint64(passed+passed*c.ppm/1_000_000)
	if t > c.bound {
		// It goes on from here, when it may, at its own pace: no jump.
		t = max(c.bound, c.last)
		c.mono, c.base = mono, t
	}
	c.last = max(c.last, t)
	return c.last
}

// Expired says whether a key with this expiry is gone. 0 never is.
func (c *Clock) Expired(expiry uint64) bool { return expiry != 0 && expiry <= c.Now() }

// ExpiryAfter is the expiry of a key that is to live for ttl from now; 0 for 0.
func ExpiryAfter(now uint64, ttl time.Duration) uint64 {
	if ttl <= 0 {
		return 0
	}
	return now + uint64((ttl-1)/time.Microsecond) + 1
}

// draw sets the rate for the next while, so that the clock comes nearer to the
// wall clock.
func (c *Clock) draw(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	t := c.nowLocked(mono)
	c.mono, c.base = mono, t
	ahead := int64(t) - wall.UnixMicro()
	c.noteSteps(wall, mono)
	slowest := int64(slewPPM)
	// It began at its bound. Less than a step does not say so: the wall clock wanders,
	// and is set by less than noteSteps sees.
	if ahead > c.most-BoundAhead.Microseconds()+wallStep.Microseconds() {
		slowest = crashPPM
	}
	most := every.Microseconds() // beyond, the product could overflow
	behind := min(max(-ahead, -most), most)
	c.ppm = min(max(behind*1_000_000/most, -slowest), slewPPM)
}

// noteSteps follows the wall clock where it is set. Caller holds mu.
func (c *Clock) noteSteps(wall time.Time, mono time.Duration) {
	// Not Sub, which would take the monotonic readings.
	step := wall.UnixMicro() - c.drawnWall.UnixMicro() - (mono - c.drawn).Microseconds()
	if step > wallStep.Microseconds() || step < -wallStep.Microseconds() {
		c.most = max(c.most-step, BoundAhead.Microseconds())
	}
	c.drawn, c.drawnWall = mono, wall
}

// Ahead is by how much the clock is ahead of the wall clock; negative: behind.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	return time.Duration(int64(c.nowLocked(mono))-wall.UnixMicro()) * time.Microsecond
}

// Bounded says whether the clock has a durable bound.
func (c *Clock) Bounded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound != math.MaxUint64
}

// raise is the bound that is to be made durable next. ok: the one in force is
// near, and there may be a higher one. The clock may be beyond its first bound,
// which took longer to write than it reaches: then it stands still.
func (c *Clock) raise() (bound uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	now := c.nowLocked(mono)
	bound = now + uint64(BoundAhead.Microseconds())
	bound = min(bound, uint64(max(wall.UnixMicro()+c.most, 0)))
	near := c.bound < now+uint64(boundRefresh.Microseconds())
	return bound, near && bound >= c.bound+uint64(boundStep.Microseconds())
}

// first is the first bound of a clock that has none: a time above the one that
// it shows.
func (c *Clock) first() (bound uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.source()
	return c.nowLocked(mono) + uint64(BoundAhead.Microseconds())
}

// SetBound takes a bound into use that is durable by now.
func (c *Clock) SetBound(bound uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = bound
}

// Second is under which second an expiry is listed: by its end the key is gone.
func Second(expiry uint64) uint64 {
	const micros = 1_000_000
	return expiry/micros + min(expiry%micros, 1)
}

// NeverDue is later than every second.
const NeverDue = math.MaxUint64
