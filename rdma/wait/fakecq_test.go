package wait

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCQ is a CQ in memory that keeps to the words of the interface: one event
// per Arm, only for what is added after it. It also checks that the dispatcher
// keeps to its own: never two pollers, never two waiters.
type fakeCQ struct {
	t testing.TB

	mu    sync.Mutex
	queue []rdma.WC
	armed bool
	err   error

	event  chan struct{}
	dead   chan struct{}
	inPoll atomic.Int32
	inWait atomic.Int32
	onWait func(ctx context.Context) // called when a goroutine is about to park
	onPoll func(n int)               // called when a Poll is about to return n
	waits  atomic.Int64
}

func newFakeCQ(t testing.TB) *fakeCQ {
	return &fakeCQ{t: t, event: make(chan struct{}, 1), dead: make(chan struct{})}
}

// add appends completions and raises the event if one was asked for.
func (q *fakeCQ) add(wcs ...rdma.WC) {
	q.mu.Lock()
	q.queue = append(q.queue, wcs...)
	raise := q.armed && len(wcs) > 0
	if raise {
		q.armed = false
	}
	q.mu.Unlock()
	if raise {
		select {
		case q.event <- struct{}{}:
		default:
		}
	}
}

// done adds a successful completion under an ID.
func (q *fakeCQ) done(id uint64) { q.add(rdma.WC{ID: id, Op: rdma.OpRDMARead}) }

// fail makes every later call return err.
func (q *fakeCQ) fail(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	close(q.dead)
}

func (q *fakeCQ) Poll(wcs []rdma.WC) (int, error) {
	if q.inPoll.Add(1) != 1 {
		q.t.Error("two goroutines poll at once")
	}
	defer q.inPoll.Add(-1)
	q.mu.Lock()
	n := copy(wcs, q.queue)
	q.queue = q.queue[:copy(q.queue, q.queue[n:])]
	err := q.err
	q.mu.Unlock()
	if q.onPoll != nil {
		q.onPoll(n)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

func (q *fakeCQ) Arm() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = true
	return q.err
}

func (q *fakeCQ) Wait(ctx context.Context) error {
	if q.inWait.Add(1) != 1 {
		q.t.Error("two goroutines wait in the CQ at once")
	}
	defer q.inWait.Add(-1)
	q.waits.Add(1)
	if q.onWait != nil {
		q.onWait(ctx)
	}
	select {
	case <-q.event:
		return nil
	case <-q.dead:
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *fakeCQ) Close() error { return nil }

// closeDispatcher closes and checks that nothing is left in use.
func closeDispatcher(t testing.TB, d *Dispatcher) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if s := d.Stats(); s.InUse != 0 {
		t.Errorf("%d operations still in use after Close", s.InUse)
	}
}
