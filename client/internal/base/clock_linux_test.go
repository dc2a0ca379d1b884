package base

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A machine that is put to sleep and whose wall clock is set, in virtual time.
type sleeper struct {
	mono, wall, boot int64
	calls            int   // of boot
	slow             int64 // what a reading of boot takes
}

func (s *sleeper) now() (int64, int64) { return s.mono, s.wall }

func (s *sleeper) bootNow() int64 {
	s.calls++
	s.pass(s.slow / 2)
	b := s.boot
	s.pass(s.slow - s.slow/2)
	return b
}

func (s *sleeper) pass(d int64)  { s.mono += d; s.wall += d; s.boot += d }
func (s *sleeper) sleep(d int64) { s.wall += d; s.boot += d }

// TestBootClock: over any suspends and steps of the wall clock the lease clock shows
// CLOCK_BOOTTIME, never less, and asks the kernel for it seldom.
func TestBootClock(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for run := range 200 {
		s := &sleeper{mono: rng.Int64N(1e12), wall: rng.Int64N(2e18), boot: rng.Int64N(1e15)}
		c := newBootClock(s.now, s.bootNow)
		slept, passed := 0, int64(0)
		shown := int64(0)
		for step := range 2000 {
			what := "time passes"
			switch rng.IntN(40) {
			case 0:
				d := skewSlack + 1 + rng.Int64N(int64(time.Hour))
				what = fmt.Sprintf("suspend of %v", time.Duration(d))
				s.sleep(d)
				slept++
			case 1:
				d := rng.Int64N(int64(2*time.Hour)) - int64(time.Hour)
				what = fmt.Sprintf("wall clock set by %v", time.Duration(d))
				s.wall += d
				slept++
			case 2:
				s.slow = rng.Int64N(3 * compareWithin)
			default:
				d := rng.Int64N(int64(time.Millisecond))
				s.pass(d)
				passed += d
			}
			was := s.boot
			got := c.nanos()
			if got < was || got > s.boot+3*compareWithin {
				t.Fatalf("run %d, step %d, %s: %d ns beside CLOCK_BOOTTIME", run, step, what, got-was)
			}
			if got < shown {
				t.Fatalf("run %d, step %d, %s: the clock went back by %d ns", run, step, what, shown-got)
			}
			shown = got
		}
		if most := compareTries * (2 + slept + int(passed/compareEvery)); s.calls > most {
			t.Errorf("run %d: %d system calls, more than %d", run, s.calls, most)
		}
	}
}

// TestBootClockHiddenSuspend: a suspend that a step of the wall clock hides is seen within
// compareEvery.
func TestBootClockHiddenSuspend(t *testing.T) {
	s := &sleeper{mono: 5, wall: 1e18, boot: 70}
	c := newBootClock(s.now, s.bootNow)
	c.nanos()
	s.sleep(int64(time.Minute))
	s.wall -= int64(time.Minute)
	s.pass(compareEvery)
	if got := c.nanos(); got != s.boot {
		t.Errorf("%v behind CLOCK_BOOTTIME", time.Duration(s.boot-got))
	}
}

// TestBootNanos: many goroutines read what the kernel says, and none of them sees the clock go
// back.
func TestBootNanos(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := int64(0)
			for range 20_000 {
				low := kernelBoot(t)
				got := BootNanos()
				high := kernelBoot(t)
				if got < low-int64(time.Microsecond) || got > high+int64(time.Second) || got < last {
					t.Errorf("%d, and the kernel says %d to %d; before it was %d", got, low, high, last)
					return
				}
				last = got
			}
		})
	}
	all.Wait()
}

func kernelBoot(t *testing.T) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

func BenchmarkBootNanos(b *testing.B) {
	for b.Loop() {
		_ = BootNanos()
	}
}
