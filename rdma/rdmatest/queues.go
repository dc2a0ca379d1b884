package rdmatest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func queueChecks() []check {
	return []check{
		{"receiver not ready", checkRNR},
		{"receive too small", checkSmallReceive},
		{"receive without the right", checkReceiveRights},
		{"receives in order", checkReceiveOrder},
		{"send queue full", checkSendQueueFull},
		{"receive queue full", checkRecvQueueFull},
		{"shared receive queue", checkSRQ},
		{"flush on disconnect", checkFlush},
		{"post to a dead queue pair", checkPostToDead},
		{"flush of reads under way", checkFlushReads},
		{"flush of sends under way", checkFlushSends},
	}
}

// checkRNR: a SEND for which no receive is posted waits where the transport
// retries (CapRNR); else it ends the connection with that class at both ends.
func checkRNR(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	buf := p.a.region(64, rdma.AccessLocalWrite)
	dst := p.b.region(64, rdma.AccessLocalWrite)
	ids := p.a.post(p.qa, send(buf, 0, 64))
	if p.a.has(rdma.CapRNR) {
		into := p.b.recv(p.qb, dst.sge(0, 64))
		p.b.ok(into)
		p.a.ok(ids[0])
		return
	}
	p.a.wait(ids[0]) // may have succeeded: it proves nothing about delivery
	p.a.expectDone(p.qa, rdma.ErrReceiverNotReady)
	p.b.expectDone(p.qb, rdma.ErrReceiverNotReady)
}

// checkSmallReceive: a SEND longer than the receive it meets fails that
// receive, writes nothing behind it, and ends the connection.
func checkSmallReceive(t *testing.T, cfg *Config) {
	for _, n := range []int{65, 4096, 1 << 18} {
		p := newPair(t, cfg, pairOptions{})
		src, dst := p.a.region(n, rdma.AccessLocalWrite), p.b.region(1<<18, rdma.AccessLocalWrite)
		fill(src.bytes(), 1)
		fill(dst.bytes(), 2)
		want := bytes.Clone(dst.bytes())
		into := p.b.recv(p.qb, dst.sge(100, 30), dst.sge(200, 34))
		id := p.a.post(p.qa, send(src, 0, n))[0]
		p.b.class(into, rdma.ErrLocal)
		p.b.expectDone(p.qb, rdma.ErrLocal, rdma.ErrProtocol)
		p.a.wait(id)
		p.a.expectDone(p.qa, rdma.ErrProtocol, rdma.ErrAccess, rdma.ErrLocal, rdma.ErrPeerGone)
		got := dst.bytes()
		copy(got[100:130], want[100:130]) // inside the receive anything may stand
		copy(got[200:234], want[200:234])
		expectBytes(t, "around the receive", got, want)
	}
}

// checkReceiveRights: a receive into memory that may not be written is refused
// or fails as a local error.
func checkReceiveRights(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	buf := p.a.region(64, rdma.AccessLocalWrite)
	sealed := p.b.region(64, rdma.AccessRemoteRead)
	fill(sealed.bytes(), 3)
	want := bytes.Clone(sealed.bytes())
	into, err := p.b.tryRecv(p.qb, sealed.sge(0, 64))
	if err != nil {
		if !isAny(err, rdma.ErrInvalid, rdma.ErrLocal) {
			t.Errorf("PostRecv: %v", err)
		}
	} else {
		p.a.wait(p.a.post(p.qa, send(buf, 0, 64))[0])
		p.b.class(into, rdma.ErrLocal)
		p.b.expectDone(p.qb, rdma.ErrLocal)
	}
	expectBytes(t, "memory without local write", sealed.bytes(), want)
}

func checkReceiveOrder(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const n = 64
	src, dst := p.a.region(n*8, rdma.AccessLocalWrite), p.b.region(n*8, rdma.AccessLocalWrite)
	fill(src.bytes(), 5)
	var recvs []uint64
	var wrs []rdma.SendWR
	for i := range n {
		recvs = append(recvs, p.b.recv(p.qb, dst.sge(i*8, 8)))
		wr := send(src, i*8, 8)
		if i < n-1 {
			wr.Flags = 0
		}
		wrs = append(wrs, wr)
	}
	ids := p.a.post(p.qa, wrs...)
	p.a.ok(ids[n-1])
	p.b.ok(recvs[n-1])
	for i, id := range recvs {
		if p.b.order[i] != id {
			t.Fatalf("receive completion %d is of %d, want %d", i, p.b.order[i], id)
		}
	}
	expectBytes(t, "messages in order", dst.bytes(), src.bytes())
}

// checkSendQueueFull: a batch beyond the queue is taken in part, the error
// names the first that was not, and the taken ones complete.
func checkSendQueueFull(t *testing.T, cfg *Config) {
	const depth = 8
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth}}})
	src, sink := p.b.region(64, rdma.AccessRemoteRead), p.a.region(64, rw(p.a))
	for range 5 {
		var wrs []rdma.SendWR
		for range depth * 8 { // hardware rounds its queues up
			wrs = append(wrs, read(sink, 0, src.remote(0), 64))
		}
		n, err := p.a.tryPost(p.qa, wrs)
		if n < depth || n == len(wrs) || !errors.Is(err, rdma.ErrQueueFull) {
			t.Fatalf("%d of %d taken by a queue of %d: %v", n, len(wrs), depth, err)
		}
		for _, wr := range wrs[:n] {
			p.a.ok(wr.ID)
		}
	}
}

func checkRecvQueueFull(t *testing.T, cfg *Config) {
	const depth = 8
	p := newPair(t, cfg, pairOptions{b: rdma.QPConfig{Cap: rdma.QPCap{MaxRecvWR: depth}}})
	buf, dst := p.a.region(64, rdma.AccessLocalWrite), p.b.region(64, rdma.AccessLocalWrite)
	for range 3 {
		recvs := fillReceives(p.b, p.qb, dst, depth)
		for _, id := range recvs {
			p.a.ok(p.a.post(p.qa, send(buf, 0, 64))[0])
			p.b.ok(id)
		}
	}
	fillReceives(p.b, p.qb, dst, depth) // and these are flushed in the end
}

// fillReceives posts until the queue is full.
func fillReceives(e *end, q receiver, dst *region, depth int) (ids []uint64) {
	e.t.Helper()
	for len(ids) < depth*8 {
		id, err := e.tryRecv(q, dst.sge(0, 64))
		if errors.Is(err, rdma.ErrQueueFull) && len(ids) >= depth {
			return ids
		}
		e.check("PostRecv", err)
		ids = append(ids, id)
	}
	e.t.Fatalf("%s: a queue of %d took %d receives", e.name, depth, len(ids))
	return nil
}

// checkSRQ: two connections drink from one queue; it can run full and dry.
func checkSRQ(t *testing.T, cfg *Config) {
	probe := newEnd(t, cfg, "probe")
	if !probe.has(rdma.CapSRQ) {
		return // "arguments" has checked that it is refused
	}
	const depth = 32
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	srq, err := b.pd.CreateSRQ(depth)
	b.check("CreateSRQ", err)
	b.closeLater("SRQ", srq.Close)
	if srq.PD() != b.pd {
		t.Error("SRQ.PD is another PD")
	}
	src, dst := a.region(64, rdma.AccessLocalWrite), b.region(64*depth, rdma.AccessLocalWrite)
	base := &pair{a: a, b: b}
	p1 := newPair(t, cfg, pairOptions{connectionOnly: base, b: rdma.QPConfig{SRQ: srq}})
	p2 := newPair(t, cfg, pairOptions{connectionOnly: base, b: rdma.QPConfig{SRQ: srq}})
	if n, err := p1.qb.PostRecv([]rdma.RecvWR{{ID: 1}}); n != 0 || !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("PostRecv on a QP with an SRQ: %d, %v", n, err)
	}
	if err := srq.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("closing an SRQ with QPs: %v", err)
	}
	for round := range 4 {
		var recvs []uint64
		for i := range depth {
			recvs = append(recvs, b.recv(srq, dst.sge(i*64, 64)))
		}
		from := map[uint32]int{}
		for i := range depth {
			p := p1
			if (i+round)%3 == 0 {
				p = p2
			}
			a.ok(a.post(p.qa, send(src, 0, 1+i))[0])
		}
		total := 0
		for _, id := range recvs {
			wc := b.ok(id)
			from[wc.QPN]++
			total += int(wc.ByteLen)
		}
		if from[p1.qb.QPN()]+from[p2.qb.QPN()] != depth || from[p2.qb.QPN()] == 0 {
			t.Errorf("completions by QP: %v", from)
		}
		if want := depth * (depth + 1) / 2; total != want {
			t.Errorf("%d bytes received, want %d", total, want)
		}
	}
	// One connection dies: the shared receives stay for the other.
	id := b.recv(srq, dst.sge(0, 64))
	b.check("Disconnect", p1.qb.Disconnect())
	a.expectDone(p1.qa, rdma.ErrPeerGone)
	b.check("QP.Close", p1.qb.Close())
	a.ok(a.post(p2.qa, send(src, 0, 7))[0])
	if wc := b.ok(id); wc.ByteLen != 7 {
		t.Errorf("the shared receive got %+v", wc)
	}
	// Dry.
	if !a.has(rdma.CapRNR) {
		a.wait(a.post(p2.qa, send(src, 0, 7))[0])
		a.expectDone(p2.qa, rdma.ErrReceiverNotReady)
	}
	fillReceives(b, srq, dst, depth)
}

// checkFlush: Disconnect flushes every receive, in order; both ends learn of it
// and say which end it was.
func checkFlush(t *testing.T, cfg *Config) {
	for _, closer := range []string{"dialer", "acceptor"} {
		p := newPair(t, cfg, pairOptions{})
		if closer == "acceptor" {
			p.a, p.b, p.qa, p.qb = p.b, p.a, p.qb, p.qa
		}
		var mine, theirs []uint64
		dst, peer := p.a.region(64, rdma.AccessLocalWrite), p.b.region(64, rdma.AccessLocalWrite)
		for range 32 {
			mine = append(mine, p.a.recv(p.qa, dst.sge(0, 64)))
			theirs = append(theirs, p.b.recv(p.qb, peer.sge(0, 64)))
		}
		p.a.check("Disconnect", p.qa.Disconnect())
		p.a.check("Disconnect again", p.qa.Disconnect())
		p.a.expectDone(p.qa, rdma.ErrClosed)
		p.b.expectDone(p.qb, rdma.ErrPeerGone)
		for i := range mine {
			p.a.class(mine[i], rdma.ErrFlushed)
			p.b.class(theirs[i], rdma.ErrFlushed)
			if p.a.order[i] != mine[i] || p.b.order[i] != theirs[i] {
				t.Fatalf("%s: flush %d out of order", closer, i)
			}
		}
	}
}

// checkPostToDead: in state ERR a post is taken and flushed, until Close.
func checkPostToDead(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	buf := p.a.region(64, rw(p.a))
	p.a.check("Disconnect", p.qa.Disconnect())
	p.a.expectDone(p.qa, rdma.ErrClosed)
	for range 300 { // more than the queues hold at a time
		silent := send(buf, 0, 8)
		silent.Flags = 0
		for _, id := range p.a.post(p.qa, send(buf, 0, 8), silent, read(buf, 0, buf.remote(0), 8)) {
			p.a.class(id, rdma.ErrFlushed)
		}
		p.a.class(p.a.recv(p.qa, buf.sge(0, 8)), rdma.ErrFlushed)
	}
	if err := p.qa.SetAccess(rdma.AccessRemoteRead); err != nil && !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("SetAccess on a dead QP: %v", err)
	}
	p.a.check("Close", p.qa.Close())
	if n, err := p.qa.PostSend([]rdma.SendWR{send(buf, 0, 8)}); n != 0 || !isAny(err, rdma.ErrNotConnected, rdma.ErrClosed) {
		t.Errorf("PostSend after Close: %d, %v", n, err)
	}
	if n, err := p.qa.PostRecv([]rdma.RecvWR{{ID: 1, SGL: []rdma.SGE{buf.sge(0, 8)}}}); n != 0 || !isAny(err, rdma.ErrNotConnected, rdma.ErrClosed) {
		t.Errorf("PostRecv after Close: %d, %v", n, err)
	}
}
