package boottime

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A sleeper is a machine that is put to sleep and whose wall clock is set, in virtual time.
type sleeper struct {
	mono, wall, boot int64
	calls            int   // of boot
	slow             int64 // what a reading of boot takes
	during           int64 // a suspend within the next reading of boot, behind it
}

func (s *sleeper) now() (int64, int64, bool) { return s.mono, s.wall, true }

func (s *sleeper) bootNow() int64 {
	s.calls++
	s.pass(s.slow / 2)
	b := s.boot
	s.sleep(s.during)
	s.during = 0
	s.pass(s.slow - s.slow/2)
	return b
}

func (s *sleeper) pass(d int64)  { s.mono += d; s.wall += d; s.boot += d }
func (s *sleeper) sleep(d int64) { s.wall += d; s.boot += d }

// TestNanos: over any suspends and steps of the wall clock, a reading is never later than
// CLOCK_BOOTTIME, earlier by no more than a comparison takes and what is not noticed of a suspend,
// never goes back, and asks the kernel seldom.
func TestNanos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for run := range 200 {
		s := &sleeper{mono: rng.Int64N(1e12), wall: rng.Int64N(2e18), boot: rng.Int64N(1e15)}
		c := &clock{now: s.now, boot: s.bootNow}
		moved, passed := 0, int64(0)
		shown := int64(-1 << 62)
		for step := range 2000 {
			what := "time passes"
			switch rng.IntN(40) {
			case 0:
				d := rng.Int64N(1 + []int64{int64(time.Hour), 2 * skewSlack}[rng.IntN(2)])
				what = fmt.Sprintf("suspend of %v", time.Duration(d))
				s.sleep(d)
				moved++
			case 1:
				d := rng.Int64N(int64(2*time.Hour)) - int64(time.Hour)
				what = fmt.Sprintf("wall clock set by %v", time.Duration(d))
				s.wall += d
				moved++
			case 2:
				s.slow = rng.Int64N(compareWithin)
			case 3:
				s.during = rng.Int64N(int64(time.Hour))
				moved++
			default:
				d := rng.Int64N(int64(time.Millisecond))
				s.pass(d)
				passed += d
			}
			was, asleep := s.boot, s.during
			got := c.nanos()
			if got < was-compareWithin-skewSlack || got > s.boot {
				t.Fatalf("run %d, step %d, %s (and a suspend of %v while the clock is read): %v behind CLOCK_BOOTTIME", run, step, what,
					time.Duration(asleep), time.Duration(was-got))
			}
			if got < shown {
				t.Fatalf("run %d, step %d, %s: the clock went back by %v", run, step, what, time.Duration(shown-got))
			}
			shown = got
		}
		if most := 2 * (2 + moved + int(passed/compareEvery)); s.calls > most {
			t.Errorf("run %d: %d system calls, more than %d", run, s.calls, most)
		}
	}
}

// TestElapsed: between a reading and a later one, or a later CLOCK_BOOTTIME, no less time seems to

func TestElapsed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 20_000 {
		s := &sleeper{mono: 1, wall: 1e18, boot: rng.Int64N(1e15), slow: slowly(rng)}
		c := &clock{now: s.now, boot: s.bootNow}
		begun := c.nanos()
		from := s.boot
		for range rng.IntN(4) {
			s.slow = slowly(rng)
			s.pass(rng.Int64N(2 * compareEvery))
			s.sleep(rng.Int64N(2) * rng.Int64N(int64(time.Minute)))
			c.nanos()
		}
		until := s.boot
		if polled := s.boot - begun; polled < until-from {
			t.Fatalf("%d ns by CLOCK_BOOTTIME, and %d have passed", polled, until-from)
		}
		if took := c.nanos() - begun; took < until-from-int64(Slack) {
			t.Fatalf("%d ns seem to have passed, and %d have", took, until-from)
		}
	}
}

// slowly is what a reading may take: mostly little, at times a second.
func slowly(rng *rand.Rand) int64 {
	return rng.Int64N([]int64{100, 2 * compareWithin, 1e9}[rng.IntN(3)])
}

// TestHiddenSuspend: a suspend that a step of the wall clock hides is seen within compareEvery.
func TestHiddenSuspend(t *testing.T) {
	s := &sleeper{mono: 5, wall: 1e18, boot: 70}
	c := &clock{now: s.now, boot: s.bootNow}
	c.nanos()
	s.sleep(int64(time.Minute))
	s.wall -= int64(time.Minute)
	s.pass(compareEvery)
	if got := c.nanos(); got != s.boot {
		t.Errorf("%v behind CLOCK_BOOTTIME", time.Duration(s.boot-got))
	}
}

// TestKernel: many goroutines read what the kernel says, and none of them sees the clock go back.
func TestKernel(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := int64(0)
			for range 20_000 {
				got := Nanos()
				if high := machine.boot(); got > high || got < last {
					t.Errorf("%d, and the kernel says %d; before it was %d", got, high, last)
					return
				}
				last = got
			}
		})
	}
	all.Wait()
	if got, low := Nanos(), machine.boot(); got < low-int64(time.Minute) {
		t.Errorf("%v behind", time.Duration(low-got))
	}
}

// TestBubble: in a bubble of testing/synctest, whose time.Now tells an invented time, the clock is
// the kernel's, and nothing of the invented time is left in it.
func TestBubble(t *testing.T) {
	for range 3 {
		low := Nanos()
		synctest.Test(t, func(t *testing.T) {
			for range 3 {
				if got := Nanos(); got < low || got > machine.boot() {
					t.Errorf("%d in a bubble, and %d before", got, low)
				}
				time.Sleep(time.Hour)
			}
		})
		if got := Nanos(); got < low || got > machine.boot() {
			t.Errorf("%d behind a bubble, and %d before", got, low)
		}
	}
}

// BenchmarkNanos is beside the system call.
func BenchmarkNanos(b *testing.B) {
	b.Run("nanos", func(b *testing.B) {
		for b.Loop() {
			Nanos()
		}
	})
	b.Run("clock_gettime", func(b *testing.B) {
		var ts unix.Timespec
		for b.Loop() {
			_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		}
	})
}
