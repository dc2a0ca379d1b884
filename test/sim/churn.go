package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// How the store is made to move things: many keys beside those that are judged.

// churner is the client that does it.
func (w *World) churner() *client.Client { return w.clients[2] }

// churn puts n keys of size bytes.
func (w *World) churn(n, size int) error { return w.churnFrom(0, n, size) }

// churnFrom is churn without the first keys.
func (w *World) churnFrom(from, n, size int) error {
	value := bytes.Repeat([]byte("."), size)
	return w.each(from, n, func(ctx context.Context, key []byte, i int) error {
		return w.churner().Put(ctx, key, value)
	})
}

// drop deletes n keys of churn.
func (w *World) drop(n int) error {
	return w.each(0, n, func(ctx context.Context, key []byte, i int) error {
		_, err := w.churner().Delete(ctx, key)
		return err
	})
}

// each calls f for the keys from one number to another, several at a time. What a disturbed network or a full
// server leaves without answer is no fault here.
func (w *World) each(from, n int, f func(ctx context.Context, key []byte, i int) error) error {
	const lanes = 16
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, lanes)
	for lane := range lanes {
		wg.Go(func() {
			for i := from + lane; i < n && ctx.Err() == nil; i += lanes {
				err := f(ctx, fmt.Appendf(nil, "churn-%d", i), i)
				for _, calm := range []error{client.ErrOutcomeUnknown, client.ErrTimeout, client.ErrUnavailable, client.ErrOverloaded, client.ErrNoSpace, client.ErrClosed} {
					if errors.Is(err, calm) {
						err = nil
					}
				}
				if err != nil {
					errs[lane] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// growth: thousands of new keys, so that segments of the index grow and split
// under the readers.
func growth(w *World, done <-chan struct{}) error {
	for n := 1500; w.rest(500*time.Millisecond, done) && n <= 6000; n += 1500 {
		if err := w.churn(n, 16); err != nil {
			return err
		}
	}
	return nil
}

// slowGrowth: new keys over many leases, so that what the index has outgrown is
// used again while READs of it are under way.
func slowGrowth(w *World, done <-chan struct{}) error {
	for n := 1000; w.rest(1500*time.Millisecond, done) && n <= 9000; n += 800 {
		if err := w.churnFrom(n-1000, n, 9); err != nil {
			return err
		}
	}
	return nil
}

// reuse: pages of the slabs go from one size class to another, lease after
// lease, since there is no other memory.
func reuse(w *World, done <-chan struct{}) error {
	sizes := []int{300, 1000, 1600, 2500}
	for turn := 0; w.rest(time.Second, done); turn++ {
		size := sizes[turn%len(sizes)]
		n := min(3<<20/size, 2500)
		if err := w.churn(n, size); err != nil {
			return err
		}
		if !w.rest(time.Second, done) {
			return nil
		}
		if err := w.drop(n); err != nil {
			return err
		}
	}
	return nil
}

// turnover: regions fill and run empty, while the server renews all rkeys as fast
// as it can; the network hands them out again at once.
func turnover(w *World, done <-chan struct{}) error {
	for w.rest(500*time.Millisecond, done) {
		if err := w.churn(24, 128<<10); err != nil {
			return err
		}
		if err := w.drop(24); err != nil {
			return err
		}
		if !w.rest(6*time.Second, done) {
			return nil
		}
	}
	return nil
}

// full: more data than memory, so that keys lose their items and their slots.
func full(w *World, done <-chan struct{}) error {
	for n := 3000; w.rest(500*time.Millisecond, done) && n <= 9000; n += 3000 {
		if err := w.churn(n, 1000); err != nil {
			return err
		}
	}
	return nil
}
