package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

const patience = 30 * time.Second

// bothWays runs a test over each way to connect.
func bothWays(t *testing.T, f func(t *testing.T, opts verbs.Options)) {
	needDevice(t)
	for _, how := range []string{verbs.ConnectCM, verbs.ConnectTCP} {
		t.Run(how, func(t *testing.T) { f(t, verbs.Options{Connect: how}) })
	}
}

// A rig is one opened device with what a test needs of it.
type rig struct {
	t   testing.TB
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
}

func newRig(t testing.TB, opts verbs.Options) *rig {
	t.Helper()
	dev, err := verbs.New(opts).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dev: dev}
	r.later(dev.Close)
	r.pd, err = dev.AllocPD()
	r.check(err)
	r.later(r.pd.Close)
	r.cq, err = dev.CreateCQ(1024)
	r.check(err)
	r.later(r.cq.Close)
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) later(f func() error) {
	r.t.Cleanup(func() {
		if err := f(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) qp(cfg rdma.QPConfig) rdma.QP {
	r.t.Helper()
	cfg.SendCQ, cfg.RecvCQ = r.cq, r.cq
	q, err := r.pd.CreateQP(cfg)
	r.check(err)
	r.later(q.Close)
	return q
}

func (r *rig) region(size int, kind mem.Kind, a rdma.Access) rdma.MR {
	r.t.Helper()
	b, err := mem.Alloc(size, mem.Options{Kind: kind, Tag: "test"})
	r.check(err)
	r.later(b.Free)
	m, err := r.pd.RegMR(b.Bytes(), a)
	r.check(err)
	r.later(m.Close)
	return m
}

// listen serves every request with f on a goroutine of its own.
func (r *rig) listen(f func(rdma.ConnRequest)) string {
	r.t.Helper()
	l, err := r.dev.Listen(r.t.Context(), listenAddr(r.t))
	r.check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			f(req)
		}
	}()
	r.later(func() error {
		err := l.Close()
		<-done
		return err
	})
	return l.Addr().String()
}

// connect makes two connected QPs of one device; the first has dialed.
func (r *rig) connect(a, b rdma.QPConfig, params rdma.ConnParams) (qa, qb rdma.QP) {
	r.t.Helper()
	qa, qb = r.qp(a), r.qp(b)
	accepted := make(chan error, 1)
	addr := r.listen(func(req rdma.ConnRequest) {
		_, err := req.Accept(context.Background(), qb, rdma.ConnParams{})
		accepted <- err
	})
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	_, err := qa.Connect(ctx, addr, params)
	r.check(err)
	r.check(<-accepted)
	return qa, qb
}

// next waits for one completion, by events.
func (r *rig) next() (rdma.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [1]rdma.WC
	for armed := false; ; {
		n, err := r.cq.Poll(wcs[:])
		if err != nil || n == 1 {
			return wcs[0], err
		}
		if !armed {
			err, armed = r.cq.Arm(), true
		} else {
			err, armed = r.cq.Wait(ctx), false
		}
		if err != nil {
			return wcs[0], err
		}
	}
}

// post posts one request and waits for it.
func (r *rig) post(q rdma.QP, wr rdma.SendWR) rdma.Status {
	r.t.Helper()
	wr.Flags |= rdma.SendSignaled
	_, err := q.PostSend([]rdma.SendWR{wr})
	r.check(err)
	wc, err := r.next()
	r.check(err)
	return wc.Status
}

func read(sink rdma.MR, n int, from rdma.RemoteAddr) rdma.SendWR {
	return rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: sink, Len: uint32(n)}}, Remote: from}
}

func at(m rdma.MR) rdma.RemoteAddr { return rdma.RemoteAddr{Addr: m.Addr(), RKey: m.RKey()} }

// isAny demands one of these classes, in an OpError.
func isAny(err error, want ...error) error {
	var op *rdma.OpError
	for _, w := range want {
		if errors.Is(err, w) && errors.As(err, &op) {
			return nil
		}
	}
	return fmt.Errorf("%v, want an OpError of %v", err, want)
}
