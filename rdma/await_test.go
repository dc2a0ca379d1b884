package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A queue is a CQ in memory that keeps to the words of the interface: one event
// for each Arm, and only for what is added after it.
type queue struct {
	mu     sync.Mutex
	wcs    []rdma.WC
	armed  bool
	broken error

	events chan struct{}
	dead   chan struct{}
	onArm  func() // called before Arm, without a lock
	onWait func() // called before Wait, without a lock
	polls  int
	waits  int
}

func newQueue() *queue {
	return &queue{events: make(chan struct{}, 1), dead: make(chan struct{})}
}

func (q *queue) add(ids ...uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.wcs = append(q.wcs, rdma.WC{ID: id})
	}
	if q.armed {
		q.armed = false
		q.events <- struct{}{}
	}
}

func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.broken = err
	close(q.dead)
}

func (q *queue) Poll(wcs []rdma.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.polls++
	if q.broken != nil {
		return 0, q.broken
	}
	n := copy(wcs, q.wcs)
	q.wcs = q.wcs[:copy(q.wcs, q.wcs[n:])]
	return n, nil
}

func (q *queue) Arm() error {
	if q.onArm != nil {
		q.onArm()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = true
	return q.broken
}

func (q *queue) Wait(ctx context.Context) error {
	q.waits++
	if q.onWait != nil {
		q.onWait()
	}
	select {
	case <-q.events:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.dead:
		return q.broken
	}
}

func (q *queue) Close() error { return nil }

// await calls Await with room for two and compares the result with want.
func await(t *testing.T, ctx context.Context, q *queue, want ...uint64) {
	t.Helper()
	var wcs [2]rdma.WC
	n, err := rdma.Await(ctx, q, wcs[:])
	if err != nil {
		t.Fatalf("Await: %v", err)
	}
	if n != len(want) {
		t.Fatalf("%d completions, want %v", n, want)
	}
	for i, id := range want {
		if wcs[i].ID != id {
			t.Fatalf("completions %v, want %v", wcs[:n], want)
		}
	}
}

// refused demands that Await fails with want, and takes nothing.
func refused(t *testing.T, ctx context.Context, q *queue, want error) {
	t.Helper()
	var wcs [2]rdma.WC
	if n, err := rdma.Await(ctx, q, wcs[:]); n != 0 || !errors.Is(err, want) {
		t.Fatalf("Await: %d, %v; want %v", n, err, want)
	}
}

func TestAwait(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()

	t.Run("there already", func(t *testing.T) {
		q := newQueue()
		q.add(1, 2, 3)
		await(t, t.Context(), q, 1, 2)
		await(t, t.Context(), q, 3)
		if q.waits != 0 || q.armed {
			t.Errorf("slept %d times, armed %v", q.waits, q.armed)
		}
	})
	t.Run("comes later", func(t *testing.T) {
		q := newQueue()
		q.onWait = func() { q.add(7) }
		await(t, t.Context(), q, 7)
		if q.waits != 1 {
			t.Errorf("slept %d times", q.waits)
		}
	})
	// Added between Poll and Arm: no event will ever come for it.
	t.Run("no event", func(t *testing.T) {
		q := newQueue()
		q.onArm = func() { q.add(7) }
		q.onWait = func() { t.Fatal("sleeps, though a completion is there") }
		await(t, t.Context(), q, 7)
	})
	// Added between Arm and the second Poll: its event stays behind.
	t.Run("event left over", func(t *testing.T) {
		q := newQueue()
		q.events <- struct{}{}
		q.onWait = func() {
			if q.waits == 2 {
				q.add(8)
			}
		}
		await(t, t.Context(), q, 8)
		if q.waits != 2 {
			t.Errorf("slept %d times, want 2", q.waits)
		}
	})
	t.Run("ended, but there", func(t *testing.T) {
		q := newQueue()
		q.add(1)
		await(t, ended, q, 1)
		refused(t, ended, q, context.Canceled)
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		q := newQueue()
		refused(t, ctx, q, context.DeadlineExceeded)
		q.add(9) // nothing is lost by that
		await(t, t.Context(), q, 9)
	})
	t.Run("out of order", func(t *testing.T) {
		for _, why := range []error{rdma.ErrClosed, rdma.ErrCQOverrun} {
			q := newQueue()
			q.onWait = func() { q.fail(fmt.Errorf("%w: while somebody waits", why)) }
			refused(t, t.Context(), q, why)
			refused(t, t.Context(), q, why)
			q = newQueue()
			q.onArm = func() { q.fail(why) }
			refused(t, t.Context(), q, why)
		}
	})
	t.Run("no room", func(t *testing.T) {
		q := newQueue()
		q.add(1)
		if n, err := rdma.Await(t.Context(), q, nil); n != 0 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("Await without room: %d, %v", n, err)
		}
		if q.polls != 0 {
			t.Error("it polled")
		}
	})
	t.Run("no allocation", func(t *testing.T) {
		q := newQueue()
		q.wcs = make([]rdma.WC, 0, 1)
		wcs := make([]rdma.WC, 1)
		ids := []uint64{1}
		q.onWait = func() { q.add(ids...) }
		ctx := context.Background()
		if n := testing.AllocsPerRun(100, func() { _, _ = rdma.Await(ctx, q, wcs) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
