package rdmatest

import (
	"context"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// A pair is two ends with one connection: a has dialed b.
type pair struct {
	a, b   *end
	qa, qb rdma.QP
}

// pairOptions change what newPair connects. The zero value: default queues, and
// both sides grant each other all that their devices can.
type pairOptions struct {
	a, b           rdma.QPConfig
	paramsA        rdma.ConnParams
	paramsB        rdma.ConnParams
	noAccess       bool               // grant nothing
	beforeConnect  func(p *pair)      // QPs exist in INIT: post receives
	connectionOnly *pair              // reuse the ends of this pair
	fabric         func() rdma.Fabric // instead of cfg.New
	depth          int                // of the CQs; 0 means cqDepth
}

// newPair makes two ends and connects them.
func newPair(t testing.TB, cfg *Config, opt pairOptions) *pair {
	t.Helper()
	p := &pair{}
	if old := opt.connectionOnly; old != nil {
		p.a, p.b = old.a, old.b
	} else {
		fabric := opt.fabric
		if fabric == nil {
			fabric = func() rdma.Fabric { return cfg.New(t) }
		}
		if opt.depth == 0 {
			opt.depth = cqDepth
		}
		p.a = newEndOn(t, cfg, "a", fabric(), opt.depth)
		p.b = newEndOn(t, cfg, "b", fabric(), opt.depth)
	}
	p.qa, p.qb = p.a.qp(opt.a), p.b.qp(opt.b)
	if opt.beforeConnect != nil {
		opt.beforeConnect(p)
	}
	l := p.b.listen()
	if _, err := p.join(l, opt.paramsA, opt.paramsB); err != nil {
		t.Fatalf("connecting: %v", err)
	}
	if !opt.noAccess {
		p.grant(p.a, p.qa)
		p.grant(p.b, p.qb)
	}
	return p
}

// grant gives the peer of a QP every right the device knows.
func (p *pair) grant(e *end, qp rdma.QP) {
	e.t.Helper()
	e.check("SetAccess", qp.SetAccess(allRights(e)))
}

// allRights are the remote rights that a device can give.
func allRights(e *end) rdma.Access {
	a := rdma.AccessRemoteRead
	if e.has(rdma.CapWrite) {
		a |= rdma.AccessRemoteWrite
	}
	return a
}

// rw are the rights of a region that both ends may use for everything.
func rw(e *end) rdma.Access { return rdma.AccessLocalWrite | allRights(e) }

// join connects qa to l and accepts with qb. It returns a's view.
func (p *pair) join(l rdma.Listener, pa, pb rdma.ConnParams) (rdma.ConnInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			_, err = req.Accept(ctx, p.qb, pb)
		}
		accepted <- err
	}()
	info, err := p.qa.Connect(ctx, l.Addr().String(), pa)
	if err != nil {
		cancel()
	}
	if e := <-accepted; err == nil {
		err = e
	}
	return info, err
}

// read posts one signaled READ by a of n bytes into sink from b's source.
func read(sink *region, sinkOff int, remote rdma.RemoteAddr, n int) rdma.SendWR {
	wr := rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, Remote: remote}
	if n > 0 {
		wr.SGL = []rdma.SGE{sink.sge(sinkOff, n)}
	}
	return wr
}

// send makes one signaled SEND of n bytes.
func send(src *region, off, n int) rdma.SendWR {
	wr := rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled}
	if n > 0 {
		wr.SGL = []rdma.SGE{src.sge(off, n)}
	}
	return wr
}

// stillWorks proves that a connection carries a SEND and a READ: after a fault
// elsewhere, the others must be unharmed.
func (p *pair) stillWorks() {
	p.a.t.Helper()
	src := p.b.region(64, rw(p.b))
	sink := p.a.region(64, rw(p.a))
	fill(src.bytes(), 0x5a)
	p.a.ok(p.a.post(p.qa, read(sink, 0, src.remote(0), 64))[0])
	expectBytes(p.a.t, "READ on a bystander", sink.bytes(), src.bytes())
	into := p.b.region(64, rdma.AccessLocalWrite)
	id := p.b.recv(p.qb, into.sge(0, 64))
	p.a.ok(p.a.post(p.qa, send(sink, 0, 64))[0])
	p.b.ok(id)
	expectBytes(p.a.t, "SEND on a bystander", into.bytes(), src.bytes())
}
