package rdmatest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func cqChecks() []check {
	return []check{
		{"events", checkEvents},
		{"wait ends with its context", checkWaitContext},
		{"close wakes waiters", checkCloseWakes},
		{"await", checkAwait},
		{"one event, one waiter", checkOneWaiter},
		{"no lost wake-up", checkNoLostWakeup},
		{"separate queues", checkSeparateCQs},
		{"overrun", checkOverrun},
		{"wraps", checkWraps},
	}
}

// short is a wait that is expected to end by its deadline.
func short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Millisecond)
}

// checkEvents: an event per Arm, for the next completion after it and for no
// earlier one. Completions are made by posting to a dead QP, which flushes
// before PostRecv returns or shortly after; the poll tells which have come.
func checkEvents(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	p.a.check("Disconnect", p.qa.Disconnect())
	p.a.expectDone(p.qa, rdma.ErrClosed)
	complete := func() {
		id := p.a.recv(p.qa)
		eventually(t, "the flush is there", func() bool {
			_, err := p.a.poll()
			p.a.check("Poll", err)
			p.a.mu.Lock()
			defer p.a.mu.Unlock()
			_, ok := p.a.got[id]
			return ok
		})
	}
	expectEvent := func(what string, want bool) {
		t.Helper()
		ctx, cancel := short()
		defer cancel()
		if want {
			ctx, cancel = context.WithTimeout(context.Background(), patience)
			defer cancel()
		}
		err := p.a.cq.Wait(ctx)
		if got := err == nil; got != want || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Wait returned %v, want an event: %v", what, err, want)
		}
	}
	if n, err := p.a.cq.Poll(make([]rdma.WC, 4)); n != 0 || err != nil {
		t.Errorf("an empty CQ polls %d, %v", n, err)
	}
	if n, err := p.a.cq.Poll(nil); n != 0 || err != nil {
		t.Errorf("Poll into nothing: %d, %v", n, err)
	}
	complete()
	expectEvent("never armed", false)
	p.a.check("Arm", p.a.cq.Arm())
	expectEvent("a completion polled before Arm", false)
	// If one is still in the queue, Close has put it there when it returns.
	other := p.a.qp(rdma.QPConfig{})
	waiting := p.a.recv(other)
	p.a.check("Close", other.Close())
	p.a.check("Wait", p.a.cq.Wait(t.Context())) // the event of the Arm above
	p.a.check("Arm", p.a.cq.Arm())
	expectEvent("a completion in the queue before Arm", false)
	p.a.class(waiting, rdma.ErrFlushed)
	complete()
	expectEvent("a completion after Arm", true)
	complete()
	expectEvent("not armed again", false)
	p.a.check("Arm", p.a.cq.Arm())
	p.a.check("Arm", p.a.cq.Arm())
	complete()
	complete()
	expectEvent("armed twice", true)
	expectEvent("armed twice is armed once", false)
	p.a.check("Arm", p.a.cq.Arm())
	complete()
	expectEvent("an event is kept for who comes later", true)
}

func checkWaitContext(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.cq.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a context that has ended: %v", err)
	}
	e.check("Arm", e.cq.Arm())
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- e.cq.Wait(ctx) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled Wait: %v", err)
	}
	ctx, cancel = short()
	defer cancel()
	if err := e.cq.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait beyond its deadline: %v", err)
	}
}

func checkCloseWakes(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "a")
	cq, err := e.dev.CreateCQ(16)
	e.check("CreateCQ", err)
	e.check("Arm", cq.Arm())
	const n = 4
	results := make(chan error, n)
	for range n {
		go func() { results <- cq.Wait(context.Background()) }()
	}
	e.check("Close", cq.Close())
	for range n {
		if err := <-results; !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("Wait on a CQ that was closed: %v", err)
		}
	}
	e.check("Close again", cq.Close())
}

// checkAwait: rdma.Await takes completions that are there and those that come, ends
// with its context, and fails when the CQ is closed. Completions are made by
// flushing receives.
func checkAwait(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "a")
	cq, err := e.dev.CreateCQ(16)
	e.check("CreateCQ", err)
	qp, err := e.pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	e.check("CreateQP", err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	type result struct {
		wc  rdma.WC
		n   int
		err error
	}
	results := make(chan result, 1)
	await := func(ctx context.Context) {
		var wcs [1]rdma.WC
		n, err := rdma.Await(ctx, cq, wcs[:])
		results <- result{wcs[0], n, err}
	}
	flushed := func(id uint64) {
		t.Helper()
		if r := <-results; r.err != nil || r.n != 1 || r.wc.ID != id || r.wc.Status != rdma.StatusWRFlushErr {
			t.Errorf("Await: %d, %v, completion %+v; want the flush of %d", r.n, r.err, r.wc, id)
		}
	}
	ends := func(want error) {
		t.Helper()
		if r := <-results; r.n != 0 || !errors.Is(r.err, want) {
			t.Errorf("Await: %d, %v; want %v", r.n, r.err, want)
		}
	}
	late, cancel := short()
	defer cancel()
	await(late)
	ends(context.DeadlineExceeded)
	go await(ctx)
	_, err = qp.PostRecv([]rdma.RecvWR{{ID: 1}, {ID: 2}})
	e.check("PostRecv", err)
	e.check("Close", qp.Close())
	flushed(1)
	await(late) // its context has ended, but the completion is there
	flushed(2)
	await(late)
	ends(context.DeadlineExceeded)
	go await(ctx)
	e.check("Close", cq.Close())
	ends(rdma.ErrClosed)
}

// checkOneWaiter: n events wake n of the waiters, and the others sleep on.
func checkOneWaiter(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const waiters = 4
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	results := make(chan error, waiters)
	for range waiters {
		go func() { results <- p.a.cq.Wait(ctx) }()
	}
	buf := p.b.region(8, rdma.AccessLocalWrite)
	for range 2 {
		p.a.check("Arm", p.a.cq.Arm())
		id := p.a.recv(p.qa)
		p.b.ok(p.b.post(p.qb, send(buf, 0, 0))[0])
		if err := <-results; err != nil {
			t.Fatalf("an event was raised, Wait says %v", err)
		}
		eventually(t, "the receive is there", func() bool {
			_, err := p.a.poll()
			p.a.check("Poll", err)
			_, ok := p.a.got[id]
			return ok
		})
	}
	cancel()
	for range waiters - 2 {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiter without an event: %v", err)
		}
	}
}

// checkNoLostWakeup: two ends take turns, each parked in Wait by the rule of the
// interface. If one event is lost, both sleep for ever.
func checkNoLostWakeup(t *testing.T, cfg *Config) {
	const rounds = 3000
	p := newPair(t, cfg, pairOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	// These run on goroutines of their own and bypass the books: two receives are
	// in flight at each end, all with one ID.
	hear := func(e *end) error {
		var wcs [1]rdma.WC
		for {
			for armed := range 2 {
				if n, err := e.cq.Poll(wcs[:]); err != nil {
					return err
				} else if n == 1 {
					return wcs[0].Status.Err()
				}
				if armed == 0 {
					if err := e.cq.Arm(); err != nil {
						return err
					}
				}
			}
			if err := e.cq.Wait(ctx); err != nil {
				return err
			}
		}
	}
	listen := func(qp rdma.QP) error {
		_, err := qp.PostRecv([]rdma.RecvWR{{ID: 1}})
		return err
	}
	say := func(qp rdma.QP) error { // unsignaled: only receives complete
		_, err := qp.PostSend([]rdma.SendWR{{ID: 2, Op: rdma.OpSend}})
		return err
	}
	p.b.check("PostRecv", listen(p.qb))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			if err := errors.Join(listen(p.qa), say(p.qa)); err != nil {
				t.Errorf("a: round %d: %v", i, err)
				return
			}
			if err := hear(p.a); err != nil {
				t.Errorf("a: round %d: %v", i, err)
				return
			}
		}
	})
	wg.Go(func() {
		for i := range rounds {
			err := hear(p.b)
			if err := errors.Join(err, listen(p.qb), say(p.qb)); err != nil {
				t.Errorf("b: round %d: %v", i, err)
				return
			}
		}
	})
	wg.Wait()
	// b's last receive is still posted. It is not in the books, so it goes
	// before they are balanced.
	p.a.check("Close", p.qa.Close())
	p.b.check("Close", p.qb.Close())
	for _, e := range []*end{p.a, p.b} {
		for n := 1; n > 0; {
			var wcs [16]rdma.WC
			n, _ = e.cq.Poll(wcs[:])
		}
	}
}

// checkSeparateCQs: sends and receives of a QP may go to different CQs.
func checkSeparateCQs(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	sends, err := a.dev.CreateCQ(16)
	a.check("CreateCQ", err)
	a.closeLater("send CQ", sends.Close)
	p := newPair(t, cfg, pairOptions{connectionOnly: &pair{a: a, b: b}, a: rdma.QPConfig{SendCQ: sends}})
	if err := sends.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("closing a send CQ in use: %v", err)
	}
	buf := b.region(8, rdma.AccessLocalWrite)
	id := a.recv(p.qa)
	b.ok(b.post(p.qb, send(buf, 0, 0))[0])
	a.ok(id)
	b.recv(p.qb)
	if n, err := p.qa.PostSend([]rdma.SendWR{{ID: 77, Op: rdma.OpSend, Flags: rdma.SendSignaled}}); n != 1 {
		t.Fatal(err)
	}
	var wcs [4]rdma.WC
	eventually(t, "the send completion is in the send CQ", func() bool {
		n, err := sends.Poll(wcs[:])
		return n == 1 && err == nil && wcs[0].ID == 77 && wcs[0].Op == rdma.OpSend
	})
	if n, err := a.cq.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("the receive CQ has %d more: %+v, %v", n, wcs[0], err)
	}
}

// checkOverrun: more completions than a CQ holds kill it and its QPs. Every wait
// ends, and other CQs live on.
func checkOverrun(t *testing.T, cfg *Config) {
	bystander := newPair(t, cfg, pairOptions{})
	a := bystander.a
	small, err := a.dev.CreateCQ(4)
	a.check("CreateCQ", err)
	a.closeLater("small CQ", small.Close)
	p := newPair(t, cfg, pairOptions{connectionOnly: bystander, a: rdma.QPConfig{SendCQ: small, RecvCQ: small, Cap: rdma.QPCap{MaxSendWR: 64}}})
	src, sink := p.b.region(64, rdma.AccessRemoteRead), a.region(64, rw(a))
	waiting := make(chan error, 1)
	go func() { waiting <- small.Wait(context.Background()) }() // not armed: only the death wakes it
	deadline := time.Now().Add(patience)
	for {
		// Devices round the depth up, so post until it is enough.
		_, _ = p.qa.PostSend([]rdma.SendWR{read(sink, 0, src.remote(0), 8)})
		select {
		case <-p.qa.Done():
		default:
			if time.Now().After(deadline) {
				t.Fatal("the CQ never overran")
			}
			continue
		}
		break
	}
	a.expectDone(p.qa, rdma.ErrCQOverrun)
	p.b.expectDone(p.qb, rdma.ErrPeerGone, rdma.ErrProtocol, rdma.ErrLocal)
	if _, err := small.Poll(make([]rdma.WC, 64)); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Poll: %v", err)
	}
	if err := <-waiting; !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Wait: %v", err)
	}
	if err := small.Arm(); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Arm: %v", err)
	}
	if _, err := a.pd.CreateQP(rdma.QPConfig{SendCQ: small, RecvCQ: a.cq}); !isAny(err, rdma.ErrCQOverrun, rdma.ErrInvalid, rdma.ErrClosed) {
		t.Errorf("CreateQP on a dead CQ: %v", err)
	}
	a.check("QP.Close", p.qa.Close())
	bystander.stillWorks()
}

// checkWraps: a CQ of small depth, kept nearly full, over many turns.
func checkWraps(t *testing.T, cfg *Config) {
	const depth = 7
	p := newPair(t, cfg, pairOptions{depth: depth})
	src, sink := p.b.region(64, rdma.AccessRemoteRead), p.a.region(64, rw(p.a))
	var pending []uint64
	for i := range 500 {
		pending = append(pending, p.a.post(p.qa, read(sink, 0, src.remote(0), 1+i%64))...)
		if len(pending) == depth {
			for _, id := range pending[:1+i%depth] {
				p.a.ok(id)
			}
			pending = pending[1+i%depth:]
		}
	}
	for _, id := range pending {
		p.a.ok(id)
	}
}
