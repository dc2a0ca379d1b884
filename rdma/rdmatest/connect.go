package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func connectChecks() []check {
	return []check{
		{"states and info", checkStates},
		{"private data", checkPrivateData},
		{"private data too long", checkPrivateTooLong},
		{"reject", checkReject},
		{"nobody listens", checkNobodyListens},
		{"bad addresses", checkBadAddresses},
		{"dial ends with its context", checkDialContext},
		{"accept ends with its context", checkAcceptContext},
		{"request left alone", checkLeftAlone},
		{"request abandoned by the dialer", checkAbandonedRequest},
		{"requests nobody took", checkUntaken},
		{"used at once", checkUsedAtOnce},
		{"read depths", checkReadDepths},
		{"many dials at once", checkManyDials},
		{"misuse", checkConnectMisuse},
	}
}

func checkStates(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{beforeConnect: func(p *pair) {
		for _, qp := range []rdma.QP{p.qa, p.qb} {
			if s, err, i := qp.State(), qp.Err(), qp.Info(); s != rdma.QPInit || err != nil || i.RemoteAddr != nil {
				t.Errorf("before: state %v, Err %v, Info %+v", s, err, i)
			}
			select {
			case <-qp.Done():
				t.Error("Done before the connection")
			default:
			}
		}
	}})
	ia, ib := p.qa.Info(), p.qb.Info()
	if ia.RemoteAddr == nil || ia.LocalAddr == nil || ib.RemoteAddr == nil || ib.LocalAddr == nil {
		t.Fatalf("no addresses: %+v, %+v", ia, ib)
	}
	if ia.RemoteAddr.String() != ib.LocalAddr.String() {
		t.Errorf("a is connected to %v, b is at %v", ia.RemoteAddr, ib.LocalAddr)
	}
	if ia.Detail == "" || ib.Detail == "" {
		t.Errorf("Detail %q, %q", ia.Detail, ib.Detail)
	}
	for _, qp := range []rdma.QP{p.qa, p.qb} {
		if s := qp.State(); s != rdma.QPRTS || qp.Err() != nil {
			t.Errorf("connected: state %v, Err %v", s, qp.Err())
		}
	}
	if p.qa.PD() != p.a.pd || p.qb.PD() != p.b.pd {
		t.Error("QP.PD is another PD")
	}
	p.stillWorks()
}

// sizes of private data around every boundary up to the guarantee.
func checkPrivateData(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	data := func(n int, seed byte) []byte {
		d := make([]byte, n)
		fill(d, seed)
		return d
	}
	lengths := []int{a.attr.MaxConnectPrivate}
	for n := range rdma.PrivateDataMax + 1 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		p := &pair{a: a, b: b, qa: a.qp(rdma.QPConfig{}), qb: b.qp(rdma.QPConfig{})}
		hello, answer := data(n, 1), data(min(n, b.attr.MaxAcceptPrivate), 2)
		info, err := p.join(l, rdma.ConnParams{PrivateData: hello}, rdma.ConnParams{PrivateData: answer})
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		got := p.qb.Info().PrivateData
		// InfiniBand carries a field of fixed size: it is longer, with zeros at
		// its end.
		if !bytes.HasPrefix(got, hello) || len(bytes.Trim(got[len(hello):], "\x00")) != 0 {
			t.Errorf("%d bytes to the acceptor: %x, want %x", n, got, hello)
		}
		if !bytes.HasPrefix(info.PrivateData, answer) || len(bytes.Trim(info.PrivateData[len(answer):], "\x00")) != 0 {
			t.Errorf("%d bytes to the dialer: %x, want %x", n, info.PrivateData, answer)
		}
		a.check("Close", p.qa.Close())
		b.check("Close", p.qb.Close())
	}
}

func checkPrivateTooLong(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	qa := a.qp(rdma.QPConfig{})
	long := make([]byte, a.attr.MaxConnectPrivate+1)
	if _, err := qa.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{PrivateData: long}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("Connect with %d bytes: %v", len(long), err)
	}
	for _, how := range []string{"accept", "reject"} {
		req, dialed := dial(t, a, b, l, rdma.ConnParams{})
		long = make([]byte, b.attr.MaxAcceptPrivate+1)
		var err error
		if how == "accept" {
			_, err = req.Accept(t.Context(), b.qp(rdma.QPConfig{}), rdma.ConnParams{PrivateData: long})
		} else {
			err = req.Reject(long)
		}
		if !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s with %d bytes: %v", how, len(long), err)
		}
		_ = req.Reject(nil) // whether or not the request is used up by the mistake
		if d := <-dialed; d.err == nil {
			t.Errorf("%s with too much private data connected", how)
		}
	}
}

// dialed is the outcome of a Connect.
type dialed struct {
	info rdma.ConnInfo
	err  error
}

// dial begins a connection and returns the request as b sees it.
func dial(t testing.TB, a, b *end, l rdma.Listener, params rdma.ConnParams) (rdma.ConnRequest, <-chan dialed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	result := make(chan dialed, 1)
	qa := a.qp(rdma.QPConfig{})
	go func() {
		info, err := qa.Connect(ctx, l.Addr().String(), params)
		if err != nil && qa.State() != rdma.QPError {
			err = fmt.Errorf("state %v after a failed Connect (%w)", qa.State(), err)
		}
		result <- dialed{info, err}
	}()
	req, err := l.Accept(ctx)
	if err != nil {
		t.Fatalf("Accept: %v, the dialer says: %v", err, (<-result).err)
	}
	return req, result
}

func checkReject(t *testing.T, cfg *Config) {
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	for _, n := range []int{0, 1, 56, b.attr.MaxAcceptPrivate} {
		hello, reason := []byte("may I come in"), make([]byte, n)
		fill(reason, 9)
		req, result := dial(t, a, b, l, rdma.ConnParams{PrivateData: hello})
		if !bytes.HasPrefix(req.PrivateData(), hello) || req.RemoteAddr() == nil {
			t.Errorf("the request shows %q from %v", req.PrivateData(), req.RemoteAddr())
		}
		if err := req.Reject(reason); err != nil {
			t.Errorf("Reject: %v", err)
		}
		d := <-result
		if !errors.Is(d.err, rdma.ErrRejected) || !bytes.HasPrefix(d.info.PrivateData, reason) {
			t.Errorf("rejected with %d bytes: %v, %x", n, d.err, d.info.PrivateData)
		}
		var op *rdma.OpError
		if !errors.As(d.err, &op) || op.Addr == "" {
			t.Errorf("%v is no OpError with the address", d.err)
		}
		if err := req.Reject(nil); err == nil {
			t.Error("a request rejected twice")
		}
	}
}

// checkUsedAtOnce: receives that were posted before Accept are there for the
// first SEND, and both ends may send as soon as their call has returned.
func checkUsedAtOnce(t *testing.T, cfg *Config) {
	for range 20 {
		var inA, inB uint64
		var bufA, bufB *region
		p := newPair(t, cfg, pairOptions{beforeConnect: func(p *pair) {
			bufA, bufB = p.a.region(64, rdma.AccessLocalWrite), p.b.region(64, rdma.AccessLocalWrite)
			inA, inB = p.a.recv(p.qa, bufA.sge(32, 32)), p.b.recv(p.qb, bufB.sge(32, 32))
		}})
		fill(bufA.bytes()[:32], 1)
		fill(bufB.bytes()[:32], 2)
		idA := p.a.post(p.qa, send(bufA, 0, 32))
		idB := p.b.post(p.qb, send(bufB, 0, 32))
		p.a.ok(inA)
		p.b.ok(inB)
		p.a.ok(idA[0])
		p.b.ok(idB[0])
		expectBytes(t, "first SEND to a", bufA.bytes()[32:], bufB.bytes()[:32])
		expectBytes(t, "first SEND to b", bufB.bytes()[32:], bufA.bytes()[:32])
	}
}

// checkReadDepths: the depths in force are what both ends can do, and more
// READs than that wait their turn.
func checkReadDepths(t *testing.T, cfg *Config) {
	for _, c := range []struct{ ordA, irdB, ordB, irdA int }{
		{1, 1, 1, 1}, {4, 2, 2, 4}, {2, 8, 8, 2}, {0, 0, 0, 0}, {16, 1, 3, 16}, {1, 16, 16, 3},
	} {
		p := newPair(t, cfg, pairOptions{
			paramsA: rdma.ConnParams{ORD: c.ordA, IRD: c.irdA},
			paramsB: rdma.ConnParams{ORD: c.ordB, IRD: c.irdB},
		})
		limit := func(v, device int) int {
			if v == 0 {
				return device
			}
			return min(v, device)
		}
		a, b := p.qa.Info(), p.qb.Info()
		for _, x := range []struct {
			name          string
			ord, ird      int
			wanted, offer int
		}{
			{"a to b", a.ORD, b.IRD, limit(c.ordA, p.a.attr.MaxQPInitRdAtom), limit(c.irdB, p.b.attr.MaxQPRdAtom)},
			{"b to a", b.ORD, a.IRD, limit(c.ordB, p.b.attr.MaxQPInitRdAtom), limit(c.irdA, p.a.attr.MaxQPRdAtom)},
		} {
			if x.ord > x.wanted || x.ord > x.offer || x.ord < 1 || x.ird < x.ord {
				t.Errorf("%+v, %s: ORD %d against IRD %d; wanted %d, offered %d", c, x.name, x.ord, x.ird, x.wanted, x.offer)
			}
		}
		for _, dir := range []struct {
			from, to *end
			qp       rdma.QP
		}{{p.a, p.b, p.qa}, {p.b, p.a, p.qb}} {
			src, sink := dir.to.region(64<<10, rdma.AccessRemoteRead), dir.from.region(64<<10, rw(dir.from))
			fill(src.bytes(), byte(c.ordA))
			var wrs []rdma.SendWR
			for i := range 64 {
				wrs = append(wrs, read(sink, i<<10, src.remote(i<<10), 1<<10))
			}
			for _, id := range dir.from.post(dir.qp, wrs...) {
				dir.from.ok(id)
			}
			expectBytes(t, "READs over ORD", sink.bytes(), src.bytes())
		}
	}
}

func checkManyDials(t *testing.T, cfg *Config) {
	const n = 64
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	qas, qbs := make([]rdma.QP, n), make([]rdma.QP, n)
	for i := range n {
		qas[i], qbs[i] = a.qp(rdma.QPConfig{}), b.qp(rdma.QPConfig{})
	}
	for i := range n {
		wg.Go(func() {
			info, err := qas[i].Connect(ctx, l.Addr().String(), rdma.ConnParams{PrivateData: []byte{byte(i)}})
			if err != nil || len(info.PrivateData) == 0 || info.PrivateData[0] != byte(i) {
				t.Errorf("dial %d: %v, answer %x", i, err, info.PrivateData)
			}
		})
		wg.Go(func() {
			req, err := l.Accept(ctx)
			if err != nil {
				t.Errorf("Accept: %v", err)
				return
			}
			if _, err := req.Accept(ctx, qbs[i], rdma.ConnParams{PrivateData: req.PrivateData()}); err != nil {
				t.Errorf("ConnRequest.Accept: %v", err)
			}
		})
	}
	wg.Wait()
	if qpns := map[uint32]bool{}; !t.Failed() {
		for _, qp := range append(qas, qbs...) {
			qpns[qp.QPN()] = true
		}
		if len(qpns) < n { // a and b may be two machines
			t.Errorf("%d different QPNs for %d QPs on each side", len(qpns), n)
		}
	}
}
