//go:build linux && cgo

package ibv

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestCompletionChannel: arm, wait in the netpoller, poll.
func TestCompletionChannel(t *testing.T) {
	b := newBed(t, options{channel: true})
	ctx := patient(t)
	for i := range uint64(100) {
		if err := b.cqB.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		if n, err := b.cqB.Poll(make([]WC, 1)); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		receive(t, b.b, b.recv(i, 0, 64))
		type event struct {
			cq  *CQ
			err error
		}
		got := make(chan event, 1)
		go func() {
			cq, err := b.ch.Get(ctx)
			got <- event{cq, err}
		}()
		send(t, b.a, SendWR{ID: i, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(100, 8)})
		if e := <-got; e.err != nil || e.cq != b.cqB {
			t.Fatalf("event %+v", e)
		}
		if wc := one(t, b.cqB, StatusSuccess); wc.ID != i {
			t.Fatalf("%+v", wc)
		}
		one(t, b.cqA, StatusSuccess)
	}
}

// TestSolicitedOnly: a queue armed for solicited completions sleeps through
// the others.
func TestSolicitedOnly(t *testing.T) {
	b := newBed(t, options{channel: true})
	receive(t, b.b, b.recv(1, 0, 64), b.recv(2, 0, 64))
	if err := b.cqB.ReqNotify(true); err != nil {
		t.Fatal(err)
	}
	send(t, b.a, SendWR{ID: 1, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(100, 8)})
	one(t, b.cqB, StatusSuccess)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if cq, err := b.ch.Get(short); err == nil {
		t.Fatalf("an event for %p", cq)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	send(t, b.a, SendWR{ID: 2, Op: WRSend, Flags: SendSignaled | SendSolicited, NumSGE: 1, SGL: b.sge(100, 8)})
	if cq, err := b.ch.Get(patient(t)); err != nil || cq != b.cqB {
		t.Fatal(cq, err)
	}
}

// TestGetObeysContexts: many waiters with contexts of their own, of which none
// disturbs the others.
func TestGetObeysContexts(t *testing.T) {
	b := newBed(t, options{channel: true})
	// One that waited in the netpoller until its time was over leaves nothing
	// behind for the next.
	short, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := b.ch.Get(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	const waiters = 8
	ended := make(chan error, waiters)
	var cancels []context.CancelFunc
	for range waiters {
		ctx, cancel := context.WithCancel(patient(t))
		cancels = append(cancels, cancel)
		go func() {
			_, err := b.ch.Get(ctx)
			ended <- err
		}()
	}
	for _, cancel := range cancels[:waiters-1] {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the last waiter ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	receive(t, b.b, b.recv(1, 0, 64))
	if err := b.cqB.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	send(t, b.a, SendWR{ID: 1, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(100, 8)})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	cancels[waiters-1]()
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.ch.Get(done); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// next is the next asynchronous event of type want; others are skipped.
func next(t *testing.T, c *Context, want AsyncType) AsyncEvent {
	t.Helper()
	for {
		ev, err := c.AsyncEvent(patient(t))
		if err != nil {
			t.Fatalf("waiting for %v: %v", want, err)
		}
		if ev.Type == want {
			return ev
		}
		t.Logf("also %+v", ev)
	}
}

// TestSRQLimit: the shared receive queue, and the event when it runs low, once
// for each way to arm it.
func TestSRQLimit(t *testing.T) {
	for _, atCreation := range []int{0, 15} {
		t.Run(fmt.Sprint(atCreation), func(t *testing.T) {
			c := openAny(t)
			pd := must(c.AllocPD())(t)
			closing(t, pd)
			srq := must(pd.CreateSRQ(64, 1, atCreation))(t)
			closing(t, srq)
			b := newBed(t, options{ctx: c, pd: pd, srq: srq})
			wrs := make([]RecvWR, 20)
			for i := range wrs {
				wrs[i] = b.recv(uint64(i), 4096+i*64, 64)
			}
			if n, err := srq.PostRecv(wrs); n != 20 || err != nil {
				t.Fatal(n, err)
			}
			if atCreation == 0 {
				if err := srq.ArmLimit(15); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 8 {
				b.mem[0] = byte(i)
				send(t, b.a, SendWR{ID: 1, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(0, 8)})
				one(t, b.cqA, StatusSuccess)
				if wc := one(t, b.cqB, StatusSuccess); wc.ID != uint64(i) || b.mem[4096+i*64] != byte(i) {
					t.Fatalf("receive %d is %+v", i, wc)
				}
			}
			if ev := next(t, c, AsyncSRQLimitReached); ev.SRQ != srq {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// TestCQOverflow: a queue with more completions than places is lost, and the
// device says so. (rxe has no event for an access error at the responder.)
func TestCQOverflow(t *testing.T) {
	b := newBed(t, options{})
	small := must(b.ctx.CreateCQ(1, nil))(t)
	closing(t, small)
	q := newQP(t, b.pd, QPInit{SendCQ: small, RecvCQ: small, Cap: QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err := b.b.Modify(&QPAttr{State: QPSReset}, QPMaskState); err != nil {
		t.Fatal(err)
	}
	b.connect(t, q, b.b.Num(), options{access: allRight})
	b.connect(t, b.b, q.Num(), options{access: allRight})
	for i := range small.Depth() + 2 {
		send(t, q, b.read(uint64(i), 4096, 0, 8))
	}
	if ev := next(t, b.ctx, AsyncCQErr); ev.CQ != small {
		t.Errorf("%+v", ev)
	}
}

// TestClosedChannels: Close ends every kind of wait.
func TestClosedChannels(t *testing.T) {
	c := must(Open(anyDevice(t)))(t)
	ch := must(c.CreateCompChannel())(t)
	events := must(NewEventChannel())(t)
	ended := make(chan error, 9)
	for range 3 {
		go func() { ended <- second(ch.Get(context.Background())) }()
		go func() { ended <- second(c.AsyncEvent(context.Background())) }()
		go func() { ended <- second(events.Get(context.Background())) }()
	}
	for _, o := range []interface{ Close() error }{ch, events, c} {
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			select {
			case err := <-ended:
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%T: waiter ended with %v", o, err)
				}
			case <-time.After(patience):
				t.Fatalf("%T: nobody woke", o)
			}
		}
	}
}

// TestSQD: the send queue drained, if the device can.
func TestSQD(t *testing.T) {
	b := newBed(t, options{})
	send(t, b.a, b.read(1, 4096, 0, 8))
	one(t, b.cqA, StatusSuccess)
	err := b.a.Modify(&QPAttr{State: QPSSQD, EnSQDNotify: true}, QPMaskState|QPMaskEnSQDNotify)
	if err != nil {
		t.Fatal(err)
	}
	if ev := next(t, b.ctx, AsyncSQDrained); ev.QP != b.a {
		t.Errorf("%+v", ev)
	}
	if attr := must(b.a.Query(QPMaskState))(t); attr.State != QPSSQD {
		t.Errorf("state %v", attr.State)
	}
	if err := b.a.Modify(&QPAttr{State: QPSRTS}, QPMaskState); err != nil {
		t.Fatal(err)
	}
	send(t, b.a, b.read(2, 4096, 0, 8))
	one(t, b.cqA, StatusSuccess)
}

// TestGrantAndRevoke: the rights of a QP in RTS, which is how a server fences
// a client.
func TestGrantAndRevoke(t *testing.T) {
	b := newBed(t, options{access: AccessLocalWrite}) // nothing remote
	set := func(a Access) {
		t.Helper()
		if err := b.b.Modify(&QPAttr{AccessFlags: a}, QPMaskAccessFlags); err != nil {
			t.Fatal(err)
		}
		if attr := must(b.b.Query(QPMaskAccessFlags | QPMaskState))(t); attr.AccessFlags&^AccessLocalWrite != a || attr.State != QPSRTS {
			t.Fatalf("%v, %v", attr.AccessFlags, attr.State)
		}
	}
	set(AccessRemoteRead)
	send(t, b.a, b.read(1, 4096, 0, 8))
	one(t, b.cqA, StatusSuccess)
	set(0)
	send(t, b.a, b.read(2, 4096, 0, 8))
	if wc := drain(t, b.cqA, 1)[0]; wc.Status != StatusRemInvReqErr && wc.Status != StatusRemAccessErr {
		t.Errorf("a READ without the right ended with %v", wc.Status)
	}
}

// TestRemoteErrors: what the requester sees, and that the rest is flushed.
func TestRemoteErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		o    options
		wr   func(*bed) SendWR
		want WCStatus
	}{
		{"bad rkey", options{}, func(b *bed) SendWR {
			wr := b.read(1, 4096, 0, 8)
			wr.RKey ^= 0x0100_0000
			return wr
		}, StatusRemAccessErr},
		{"out of bounds", options{}, func(b *bed) SendWR { return b.read(1, 0, memSize-4, 8) }, StatusRemAccessErr},
		{"no right of the QP", options{access: AccessLocalWrite}, func(b *bed) SendWR { return b.read(1, 4096, 0, 8) }, StatusRemInvReqErr},
		{"no receive", options{rnrRetry: 0}, func(b *bed) SendWR {
			return SendWR{ID: 1, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(0, 8)}
		}, StatusRNRRetryExcErr},
		{"local key", options{}, func(b *bed) SendWR {
			wr := b.read(1, 4096, 0, 8)
			wr.SGL[0].LKey ^= 0x0100_0000
			return wr
		}, StatusLocProtErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, c.o)
			send(t, b.a, c.wr(b), b.read(2, 4096, 0, 8), b.read(3, 4096, 0, 8))
			for i, wc := range drain(t, b.cqA, 3) {
				want := StatusWRFlushErr
				if i == 0 {
					want = c.want
				}
				if wc.ID != uint64(i+1) || wc.Status != want || wc.QPN != b.a.Num() {
					t.Errorf("completion %d is %+v, want %v", i, wc, want)
				}
			}
			if attr := must(b.a.Query(QPMaskState))(t); attr.State != QPSErr {
				t.Errorf("state %v", attr.State)
			}
		})
	}
}

// TestStates: Query answers what Modify set; a wrong transition is refused and
// changes nothing; RESET allows a new start.
func TestStates(t *testing.T) {
	b := newBed(t, options{rnrRetry: 5})
	attr := must(b.a.Query(QPMaskState | QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskTimeout | QPMaskRetryCnt |
		QPMaskRNRRetry | QPMaskMinRNRTimer | QPMaskMaxQPRdAtomic | QPMaskMaxDestRdAtomic | QPMaskAccessFlags | QPMaskPort | QPMaskCap))(t)
	if attr.State != QPSRTS || attr.PathMTU != b.mtu || attr.DestQPN != b.b.Num() || attr.Timeout != 14 || attr.RetryCnt != 6 ||
		attr.RNRRetry != 5 || attr.MinRNRTimer != 1 || attr.MaxRdAtomic != 16 || attr.MaxDestRdAtomic != 16 ||
		attr.AccessFlags != allRight || attr.Port != 1 || !attr.AH.IsGlobal || attr.AH.DGID != b.gid.GID ||
		int(attr.AH.SGIDIndex) != b.gid.Index || attr.AH.HopLimit != 64 || attr.Cap.MaxSendWR < 128 || attr.Cap.MaxInline < 128 {
		t.Errorf("%+v", attr)
	}
	if err := b.a.Modify(&QPAttr{State: QPSInit, Port: 1}, QPMaskState|QPMaskPKeyIndex|QPMaskPort|QPMaskAccessFlags); !isInval(err) {
		t.Errorf("RTS to INIT: %v", err)
	}
	fresh, _, err := b.pd.CreateQP(QPInit{SendCQ: b.cqA, RecvCQ: b.cqA, Cap: QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, fresh)
	err = fresh.Modify(&QPAttr{State: QPSInit, Port: 1}, QPMaskState|QPMaskPort)
	if !isInval(err) {
		t.Errorf("INIT without its attributes: %v", err)
	}
	if n, err := fresh.PostSend([]SendWR{b.read(1, 0, 8, 8)}); n != 0 || !isErrno(err, syscall.EINVAL) {
		t.Errorf("posted in RESET: %d, %v", n, err)
	}
	for _, q := range []*QP{b.a, b.b} {
		if err := q.Modify(&QPAttr{State: QPSReset}, QPMaskState); err != nil {
			t.Fatal(err)
		}
	}
	b.connect(t, b.a, b.b.Num(), options{access: allRight})
	b.connect(t, b.b, b.a.Num(), options{access: allRight})
	send(t, b.a, b.read(9, 4096, 0, 8))
	if wc := one(t, b.cqA, StatusSuccess); wc.ID != 9 {
		t.Error(fmt.Sprint(wc))
	}
}

// TestFlush: Modify to ERR gives back all that is posted.
func TestFlush(t *testing.T) {
	b := newBed(t, options{})
	receive(t, b.b, b.recv(1, 0, 8), b.recv(2, 0, 8), b.recv(3, 0, 8))
	if err := b.b.Modify(&QPAttr{State: QPSErr}, QPMaskState); err != nil {
		t.Fatal(err)
	}
	for i, wc := range drain(t, b.cqB, 3) {
		if wc.ID != uint64(i+1) || wc.Status != StatusWRFlushErr {
			t.Errorf("%+v", wc)
		}
	}
}
