package iwarp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// An end is one side of a test connection with everything it needs.
type end struct {
	t   testing.TB
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
}

func newEnd(t testing.TB, f *Fabric, cfg rdma.QPConfig) *end {
	t.Helper()
	dev, err := f.Open(t.Context(), "")
	check(t, err)
	e := &end{t: t, dev: dev}
	e.pd, err = dev.AllocPD()
	check(t, err)
	e.cq, err = dev.CreateCQ(4096)
	check(t, err)
	cfg.SendCQ, cfg.RecvCQ = e.cq, e.cq
	e.qp, err = e.pd.CreateQP(cfg)
	check(t, err)
	return e
}

func (e *end) mr(n int, a rdma.Access) rdma.MR {
	e.t.Helper()
	m, err := e.pd.RegMR(make([]byte, n), a)
	check(e.t, err)
	e.t.Cleanup(func() { check(e.t, m.Close()) })
	return m
}

func (e *end) close() {
	e.t.Helper()
	check(e.t, e.qp.Close())
	check(e.t, e.cq.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait returns the next n completions.
func (e *end) wait(n int) []rdma.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	var got []rdma.WC
	buf := make([]rdma.WC, n)
	poll := func() {
		k, err := e.cq.Poll(buf[:n-len(got)])
		check(e.t, err)
		got = append(got, buf[:k]...)
	}
	for {
		if poll(); len(got) == n {
			return got
		}
		check(e.t, e.cq.Arm())
		if poll(); len(got) == n {
			return got
		}
		if err := e.cq.Wait(ctx); err != nil {
			e.t.Fatalf("%d of %d completions: %v (QP: %v)", len(got), n, err, e.qp.Err())
		}
	}
}

func (e *end) waitOK(n int) []rdma.WC {
	e.t.Helper()
	wcs := e.wait(n)
	for _, wc := range wcs {
		if wc.Status != rdma.StatusSuccess {
			e.t.Fatalf("completion %+v, QP: %v", wc, e.qp.Err())
		}
	}
	return wcs
}

func (e *end) send(wrs ...rdma.SendWR) {
	e.t.Helper()
	if n, err := e.qp.PostSend(wrs); err != nil {
		e.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

func (e *end) recv(wrs ...rdma.RecvWR) {
	e.t.Helper()
	if n, err := e.qp.PostRecv(wrs); err != nil {
		e.t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// dead waits for the QP's end and checks its class.
func (e *end) dead(class error) {
	e.t.Helper()
	select {
	case <-e.qp.Done():
	case <-time.After(10 * time.Second):
		e.t.Fatal("the QP lives")
	}
	if err := e.qp.Err(); !errors.Is(err, class) {
		e.t.Fatalf("QP error %v, want class %v", err, class)
	}
}

type pairConfig struct {
	a, b         Options
	acfg, bcfg   rdma.QPConfig
	aparm, bparm rdma.ConnParams
	before       func(a, b *end)
}

// connected makes a pair: a dialed b.
func connected(t testing.TB, c pairConfig) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, New(c.a), c.acfg), newEnd(t, New(c.b), c.bcfg)
	if c.before != nil {
		c.before(a, b)
	}
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	res := make(chan error, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err == nil {
			_, err = r.Accept(t.Context(), b.qp, c.bparm)
		}
		res <- err
	}()
	_, err = a.qp.Connect(t.Context(), l.Addr().String(), c.aparm)
	check(t, err)
	check(t, <-res)
	check(t, l.Close())
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}
