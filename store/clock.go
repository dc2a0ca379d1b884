package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// The server's time, by which keys expire (rule F12): only the server decides
// what has expired, and what it once called expired it never shows again.
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
// never raised to more than boundAhead over the wall clock: after any number of
// crashes the clock is at most that much early. A clock that begins at its bound
// stands still until the wall clock allows a higher one, and runs at half speed
// while it is ahead by more than wallStep, so that it and its bound part again. Where the wall clock
// was set back there is nothing to go back to: the clock is ahead of it by as
// much more as it was set back (clock.most), and that is drawn in by slewPPM.

const (
	slewPPM      = 5000    // 0.5 %
	crashPPM     = 500_000 // half speed, while the clock is early because of a crash
	clockEvery   = 500 * time.Millisecond
	boundAhead   = 6 * time.Second
	boundRefresh = 4 * time.Second        // the bound is raised when it is nearer than that
	boundStep    = 250 * time.Millisecond // by this much at least
	wallStep     = 50 * time.Millisecond  // by less the wall clock is not set, it wanders

	metaClock = "clock" // u64: no server time above it, in microseconds, was shown
)

// A timeSource is where a clock gets its time from: the wall clock, and a
// reading that rises with real time and nothing else.
type timeSource func() (wall time.Time, mono time.Duration)

// systemTime is the machine's.
func systemTime() timeSource {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(start)
	}
}

// A clock is the server's time in microseconds since 1970. Safe for
// concurrent use; nothing is held over a wait.
type clock struct {
	source timeSource

	mu    sync.Mutex
	mono  time.Duration // the reading at which
	base  uint64        // the time was this,
	ppm   int64         // and from which on it runs so much too fast
	last  uint64        // the newest time shown
	bound uint64        // durable: no time above it may be shown
	most  int64         // how far the bound may be ahead of the wall clock, in µs: boundAhead, or what the wall clock was set back and that

	drawn     time.Duration // the monotonic clock and
	drawnWall time.Time     // the wall clock at the last draw

	raising turn // one writer of the bound at a time; held over a write to the disk
}

// A turn is a mutex for what waits for a disk or a network. It is a channel, so
// that in a simulation (testing/synctest) time passes while somebody waits.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// newClock makes a clock that starts behind every time that was shown before.
// shown is the durable bound of the last incarnation, 0 if there is none.
func newClock(source timeSource, shown uint64) *clock {
	if source == nil {
		source = systemTime()
	}
	wall, mono := source()
	c := &clock{source: source, mono: mono, bound: math.MaxUint64, most: boundAhead.Microseconds(),
		drawn: mono, drawnWall: wall, raising: make(turn, 1)}
	c.base = uint64(max(wall.UnixMicro(), 1))
	if !teeth.Off(teeth.F12DurableTime) {
		c.base = max(c.base, shown)
	}
	if shown != 0 {
		c.bound = shown
		c.most = max(c.most, int64(shown)-wall.UnixMicro())
	}
	c.last = c.base
	return c
}

// now is the server's time.
func (c *clock) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.source()
	return c.nowLocked(mono)
}

func (c *clock) nowLocked(mono time.Duration) uint64 {
	if teeth.Off(teeth.F12SteadyTime) {
		wall, _ := c.source()
		return uint64(wall.UnixMicro())
	}
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

// expired says whether a key with this expiry is gone. 0 never is.
func (c *clock) expired(expiry uint64) bool { return expiry != 0 && expiry <= c.now() }

// after is the expiry of a key that is to live for ttl from now; 0 for 0.
func expiryAfter(now uint64, ttl time.Duration) uint64 {
	if ttl <= 0 {
		return 0
	}
	return now + uint64((ttl-1)/time.Microsecond) + 1
}

// draw sets the rate for the next while, so that the clock comes nearer to the
// wall clock.
func (c *clock) draw(every time.Duration) {
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
	if ahead > c.most-boundAhead.Microseconds()+wallStep.Microseconds() {
		slowest = crashPPM
	}
	most := every.Microseconds() // beyond, the product could overflow
	behind := min(max(-ahead, -most), most)
	c.ppm = min(max(behind*1_000_000/most, -slowest), slewPPM)
}

// noteSteps follows the wall clock where it is set. Caller holds mu.
func (c *clock) noteSteps(wall time.Time, mono time.Duration) {
	// Not Sub, which would take the monotonic readings.
	step := wall.UnixMicro() - c.drawnWall.UnixMicro() - (mono - c.drawn).Microseconds()
	if step > wallStep.Microseconds() || step < -wallStep.Microseconds() {
		c.most = max(c.most-step, boundAhead.Microseconds())
	}
	c.drawn, c.drawnWall = mono, wall
}

// ahead is by how much the clock is ahead of the wall clock; negative: behind.
func (c *clock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	return time.Duration(int64(c.nowLocked(mono))-wall.UnixMicro()) * time.Microsecond
}

// bounded says whether the clock has a durable bound.
func (c *clock) bounded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound != math.MaxUint64
}

// raise is the bound that is to be made durable next. ok: the one in force is
// near, and there may be a higher one. The clock may be beyond its first bound,
// which took longer to write than it reaches: then it stands still.
func (c *clock) raise() (bound uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	now := c.nowLocked(mono)
	bound = now + uint64(boundAhead.Microseconds())
	if !teeth.Off(teeth.F12CrashesAdd) {
		bound = min(bound, uint64(max(wall.UnixMicro()+c.most, 0)))
	}
	near := c.bound < now+uint64(boundRefresh.Microseconds())
	return bound, near && bound >= c.bound+uint64(boundStep.Microseconds())
}

// first is the first bound of a clock that has none: a time above the one that
// it shows.
func (c *clock) first() (bound uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mono := c.source()
	return c.nowLocked(mono) + uint64(boundAhead.Microseconds())
}

// setBound takes a bound into use that is durable by now.
func (c *clock) setBound(bound uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = bound
}

// Now is the server's time: what the beat shows, and what keys expire by.
func (s *Store) Now() time.Time { return time.UnixMicro(int64(s.clock.now())) }

// ClockAhead is by how much the server's time is ahead of the wall clock: 6 s at
// most, or what the wall clock was set back and 6 s; negative if it is behind.
func (s *Store) ClockAhead() time.Duration { return s.clock.ahead() }

// boundClock makes a bound of the clock durable. It waits for the disk. false:
// the store is fenced. Caller holds clock.raising.
func (s *Store) boundClock(bound uint64) bool {
	b := s.db.NewBatch()
	defer b.Close()
	err := setMeta(b, metaClock, binary.LittleEndian.AppendUint64(nil, bound))
	if err == nil {
		mode := pebble.Sync
		if s.cfg.Sync == Off { // it promises nothing about a crash of the machine
			mode = pebble.NoSync
		}
		err = b.Commit(mode)
	}
	if err != nil {
		s.fence.fail(fmt.Errorf("write of %s: %w", metaClock, err))
		return false
	}
	s.clock.setBound(bound)
	return true
}

// needClock makes sure that there is a durable bound before anything is
// ordered that can expire. It waits for the disk once in the life of a store.
func (s *Store) needClock(wait bool) error {
	if s.clock.bounded() || s.db == nil {
		return nil
	}
	if !wait {
		return ErrMustAsk
	}
	s.clock.raising.Lock()
	defer s.clock.raising.Unlock()
	if !s.clock.bounded() && !s.boundClock(s.clock.first()) {
		return s.fence.failed()
	}
	return nil
}

// runClock draws the clock and keeps its bound ahead.
func (s *Store) runClock() {
	defer s.workers.Done()
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-tick.C:
			s.tickClock()
		}
	}
}

// tickClock draws the clock and keeps its bound ahead. It may wait for the disk.
func (s *Store) tickClock() (ok bool) {
	s.clock.draw(clockEvery)
	s.clock.raising.Lock()
	defer s.clock.raising.Unlock()
	if bound, ok := s.clock.raise(); ok {
		return s.boundClock(bound)
	}
	return true
}
