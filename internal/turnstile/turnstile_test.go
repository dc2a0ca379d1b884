package turnstile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errTooMany = errors.New("too many wait")

// Waiters are served by age, however many units they ask for: a wide one is not
// starved by narrow ones behind it.
func TestTurnstileIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(4, 100, errTooMany)
		var order []int
		var mu sync.Mutex
		if err := ts.Enter(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		for i, n := range []int{1, 4, 1, 2} {
			go func() {
				if err := ts.Enter(t.Context(), n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				ts.Leave(n)
			}()
			synctest.Wait() // i is in the queue before i+1
		}
		if ts.TryEnter(1) {
			t.Error("somebody overtook the queue")
		}
		ts.Leave(4)
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 4 || order[0] != 0 || order[1] != 1 {
			t.Errorf("served in the order %v", order)
		}
		if free, waiting := ts.State(); free != 4 || waiting != 0 {
			t.Errorf("%d free, %d waiting", free, waiting)
		}
	})
}

func TestTurnstileBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(0, 2, errTooMany)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		for range 2 {
			go func() { errs <- ts.Enter(ctx, 1) }()
		}
		synctest.Wait()
		if err := ts.Enter(ctx, 1); !errors.Is(err, errTooMany) {
			t.Errorf("third waiter of two: %v", err)
		}
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if free, waiting := ts.State(); free != 0 || waiting != 0 {
			t.Errorf("%d free, %d waiting", free, waiting)
		}
		go func() { errs <- ts.Enter(t.Context(), 1) }()
		synctest.Wait()
		why := errors.New("over")
		ts.Close(why)
		ts.Close(errors.New("again"))
		if err := <-errs; err != why {
			t.Error(err)
		}
		if err := ts.Enter(t.Context(), 1); err != why {
			t.Error(err)
		}
		ts.Leave(5)
		if ts.TryEnter(1) {
			t.Error("entered a closed turnstile")
		}
	})
}

func TestTurnstileTakesIdleCredits(t *testing.T) {
	ts := New(8, 2, errTooMany)
	if n := ts.TakeIdle(1); n != 7 {
		t.Error(n)
	}
	if n := ts.TakeIdle(1); n != 0 {
		t.Error(n)
	}
	if !ts.TryEnter(1) || ts.TryEnter(1) {
		t.Error("one should have been left")
	}
}

// Units are never lost or doubled, whichever waiters give up, and whenever.
func TestTurnstileConserves(t *testing.T) {
	const units, workers, rounds = 5, 16, 300
	ts := New(units, workers, errTooMany)
	var in atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				n := 1 + (w+r)%3
				if (w+r)%4 == 0 {
					go cancel() // somewhere between before and long after
				}
				if err := ts.Enter(ctx, n); err == nil {
					if got := in.Add(int64(n)); got > units {
						t.Errorf("%d units in use of %d", got, units)
					}
					in.Add(-int64(n))
					ts.Leave(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if free, waiting := ts.State(); free != units || waiting != 0 {
		t.Errorf("%d free of %d, %d waiting", free, units, waiting)
	}
}
