package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// The peer never sees more READs than min(our ORD, its IRD), in order, and a
// SEND posted behind them waits its turn.
func TestReadsStayWithinORD(t *testing.T) {
	const ord, reads = 3, 10
	a := newEnd(t, New(Options{}), rdma.QPConfig{})
	defer a.close()
	sink := a.mr(8*reads, rdma.AccessLocalWrite)
	p, err := acceptRaw(t, a, rdma.ConnParams{ORD: 5}, func(req proto.Frame) []byte {
		o := Options{}.withDefaults()
		rep, _ := o.answer(&req, true, ord, 1, nil)
		return rep.Append(nil)
	})
	check(t, err)
	if got := a.qp.Info().ORD; got != ord {
		t.Fatalf("ORD %d", got)
	}
	var wrs []rdma.SendWR
	for i := range uint64(reads) {
		wrs = append(wrs, rdma.SendWR{ID: i, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
			SGL: []rdma.SGE{{MR: sink, Off: 8 * i, Len: 8}}, Remote: rdma.RemoteAddr{Addr: 100 * i, RKey: 9}})
	}
	a.send(append(wrs, rdma.SendWR{ID: reads, Op: rdma.OpSend, Flags: rdma.SendSignaled})...)
	p.must() // RTR
	answer := func(r proto.ReadRequest) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], r.SourceTO)
		p.send(tagged(proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), b[:])
	}
	var open []proto.ReadRequest
	for i := range uint32(reads) {
		s, body := p.must()
		r, ok := proto.ParseReadRequest(body)
		if !ok || s.MSN != i+1 || r.SourceTO != uint64(100*i) {
			t.Fatalf("request %d: %+v %+v", i, s, r)
		}
		open = append(open, r)
		if len(open) == ord {
			// Nothing more may come before an answer. A byte would be here by
			// the time the answer to this one has made a round trip.
			answer(open[0])
			open = open[1:]
			if wc := a.waitOK(1)[0]; wc.ID != uint64(i)-ord+1 {
				t.Fatalf("completion %d", wc.ID)
			}
		}
		if len(open) > ord {
			t.Fatalf("%d READs in flight", len(open))
		}
	}
	// The SEND needs no slot: it comes once the last READ has gone out.
	if s, _ := p.must(); s.Op != proto.OpSend {
		t.Fatalf("%+v", s)
	}
	for _, r := range open {
		answer(r)
	}
	wcs := a.waitOK(ord)
	if last := wcs[len(wcs)-1]; last.ID != reads || last.Op != rdma.OpSend {
		t.Fatalf("%+v", wcs)
	}
	for i := range uint64(reads) {
		if got := binary.BigEndian.Uint64(sink.Bytes()[8*i:]); got != 100*i {
			t.Fatalf("READ %d brought %d", i, got)
		}
	}
	_ = p.conn.Close()
}

// A fenced request stays until earlier READs are done, and what is behind it
// stays too.
func TestFence(t *testing.T) {
	a := newEnd(t, New(Options{}), rdma.QPConfig{Cap: rdma.QPCap{MaxInline: 16}})
	defer a.close()
	sink := a.mr(8, rdma.AccessLocalWrite)
	p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
	check(t, err)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: sink, Len: 8}}},
		rdma.SendWR{ID: 2, Op: rdma.OpSend, Flags: rdma.SendInline, Inline: []byte("free")},
		rdma.SendWR{ID: 3, Op: rdma.OpSend, Flags: rdma.SendInline | rdma.SendFence | rdma.SendSolicited | rdma.SendSignaled, Inline: []byte("fenced")},
		rdma.SendWR{ID: 4, Op: rdma.OpSend, Flags: rdma.SendInline, Inline: []byte("behind")})
	p.must()
	_, body := p.must()
	r, _ := proto.ParseReadRequest(body)
	if _, m := p.must(); string(m) != "free" {
		t.Fatalf("%q", m)
	}
	// More of our own sending must not let it slip past.
	a.send(rdma.SendWR{ID: 5, Op: rdma.OpSend})
	p.send(tagged(proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), make([]byte, 8))
	for _, want := range []string{"fenced", "behind", ""} {
		s, m := p.must()
		if string(m) != want || (s.Op == proto.OpSendSE) != (want == "fenced") {
			t.Fatalf("%q as %v, want %q", m, s.Op, want)
		}
	}
	if wc := a.waitOK(1)[0]; wc.ID != 3 {
		t.Fatalf("%+v", wc)
	}
	_ = p.conn.Close()
}

// Both ends send and read many megabytes at the same time, far more than the
// sockets hold: neither reader waits for the other's.
func TestBothWaysAtOnce(t *testing.T) {
	const n = 1 << 20
	count := 64
	if raceEnabled {
		count = 12 // every word is an instrumented load
	}
	a, b := connected(t, pairConfig{
		acfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead},
	})
	as, ad := a.mr(n, rdma.AccessRemoteRead), a.mr(2*n, rdma.AccessLocalWrite)
	bs, bd := b.mr(n, rdma.AccessRemoteRead), b.mr(2*n, rdma.AccessLocalWrite)
	fill(as.Bytes(), 1)
	fill(bs.Bytes(), 2)
	// Receives on both ends first: iWARP has no RNR.
	var wg sync.WaitGroup
	recvs := func(e *end, dst rdma.MR) {
		for i := range count {
			e.recv(rdma.RecvWR{ID: uint64(i), SGL: []rdma.SGE{{MR: dst, Len: n}}})
		}
	}
	recvs(a, ad)
	recvs(b, bd)
	post := func(e *end, key uint32, src, dst rdma.MR) {
		var sends []rdma.SendWR
		for range count {
			sends = append(sends,
				rdma.SendWR{ID: 1000, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: src, Len: n}}},
				rdma.SendWR{ID: 2000, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Off: n, Len: n}}, Remote: rdma.RemoteAddr{RKey: key}})
		}
		e.send(sends...)
	}
	wg.Go(func() { post(a, bs.RKey(), as, ad) })
	wg.Go(func() { post(b, as.RKey(), bs, bd) })
	wg.Wait()
	a.waitOK(3 * count)
	b.waitOK(3 * count)
	for _, c := range []struct{ got, want []byte }{
		{ad.Bytes()[:n], bs.Bytes()}, {ad.Bytes()[n:], bs.Bytes()}, {bd.Bytes()[:n], as.Bytes()}, {bd.Bytes()[n:], as.Bytes()},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Fatal("bytes differ")
		}
	}
}

// What an idle connection costs: two QPs, their goroutines, sockets.
func TestIdleConnectionMemory(t *testing.T) {
	if raceEnabled {
		return // the detector's own memory would be counted; TestThousandConnections runs with it
	}
	const n = 200
	var ends [n][2]*end
	f := New(Options{})
	measure := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	dev, err := f.Open(t.Context(), "")
	check(t, err)
	pd, err := dev.AllocPD()
	check(t, err)
	cq, err := dev.CreateCQ(4 * n)
	check(t, err)
	l, err := dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	m, err := pd.RegMR(make([]byte, 4096), rdma.AccessRemoteRead|rdma.AccessLocalWrite)
	check(t, err)
	before := measure()
	for i := range ends {
		for j := range ends[i] {
			q, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead})
			check(t, err)
			ends[i][j] = &end{t: t, dev: dev, pd: pd, cq: cq, qp: q}
		}
		done := make(chan error, 1)
		go func() {
			r, err := l.Accept(t.Context())
			if err == nil {
				_, err = r.Accept(t.Context(), ends[i][1].qp, rdma.ConnParams{})
			}
			done <- err
		}()
		_, err := ends[i][0].qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
		check(t, err)
		check(t, <-done)
		// Used once with 8 READs in flight, so that the queues have grown.
		var wrs []rdma.SendWR
		for range 8 {
			wrs = append(wrs, rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: m, Len: 64}}, Remote: rdma.RemoteAddr{RKey: m.RKey()}})
		}
		ends[i][0].send(wrs...)
		ends[i][0].waitOK(8)
	}
	per := float64(measure()-before) / (2 * n)
	t.Logf("%.0f bytes of heap and stack for each idle QP", per)
	if per > 20<<10 {
		t.Errorf("an idle QP costs %.0f bytes, the aim is 20 KiB", per)
	}
	for i := range ends {
		for _, e := range ends[i] {
			check(t, e.qp.Disconnect())
		}
		for _, e := range ends[i] {
			check(t, e.qp.Close())
		}
	}
	check(t, l.Close())
	check(t, m.Close())
	check(t, cq.Close())
	check(t, pd.Close())
	check(t, dev.Close())
}

// A READ in steady state allocates nothing, at either end.
func TestReadDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		return // sync.Pool drops at random under the race detector
	}
	for _, n := range []int{64, 4096, 65536} {
		r := newBenchReader(t, n)
		for range 200 {
			r.round(t)
		}
		if got := testing.AllocsPerRun(2000, func() { r.round(t) }); got > 0.05 {
			t.Errorf("%d bytes: %v allocations a READ", n, got)
		}
	}
}

func TestCQOverrun(t *testing.T) {
	f := New(Options{})
	b := newEnd(t, f, rdma.QPConfig{})
	a := newEnd(t, f, rdma.QPConfig{})
	small, err := a.dev.CreateCQ(2)
	check(t, err)
	q, err := a.pd.CreateQP(rdma.QPConfig{SendCQ: small, RecvCQ: a.cq})
	check(t, err)
	check(t, a.qp.Close())
	a.qp = q
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			_, _ = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
		}
	}()
	_, err = q.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
	check(t, err)
	buf := b.mr(8, rdma.AccessLocalWrite)
	for range 3 {
		b.recv(rdma.RecvWR{SGL: []rdma.SGE{{MR: buf, Len: 8}}})
	}
	a.send(rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled}, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled}, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled})
	a.dead(rdma.ErrCQOverrun)
	if _, err := small.Poll(make([]rdma.WC, 4)); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Poll: %v", err)
	}
	if err := small.Wait(t.Context()); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Wait: %v", err)
	}
	check(t, l.Close())
	a.close()
	check(t, small.Close())
	b.close()
}

// Posts, disconnects and closes from many goroutines at once, again and again.
func TestChaos(t *testing.T) {
	for round := range 30 {
		a, b := newEnd(t, New(Options{}), rdma.QPConfig{}), newEnd(t, New(Options{MaxPayload: 512}), rdma.QPConfig{Access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite})
		l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
		check(t, err)
		src := b.mr(1<<16, rdma.AccessRemoteRead|rdma.AccessLocalWrite)
		dst := a.mr(1<<16, rdma.AccessLocalWrite)
		accepted := make(chan struct{})
		go func() {
			defer close(accepted)
			if r, err := l.Accept(t.Context()); err == nil {
				_, _ = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
			}
		}()
		_, err = a.qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
		check(t, err)
		var posted atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					wr := rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Off: uint64(g) << 14, Len: 1 << 14}}, Remote: rdma.RemoteAddr{RKey: src.RKey()}}
					if i%7 == 3 {
						wr.SGL[0].Len = 32
					}
					n, err := a.qp.PostSend([]rdma.SendWR{wr})
					posted.Add(int64(n))
					if err != nil && !errors.Is(err, rdma.ErrQueueFull) {
						t.Error(err)
					}
				}
			})
		}
		switch round % 3 {
		case 0:
			wg.Go(func() { _ = b.qp.Disconnect() })
		case 1:
			wg.Go(func() { _ = a.qp.Disconnect() })
		}
		wg.Wait()
		// Every request completes, whatever happened.
		got := a.wait(int(posted.Load()))
		for i, wc := range got {
			if round%3 == 2 && wc.Status != rdma.StatusSuccess {
				t.Fatalf("%d: %+v", i, wc)
			}
		}
		<-accepted
		check(t, l.Close())
		a.close()
		b.close()
	}
}

// Buffers are shared by all connections, one after the other: READs that came
// in one round with a violation must not be answered on the next connection
// that borrows the buffer.
func TestBuffersForget(t *testing.T) {
	for range 20 {
		x := newTarget(t, rdma.AccessRemoteRead)
		p := dialRaw(t, x.end, plainRequest(), rtrWrite(true))
		round := p.frame(readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey()}))
		p.write(append(round, p.frame(untagged(proto.OpSend, true, proto.QueueSend, 9, 0))...))
		p.terminated()
		x.close()
		y := newTarget(t, rdma.AccessRemoteRead)
		p = dialRaw(t, y.end, plainRequest(), rtrWrite(true))
		y.recv(rdma.RecvWR{})
		p.send(untagged(proto.OpSend, true, proto.QueueSend, 1, 0))
		y.waitOK(1)
		y.send(rdma.SendWR{Op: rdma.OpSend})
		if s, _ := p.must(); s.Op != proto.OpSend {
			t.Fatalf("got %v, which nobody asked for on this connection", s.Op)
		}
		_ = p.conn.Close()
		y.close()
	}
}

// A peer that is alive and never reads ends the connection, and the requests
// that wait for it.
func TestPeerThatNeverReads(t *testing.T) {
	const n = 64 << 20
	a := newEnd(t, New(Options{PeerTimeout: 100 * time.Millisecond}), rdma.QPConfig{})
	src := a.mr(n, 0)
	p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
	check(t, err)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: src, Len: n}}},
		rdma.SendWR{ID: 2, Op: rdma.OpSend, Flags: rdma.SendSignaled})
	wcs := a.wait(2)
	if wcs[0].ID != 1 || wcs[0].Status != rdma.StatusRetryExcErr || wcs[1].Status != rdma.StatusWRFlushErr {
		t.Errorf("%+v", wcs)
	}
	a.dead(rdma.ErrPeerGone)
	_ = p.conn.Close()
	a.close()
}
