package wait

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

type ctxKey struct{}

// The waiter itself parks in the CQ: no other goroutine stands in between.
func TestWaiterParksItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		parked := make(chan string, 16)
		cq.onWait = func(ctx context.Context) {
			name, _ := ctx.Value(ctxKey{}).(string)
			parked <- name
		}
		d := NewDispatcher(cq, Options{})
		d.Start()
		synctest.Wait() // the background poller leads: no waiter does
		if got := <-parked; got != "" {
			t.Errorf("%q parked first, want the background poller", got)
		}
		ctx := context.WithValue(t.Context(), ctxKey{}, "waiter")
		for round := range 10 {
			op := d.NewOp()
			id := op.ID()
			go func() {
				synctest.Wait()
				cq.done(id)
			}()
			wc, err := d.Wait(ctx, op)
			if err != nil || wc.ID != id || wc.Status != rdma.StatusSuccess {
				t.Fatalf("round %d: %+v, %v", round, wc, err)
			}
			// Round 0 followed the parked poller, which gave the lead back.
			if round > 0 {
				if got := <-parked; got != "waiter" {
					t.Errorf("round %d: %q parked", round, got)
				}
			}
			synctest.Wait()
			if len(parked) != 0 {
				t.Fatalf("round %d: %q parked as well", round, <-parked)
			}
		}
		closeDispatcher(t, d)
	})
}

// Receives and detached operations make progress when no goroutine waits, at
// the latest after the grace period, and an idle dispatcher does not tick.
func TestBackgroundPoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{Grace: 5 * time.Millisecond})
		var received []uint64
		d.OnRecv(func(wc rdma.WC) { received = append(received, RecvNumber(wc.ID)) })
		d.Start()

		op := d.NewOp() // a wait hands the lead to the waiters …
		cq.done(op.ID())
		if _, err := d.Wait(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		cleaned := 0
		detached := d.NewOp()
		detached.OnDetached(func(wc rdma.WC) { cleaned++ })
		id := detached.ID()
		d.Detach(detached)
		cq.add(rdma.WC{ID: RecvID(7), Op: rdma.OpRecv}, rdma.WC{ID: id}, rdma.WC{ID: RecvID(1<<63 - 1), Op: rdma.OpRecv})
		time.Sleep(11 * time.Millisecond) // … and two periods later the poller has it again
		synctest.Wait()
		if len(received) != 2 || received[0] != 7 || received[1] != 1<<63-1 || cleaned != 1 {
			t.Fatalf("received %v, cleanups %d", received, cleaned)
		}
		before := d.Stats()
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := d.Stats(); after != before {
			t.Errorf("an idle hour changed %+v to %+v", before, after)
		}
		cq.add(rdma.WC{ID: RecvID(8), Op: rdma.OpRecv}) // parked, so noticed at once
		synctest.Wait()
		if len(received) != 3 {
			t.Errorf("received %v", received)
		}
		closeDispatcher(t, d)
	})
}

// A waiter that leads for long lets the background poller sleep.
func TestLongLeaderDoesNotMakeThePollerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{})
		op := d.NewOp()
		id := op.ID()
		go func() {
			if _, err := d.Wait(context.Background(), op); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		d.Start()
		time.Sleep(time.Second)
		before := d.Stats().Looks
		time.Sleep(time.Hour)
		if after := d.Stats().Looks; after != before {
			t.Errorf("%d looks in an hour", after-before)
		}
		cq.done(id)
		time.Sleep(time.Second)
		if d.Stats().Looks == before {
			t.Error("the poller sleeps on although the leader left")
		}
		closeDispatcher(t, d)
	})
}

// Eager: the poller keeps the lead, so a receive is noticed without a grace.
func TestEagerPollerKeepsTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{Eager: true})
		var received atomic.Int64
		d.OnRecv(func(rdma.WC) { received.Add(1) })
		early := d.NewOp() // led by a waiter: the poller is not there yet
		earlyID := early.ID()
		go func() {
			if _, err := d.Wait(context.Background(), early); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		d.Start()
		synctest.Wait()
		cq.done(earlyID)
		synctest.Wait()
		start := time.Now()
		for i := range int64(20) {
			op := d.NewOp()
			cq.add(rdma.WC{ID: op.ID()}, rdma.WC{ID: RecvID(1)})
			if _, err := d.Wait(context.Background(), op); err != nil {
				t.Fatal(err)
			}
			cq.add(rdma.WC{ID: RecvID(2)})
			synctest.Wait()
			if got := received.Load(); got != 2*(i+1) {
				t.Fatalf("round %d: %d receives", i, got)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it took %v of waiting", waited)
		}
		closeDispatcher(t, d)
	})
}

// A reply may be completed by a goroutine that does not poll; the leader that
// waits for it sleeps in the CQ and must notice.
func TestCompleteWakesAParkedLeader(t *testing.T) {
	endless := context.Background()
	for _, name := range []string{"endless", "with cancel"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := endless
				if name != "endless" {
					ctx = t.Context()
				}
				cq := newFakeCQ(t)
				d := NewDispatcher(cq, Options{})
				for range 3 {
					op := d.NewReply()
					id := op.ID()
					go func() {
						synctest.Wait() // the leader is parked
						if !d.Complete(id, rdma.WC{ID: id, ByteLen: 42}) {
							t.Error("nobody waits")
						}
					}()
					if wc, err := d.Wait(ctx, op); err != nil || wc.ByteLen != 42 {
						t.Fatalf("%+v, %v", wc, err)
					}
					if d.Complete(id, rdma.WC{}) {
						t.Error("the same reply completed twice")
					}
				}
				closeDispatcher(t, d)
			})
		})
	}
}

// The end of a context gives up the wait, not the buffer.
func TestGivenUpOpKeepsItsBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{})
		d.Start()
		var freed []uint64
		wait := func(who string, ctx context.Context) uint64 {
			op := d.NewOp()
			id := op.ID()
			op.OnDetached(func(wc rdma.WC) { freed = append(freed, wc.ID) })
			if _, err := d.Wait(ctx, op); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: error %v", who, err)
			}
			return id
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		follower := wait("follower of the poller", ctx)
		time.Sleep(time.Second)
		ended := wait("context ended before", ctx)
		if len(freed) != 0 {
			t.Fatalf("freed %v although nothing has completed", freed)
		}
		if got := d.Stats().InUse; got != 2 {
			t.Errorf("%d in use, want 2", got)
		}
		cq.done(follower)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(freed) != 1 || freed[0] != follower {
			t.Errorf("freed %x, want %x", freed, follower)
		}
		closeDispatcher(t, d) // the other never completes: its QP is closed
		if len(freed) != 2 || freed[1] != ended {
			t.Errorf("freed %x, want %x at Close", freed, ended)
		}
		late := d.NewOp()
		late.OnDetached(func(wc rdma.WC) { freed = append(freed, wc.ID) })
		if _, err := d.Wait(t.Context(), late); !errors.Is(err, rdma.ErrClosed) || len(freed) != 3 {
			t.Errorf("after Close: %v, freed %x", err, freed)
		}
	})
}

// The lead passes on when a leader gives up, not only when it is done.
func TestLeadPassesOnWhenALeaderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{})
		var wg sync.WaitGroup
		var ids []uint64
		for i := range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*time.Second)
			op := d.NewOp()
			ids = append(ids, op.ID())
			wg.Go(func() {
				defer cancel()
				_, err := d.Wait(ctx, op)
				if want := i < 4; (err != nil) != want {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(4500 * time.Millisecond) // four have given up one after another
		cq.done(ids[4])
		wg.Wait()
		cq.add(rdma.WC{ID: ids[0]}, rdma.WC{ID: ids[1]})
		closeDispatcher(t, d)
	})
}

func TestDeadCQ(t *testing.T) {
	for _, cause := range []error{rdma.ErrCQOverrun, rdma.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			cq := newFakeCQ(t)
			d := NewDispatcher(cq, Options{})
			d.Start()
			var wg sync.WaitGroup
			freed := 0
			for range 4 {
				op := d.NewOp()
				op.OnDetached(func(rdma.WC) { freed++ })
				wg.Go(func() {
					if _, err := d.Wait(context.Background(), op); !errors.Is(err, cause) {
						t.Errorf("error %v, want %v", err, cause)
					}
				})
			}
			synctest.Wait()
			cq.fail(cause)
			wg.Wait()
			if err := d.Err(); !errors.Is(err, cause) {
				t.Errorf("Err is %v", err)
			}
			if freed != 0 {
				t.Error("buffers left quarantine although their QPs live")
			}
			closeDispatcher(t, d)
			if freed != 4 {
				t.Errorf("%d cleanups", freed)
			}
			if err := d.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// An ID that names no waiting op is counted and does no harm.
func TestStrayIDs(t *testing.T) {
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{})
	old := d.NewOp()
	oldID := old.ID()
	d.Release(old)
	op, reply := d.NewOp(), d.NewReply()
	strays := []uint64{
		oldID, op.ID() ^ 1<<30, op.ID() | idReply, reply.ID() &^ idReply, reply.ID(),
		idIndexMask, 1, RecvID(3), RecvID(0),
	}
	for _, id := range strays {
		cq.done(id)
		if id != reply.ID() && d.Complete(id, rdma.WC{}) {
			t.Errorf("Complete took %#x", id)
		}
	}
	if d.Complete(op.ID(), rdma.WC{}) {
		t.Error("Complete ended the quarantine of a work request")
	}
	cq.done(0) // not a stray: the ID of requests without a waiter
	cq.add(rdma.WC{ID: op.ID(), ByteLen: 5})
	wc, err := d.Wait(t.Context(), op)
	if err != nil || wc.ByteLen != 5 {
		t.Errorf("%+v, %v", wc, err)
	}
	if s := d.Stats(); s.Strays != uint64(len(strays)) {
		t.Errorf("%d strays counted, want %d", s.Strays, len(strays))
	}
	if !d.Complete(reply.ID(), rdma.WC{ByteLen: 6}) {
		t.Error("the reply is not waiting")
	}
	d.Release(reply) // completed meanwhile: fine
	closeDispatcher(t, d)
}

// The lead may be passed to a follower at the moment it gives up. It must not
// take the lead along.
func TestQuitPassesTheLeadOn(t *testing.T) {
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{})
	ops := []*Op{d.NewOp(), d.NewOp(), d.NewOp()}
	for i, op := range ops {
		if leader, err := d.enter(op); leader != (i == 0) || err != nil {
			t.Fatalf("op %d: leader %v, %v", i, leader, err)
		}
	}
	d.leave() // ops[0] is gone, ops[2] is the newest …
	for i := 2; i > 0; i-- {
		if !ops[i].leads.Load() {
			t.Fatalf("op %d does not lead", i)
		}
		d.quit(ops[i]) // … and gives up before it has noticed
	}
	if d.leading {
		t.Error("nobody waits and somebody leads")
	}
	for _, op := range ops {
		d.Release(op)
	}
	closeDispatcher(t, d)
}

// A reply that comes after the last poll and before the park finds no parked
// leader to kick: the leader has to look once more.
func TestReplyBetweenPollAndPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{})
		op := d.NewReply()
		id := op.ID()
		cq.onPoll = func(n int) {
			cq.onPoll = nil
			if !d.Complete(id, rdma.WC{ByteLen: 1}) {
				t.Error("nobody waits")
			}
		}
		if _, err := d.Wait(context.Background(), op); err != nil {
			t.Error(err)
		}
		if n := cq.waits.Load(); n != 0 {
			t.Errorf("parked %d times", n)
		}
		closeDispatcher(t, d)
	})
}

// What is in the CQ when Close is called still reaches its owner.
func TestCloseDelivers(t *testing.T) {
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{Batch: 1})
	var received []uint64
	d.OnRecv(func(wc rdma.WC) { received = append(received, RecvNumber(wc.ID)) })
	var status []rdma.Status
	op := d.NewOp()
	op.OnDetached(func(wc rdma.WC) { status = append(status, wc.Status) })
	cq.add(rdma.WC{ID: RecvID(5)}, rdma.WC{ID: op.ID(), Status: rdma.StatusRemAccessErr}, rdma.WC{ID: RecvID(6), Status: rdma.StatusWRFlushErr})
	d.Detach(op)
	closeDispatcher(t, d)
	if len(received) != 2 || received[0] != 5 || received[1] != 6 {
		t.Errorf("received %v", received)
	}
	if len(status) != 1 || status[0] != rdma.StatusRemAccessErr {
		t.Errorf("the cleanup got %v", status)
	}
}

// An eager poller takes the lead from waiters at the first change, although
// others follow.
func TestEagerPollerComesBeforeFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ(t)
		parked := make(chan string, 16)
		cq.onWait = func(ctx context.Context) {
			name, _ := ctx.Value(ctxKey{}).(string)
			parked <- name
		}
		d := NewDispatcher(cq, Options{Eager: true})
		ctx := context.WithValue(context.Background(), ctxKey{}, "waiter")
		var ids []uint64
		for range 2 {
			op := d.NewOp()
			ids = append(ids, op.ID())
			go func() {
				if _, err := d.Wait(ctx, op); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		d.Start()
		synctest.Wait()
		cq.done(ids[0])
		synctest.Wait()
		cq.done(ids[1])
		synctest.Wait()
		if first, second := <-parked, <-parked; first != "waiter" || second != "" {
			t.Errorf("%q parked, then %q; want the waiter, then the poller", first, second)
		}
		closeDispatcher(t, d)
	})
}

func TestWaitAll(t *testing.T) {
	cases := []struct {
		name     string
		statuses []rdma.Status
		want     error
	}{
		{"all well", []rdma.Status{0, 0, 0}, nil},
		{"the cause, not the flush", []rdma.Status{0, rdma.StatusRemAccessErr, rdma.StatusWRFlushErr}, rdma.ErrAccess},
		{"the cause behind a flush of another QP", []rdma.Status{rdma.StatusWRFlushErr, rdma.StatusRetryExcErr}, rdma.ErrPeerGone},
		{"flushes only", []rdma.Status{0, rdma.StatusWRFlushErr}, rdma.ErrFlushed},
	}
	for _, c := range cases {
		cq := newFakeCQ(t)
		d := NewDispatcher(cq, Options{})
		var ops []*Op
		for _, s := range c.statuses {
			op := d.NewOp()
			ops = append(ops, op)
			cq.add(rdma.WC{ID: op.ID(), Status: s})
		}
		if err := d.WaitAll(t.Context(), ops); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		closeDispatcher(t, d)
	}
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{})
	ops := []*Op{d.NewOp(), d.NewOp()}
	cq.add(rdma.WC{ID: ops[1].ID(), Status: rdma.StatusRemAccessErr})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.WaitAll(ctx, ops); !errors.Is(err, context.Canceled) {
		t.Errorf("one op never completed, error %v", err)
	}
	closeDispatcher(t, d)
}

func TestMisusePanics(t *testing.T) {
	expect := func(name, text string, f func()) {
		t.Helper()
		defer func() {
			if got, _ := recover().(string); !strings.Contains(got, text) {
				t.Errorf("%s: panic %q, want %q", name, got, text)
			}
		}()
		f()
	}
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{MaxOps: opsPerChunk})
	op := d.NewOp()
	d.Release(op)
	expect("released twice", "used after", func() { d.Release(op) })
	expect("waited after", "used after", func() { _, _ = d.Wait(t.Context(), op) })
	ops := make([]*Op, opsPerChunk)
	for i := range ops {
		ops[i] = d.NewOp()
	}
	expect("too many", "MaxOps", func() { d.NewOp() })
	for _, op := range ops {
		d.Release(op)
	}
	closeDispatcher(t, d)
}

// Steady state: no allocation, whether the completion is there or the waiter
// has to park for it.
func TestWaitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates on its own; figures hold without it")
		return
	}
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, Options{})
	d.OnRecv(func(wc rdma.WC) { d.Complete(RecvNumber(wc.ID), rdma.WC{}) })
	ctx := context.Background()
	there := func() {
		op := d.NewOp()
		cq.done(op.ID())
		_, _ = d.Wait(ctx, op)
	}
	ids := make(chan uint64)
	go func() {
		for id := range ids {
			for cq.inWait.Load() == 0 {
				time.Sleep(10 * time.Microsecond) // until it parks: what is measured
			}
			cq.done(id)
		}
	}()
	defer close(ids)
	parked := func() {
		op := d.NewOp()
		ids <- op.ID()
		_, _ = d.Wait(ctx, op)
	}
	reply := func() {
		op := d.NewReply()
		ids <- RecvID(op.ID())
		_, _ = d.Wait(ctx, op)
	}
	for name, f := range map[string]func(){"there": there, "parked": parked, "reply": reply} {
		f()
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	closeDispatcher(t, d)
}
