package rdmatest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// checkSignaling: unsignaled work completes silently, and its room in the send
// queue comes back with the next signaled completion.
func checkSignaling(t *testing.T, cfg *Config) {
	const depth = 16
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth}}})
	src, sink := p.b.region(4096, rdma.AccessRemoteRead), p.a.region(4096, rw(p.a))
	for round := range 20 {
		fill(src.bytes(), byte(round))
		var wrs []rdma.SendWR
		for i := range depth {
			wr := read(sink, i*256, src.remote(i*256), 256)
			if i < depth-1 {
				wr.Flags = 0
			}
			wrs = append(wrs, wr)
		}
		ids := p.a.post(p.qa, wrs...)
		p.a.ok(ids[depth-1])
		expectBytes(t, "READs", sink.bytes(), src.bytes())
	}
}

func checkSignalAll(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{SignalAll: true}})
	p.a.signalAll = true
	src, sink := p.b.region(64, rdma.AccessRemoteRead), p.a.region(64, rw(p.a))
	silent := read(sink, 0, src.remote(0), 64)
	silent.Flags = 0
	p.a.ok(p.a.post(p.qa, silent)[0])
}

// checkOrder: send completions come in the order of posting, whatever the mix of
// requests is and however long the first takes.
func checkOrder(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const size = 1 << 20
	src, sink := p.b.region(size, rdma.AccessRemoteRead), p.a.region(size, rw(p.a))
	said, dst := p.a.region(64, 0), p.b.region(64, rdma.AccessLocalWrite) // apart from sink, which a READ may be writing
	var want []uint64
	for round := range 10 {
		for range 3 {
			p.b.recv(p.qb, dst.sge(0, 64))
		}
		wrs := []rdma.SendWR{
			read(sink, 0, src.remote(0), size>>(round%4*4)),
			send(said, 0, 32),
			read(sink, 8, src.remote(8), 8),
			send(said, 0, 0),
			send(said, 0, 64),
			read(sink, 0, src.remote(0), 100),
		}
		want = append(want, p.a.post(p.qa, wrs...)...)
	}
	p.a.ok(want[len(want)-1])
	for i, id := range want {
		if p.a.order[i] != id {
			t.Fatalf("completion %d is of %d, want %d", i, p.a.order[i], id)
		}
	}
}

func checkBatches(t *testing.T, cfg *Config) {
	const depth, rounds = 512, 8
	big := rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth, MaxRecvWR: depth}}
	p := newPair(t, cfg, pairOptions{a: big, b: big})
	src, sink := p.b.region(depth*8, rdma.AccessRemoteRead), p.a.region(depth*8, rw(p.a))
	dst := p.b.region(depth*8, rdma.AccessLocalWrite)
	for round := range rounds {
		fill(src.bytes(), byte(round))
		var reads, sends []rdma.SendWR
		var recvs []uint64
		for i := range depth {
			reads = append(reads, read(sink, i*8, src.remote(i*8), 8))
			recvs = append(recvs, p.b.recv(p.qb, dst.sge(i*8, 8)))
			sends = append(sends, send(sink, i*8, 8))
		}
		for _, id := range p.a.post(p.qa, reads...) {
			p.a.ok(id)
		}
		expectBytes(t, "batch of READs", sink.bytes(), src.bytes())
		for _, id := range p.a.post(p.qa, sends...) {
			p.a.ok(id)
		}
		for _, id := range recvs {
			p.b.ok(id)
		}
		expectBytes(t, "batch of SENDs", dst.bytes(), src.bytes())
	}
	if n, err := p.qa.PostSend(nil); n != 0 || err != nil {
		t.Errorf("an empty batch: %d, %v", n, err)
	}
}

func checkSolicited(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	buf := p.a.region(8, rdma.AccessLocalWrite)
	for _, solicited := range []bool{false, true} {
		id := p.b.recv(p.qb)
		wr := send(buf, 0, 0)
		if solicited {
			wr.Flags |= rdma.SendSolicited
		}
		p.a.ok(p.a.post(p.qa, wr)[0])
		// A completion of hardware does not tell whether the message was solicited.
		if got := p.b.ok(id).Flags&rdma.WCSolicited != 0; got != (solicited && !cfg.Hardware) {
			t.Errorf("solicited %v: completion says %v", solicited, got)
		}
	}
}

// checkUnsupported: the post refuses what the device cannot do, and the connection
// stays usable.
func checkUnsupported(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	r := p.a.region(64, rw(p.a))
	for _, c := range []struct {
		op   rdma.Opcode
		need rdma.Caps
	}{
		{rdma.OpAtomicCmpSwap, rdma.CapAtomics}, {rdma.OpAtomicFetchAdd, rdma.CapAtomics},
		{rdma.OpSendInv, rdma.CapInvalidate}, {rdma.OpLocalInv, rdma.CapInvalidate}, {rdma.OpBindWindow, rdma.CapWindows},
	} {
		if p.a.has(c.need) {
			continue // what it can do has checks of its own
		}
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: c.op, SGL: []rdma.SGE{r.sge(0, 8)}, Remote: r.remote(0)}})
		if n != 0 || !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("%v without the capability: %d, %v", c.op, n, err)
		}
	}
	for _, op := range []rdma.Opcode{0, rdma.OpRecv, 200} {
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: op}})
		if n != 0 || !isAny(err, rdma.ErrInvalid, rdma.ErrNotSupported) {
			t.Errorf("opcode %v: %d, %v", op, n, err)
		}
	}
	p.stillWorks()
}

// checkBadRequests: a request that is wrong in itself is refused at the post
// (ErrInvalid), or fails as a local error and ends its connection, as in hardware. It
// never touches memory that it may not touch.
func checkBadRequests(t *testing.T, cfg *Config) {
	const size = 256
	type request func(p *pair, src *region) rdma.SendWR
	sge := func(p *pair, r *region) func(off uint64, n uint32) rdma.SendWR {
		return func(off uint64, n uint32) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: r.mr, Off: off, Len: n}}}
		}
	}
	cases := []struct {
		name string
		make request
	}{
		{"SGE behind the end", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(size, 8) }},
		{"SGE across the end", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(size-4, 8) }},
		{"SGE offset overflows", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(^uint64(0)-3, 8) }},
		{"SGE without MR", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Len: 8}}}
		}},
		{"closed MR", func(p *pair, r *region) rdma.SendWR {
			gone := p.a.region(size, rdma.AccessLocalWrite)
			p.a.check("MR.Close", gone.mr.Close())
			return send(gone, 0, 8)
		}},
		{"MR of another PD", func(p *pair, r *region) rdma.SendWR {
			pd, err := p.a.dev.AllocPD()
			p.a.check("AllocPD", err)
			p.a.closeLater("other PD", pd.Close)
			return send(p.a.regionIn(pd, size, rdma.AccessLocalWrite), 0, 8)
		}},
		{"MR of another fabric", func(p *pair, r *region) rdma.SendWR {
			wr := send(r, 0, 8)
			wr.SGL[0].MR = foreignMR{r.mr}
			return wr
		}},
		{"READ sink without local write", func(p *pair, r *region) rdma.SendWR {
			return read(p.a.region(size, rdma.AccessRemoteRead), 0, r.remote(0), 8)
		}},
		{"too many SGEs", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled,
				SGL: slicesRepeat(r.sge(0, 1), p.a.attr.MaxSGE+1)}
		}},
		{"longer than a message may be", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled,
				SGL: []rdma.SGE{{MR: r.mr, Len: p.a.attr.MaxMsgSize}, {MR: r.mr, Len: p.a.attr.MaxMsgSize}}}
		}},
		{"inline and an SGL", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte{1}, SGL: []rdma.SGE{r.sge(0, 1)}}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, cfg, pairOptions{})
			src := p.a.region(size, rw(p.a))
			dst := p.b.region(1<<16, rdma.AccessLocalWrite)
			fill(dst.bytes(), 1)
			want := bytes.Clone(dst.bytes())
			p.b.recv(p.qb, dst.sge(0, 1<<16))
			wr := c.make(p, src)
			wr.ID = p.a.id()
			n, err := p.a.tryPost(p.qa, []rdma.SendWR{wr})
			if n == 0 {
				if !isAny(err, rdma.ErrInvalid, rdma.ErrLocal, rdma.ErrNotSupported) {
					t.Errorf("refused with %v", err)
				}
				select {
				case <-p.qa.Done():
					t.Errorf("the refusal took the QP with it: %v", p.qa.Err())
				default:
				}
			} else {
				p.a.class(wr.ID, rdma.ErrLocal)
				p.a.expectDone(p.qa, rdma.ErrLocal)
				p.b.expectDone(p.qb, rdma.ErrPeerGone, rdma.ErrProtocol, rdma.ErrLocal, rdma.ErrAccess)
			}
			expectBytes(t, "the peer's buffer", dst.bytes(), want)
		})
	}
	t.Run("before the connection", func(t *testing.T) {
		e := newEnd(t, cfg, "a")
		qp := e.qp(rdma.QPConfig{})
		buf := e.region(64, rdma.AccessLocalWrite)
		if n, err := e.tryPost(qp, []rdma.SendWR{send(buf, 0, 8)}); n != 0 || !errors.Is(err, rdma.ErrNotConnected) {
			t.Errorf("PostSend in state INIT: %d, %v", n, err)
		}
		if s := qp.State(); s != rdma.QPInit {
			t.Errorf("state %v, want INIT", s)
		}
		if qp.Err() != nil {
			t.Errorf("Err %v", qp.Err())
		}
	})
}

// A foreignMR is a region that no fabric has made: its methods answer as those of a
// real one do.
type foreignMR struct{ rdma.MR }

func slicesRepeat(s rdma.SGE, n int) []rdma.SGE {
	list := make([]rdma.SGE, n)
	for i := range list {
		list[i] = s
	}
	return list
}
