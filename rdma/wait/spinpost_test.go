package wait

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// postQP is a QP that can post and poll in one call; nothing else of it works.
type postQP struct {
	rdma.QP
	plain, fused int
	complete     func(wrs []rdma.SendWR) // what the device does with a post
	refuse       error
}

func (q *postQP) PostSend(wrs []rdma.SendWR) (int, error) {
	q.plain++
	q.complete(wrs)
	return len(wrs), q.refuse
}

func (q *postQP) PostSendSpin(wrs []rdma.SendWR, cq rdma.CQ, wcs []rdma.WC, d time.Duration) (int, int, error) {
	q.fused++
	if q.refuse != nil {
		return 0, 0, q.refuse
	}
	q.complete(wrs)
	n, _ := cq.(rdma.Spinner).Spin(wcs, d)
	return len(wrs), n, nil
}

// A lone post takes its completion along; Wait then does not poll. With other
// work under way, or another goroutine in the lead, it is an ordinary post.
func TestPostSpins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Spin: 100 * time.Microsecond})
		qp := &postQP{complete: func(wrs []rdma.SendWR) { q.done(wrs[len(wrs)-1].ID) }}
		post := func(op *Op) {
			t.Helper()
			if n, err := d.PostSend(qp, []rdma.SendWR{{}, {ID: op.ID()}}, op); n != 2 || err != nil {
				t.Fatal(n, err)
			}
		}
		wait := func(op *Op) {
			t.Helper()
			if wc, err := d.Wait(t.Context(), op); err != nil || wc.Status != rdma.StatusSuccess {
				t.Fatal(wc, err)
			}
		}
		for i := range 20 {
			op := d.NewOp()
			post(op)
			if qp.fused != i+1 || !op.Finished() {
				t.Fatalf("%d fused, done %v", qp.fused, op.Finished())
			}
			spins := q.spins.Load()
			if wait(op); q.spins.Load() != spins {
				t.Error("Wait polled for a completion that was there")
			}
		}
		if s := d.Stats().Spins; s.Got != 20 || s.Vain != 0 {
			t.Errorf("%+v", s)
		}

		// Two at a time: each posts, and the one that waits first polls for both.
		a, b := d.NewOp(), d.NewOp()
		post(a)
		post(b)
		if qp.plain != 2 || qp.fused != 20 {
			t.Errorf("%d plain and %d fused posts", qp.plain, qp.fused)
		}
		wait(b)
		wait(a)

		op := d.NewOp()
		qp.refuse = rdma.ErrQueueFull
		if n, err := d.PostSend(qp, []rdma.SendWR{{ID: op.ID()}}, op); n != 0 || err != rdma.ErrQueueFull {
			t.Errorf("%d, %v", n, err)
		}
		d.Release(op)
		if n := spinners.Load(); n != 0 {
			t.Errorf("%d spin", n)
		}
		closeDispatcher(t, d)
	})
}

// What does not come within the call is waited for by Wait: it spins for the
// rest of the time, not for all of it again, and then sleeps.
func TestPostSpinsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spin = postSlice + 10*time.Microsecond
		q := newSlowCQ(t)
		d := NewDispatcher(q, Options{Spin: spin})
		qp := &postQP{complete: func(wrs []rdma.SendWR) { q.doneAfter(time.Millisecond, wrs[0].ID) }}
		op := d.NewOp()
		if _, err := d.PostSend(qp, []rdma.SendWR{{ID: op.ID()}}, op); err != nil || op.Finished() {
			t.Fatal(err, op.Finished())
		}
		if n := spinners.Load(); n != 0 {
			t.Errorf("%d spin between post and wait", n)
		}
		if _, err := d.Wait(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if spun := time.Duration(q.spun.Load()); spun != spin {
			t.Errorf("spun for %v", spun)
		}
		if s := d.Stats(); s.Parks != 1 || s.Spins != (SpinStats{Vain: 1, Time: spin}) {
			t.Errorf("%+v", s)
		}
		// In the middle of what Wait spins.
		qp.complete = func(wrs []rdma.SendWR) { q.doneAfter(postSlice+4*time.Microsecond, wrs[0].ID) }
		op = d.NewOp()
		if _, err := d.PostSend(qp, []rdma.SendWR{{ID: op.ID()}}, op); err != nil || op.Finished() {
			t.Fatal(err, op.Finished())
		}
		if _, err := d.Wait(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if s := d.Stats(); s.Parks != 1 || s.Spins.Got != 1 {
			t.Errorf("%+v", s)
		}
		q.wg.Wait()
		closeDispatcher(t, d)
	})
}

// A CQ says how long to spin on it if the caller asks for no time.
func TestSpinTime(t *testing.T) {
	plain, spinner := newFakeCQ(t), &spinCQ{fakeCQ: newFakeCQ(t)}
	for _, c := range []struct {
		cq          rdma.CQ
		mode        Mode
		asked, want time.Duration
	}{
		{plain, Adaptive, 0, 0},
		{plain, Poll, 0, 0},
		{plain, Adaptive, 5, 5},
		{spinner, Adaptive, 0, DefaultSpin},
		{spinner, Poll, 0, MaxSpin},
		{spinner, Poll, 7, 7},
		{spinner, Adaptive, -1, 0},
		{knowingCQ{spinner}, Adaptive, 0, 9},
		{knowingCQ{spinner}, Adaptive, 5, 5},
	} {
		if got := SpinTime(c.cq, c.mode, c.asked); got != c.want {
			t.Errorf("%T, %v, %v asked: %v", c.cq, c.mode, c.asked, got)
		}
	}
}

type knowingCQ struct{ *spinCQ }

func (knowingCQ) DefaultSpin() time.Duration { return 9 }

// A leader that always finds its completion leaves the processor every now and
// then.
func TestRest(t *testing.T) {
	d := NewDispatcher(newFakeCQ(t), Options{})
	due := 0
	for i := range 10_000 { // a completion every 10 µs, for 100 ms
		d.wcs[0] = rdma.WC{Polled: int64(time.Hour) + int64(i)*10_000}
		d.deliver(1, nil)
		if d.pace.restDue() {
			due++
		}
	}
	if due != 25 {
		t.Errorf("%d rests in 100 ms, want 25", due)
	}
	due = 0
	for range 10 * restCount { // of a fabric without that clock
		d.wcs[0] = rdma.WC{}
		d.deliver(1, nil)
		if d.pace.restDue() {
			due++
		}
	}
	if due < 9 || due > 11 {
		t.Errorf("%d rests, want 10", due)
	}
	closeDispatcher(t, d)
}

// TestLook: a look finds what has come, waits for nothing, leaves the lead as it found it, and says nothing of a failed CQ but that op is not done.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, spin := range []time.Duration{0, 100 * time.Microsecond} {
			q := newSlowCQ(t)
			d := NewDispatcher(q, Options{Spin: spin})
			op := d.NewOp()
			began := time.Now()
			if d.Look(op) || time.Since(began) > spinSlice {
				t.Errorf("spin %v: nothing has come, and it is found after %v", spin, time.Since(began))
			}
			q.done(op.ID())
			for range 2 {
				if !d.Look(op) {
					t.Errorf("spin %v: what has come is not found", spin)
				}
			}
			if _, err := d.Wait(t.Context(), op); err != nil {
				t.Errorf("spin %v: %v", spin, err)
			}
			// Somebody else leads.
			if !d.tryLead() {
				t.Fatalf("spin %v: a look has kept the lead", spin)
			}
			op = d.NewOp()
			q.done(op.ID())
			if d.Look(op) {
				t.Errorf("spin %v: it looks beside a leader", spin)
			}
			d.leave()
			if _, err := d.Wait(t.Context(), op); err != nil {
				t.Errorf("spin %v: %v", spin, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
