package wait

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// readQP is a QP with sinks on a slowCQ: a READ takes as long as it is told. Nothing else of it
// works.
type readQP struct {
	rdma.QP
	t    testing.TB
	q    *slowCQ
	took time.Duration // of the READs to come; RemoteAddr.Addr is added

	refuse bool
	others []rdma.WC // polled beside the next READ

	mu      sync.Mutex
	under   map[int]uint64 // READs under way: their IDs by sink
	posted  int
	awaited int
	longest time.Duration // of one call
}

func newReadQP(t testing.TB, q *slowCQ) *readQP { return &readQP{t: t, q: q, under: map[int]uint64{}} }

func (r *readQP) PrepareSinks([]rdma.SGE) error { return nil }

func (r *readQP) ReadSpin(sink int, id uint64, remote rdma.RemoteAddr, n uint32, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	if r.refuse {
		return rdma.SpinResult{}
	}
	r.mu.Lock()
	if other, busy := r.under[sink]; busy {
		r.t.Errorf("a READ into sink %d, where %#x is under way", sink, other)
	}
	r.posted++
	r.under[sink] = id
	r.mu.Unlock()
	if took := r.took + time.Duration(remote.Addr); took > 0 {
		r.q.doneAfter(took, id)
	} else {
		r.q.done(id)
	}
	n0 := copy(wcs, r.others)
	if r.others = nil; n0 > 0 {
		return rdma.SpinResult{State: rdma.SpinPending, Others: n0}
	}
	return r.look(sink, id, wcs, d)
}

func (r *readQP) AwaitSpin(sink int, id uint64, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	r.awaited++
	return r.look(sink, id, wcs, d)
}

func (r *readQP) look(sink int, id uint64, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	r.longest = max(r.longest, d)
	k, _ := r.q.Spin(wcs, d)
	out := rdma.SpinResult{State: rdma.SpinPending}
	for _, wc := range wcs[:k] {
		if wc.ID == id {
			out.State, out.Status, out.Polled = rdma.SpinDone, wc.Status, 77
			r.ended(sink)
			continue
		}
		wcs[out.Others] = wc
		out.Others++
	}
	return out
}

func (r *readQP) ended(sink int) {
	r.mu.Lock()
	delete(r.under, sink)
	r.mu.Unlock()
}

// memory is a region of which nothing but its bytes is asked.
type memory struct {
	rdma.MR
	b []byte
}

func (m memory) Bytes() []byte { return m.b }

// newSinks makes n sinks of 8 bytes.
func newSinks(t *testing.T, opt Options, n int) (*Dispatcher, *Sinks, *readQP) {
	t.Helper()
	q := newSlowCQ(t)
	d := NewDispatcher(q, opt)
	qp := newReadQP(t, q)
	var places []rdma.SGE
	m := memory{b: make([]byte, 8*n)}
	for i := range n {
		places = append(places, rdma.SGE{MR: m, Off: uint64(8 * i), Len: 8})
	}
	x, err := d.NewSinks(qp, places, func(k *Sink) { qp.ended(k.Index) })
	if err != nil {
		t.Fatal(err)
	}
	return d, x, qp
}

func closeSinks(t *testing.T, d *Dispatcher, x *Sinks) {
	t.Helper()
	x.d.cq.(*slowCQ).wg.Wait()
	closeDispatcher(t, d)
	x.Close()
	if n := x.Out(); n != 0 {
		t.Errorf("%d sinks are out after Close", n)
	}
	if x.Take() != nil {
		t.Error("a sink after Close")
	}
	if n := spinners.Load(); n != 0 {
		t.Errorf("%d spin", n)
	}
}

// A READ that ends while it is polled for ends the wait; what is polled beside it is
// delivered.
func TestReadIntoSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, x, qp := newSinks(t, Options{Spin: 100 * time.Microsecond}, 3)
		for i := range 20 {
			k := x.Take()
			if state, status, polled := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadDone || status != rdma.StatusSuccess || polled != 77 {
				t.Fatal(i, state, status, polled)
			}
			x.Put(k)
		}
		if s := d.Stats(); s.Spins.Got != 20 || s.Spins.Vain != 0 || s.InUse != 0 || qp.awaited != 0 {
			t.Errorf("%+v, %d more polls", s, qp.awaited)
		}
		op := d.NewOp()
		qp.others = []rdma.WC{{ID: op.ID(), Status: rdma.StatusRetryExcErr}}
		k := x.Take()
		if state, _, _ := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadDone || qp.awaited != 1 {
			t.Errorf("%v beside another completion, %d more polls", state, qp.awaited)
		}
		x.Put(k)
		if !op.Finished() {
			t.Error("a completion that was polled beside a READ was not delivered")
		}
		if wc, err := d.Wait(t.Context(), op); err != nil || wc.Status != rdma.StatusRetryExcErr {
			t.Errorf("%+v, %v", wc, err)
		}
		closeSinks(t, d, x)
	})
}

// A READ is polled for as long as a wait may spin, in calls of bounded length, and is late
// then. Its sink is nobody's until its completion has come.
func TestLateRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spin = 3*postSlice + 20*time.Microsecond
		d, x, qp := newSinks(t, Options{Wait: Poll, Spin: spin}, 2)
		qp.took = 2 * postSlice
		k := x.Take()
		if state, _, _ := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadDone || qp.longest > postSlice {
			t.Errorf("within the time: %v, in calls of %v", state, qp.longest)
		}
		x.Put(k)

		qp.took = time.Millisecond
		begun := time.Now()
		k = x.Take()
		if state, _, _ := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadLate {
			t.Fatal(state)
		}
		if took := time.Since(begun); took != spin {
			t.Errorf("polled for %v, not for %v", took, spin)
		}
		if x.IsWorth() || x.Out() != 1 {
			t.Errorf("another READ would be worth it: %v; %d sinks are out", x.IsWorth(), x.Out())
		}
		for range 5 { // the one sink that is left
			other := x.Take()
			if other == nil || other == k {
				t.Fatalf("the sink of a late READ is given out: %v", other == k)
			}
			if x.Take() != nil {
				t.Fatal("a sink of which there is none")
			}
			x.Put(other)
		}
		time.Sleep(2 * time.Millisecond)
		if x.Out() != 1 {
			t.Error("the sink is free although nobody has polled the completion")
		}
		op := d.NewOp()
		qp.q.done(op.ID())
		if _, err := d.Wait(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if !x.IsWorth() || x.Out() != 0 {
			t.Errorf("after it: %v, %d sinks are out", x.IsWorth(), x.Out())
		}
		closeSinks(t, d, x)
	})
}

// One that is late when the dispatcher is closed comes back with it.
func TestLateReadAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, x, qp := newSinks(t, Options{Wait: Poll, Spin: postSlice}, 1)
		qp.took = time.Second
		if state, _, _ := x.Read(x.Take(), rdma.RemoteAddr{}, 8); state != ReadLate {
			t.Fatal(state)
		}
		closeDispatcher(t, d)
		x.Close()
		qp.q.wg.Wait()
	})
}

// Close waits for who looks at a sink.
func TestSinksCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, x, _ := newSinks(t, Options{Spin: postSlice}, 2)
		k := x.Take()
		closeDispatcher(t, d)
		closed := make(chan struct{})
		go func() { x.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed with a sink out")
		default:
		}
		x.Put(k)
		<-closed
	})
}

// A READ is refused, and nothing posted, where it would not be polled for: another
// goroutine leads, the mode is to sleep, spinning has been in vain. What the QP refuses is
// refused.
func TestReadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what string
			opt  Options
			set  func(d *Dispatcher, qp *readQP)
		}{
			{"mode event", Options{Wait: Event, Spin: postSlice}, nil},
			{"no spinning", Options{Wait: Poll}, nil},
			{"led", Options{Spin: postSlice}, func(d *Dispatcher, _ *readQP) { d.leading = true }},
			{"in vain", Options{Spin: postSlice}, func(d *Dispatcher, _ *readQP) {
				for range 10 {
					if d.pace.work.Next() > 0 {
						d.pace.work.Vain(postSlice)
					}
				}
			}},
		} {
			d, x, qp := newSinks(t, c.opt, 1)
			if c.set != nil {
				c.set(d, qp)
			}
			k := x.Take()
			if state, _, _ := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadRefused || qp.posted != 0 {
				t.Errorf("%s: %v, %d posted", c.what, state, qp.posted)
			}
			x.Put(k)
			d.leading = false
			closeSinks(t, d, x)
		}
		d, x, qp := newSinks(t, Options{Spin: postSlice}, 1)
		qp.refuse = true
		k := x.Take()
		if state, _, _ := x.Read(k, rdma.RemoteAddr{}, 8); state != ReadRefused {
			t.Error(state)
		}
		x.Put(k)
		if !d.tryLead() {
			t.Error("the lead was not given back")
		}
		d.leave()
		closeSinks(t, d, x)
	})
}

// Goroutines that READ, and wait as usual where that is refused, with a background poller
// and READs that are late now and then.
func TestSinksTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, x, qp := newSinks(t, Options{Wait: Poll, Spin: 20 * time.Microsecond}, 4)
		d.Start()
		var mu sync.Mutex
		done, late, refused := 0, 0, 0
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for i := range 300 {
					state := ReadRefused
					if k := x.Take(); k != nil {
						took := rdma.RemoteAddr{}
						if (i+g)%5 == 0 {
							took.Addr = uint64(50 * time.Microsecond)
						}
						if state, _, _ = x.Read(k, took, 8); state != ReadLate {
							x.Put(k)
						}
					}
					mu.Lock()
					switch state {
					case ReadDone:
						done++
					case ReadLate:
						late++
					default:
						refused++
					}
					mu.Unlock()
					if state != ReadDone {
						op := d.NewOp()
						qp.q.doneAfter(time.Microsecond, op.ID())
						if _, err := d.Wait(context.Background(), op); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d done, %d late, %d refused", done, late, refused)
		if done == 0 {
			t.Error("no READ ended while it was polled for")
		}
		closeSinks(t, d, x)
	})
}
