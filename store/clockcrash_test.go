package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A clockLife is the server's clock over many incarnations, in virtual time,
// with the bound on a disk that may stall.
type clockLife struct {
	t     *testing.T
	f     *fakeTime
	c     *clock
	disk  uint64 // the durable bound; 0: none
	shown uint64 // the newest time that anybody was shown
	// ideal is a wall clock that is never set back: what the server's clock
	// may be ahead of by boundAhead, and no more.
	ideal int64
}

func newClockLife(t *testing.T) *clockLife {
	f := newFakeTime()
	wall, _ := f.source()
	return &clockLife{t: t, f: f, c: newClock(f.source, 0), ideal: wall.UnixMicro()}
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
	now := l.c.now()
	if now < l.shown {
		l.t.Fatalf("time goes back by %d µs", l.shown-now)
	}
	if l.disk != 0 && now > l.disk {
		l.t.Fatalf("a time is shown %d µs above the durable bound", now-l.disk)
	}
	if ahead := time.Duration(int64(now)-l.ideal) * time.Microsecond; ahead > boundAhead+time.Millisecond {
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
	l.c.setBound(bound)
}

// tick is tickClock.
func (l *clockLife) tick(takes time.Duration) {
	l.c.draw(clockEvery)
	if bound, ok := l.c.raise(); ok {
		l.write(bound, takes)
	}
}

// restart begins the next incarnation, as Open does.
func (l *clockLife) restart(down time.Duration) {
	l.step(down, down)
	l.c = newClock(l.f.source, l.disk)
	if l.disk == 0 {
		return
	}
	if bound, ok := l.c.raise(); ok {
		l.disk = bound
		l.c.setBound(bound)
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
						l.step(clockEvery, clockEvery)
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
					l.disk = l.c.now() // a clean stop
					l.c.setBound(l.disk)
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
				l.step(clockEvery, clockEvery)
				l.tick(0)
				l.show()
			}
			if ahead := l.c.ahead(); ahead > 10*time.Millisecond {
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
		start := l.c.now()
		for end := l.f.mono + d; l.f.mono < end; {
			l.step(clockEvery, clockEvery)
			l.tick(0)
			l.show()
		}
		return time.Duration(l.c.now()-start) * time.Microsecond
	}
	run(10 * time.Second)
	l.step(-time.Hour, 0)
	if ran := run(time.Minute); ran < 59*time.Second {
		t.Errorf("set back by an hour: %v in a minute", ran)
	}
	for range 40 {
		l.restart(50 * time.Millisecond)
	}
	if ahead := l.c.ahead(); ahead > time.Hour+boundAhead {
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
	if ahead := l.c.ahead(); ahead > boundAhead {
		t.Errorf("%v ahead after 40 crashes, long after the wall clock was set back", ahead)
	}
}

// TestCrashesDoNotAddUp kills a store forty times in a row. Its time is at most
// 6 s ahead of the wall clock after any of them, so that a key lives for all but
// 6 s of its time; and it meets the wall clock soon after.
func TestCrashesDoNotAddUp(t *testing.T) {
	for _, life := range []time.Duration{0, 700 * time.Millisecond, 3 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			c, f := timedConfig(testConfig(fs))
			c.PredecessorGone = true
			n := open(t, c)
			n.do(Write{Key: []byte("k"), Value: []byte("v"), TTL: 3 * time.Minute})
			var passed time.Duration
			for kill := range 40 {
				for d := time.Duration(0); d < life; d += 100 * time.Millisecond {
					f.pass(100 * time.Millisecond)
					if d%clockEvery == 0 {
						n.tickClock()
					}
				}
				f.pass(50 * time.Millisecond)
				passed += life + 50*time.Millisecond
				fs = fs.CrashClone(vfs.CrashCloneCfg{})
				c.FS, c.Memory = fs, newHeapMemory()
				n = open(t, c)
				if ahead := n.Stats().ClockAhead; ahead > boundAhead {
					t.Fatalf("kill %d: %v ahead", kill+1, ahead)
				}
				if _, ok := n.get(0, "k"); !ok && passed < 3*time.Minute-boundAhead {
					t.Fatalf("kill %d: a key of 3 minutes is gone after %v", kill+1, passed)
				}
			}
			n.pass(f, 30*time.Second)
			if ahead := n.Stats().ClockAhead; ahead > 10*time.Millisecond {
				t.Errorf("still %v ahead after half a minute", ahead)
			}
		})
	}
}

// TestRestoredClock: a copy that was made of a live store, whatever crashes that
// has behind it, begins at most 6 s ahead.
func TestRestoredClock(t *testing.T) {
	fs := vfs.NewCrashableMem()
	c, f := timedConfig(testConfig(fs))
	c.PredecessorGone = true
	n := open(t, c)
	n.do(Write{Key: []byte("k"), Value: []byte("v"), TTL: time.Hour})
	for range 20 {
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
		c.FS, c.Memory = fs, newHeapMemory()
		n = open(t, c)
		f.pass(clockEvery)
		n.tickClock()
	}
	if err := n.Backup(t.Context(), "/copy"); err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Memory = "/copy", newHeapMemory()
	n = open(t, c)
	if ahead := n.Stats().ClockAhead; ahead > boundAhead {
		t.Errorf("a copy begins %v ahead", ahead)
	}
	n.want(0, "k", "v")
}
