//go:build linux

package shm

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
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
	t.Cleanup(func() { check(t, e.pd.Close()); check(t, dev.Close()) })
	return e
}

// mr registers n bytes that the peer may map.
func (e *end) mr(n int, a rdma.Access) rdma.MR {
	e.t.Helper()
	b, err := mem.Alloc(n, mem.Options{Shared: true, Tag: "shm test"})
	check(e.t, err)
	m, err := e.pd.RegMR(b.Bytes(), a)
	check(e.t, err)
	e.t.Cleanup(func() { check(e.t, m.Close()); check(e.t, b.Free()) })
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

// connected makes a pair: a dialed b.
func connected(t testing.TB, oa, ob Options) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, New(oa), rdma.QPConfig{}), newEnd(t, New(ob), rdma.QPConfig{})
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	res := make(chan error, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err == nil {
			_, err = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
		}
		res <- err
	}()
	_, err = a.qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
	check(t, err)
	check(t, <-res)
	check(t, l.Close())
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}

func remoteOf(m rdma.MR) rdma.RemoteAddr { return rdma.RemoteAddr{Addr: m.Addr(), RKey: m.RKey()} }

// mapped waits until the peer's region is mapped at e.
func (e *end) mapped(m rdma.MR) {
	e.t.Helper()
	eventually(e.t, "the region is mapped", func() bool { return e.qp.(*qp).seen.has(m.RKey()) })
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// completion waits for one completion.
func (e *end) completion() (wc rdma.WC) {
	e.t.Helper()
	eventually(e.t, "there is a completion", func() bool {
		var wcs [1]rdma.WC
		n, err := e.cq.Poll(wcs[:])
		check(e.t, err)
		wc = wcs[0]
		return n == 1
	})
	return wc
}
