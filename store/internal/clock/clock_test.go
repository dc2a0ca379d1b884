package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestClockSlews lets the wall clock jump at random. The server's time goes on
// at the monotonic clock's pace, off by 0.5 % at most, and never back; and it
// gets nearer to a wall clock that stays where it is.
func TestClockSlews(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	f := newFakeTime()
	c := New(f.source, 0)
	last := c.Now()
	for range 100_000 {
		if rng.IntN(100) == 0 {
			f.step(time.Duration(rng.Int64N(int64(time.Hour)))-30*time.Minute, 0)
		}
		d := time.Duration(rng.Int64N(int64(Every)))
		f.pass(d)
		if rng.IntN(2) == 0 {
			c.draw(Every)
		}
		now := c.Now()
		ran := int64(now - last)
		if low, high := d.Microseconds()*(1_000_000-slewPPM)/1_000_000-2, d.Microseconds()*(1_000_000+slewPPM)/1_000_000+2; ran < low || ran > high || now < last {
			t.Fatalf("in %v the clock ran %d µs", d, ran)
		}
		last = now
	}
	c = New(f.source, 0)
	f.step(10*time.Second, 0)
	for range 10_000 {
		f.pass(Every)
		c.draw(Every)
	}
	wall, _ := f.source()
	if off := wall.UnixMicro() - int64(c.Now()); off < -1000 || off > 1000 {
		t.Errorf("still %d µs from the wall clock", off)
	}
}

// TestClockWanders: a wall clock that is set back by less than what counts as a step
// is followed by 0.5 % at most, like one that wanders; half speed is for a clock that
// began at its bound.
func TestClockWanders(t *testing.T) {
	for _, back := range []time.Duration{time.Millisecond, 40 * time.Millisecond, wallStep} {
		f := newFakeTime()
		c := New(f.source, 0)
		f.step(-back, 0)
		for i := range 100 {
			before := c.Now()
			f.pass(Every)
			if ran := int64(c.Now() - before); ran < Every.Microseconds()*(1_000_000-slewPPM)/1_000_000-2 {
				t.Fatalf("set back by %v: in wait %d of %v the clock ran %d µs", back, i, Every, ran)
			}
			c.draw(Every)
		}
		wall, _ := f.source()
		if off := int64(c.Now()) - wall.UnixMicro(); off > 1000 {
			t.Errorf("set back by %v: still %d µs ahead", back, off)
		}
	}
}

// TestClockBound: no time above the bound is shown, and the clock goes on from
// there at its own pace.
func TestClockBound(t *testing.T) {
	f := newFakeTime()
	c := New(f.source, 0)
	start := c.Now()
	c.SetBound(start + 3_000_000)
	f.pass(2 * time.Second)
	if _, ok := c.raise(); !ok {
		t.Error("2 s of 3 are gone, and the bound is not near")
	}
	f.pass(10 * time.Second)
	if got := c.Now(); got != start+3_000_000 {
		t.Fatalf("%d µs after the start, bound at 3 s", got-start)
	}
	c.SetBound(start + 60_000_000)
	if got := c.Now(); got != start+3_000_000 {
		t.Fatalf("a new bound made the clock jump to %d µs", got-start)
	}
	f.pass(time.Second)
	if got := c.Now(); got != start+4_000_000 {
		t.Fatalf("%d µs after a second more", got-start)
	}
}

// TestClockBoundTooLate: the first bound was so long in coming that the clock is
// beyond it. The clock stands still, but not for ever.
func TestClockBoundTooLate(t *testing.T) {
	f := newFakeTime()
	c := New(f.source, 0)
	start := c.Now()
	f.pass(10 * time.Second)
	late := c.Now()
	c.SetBound(start + 6_000_000)
	f.pass(time.Second)
	if got := c.Now(); got != late {
		t.Fatalf("the clock went on to %d µs behind its bound", got-late)
	}
	if _, ok := c.raise(); !ok {
		t.Fatal("nobody raises a bound that the clock has passed")
	}
	c.SetBound(late + 60_000_000)
	f.pass(time.Second)
	if got := c.Now(); got != late+1_000_000 {
		t.Errorf("%d µs passed in a second", int64(got-late))
	}
}

// TestClockFarOff: a clock that is years from the wall clock is drawn towards it,
// not away.
func TestClockFarOff(t *testing.T) {
	for _, off := range []time.Duration{400 * 24 * time.Hour, -400 * 24 * time.Hour} {
		f := newFakeTime()
		c := New(f.source, 0)
		f.step(off, 0)
		c.draw(Every)
		start := c.Now()
		f.pass(1000 * time.Second)
		if ran := int64(c.Now()-start) - 1_000_000_000; ran != 5_000_000 && ran != -5_000_000 || (ran > 0) != (off > 0) {
			t.Errorf("the wall clock is %v ahead, and the clock runs %d µs faster in 1000 s", off, ran)
		}
	}
}

// TestClockStartsBehindTheLast begins with a wall clock that went back.
func TestClockStartsBehindTheLast(t *testing.T) {
	f := newFakeTime()
	shown := New(f.source, 0).Now() + 5_000_000
	f.step(-time.Hour, 0)
	if got := New(f.source, shown).Now(); got != shown {
		t.Errorf("the clock starts at %d, %d was shown", got, shown)
	}
	f.step(2*time.Hour, 0)
	wall, _ := f.source()
	if got := New(f.source, shown).Now(); got != uint64(wall.UnixMicro()) {
		t.Errorf("the clock starts at %d, the wall clock is at %d", got, wall.UnixMicro())
	}
}
