package clock

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A clockLife is the server's clock over many incarnations, in virtual time,
// with the bound on a disk that may stall.
type clockLife struct {
	t     *testing.T
	f     *fakeTime
	c     *Clock
	disk  uint64 // the durable bound; 0: none
	shown uint64 // the newest time that anybody was shown
	// ideal is a wall clock that is never set back: what the server's clock
	// may be ahead of by boundAhead, and no more.
	ideal int64
}

func newClockLife(t *testing.T) *clockLife {
	f := newFakeTime()
	wall, _ := f.source()
	return &clockLife{t: t, f: f, c: New(f.source, 0), ideal: wall.UnixMicro()}
}

// step moves wall and monotonic clock.
func (l *clockLife) step(wall, mono time.Duration) {
	l.f.step(wall, mono)
	now, _ := l.f.source()
	l.ideal = max(l.ideal+mono.Microseconds(), now.UnixMicro())
}

// show is a time that somebody is shown: a beat, or an expiry that is judged.
func (l *clockLife) show() {
	l.t.Helper()
	now := l.c.Now()
	if now < l.shown {
		l.t.Fatalf("time goes back by %d µs", l.shown-now)
	}
	if l.disk != 0 && now > l.disk {
		l.t.Fatalf("a time is shown %d µs above the durable bound", now-l.disk)
	}
	if ahead := time.Duration(int64(now)-l.ideal) * time.Microsecond; ahead > BoundAhead+time.Millisecond {
		l.t.Fatalf("%v ahead of a wall clock that was never set back", ahead)
	}
	if l.disk != 0 {
		l.shown = now // without a bound nothing expires, and nobody is shown anything that counts
	}
}

// write makes a bound durable. It takes a while, in which the clock may be asked.
func (l *clockLife) write(bound uint64, takes time.Duration) {
	l.step(takes, takes)
	l.show()
	l.disk = bound
	l.c.SetBound(bound)
}

// tick is Clock.Tick.
func (l *clockLife) tick(takes time.Duration) {
	l.c.draw(Every)
	if bound, ok := l.c.raise(); ok {
		l.write(bound, takes)
	}
}

// restart begins the next incarnation, as Open does.
func (l *clockLife) restart(down time.Duration) {
	l.step(down, down)
	l.c = New(l.f.source, l.disk)
	if l.disk == 0 {
		return
	}
	if bound, ok := l.c.raise(); ok {
		l.disk = bound
		l.c.SetBound(bound)
	}
	l.show()
}

// TestCrashHistories goes through random histories of crashes, clean stops,
// stalls of the disk and wall clocks that are set: time never goes back, never
// passes what is durable, and is never more than 6 s ahead of a wall clock that
// was not set back.
func TestCrashHistories(t *testing.T) {
	seed := rand.Uint64()
	histories := 300
	if testing.Short() {
		histories = 60
	}
	for i := range histories {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		t.Run(fmt.Sprintf("seed=%d.%d", seed, i), func(t *testing.T) {
			l := newClockLife(t)
			upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
			steps, long := rng.IntN(3) == 0, rng.IntN(2) == 0
			for range 400 {
				switch x := rng.IntN(100); {
				case x < 60:
					for range 1 + rng.IntN(4) {
						l.step(Every, Every)
						l.tick(upTo(20 * time.Millisecond))
						l.show()
					}
				case x < 70 && l.disk == 0:
					l.write(l.c.first(), upTo(20*time.Millisecond))
				case x < 75:
					d := upTo(20 * time.Second) // nobody ticks: the disk stalls, or the process
					l.step(d, d)
					l.show()
				case x < 78 && steps:
					d := time.Duration(rng.NormFloat64() * float64(time.Minute))
					if d > -wallStep && d < wallStep {
						d = 0 // too little to be told from a clock that wanders
					}
					l.step(d, 0)
					l.tick(0) // before anything else is measured by it
				case x < 82 && l.disk != 0:
					l.disk = l.c.Now() // a clean stop
					l.c.SetBound(l.disk)
					l.restart(upTo(5 * time.Second))
				case x >= 88 || !long:
					for range 1 + rng.IntN(20) {
						l.restart(upTo(100 * time.Millisecond))
					}
				}
				l.show()
			}
			// Left alone, the clock and the wall clock meet, unless that was set back.
			if steps {
				return
			}
			for range 60 {
				l.step(Every, Every)
				l.tick(0)
				l.show()
			}
			if ahead := l.c.Ahead(); ahead > 10*time.Millisecond {
				t.Fatalf("still %v ahead after half a minute", ahead)
			}
		})
	}
}

// TestClockSetBack: a wall clock that was set back by an hour neither stops the
// server's time nor makes it run at half speed for long, over crashes too.
func TestClockSetBack(t *testing.T) {
	l := newClockLife(t)
	l.write(l.c.first(), 0)
	run := func(d time.Duration) (ran time.Duration) {
		start := l.c.Now()
		for end := l.f.mono + d; l.f.mono < end; {
			l.step(Every, Every)
			l.tick(0)
			l.show()
		}
		return time.Duration(l.c.Now()-start) * time.Microsecond
	}
	run(10 * time.Second)
	l.step(-time.Hour, 0)
	if ran := run(time.Minute); ran < 59*time.Second {
		t.Errorf("set back by an hour: %v in a minute", ran)
	}
	for range 40 {
		l.restart(50 * time.Millisecond)
	}
	if ahead := l.c.Ahead(); ahead > time.Hour+BoundAhead {
		t.Errorf("%v ahead after 40 crashes", ahead)
	}
	if ran := run(time.Minute); ran < 50*time.Second {
		t.Errorf("after a crash: %v in a minute", ran)
	}
	if ran := run(time.Minute); ran < 59*time.Second {
		t.Errorf("a minute after a crash: %v in a minute", ran)
	}
	// What it was set back is drawn in; from then on 6 s are 6 s again.
	l.step(time.Hour-20*time.Second, 0)
	run(5000 * time.Second)
	for range 40 {
		l.restart(50 * time.Millisecond)
	}
	if ahead := l.c.Ahead(); ahead > BoundAhead {
		t.Errorf("%v ahead after 40 crashes, long after the wall clock was set back", ahead)
	}
}
