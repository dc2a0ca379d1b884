package wait

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestWaitModes(t *testing.T) {
	for _, m := range []Mode{Adaptive, Poll, Event} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v became %v, %v", m, got, err)
		}
	}
	if m, err := ParseMode(""); m != Adaptive || err != nil {
		t.Error(m, err)
	}
	if _, err := ParseMode("sometimes"); !errors.Is(err, rdma.ErrInvalid) {
		t.Error(err)
	}
	if s := Mode(9).String(); s != "Mode(9)" {
		t.Error(s)
	}
}

// What the modes and the longest spin leave to choose from.
func TestBudgetBounds(t *testing.T) {
	for _, c := range []struct {
		mode Mode
		max  time.Duration
		want time.Duration
	}{
		{Event, time.Millisecond, 0},
		{Poll, time.Millisecond, time.Millisecond},
		{Poll, 0, 0},
		{Adaptive, 0, 0},
		{Adaptive, 30 * time.Microsecond, 30 * time.Microsecond}, // knows nothing yet
	} {
		b := NewSpinBudget(c.mode, c.max)
		for range 100 {
			got := b.Next()
			if got != c.want {
				t.Fatalf("%v, at most %v: %v", c.mode, c.max, got)
			}
			if got > 0 {
				b.Quit()
			}
		}
	}
	b := NewSpinBudget(Poll, time.Millisecond)
	for range 100 {
		b.Next()
		b.Vain(time.Millisecond)
	}
	if b.Next() != time.Millisecond {
		t.Error("mode poll gave up")
	}
	if s := b.Stats(); s != (SpinStats{Vain: 100, Time: 100 * time.Millisecond}) {
		t.Errorf("%+v", s)
	}
}

// A wait spins for some more than the last ones took, never for longer than max.
func TestBudgetFollows(t *testing.T) {
	const longest = 100 * time.Microsecond
	b := NewSpinBudget(Adaptive, longest)
	learn := func(took time.Duration) time.Duration {
		for range 100 {
			if b.Next() == 0 {
				t.Fatal("a wait after a success does not spin")
			}
			b.Got(took)
		}
		d := b.Next()
		b.Quit()
		return d
	}
	if d := learn(3 * time.Microsecond); d < 3*time.Microsecond || d > 10*time.Microsecond {
		t.Errorf("3 µs: %v", d)
	}
	if d := learn(20 * time.Microsecond); d < 30*time.Microsecond || d > 45*time.Microsecond {
		t.Errorf("20 µs: %v", d)
	}
	if d := learn(90 * time.Microsecond); d != longest {
		t.Errorf("90 µs: %v", d)
	}
	b.Got(-1) // not measured: as the others
	if d := b.Next(); d != longest {
		t.Errorf("after an unmeasured one: %v", d)
	}
	b.Quit()
	if s := b.Stats(); s.Got != 301 || s.Vain != 0 {
		t.Errorf("%+v", s)
	}
}

// A budget that has become too short for what is waited for grows again.
func TestBudgetGrows(t *testing.T) {
	b := NewSpinBudget(Adaptive, 100*time.Microsecond)
	for range 100 {
		b.Next()
		b.Got(2 * time.Microsecond)
	}
	const need = 40 * time.Microsecond // of each wait from now on
	for waits := 1; ; waits++ {
		d := b.Next()
		if d >= need {
			b.Got(need)
			break
		}
		if d > 0 {
			b.Vain(d)
		}
		b.Slept(need)
		if waits == 64 {
			t.Fatalf("after %d waits of %v the budget is %v", waits, need, d)
		}
	}
}

// Where spinning is in vain, next to nothing is spent on it; where it has come
// to be worth it, that is found out.
func TestBudgetGivesUp(t *testing.T) {
	b := NewSpinBudget(Adaptive, 50*time.Microsecond)
	const waits = 100_000
	spun := 0
	for range waits {
		if d := b.Next(); d > 0 {
			spun++
			b.Vain(d)
		}
		b.Slept(5 * time.Millisecond)
	}
	if spun < waits/spinMaxRest || spun > waits/500 {
		t.Errorf("%d of %d waits spun", spun, waits)
	}
	tries := 0
	for b.Next() == 0 {
		if tries++; tries > spinMaxRest {
			t.Fatal("never tries again")
		}
	}
	b.Got(5 * time.Microsecond)
	if d := b.Next(); d == 0 {
		t.Error("does not spin after a success")
	}
	b.Quit()
}

// A sleep shorter than the longest spin says that spinning would have done.
func TestBudgetLearnsFromSleep(t *testing.T) {
	b := NewSpinBudget(Adaptive, 50*time.Microsecond)
	for d := b.Next(); d > 0; d = b.Next() {
		b.Vain(d)
	}
	b.Slept(51 * time.Microsecond)
	if b.Next() != 0 {
		t.Error("spins after a long sleep")
	}
	b.Slept(50 * time.Microsecond)
	if b.Next() == 0 {
		t.Error("sleeps after a short sleep")
	}
	b.Quit()
}

// Adaptive waits of all connections together leave a processor to others; each
// way to end a spin makes room.
func TestBudgetLeavesAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	budgets := make([]*SpinBudget, 5)
	for i := range budgets {
		budgets[i] = NewSpinBudget(Adaptive, time.Millisecond)
	}
	for i, b := range budgets {
		if d := b.Next(); d > 0 != (i < 3) {
			t.Errorf("number %d: %v", i, d)
		}
	}
	budgets[0].Got(time.Microsecond)
	budgets[1].Vain(time.Microsecond)
	budgets[2].Quit()
	if n := spinners.Load(); n != 0 {
		t.Errorf("%d spin", n)
	}
	runtime.GOMAXPROCS(1)
	for _, b := range budgets { // they notice in time
		for range 64 {
			if b.Next() > 0 {
				b.Quit()
			}
		}
	}
	if budgets[3].Next() == 0 || budgets[4].Next() != 0 {
		t.Error("with one processor not one spins")
	}
	budgets[3].Quit()
	polls := NewSpinBudget(Poll, time.Millisecond)
	if polls.Next() == 0 || spinners.Load() != 0 {
		t.Error("mode poll is counted")
	}
}
