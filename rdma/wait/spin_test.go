package wait

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// spinCQ is a fakeCQ that can spin. A spin comes back at once when there is
// something, else when its time is over, of which it keeps account.
type spinCQ struct {
	*fakeCQ
	spins, longest atomic.Int64
	spun           atomic.Int64 // nanoseconds
	come           func()       // called in the middle of an empty spin
}

func (q *spinCQ) Spin(wcs []rdma.WC, d time.Duration) (int, error) {
	q.spins.Add(1)
	q.longest.Store(max(q.longest.Load(), int64(d)))
	if n, err := q.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	q.spun.Add(int64(d))
	time.Sleep(d / 2)
	if q.come != nil {
		q.come()
	}
	time.Sleep(d - d/2)
	return q.Poll(wcs)
}

// A completion that comes within the time to spin is taken by spinning: no
// goroutine arms and parks, and one call spins for no longer than a slice.
func TestSpinTakesWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := &spinCQ{fakeCQ: newFakeCQ(t)}
		d := NewDispatcher(cq, Options{Spin: 100 * time.Microsecond})
		op := d.NewOp()
		id := op.ID()
		cq.come = func() {
			if cq.spins.Load() == 7 {
				cq.done(id)
			}
		}
		begin := time.Now()
		wc, err := d.Wait(t.Context(), op)
		if err != nil || wc.ID != id {
			t.Fatal(wc, err)
		}
		if took := time.Since(begin); took != 7*spinSlice {
			t.Errorf("took %v", took)
		}
		if cq.waits.Load() != 0 || d.Stats().Parks != 0 {
			t.Errorf("parked %d times", cq.waits.Load())
		}
		if cq.longest.Load() != int64(spinSlice) {
			t.Errorf("one call spun for up to %v", time.Duration(cq.longest.Load()))
		}
		closeDispatcher(t, d)
	})
}

// When nothing comes the leader spins for its time, no longer, and then parks:
// armed, so that nothing is lost in between.
func TestSpinThenPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spin = 22 * time.Microsecond // not a multiple of a slice
		cq := &spinCQ{fakeCQ: newFakeCQ(t)}
		d := NewDispatcher(cq, Options{Spin: spin})
		op := d.NewOp()
		id := op.ID()
		cq.onWait = func(context.Context) { cq.done(id) } // between the last look and the park
		if _, err := d.Wait(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if spun := time.Duration(cq.spun.Load()); spun != spin {
			t.Errorf("spun for %v", spun)
		}
		if cq.waits.Load() != 1 {
			t.Errorf("parked %d times", cq.waits.Load())
		}
		closeDispatcher(t, d)
	})
}

// A context that ends is seen after a slice; a dead queue ends the spin.
func TestSpinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := &spinCQ{fakeCQ: newFakeCQ(t)}
		d := NewDispatcher(cq, Options{Spin: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 52*time.Microsecond)
		defer cancel()
		op := d.NewOp()
		begin := time.Now()
		if _, err := d.Wait(ctx, op); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if took := time.Since(begin); took > 52*time.Microsecond+2*spinSlice {
			t.Errorf("took %v", took)
		}
		cq.come = func() {
			cq.come = nil
			cq.fail(rdma.ErrCQOverrun)
		}
		op = d.NewOp()
		if _, err := d.Wait(t.Context(), op); err != rdma.ErrCQOverrun {
			t.Error(err)
		}
		closeDispatcher(t, d)
	})
}

// A reply that another goroutine hands in ends the spin of the one that waits
// for it.
func TestSpinSeesReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := &spinCQ{fakeCQ: newFakeCQ(t)}
		d := NewDispatcher(cq, Options{Spin: time.Hour})
		op := d.NewReply()
		id := op.ID()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(33 * time.Microsecond)
			d.Complete(id, rdma.WC{ByteLen: 9})
		})
		wc, err := d.Wait(t.Context(), op)
		if err != nil || wc.ByteLen != 9 {
			t.Error(wc, err)
		}
		wg.Wait()
		closeDispatcher(t, d)
	})
}

// The background poller never spins, eager or not, because no caller waits for it.
func TestPollerDoesNotSpin(t *testing.T) {
	for _, eager := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cq := &spinCQ{fakeCQ: newFakeCQ(t)}
			d := NewDispatcher(cq, Options{Spin: time.Hour, Eager: eager})
			var received atomic.Int64
			d.OnRecv(func(rdma.WC) { received.Add(1) })
			d.Start()
			for range 10 {
				time.Sleep(time.Second)
				cq.add(rdma.WC{ID: RecvID(1), Op: rdma.OpRecv})
			}
			synctest.Wait()
			if received.Load() != 10 || cq.spins.Load() != 0 {
				t.Errorf("%d received, spun %d times", received.Load(), cq.spins.Load())
			}
			closeDispatcher(t, d)
		})
	}
}
