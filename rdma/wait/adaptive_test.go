package wait

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// slowCQ is a spinCQ to which a completion comes some time after it was asked
// for: during a spin or a sleep, whichever the dispatcher does then.
type slowCQ struct {
	*spinCQ
	wg sync.WaitGroup
}

func newSlowCQ(t *testing.T) *slowCQ { return &slowCQ{spinCQ: &spinCQ{fakeCQ: newFakeCQ(t)}} }

func (q *slowCQ) doneAfter(d time.Duration, id uint64) {
	q.wg.Go(func() {
		time.Sleep(d)
		q.done(id)
	})
}

// waits makes n waits, each for something that takes d.
func (q *slowCQ) waits(t *testing.T, d *Dispatcher, n int, took time.Duration) {
	t.Helper()
	for range n {
		op := d.NewOp()
		q.doneAfter(took, op.ID())
		if wc, err := d.Wait(t.Context(), op); err != nil || wc.Status != rdma.StatusSuccess {
			t.Fatal(wc, err)
		}
		q.wg.Wait()
	}
}

// The dispatcher spins where that finds what it waits for, sleeps where it does
// not, and finds out when that changes. Its counters tell.
func TestAdaptiveWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Spin: 100 * time.Microsecond})
		q.waits(t, d, 200, 12*time.Microsecond)
		s := d.Stats()
		if s.Parks != 0 || s.Spins.Got != 200 || s.Spins.Vain != 0 {
			t.Errorf("12 µs: %+v", s)
		}
		if low, high := 200*12*time.Microsecond, 200*17*time.Microsecond; s.Spins.Time < low || s.Spins.Time > high {
			t.Errorf("spun for %v, between %v and %v expected", s.Spins.Time, low, high)
		}
		q.waits(t, d, 1000, 3*time.Millisecond)
		slow := d.Stats()
		if parks := slow.Parks - s.Parks; parks != 1000 {
			t.Errorf("parked %d times for 1000 things that take longer than any spin", parks)
		}
		if vain := slow.Spins.Vain; vain == 0 || vain > 60 {
			t.Errorf("%d of 1000 spins in vain", vain)
		}
		q.waits(t, d, 1100, 12*time.Microsecond)
		if again := d.Stats(); again.Spins.Got < slow.Spins.Got+1000 {
			t.Errorf("%d of 1100 spins found what came fast again", again.Spins.Got-slow.Spins.Got)
		}
		closeDispatcher(t, d)
	})
}

// Replies that take long do not keep READs from spinning.
func TestAdaptiveByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Spin: 100 * time.Microsecond})
		for range 100 {
			op := d.NewReply()
			id := op.ID()
			q.wg.Go(func() {
				time.Sleep(2 * time.Millisecond)
				d.Complete(id, rdma.WC{})
			})
			if _, err := d.Wait(t.Context(), op); err != nil {
				t.Fatal(err)
			}
			q.wg.Wait()
		}
		before := d.Stats()
		q.waits(t, d, 10, 12*time.Microsecond)
		if s := d.Stats(); s.Spins.Got != before.Spins.Got+10 || s.Parks != before.Parks {
			t.Errorf("%+v, then %+v", before, s)
		}
		closeDispatcher(t, d)
	})
}

// Mode event never spins; mode poll always does, for the whole time. Neither
// spins without a waiter.
func TestFixedModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Wait: Event, Spin: 100 * time.Microsecond})
		q.waits(t, d, 50, 12*time.Microsecond)
		if s := d.Stats(); s.Spins != (SpinStats{}) || s.Parks < 50 || q.spins.Load() != 0 {
			t.Errorf("event: %+v, %d calls to spin", s, q.spins.Load())
		}
		closeDispatcher(t, d)

		q = newSlowCQ(t)
		d = NewDispatcher(q, Options{Wait: Poll, Spin: 100 * time.Microsecond})
		q.waits(t, d, 50, 3*time.Millisecond)
		if s := d.Stats(); s.Spins.Vain != 50 || s.Spins.Time < 50*100*time.Microsecond {
			t.Errorf("poll: %+v", s)
		}
		calls := q.spins.Load()
		d.Start()
		time.Sleep(time.Minute)
		if q.spins.Load() != calls {
			t.Error("it spins though nobody waits")
		}
		closeDispatcher(t, d)
	})
}

// A wait that its context ends gives back the right to spin.
func TestSpinGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Spin: 100 * time.Microsecond})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Microsecond)
		defer cancel()
		op := d.NewOp()
		if _, err := d.Wait(ctx, op); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if n := spinners.Load(); n != 0 {
			t.Errorf("%d spin", n)
		}
		if s := d.Stats().Spins; s != (SpinStats{}) {
			t.Errorf("counted: %+v", s)
		}
		closeDispatcher(t, d)
	})
}

// busyCQ spins as hardware does: it holds its processor.
type busyCQ struct{ *fakeCQ }

func (q busyCQ) Spin(wcs []rdma.WC, d time.Duration) (n int, err error) {
	for end := time.Now().Add(d); n == 0 && err == nil && time.Now().Before(end); {
		n, err = q.Poll(wcs)
	}
	return n, err
}

// With one processor for both ends, a spin leaves it to the other one.
func TestSpinOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, mode := range []Mode{Adaptive, Poll, Event} {
		q := busyCQ{newFakeCQ(t)}
		d := NewDispatcher(q, Options{Wait: mode, Spin: MaxSpin})
		d.Start()
		work := make(chan uint64)
		var peer sync.WaitGroup
		peer.Go(func() {
			for id := range work {
				runtime.Gosched() // the waiter goes first
				q.done(id)
			}
		})
		for range 300 {
			op := d.NewOp()
			work <- op.ID()
			if _, err := d.Wait(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
		close(work)
		peer.Wait()
		closeDispatcher(t, d)
	}
}
