package siw_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// A maker is one of the two iWARPs: ours in user space, or the kernel's through
// libibverbs.
type maker string

const (
	soft   maker = "iwarp" // package iwarp
	kernel maker = "siw"   // package verbs on the device siw0
)

// pairs are the pairs of dialer and listener.
var pairs = []struct{ dialer, acceptor maker }{{soft, kernel}, {kernel, soft}}

// open opens the device of a maker.
func (m maker) open(t testing.TB, p port, o iwarp.Options) rdma.Device {
	t.Helper()
	o.SetupTimeout = patience / 2
	var fab rdma.Fabric = iwarp.New(o)
	name := ""
	if m == kernel {
		fab, name = verbs.New(verbs.Options{SetupTimeout: patience / 2}), p.device
	}
	dev, err := fab.Open(context.Background(), name)
	if err != nil {
		t.Fatalf("%s: %v", m, err)
	}
	closeLater(t, string(m)+" device", dev.Close)
	return dev
}

func closeLater(t testing.TB, what string, f func() error) {
	t.Cleanup(func() {
		if err := f(); err != nil {
			t.Errorf("closing the %s: %v", what, err)
		}
	})
}

// An end is one side of a connection with all that it needs. One goroutine
// uses it.
type end struct {
	t    testing.TB
	by   maker
	dev  rdma.Device
	pd   rdma.PD
	cq   rdma.CQ
	qp   rdma.QP
	next uint64 // ID of the next work request
	got  map[uint64]rdma.WC
}

func newEnd(t testing.TB, m maker, dev rdma.Device) *end {
	t.Helper()
	e := &end{t: t, by: m, dev: dev, got: map[uint64]rdma.WC{}}
	var err error
	e.pd, err = dev.AllocPD()
	e.check("AllocPD", err)
	closeLater(t, "PD", e.pd.Close)
	e.cq, err = dev.CreateCQ(1024)
	e.check("CreateCQ", err)
	closeLater(t, "CQ", e.cq.Close)
	inline := min(64, dev.Attr().MaxInline)
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Cap: rdma.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSGE: 2, MaxInline: inline}})
	e.check("CreateQP", err)
	closeLater(t, "QP", e.qp.Close)
	return e
}

func (e *end) check(what string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %s: %v", e.by, what, err)
	}
}

// region registers n bytes of new memory in a PD of the end.
func (e *end) region(pd rdma.PD, n int, a rdma.Access) rdma.MR {
	e.t.Helper()
	block, err := mem.Alloc(n, mem.Options{Tag: "cross"})
	e.check("Alloc", err)
	closeLater(e.t, "block", block.Free)
	mr, err := pd.RegMR(block.Bytes(), a)
	e.check("RegMR", err)
	closeLater(e.t, "MR", mr.Close)
	return mr
}

// sink is memory that a READ of this end may fill.
func (e *end) sink(n int) rdma.MR {
	a := rdma.AccessLocalWrite
	if e.dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		a |= rdma.AccessRemoteWrite
	}
	return e.region(e.pd, n, a)
}

// post posts one signaled request and returns its ID.
func (e *end) post(wr rdma.SendWR) uint64 {
	e.t.Helper()
	e.next++
	wr.ID = e.next
	wr.Flags |= rdma.SendSignaled
	_, err := e.qp.PostSend([]rdma.SendWR{wr})
	e.check(wr.Op.String(), err)
	return wr.ID
}

func (e *end) recv(mr rdma.MR) uint64 {
	e.t.Helper()
	e.next++
	_, err := e.qp.PostRecv([]rdma.RecvWR{{ID: e.next, SGL: []rdma.SGE{{MR: mr, Len: uint32(mr.Len())}}}})
	e.check("PostRecv", err)
	return e.next
}

// wait returns the completion of a request.
func (e *end) wait(id uint64) rdma.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [16]rdma.WC
	for {
		if wc, ok := e.got[id]; ok {
			delete(e.got, id)
			return wc
		}
		n, err := rdma.Await(ctx, e.cq, wcs[:])
		if err != nil {
			e.t.Fatalf("%s: work request %d: %v (QP: %v)", e.by, id, err, e.qp.Err())
		}
		for _, wc := range wcs[:n] {
			e.got[wc.ID] = wc
		}
	}
}

// ok waits for a request that must have gone well.
func (e *end) ok(id uint64) rdma.WC {
	e.t.Helper()
	wc := e.wait(id)
	if err := wc.Status.Err(); err != nil {
		e.t.Fatalf("%s: work request %d: %v (QP: %v)", e.by, id, err, e.qp.Err())
	}
	return wc
}

// dead waits for the end of the connection and returns why.
func (e *end) dead() error {
	e.t.Helper()
	select {
	case <-e.qp.Done():
		return e.qp.Err()
	case <-time.After(patience):
		e.t.Fatalf("%s: the queue pair lives", e.by)
		return nil
	}
}

// deadBy waits for the end of the connection, which must be of a class.
func (e *end) deadBy(class error) {
	e.t.Helper()
	if err := e.dead(); !errors.Is(err, class) {
		e.t.Errorf("%s: the connection ended with %v, want %v", e.by, err, class)
	}
}

// A pair is a connection between the two.
type pair struct {
	a, b         *end // a has dialed b
	infoA, infoB rdma.ConnInfo
}

// ends makes both ends without connecting them.
func ends(t testing.TB, p port, dialer, acceptor maker, o iwarp.Options) *pair {
	t.Helper()
	return &pair{a: newEnd(t, dialer, dialer.open(t, p, o)), b: newEnd(t, acceptor, acceptor.open(t, p, o))}
}

// connect joins the two ends and grants every right to both.
func (x *pair) connect(at port, pa, pb rdma.ConnParams) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := x.b.dev.Listen(ctx, at.addr+":0")
	if err != nil {
		return err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			x.infoB, err = req.Accept(ctx, x.b.qp, pb)
		}
		accepted <- err
	}()
	x.infoA, err = x.a.qp.Connect(ctx, l.Addr().String(), pa)
	if err != nil {
		cancel()
	}
	if e := <-accepted; err == nil {
		err = e
	}
	for _, e := range []*end{x.a, x.b} {
		if err == nil {
			err = e.qp.SetAccess(rdma.AccessRemoteRead | rdma.AccessRemoteWrite)
		}
	}
	return err
}

func connected(t testing.TB, at port, dialer, acceptor maker, o iwarp.Options) *pair {
	t.Helper()
	x := ends(t, at, dialer, acceptor, o)
	if err := x.connect(at, rdma.ConnParams{}, rdma.ConnParams{}); err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return x
}

// eachPair runs a test with either maker as the dialer.
func eachPair(t *testing.T, f func(t *testing.T, at port, dialer, acceptor maker)) {
	at := siwPort(t)
	for _, d := range pairs {
		t.Run(fmt.Sprintf("%s dials %s", d.dialer, d.acceptor), func(t *testing.T) { f(t, at, d.dialer, d.acceptor) })
	}
}

// eachRole runs a test with either end of a new connection as the requester.
func eachRole(t *testing.T, f func(t *testing.T, at port, from, to *end)) {
	eachPair(t, func(t *testing.T, at port, dialer, acceptor maker) {
		t.Run(string(dialer)+" asks", func(t *testing.T) {
			x := connected(t, at, dialer, acceptor, iwarp.Options{})
			// The acceptor is silent until the dialer has spoken once.
			f(t, at, x.a, x.b)
		})
		t.Run(string(acceptor)+" asks", func(t *testing.T) {
			x := connected(t, at, dialer, acceptor, iwarp.Options{})
			x.hello()
			f(t, at, x.b, x.a)
		})
	})
}

// hello sends one message from the dialer: without peer-to-peer mode, which
// siw does not ask for, an acceptor may not speak first.
func (x *pair) hello() {
	x.a.t.Helper()
	id := x.b.recv(x.b.region(x.b.pd, 64, rdma.AccessLocalWrite))
	x.a.ok(x.a.post(rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: x.a.region(x.a.pd, 8, 0), Len: 8}}}))
	x.b.ok(id)
}
