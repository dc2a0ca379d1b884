package rdmatest

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func faultChecks() []check {
	return []check{
		{"read", func(t *testing.T, cfg *Config) { checkProtection(t, cfg, rdma.OpRDMARead) }},
		{"write", func(t *testing.T, cfg *Config) { checkProtection(t, cfg, rdma.OpRDMAWrite) }},
		{"cause and flushes", checkCauseAndFlushes},
		{"rights come and go", checkSetAccess},
		{"bytes behind a refused read", checkRefusedInOrder},
	}
}

// A fault is one way to ask for memory that is not ours to have.
type fault struct {
	name string
	// target prepares b and names the memory that a asks for, n bytes of it.
	target func(p *pair, r *region) (at rdma.RemoteAddr, n int)
}

const faultSize = 4096

func faults(op rdma.Opcode) []fault {
	right := rdma.AccessRemoteRead
	if op == rdma.OpRDMAWrite {
		right = rdma.AccessRemoteWrite
	}
	from := func(off uint64, n int) func(*pair, *region) (rdma.RemoteAddr, int) {
		return func(p *pair, r *region) (rdma.RemoteAddr, int) {
			return rdma.RemoteAddr{Addr: r.mr.Addr() + off, RKey: r.mr.RKey()}, n
		}
	}
	key := func(change func(uint32) uint32) func(*pair, *region) (rdma.RemoteAddr, int) {
		return func(p *pair, r *region) (rdma.RemoteAddr, int) {
			return rdma.RemoteAddr{Addr: r.mr.Addr(), RKey: change(r.mr.RKey())}, 64
		}
	}
	access := func(a func(all rdma.Access) rdma.Access) func(*pair, *region) (rdma.RemoteAddr, int) {
		return func(p *pair, r *region) (rdma.RemoteAddr, int) {
			p.b.check("SetAccess", p.qb.SetAccess(a(allRights(p.b))))
			return r.remote(0), 64
		}
	}
	return []fault{
		{"rkey one bit off", key(func(k uint32) uint32 { return k ^ 1 })},
		{"rkey high bit off", key(func(k uint32) uint32 { return k ^ 1<<31 })},
		{"rkey 0", key(func(uint32) uint32 { return 0 })},
		{"one byte beyond the end", from(faultSize-63, 64)},
		{"at the end", from(faultSize, 8)},
		{"far above", from(1<<40, 8)},
		{"below the start", from(^uint64(0)-7, 8)},
		{"across the start", from(^uint64(0)-7, 64)},
		{"address overflow", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			return rdma.RemoteAddr{Addr: ^uint64(0) - 3, RKey: r.mr.RKey()}, 64
		}},
		{"longer than the region", from(0, faultSize+1)},
		{"region without the right", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			other := p.b.region(64, rw(p.b)&^right|rdma.AccessLocalWrite)
			rkey := other.mr.RKey()
			if rkey == 0 {
				rkey = other.mr.LKey()
			}
			return rdma.RemoteAddr{Addr: other.mr.Addr(), RKey: rkey}, 64
		}},
		{"region without any right", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			other := p.b.region(64, rdma.AccessLocalWrite)
			return rdma.RemoteAddr{Addr: other.mr.Addr(), RKey: other.mr.LKey()}, 64
		}},
		{"region of another PD", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			pd, err := p.b.dev.AllocPD()
			p.b.check("AllocPD", err)
			p.b.closeLater("other PD", pd.Close)
			return p.b.regionIn(pd, 64, rw(p.b)).remote(0), 64
		}},
		{"region of another device", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			return p.a.region(64, rw(p.a)).remote(0), 64
		}},
		{"region that was closed", func(p *pair, r *region) (rdma.RemoteAddr, int) {
			gone := p.b.region(64, rw(p.b))
			at := gone.remote(0)
			p.b.check("MR.Close", gone.mr.Close())
			p.b.check("Free", gone.block.Free())
			return at, 64
		}},
		{"QP without access", access(func(rdma.Access) rdma.Access { return 0 })},
		{"QP without the right", access(func(all rdma.Access) rdma.Access { return all &^ right })},
		{"QP access revoked", access(func(all rdma.Access) rdma.Access { return all & rdma.AccessLocalWrite })},
	}
}

// checkProtection: every fault kills its connection with an access error at
// both ends, moves no byte, and harms no other connection.
func checkProtection(t *testing.T, cfg *Config, op rdma.Opcode) {
	bystander := newPair(t, cfg, pairOptions{})
	if op == rdma.OpRDMAWrite && !bystander.a.has(rdma.CapWrite) {
		return // "write" in ops has checked that it is refused
	}
	for _, f := range faults(op) {
		t.Run(f.name, func(t *testing.T) {
			// The devices are those of the bystander, because a fault must
			// concern one QP alone.
			p := newPair(t, cfg, pairOptions{connectionOnly: &pair{a: bystander.a.during(t), b: bystander.b.during(t)}})
			secret, local := p.b.region(faultSize, rw(p.b)), p.a.region(2*faultSize, rw(p.a))
			fill(secret.bytes(), 0x11)
			fill(local.bytes(), 0x22)
			wantB, wantA := bytes.Clone(secret.bytes()), bytes.Clone(local.bytes())
			at, n := f.target(p, secret)
			wr := rdma.SendWR{Op: op, Flags: rdma.SendSignaled, Remote: at, SGL: []rdma.SGE{local.sge(0, n)}}
			id := p.a.post(p.qa, wr)[0]
			if op == rdma.OpRDMARead {
				p.a.class(id, rdma.ErrAccess)
			} else {
				// A WRITE may complete before the peer has judged it: its
				// completion says only that the memory may be reused.
				p.a.wait(id)
			}
			p.a.expectDone(p.qa, rdma.ErrAccess)
			p.b.expectDone(p.qb, rdma.ErrAccess)
			p.a.check("QP.Close", p.qa.Close())
			p.b.check("QP.Close", p.qb.Close())
			expectBytes(t, "the memory that was asked for", secret.bytes(), wantB)
			expectBytes(t, "the memory that would have got it", local.bytes(), wantA)
		})
	}
	bystander.stillWorks()
}

// during lends an end to a subtest: what is made for it is closed with the
// subtest, and its failures are the subtest's.
func (e *end) during(t testing.TB) *end {
	lent := &end{t: t, cfg: e.cfg, name: e.name, fab: e.fab, dev: e.dev, pd: e.pd, cq: e.cq, attr: e.attr,
		posted: make(map[uint64]posting), got: make(map[uint64]rdma.WC), srq: make(map[uint64]struct{}), last: e.last + 1<<20}
	e.last = lent.last + 1<<20
	t.Cleanup(lent.balance)
	return lent
}

// checkCauseAndFlushes: in a batch with one bad READ, the requests before it
// succeed, it alone has the cause, and all requests behind it are flushed.
func checkCauseAndFlushes(t *testing.T, cfg *Config) {
	const before, behind = 5, 20
	p := newPair(t, cfg, pairOptions{})
	src, sink := p.b.region(4096, rdma.AccessRemoteRead), p.a.region(4096, rw(p.a))
	fill(src.bytes(), 7)
	var recvs []uint64
	for range 8 {
		recvs = append(recvs, p.a.recv(p.qa, sink.sge(0, 64)))
	}
	var wrs []rdma.SendWR
	for i := range before {
		wrs = append(wrs, read(sink, 64+i*8, src.remote(i*8), 8))
	}
	wrs = append(wrs, read(sink, 0, rdma.RemoteAddr{Addr: src.mr.Addr(), RKey: src.mr.RKey() ^ 5}, 8))
	for i := range behind {
		wr := read(sink, 0, src.remote(0), 8)
		if i%3 == 0 {
			wr = send(sink, 0, 8)
		}
		if i%2 == 0 {
			wr.Flags = 0 // unsignaled: a failure completes all the same
		}
		wrs = append(wrs, wr)
	}
	ids := p.a.post(p.qa, wrs...)
	p.a.expectDone(p.qa, rdma.ErrAccess)
	p.a.check("QP.Close", p.qa.Close())
	for i, id := range ids {
		switch {
		case i < before:
			p.a.ok(id)
		case i == before:
			p.a.class(id, rdma.ErrAccess)
		default:
			p.a.class(id, rdma.ErrFlushed)
		}
	}
	expectBytes(t, "what was read before", sink.bytes()[64:64+before*8], src.bytes()[:before*8])
	for _, id := range recvs {
		p.a.class(id, rdma.ErrFlushed)
	}
	p.b.expectDone(p.qb, rdma.ErrAccess)
}

// checkSetAccess: a QP starts without rights, a grant holds for the next READ,
// a revocation for every one after it.
func checkSetAccess(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{noAccess: true})
	if a := p.qb.Access(); a != 0 {
		t.Errorf("access %b from the start", a)
	}
	src, sink := p.b.region(64, rw(p.b)), p.a.region(64, rw(p.a))
	for range 50 {
		p.b.check("SetAccess", p.qb.SetAccess(rdma.AccessRemoteRead))
		if a := p.qb.Access(); a != rdma.AccessRemoteRead {
			t.Errorf("access %b after the grant", a)
		}
		p.a.ok(p.a.post(p.qa, read(sink, 0, src.remote(0), 64))[0])
		p.b.check("SetAccess", p.qb.SetAccess(0))
	}
	p.a.class(p.a.post(p.qa, read(sink, 0, src.remote(0), 64))[0], rdma.ErrAccess)

	// The program can also grant rights from the start, when it creates the QP.
	open := newPair(t, cfg, pairOptions{noAccess: true, b: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
	src, sink = open.b.region(64, rw(open.b)), open.a.region(64, rw(open.a))
	open.a.ok(open.a.post(open.qa, read(sink, 0, src.remote(0), 64))[0])
}

// checkRefusedInOrder: SENDs behind a refused READ never arrive: the peer acts
// on nothing that came after the breach.
func checkRefusedInOrder(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{noAccess: true})
	src, buf := p.b.region(64, rw(p.b)), p.a.region(64, rw(p.a))
	into := p.b.recv(p.qb, src.sge(0, 64))
	wrs := []rdma.SendWR{read(buf, 0, src.remote(0), 8), send(buf, 0, 8)}
	wrs[1].Flags = 0
	ids := p.a.post(p.qa, wrs...)
	p.a.class(ids[0], rdma.ErrAccess)
	p.b.class(into, rdma.ErrFlushed)
}
