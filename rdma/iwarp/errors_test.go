package iwarp

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// Every way in which a peer can break a rule, the Terminate it gets, and the
// class of error that the local program sees. Each case starts on a fresh
// connection whose rules are otherwise kept.

// A target is the end under attack, with memory of each kind.
type target struct {
	*end
	readable, writable, local, foreign rdma.MR
}

func newTarget(t testing.TB, access rdma.Access) *target {
	b := newEnd(t, New(Options{}), rdma.QPConfig{Access: access})
	x := &target{end: b}
	x.readable = b.mr(4096, rdma.AccessRemoteRead)
	x.writable = b.mr(4096, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	x.local = b.mr(4096, rdma.AccessLocalWrite)
	other, err := b.dev.AllocPD()
	check(t, err)
	x.foreign, err = other.RegMR(make([]byte, 4096), rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
	check(t, err)
	t.Cleanup(func() { check(t, x.foreign.Close()); check(t, other.Close()) })
	return x
}

func untagged(op proto.Opcode, last bool, qn, msn, mo uint32) []byte {
	return proto.AppendUntagged(nil, op, last, qn, msn, mo)
}

func tagged(op proto.Opcode, last bool, stag uint32, to uint64) []byte {
	return proto.AppendTagged(nil, op, last, stag, to)
}

func readReq(msn uint32, r proto.ReadRequest) []byte {
	return proto.AppendReadRequest(untagged(proto.OpReadRequest, true, proto.QueueRead, msn, 0), r)
}

// with returns a copy of b with one byte replaced.
func with(b []byte, i int, v byte) []byte {
	b = bytes.Clone(b)
	b[i] = v
	return b
}

func TestEveryReject(t *testing.T) {
	const all = rdma.AccessRemoteRead | rdma.AccessRemoteWrite
	type kase struct {
		name   string
		access rdma.Access
		recvs  int // receives of 64 bytes posted
		send   func(x *target) [][]byte
		want   proto.Code
		class  error
		recv   rdma.Status // of the first receive completion; 0: not looked at
		header int         // bytes of terminated headers expected
	}
	one := func(f func(x *target) []byte) func(x *target) [][]byte {
		return func(x *target) [][]byte { return [][]byte{f(x)} }
	}
	fixed := func(segs ...[]byte) func(x *target) [][]byte {
		return func(*target) [][]byte { return segs }
	}
	send1 := untagged(proto.OpSend, true, proto.QueueSend, 1, 0)
	const readHdr = proto.UntaggedLen + proto.ReadRequestLen
	cases := []kase{
		// Headers.
		{name: "empty segment", send: fixed(nil), want: proto.CodeUnspecified, class: rdma.ErrProtocol},
		{name: "one byte", send: fixed([]byte{0x41}), want: proto.CodeUnspecified, class: rdma.ErrProtocol},
		{name: "untagged header cut", send: fixed(send1[:proto.UntaggedLen-1]), want: proto.CodeUnspecified, class: rdma.ErrProtocol},
		{name: "tagged header cut", send: fixed(tagged(proto.OpWrite, true, 1, 0)[:proto.TaggedLen-1]), want: proto.CodeUnspecified, class: rdma.ErrProtocol},
		{name: "DDP version tagged", send: fixed(with(tagged(proto.OpWrite, true, 1, 0), 0, 0x80|0x40|2)), want: proto.CodeDDPTaggedVersion, class: rdma.ErrProtocol, header: proto.TaggedLen},
		{name: "DDP version untagged", send: fixed(with(send1, 0, 0x40)), want: proto.CodeDDPUntaggedVersion, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "RDMAP version", send: fixed(with(send1, 1, 2<<6|byte(proto.OpSend))), want: proto.CodeRDMAPVersion, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "unknown opcode", send: fixed(with(send1, 1, 1<<6|8)), want: proto.CodeOpcode, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "tagged SEND", send: fixed(tagged(proto.OpSend, true, 1, 0)), want: proto.CodeOpcode, class: rdma.ErrProtocol, header: proto.TaggedLen},
		{name: "untagged WRITE", send: fixed(untagged(proto.OpWrite, true, 0, 1, 0)), want: proto.CodeOpcode, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "queue 3", send: fixed(untagged(proto.OpSend, true, 3, 1, 0)), want: proto.CodeQueueNumber, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "SEND on queue 1", send: fixed(untagged(proto.OpSend, true, proto.QueueRead, 1, 0)), want: proto.CodeQueueNumber, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "READ on queue 0", send: fixed(proto.AppendReadRequest(untagged(proto.OpReadRequest, true, proto.QueueSend, 1, 0), proto.ReadRequest{})), want: proto.CodeQueueNumber, class: rdma.ErrProtocol, header: readHdr},
		{name: "invalidate", send: fixed(untagged(proto.OpSendInvalidate, true, proto.QueueSend, 1, 0)), want: proto.CodeCannotInvalidate, class: rdma.ErrAccess, header: proto.UntaggedLen},
		{name: "solicited invalidate", send: fixed(untagged(proto.OpSendSEInvalidate, true, proto.QueueSend, 1, 0)), want: proto.CodeCannotInvalidate, class: rdma.ErrAccess, header: proto.UntaggedLen},

		// SEND.
		{name: "no receive", send: fixed(send1), want: proto.CodeNoBuffer, class: rdma.ErrReceiverNotReady, header: proto.UntaggedLen},
		{name: "MSN gap", recvs: 1, send: fixed(untagged(proto.OpSend, true, proto.QueueSend, 2, 0)), want: proto.CodeMSNRange, class: rdma.ErrProtocol, recv: rdma.StatusWRFlushErr, header: proto.UntaggedLen},
		{name: "MSN repeated", recvs: 2, send: fixed(send1, send1), want: proto.CodeMSNRange, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "MSN zero", recvs: 1, send: fixed(untagged(proto.OpSend, true, proto.QueueSend, 0, 0)), want: proto.CodeMSNRange, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "MO not zero", recvs: 1, send: fixed(untagged(proto.OpSend, true, proto.QueueSend, 1, 4)), want: proto.CodeMO, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "MO gap", recvs: 1, send: fixed(append(untagged(proto.OpSend, false, proto.QueueSend, 1, 0), "abcd"...), untagged(proto.OpSend, true, proto.QueueSend, 1, 8)), want: proto.CodeMO, class: rdma.ErrProtocol, recv: rdma.StatusWRFlushErr, header: proto.UntaggedLen},
		{name: "other MSN inside a SEND", recvs: 2, send: fixed(append(untagged(proto.OpSend, false, proto.QueueSend, 1, 0), "abcd"...), untagged(proto.OpSend, true, proto.QueueSend, 2, 0)), want: proto.CodeMSNRange, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "other opcode inside a SEND", recvs: 2, send: fixed(append(untagged(proto.OpSend, false, proto.QueueSend, 1, 0), "abcd"...), untagged(proto.OpSendSE, true, proto.QueueSend, 1, 4)), want: proto.CodeOpcode, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "SEND too long", recvs: 1, send: fixed(append(bytes.Clone(send1), make([]byte, 65)...)), want: proto.CodeTooLong, class: rdma.ErrProtocol, recv: rdma.StatusLocLenErr, header: proto.UntaggedLen},
		{name: "SEND too long in pieces", recvs: 1, send: fixed(append(untagged(proto.OpSend, false, proto.QueueSend, 1, 0), make([]byte, 64)...), append(untagged(proto.OpSend, true, proto.QueueSend, 1, 64), 1)), want: proto.CodeTooLong, class: rdma.ErrProtocol, recv: rdma.StatusLocLenErr, header: proto.UntaggedLen},

		// READ requests.
		{name: "READ without QP right", send: one(func(x *target) []byte { return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey()}) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of nothing without QP right", send: fixed(readReq(1, proto.ReadRequest{})), want: proto.CodeAccess, class: rdma.ErrAccess, header: readHdr},
		{name: "READ with only the write right", access: rdma.AccessRemoteWrite, send: one(func(x *target) []byte { return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey()}) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of STag 0", access: all, send: fixed(readReq(1, proto.ReadRequest{Size: 8})), want: proto.CodeInvalidSTag, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of a guessed STag", access: all, send: one(func(x *target) []byte {
			return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey() ^ 1})
		}), want: proto.CodeInvalidSTag, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of another PD", access: all, send: one(func(x *target) []byte { return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.foreign.RKey()}) }), want: proto.CodeNotAssociated, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of a region without the right", access: all, send: one(func(x *target) []byte { return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.writable.RKey()}) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of a region by its lkey", access: all, send: one(func(x *target) []byte { return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.local.LKey()}) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: readHdr},
		{name: "READ one byte too far", access: all, send: one(func(x *target) []byte {
			return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey(), SourceTO: 4089})
		}), want: proto.CodeBounds, class: rdma.ErrAccess, header: readHdr},
		{name: "READ of 4 GiB", access: all, send: one(func(x *target) []byte {
			return readReq(1, proto.ReadRequest{Size: 1<<32 - 1, SourceSTag: x.readable.RKey()})
		}), want: proto.CodeBounds, class: rdma.ErrAccess, header: readHdr},
		{name: "READ far behind", access: all, send: one(func(x *target) []byte {
			return readReq(1, proto.ReadRequest{Size: 8, SourceSTag: x.readable.RKey(), SourceTO: 1 << 40})
		}), want: proto.CodeBounds, class: rdma.ErrAccess, header: readHdr},
		{name: "READ that wraps", access: all, send: one(func(x *target) []byte {
			return readReq(1, proto.ReadRequest{Size: 16, SourceSTag: x.readable.RKey(), SourceTO: 1<<64 - 8})
		}), want: proto.CodeTOWrap, class: rdma.ErrAccess, header: readHdr},
		{name: "READ MSN gap", access: all, send: fixed(readReq(3, proto.ReadRequest{})), want: proto.CodeMSNRange, class: rdma.ErrProtocol, header: readHdr},
		{name: "READ MO", access: all, send: fixed(proto.AppendReadRequest(untagged(proto.OpReadRequest, true, proto.QueueRead, 1, 1), proto.ReadRequest{})), want: proto.CodeMO, class: rdma.ErrProtocol, header: readHdr},
		{name: "READ not last", access: all, send: fixed(proto.AppendReadRequest(untagged(proto.OpReadRequest, false, proto.QueueRead, 1, 0), proto.ReadRequest{})), want: proto.CodeUnspecified, class: rdma.ErrProtocol, header: readHdr},
		{name: "READ cut", access: all, send: fixed(readReq(1, proto.ReadRequest{})[:readHdr-1]), want: proto.CodeUnspecified, class: rdma.ErrProtocol, header: proto.UntaggedLen},
		{name: "READ with a tail", access: all, send: fixed(append(readReq(1, proto.ReadRequest{}), 0)), want: proto.CodeUnspecified, class: rdma.ErrProtocol, header: readHdr},

		// WRITE.
		{name: "WRITE without QP right", send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.writable.RKey(), 0), 1) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "second WRITE of nothing without QP right", send: fixed(tagged(proto.OpWrite, true, 0, 0)), want: proto.CodeAccess, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE with only the read right", access: rdma.AccessRemoteRead, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.writable.RKey(), 0), 1) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE of a guessed STag", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.writable.RKey()^2, 0), 1) }), want: proto.CodeDDPInvalidSTag, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE to another PD", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.foreign.RKey(), 0), 1) }), want: proto.CodeDDPNotAssociated, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE to a readable region", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.readable.RKey(), 0), 1) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE to a local region", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.local.LKey(), 0), 1) }), want: proto.CodeAccess, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE one byte too far", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.writable.RKey(), 4095), 1, 2) }), want: proto.CodeDDPBounds, class: rdma.ErrAccess, header: proto.TaggedLen},
		{name: "WRITE that wraps", access: all, send: one(func(x *target) []byte { return append(tagged(proto.OpWrite, true, x.writable.RKey(), 1<<64-1), 1, 2) }), want: proto.CodeDDPTOWrap, class: rdma.ErrAccess, header: proto.TaggedLen},

		// These are READ responses that were never asked for.
		{name: "response without READ", send: one(func(x *target) []byte { return append(tagged(proto.OpReadResponse, true, x.local.LKey(), 0), 1) }), want: proto.CodeOpcode, class: rdma.ErrProtocol, header: proto.TaggedLen},
	}
	seen := map[proto.Code]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := newTarget(t, c.access)
			defer x.close()
			sink := x.mr(128, rdma.AccessLocalWrite)
			for i := range c.recvs {
				x.recv(rdma.RecvWR{ID: uint64(i), SGL: []rdma.SGE{{MR: sink, Len: 64}}})
			}
			p := dialRaw(t, x.end, plainRequest(), rtrWrite(true))
			for _, s := range c.send(x) {
				p.send(s)
			}
			got := p.terminated()
			if got.Code != c.want {
				t.Fatalf("Terminate %v, want %v", got.Code, c.want)
			}
			if len(got.Header) != c.header || got.HasLen != (c.header > 0) {
				t.Fatalf("Terminate carries %d bytes of headers, want %d", len(got.Header), c.header)
			}
			if c.header > 0 {
				last := c.send(x)[len(c.send(x))-1]
				if !bytes.Equal(got.Header, last[:c.header]) || int(got.SegLen) != len(last) {
					t.Fatalf("Terminate carries % x (segment of %d), sent was % x", got.Header, got.SegLen, last)
				}
			}
			x.dead(c.class)
			if c.recv != 0 {
				if wc := x.wait(1)[0]; wc.Status != c.recv || wc.ID != 0 {
					t.Fatalf("receive completed with %+v, want %v", wc, c.recv)
				}
			}
			if !bytes.Equal(x.writable.Bytes(), make([]byte, 4096)) || !bytes.Equal(x.local.Bytes(), make([]byte, 4096)) {
				t.Fatal("memory changed")
			}
			seen[c.want] = true
		})
	}
	for _, code := range []proto.Code{proto.CodeInvalidSTag, proto.CodeBounds, proto.CodeAccess, proto.CodeNotAssociated, proto.CodeTOWrap,
		proto.CodeRDMAPVersion, proto.CodeOpcode, proto.CodeCannotInvalidate, proto.CodeUnspecified, proto.CodeDDPInvalidSTag, proto.CodeDDPBounds,
		proto.CodeDDPNotAssociated, proto.CodeDDPTOWrap, proto.CodeDDPTaggedVersion, proto.CodeQueueNumber, proto.CodeNoBuffer, proto.CodeMSNRange,
		proto.CodeMO, proto.CodeTooLong, proto.CodeDDPUntaggedVersion} {
		if !seen[code] {
			t.Errorf("no case ends with %v", code)
		}
	}
}

// A CRC that does not fit is an error of MPA: no headers, they are not
// believed.
func TestRejectCRC(t *testing.T) {
	x := newTarget(t, 0)
	defer x.close()
	p := dialRaw(t, x.end, plainRequest(), rtrWrite(true))
	b := p.frame(untagged(proto.OpSend, true, proto.QueueSend, 1, 0))
	b[len(b)-1] ^= 1
	p.write(b)
	if got := p.terminated(); got.Code != proto.CodeCRC || got.HasLen {
		t.Fatalf("%+v", got)
	}
	x.dead(rdma.ErrProtocol)
}

// More READs than IRD: there is no buffer on queue 1 for the request.
func TestRejectBeyondIRD(t *testing.T) {
	x := newTarget(t, rdma.AccessRemoteRead)
	defer x.close()
	big := x.mr(8<<20, rdma.AccessRemoteRead)
	p := dialRaw(t, x.end, plainRequest(), rtrWrite(true)) // ORD 16, so IRD 16
	var all []byte
	for i := range uint32(40) {
		all = append(all, p.frame(readReq(i+1, proto.ReadRequest{SinkSTag: 1, Size: 8 << 20, SourceSTag: big.RKey()}))...)
	}
	p.write(all)
	got := p.terminated()
	if got.Code != proto.CodeNoBuffer || !got.HasRead {
		t.Fatalf("%+v", got)
	}
	x.dead(rdma.ErrReceiverNotReady)
}

// waitingReads connects a peer that asks for 16 READs of size bytes, as many as
// were agreed on, each in a round of its own, and takes no answer: responses that
// do not fit into the sockets wait.
func waitingReads(t *testing.T, size uint32) (x *target, p *rawPeer, ask func(msn uint32)) {
	x = newTarget(t, rdma.AccessRemoteRead)
	t.Cleanup(x.close)
	big := x.mr(int(size), rdma.AccessRemoteRead)
	p = dialRaw(t, x.end, plainRequest(), rtrWrite(true)) // ORD 16, so IRD 16
	ask = func(msn uint32) {
		p.send(readReq(msn, proto.ReadRequest{SinkSTag: 1, Size: size, SourceSTag: big.RKey()}))
	}
	for msn := range uint32(16) {
		ask(msn + 1)
		x.eventually("the READ is in the queue", func(q *qp) bool { return q.resp.msn == msn+1 })
	}
	return x, p, ask
}

// eventually waits for something that is so under QP.Mu.
func (x *target) eventually(what string, f func(q *qp) bool) {
	x.t.Helper()
	q := x.qp.(*qp)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		q.Mu.Lock()
		ok := f(q)
		q.Mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("not so: %s", what)
		}
	}
}

// One READ more than IRD, and it comes alone, long after the others: the bound is
// of all that wait, not of those that come together.
func TestRejectLaterBeyondIRD(t *testing.T) {
	x, p, ask := waitingReads(t, 32<<20)
	ask(17)
	x.eventually("the READ is queued or refused", func(q *qp) bool { return q.resp.msn == 17 || q.StateLocked() == rdma.QPError })
	select {
	case <-x.qp.Done():
	default:
		t.Fatal("17 READs of a peer wait, 16 were agreed on")
	}
	if got := p.terminated(); got.Code != proto.CodeNoBuffer || !got.HasRead {
		t.Fatalf("%+v", got)
	}
	x.dead(rdma.ErrReceiverNotReady)
}

// The right to READ is taken back while READs wait that were allowed when they
// came: none of those that have not begun is served.
func TestWaitingReadsAreRevoked(t *testing.T) {
	x, p, _ := waitingReads(t, 8<<20)
	check(t, x.qp.SetAccess(0))
	begun := 0
	x.eventually("the responses can be counted", func(q *qp) bool {
		if begun = 16 - q.resp.len(); q.resp.len() > 0 && q.resp.front().started {
			begun++
		}
		return true
	})
	if begun == 16 {
		t.Fatal("no READ waits: the sockets took them all")
	}
	for served := 0; ; {
		s, payload := p.must()
		switch {
		case s.Op == proto.OpReadResponse && s.Last:
			if served++; served > begun {
				t.Fatalf("%d READs were served, %d had begun when the right was taken back", served, begun)
			}
		case s.Op == proto.OpTerminate:
			if got, ok := proto.ParseTerminate(payload); !ok || got.Code != proto.CodeAccess {
				t.Fatalf("Terminate %+v", got)
			}
			_ = p.conn.Close() // else the other end waits for it, as long as it lingers
			x.dead(rdma.ErrAccess)
			return
		}
	}
}

// A responder that answers a READ wrongly.
func TestRejectResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		seg  func(r proto.ReadRequest) []byte
		want proto.Code
	}{
		{"other STag", func(r proto.ReadRequest) []byte {
			return append(tagged(proto.OpReadResponse, true, r.SinkSTag^1, r.SinkTO), make([]byte, 64)...)
		}, proto.CodeDDPInvalidSTag},
		{"other offset", func(r proto.ReadRequest) []byte {
			return append(tagged(proto.OpReadResponse, true, r.SinkSTag, r.SinkTO+8), make([]byte, 64)...)
		}, proto.CodeDDPBounds},
		{"too long", func(r proto.ReadRequest) []byte {
			return append(tagged(proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), make([]byte, 65)...)
		}, proto.CodeDDPBounds},
		{"too short", func(r proto.ReadRequest) []byte {
			return append(tagged(proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), make([]byte, 63)...)
		}, proto.CodeDDPBounds},
		{"not last", func(r proto.ReadRequest) []byte {
			return append(tagged(proto.OpReadResponse, false, r.SinkSTag, r.SinkTO), make([]byte, 64)...)
		}, proto.CodeDDPBounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newEnd(t, New(Options{}), rdma.QPConfig{})
			defer a.close()
			sink := a.mr(256, rdma.AccessLocalWrite)
			p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
			check(t, err)
			a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: sink, Off: 64, Len: 64}}},
				rdma.SendWR{ID: 2, Op: rdma.OpSend})
			p.must() // RTR
			_, body := p.must()
			r, _ := proto.ParseReadRequest(body)
			p.send(c.seg(r))
			if got := p.terminated(); got.Code != c.want || len(got.Header) != proto.TaggedLen {
				t.Fatalf("Terminate %v, want %v", got.Code, c.want)
			}
			a.dead(rdma.ErrProtocol)
			wcs := a.wait(1)
			if wcs[0].ID != 1 || wcs[0].Status != rdma.StatusBadRespErr {
				t.Fatalf("%+v", wcs)
			}
			if !bytes.Equal(sink.Bytes(), make([]byte, 256)) {
				t.Fatal("a bad response was placed")
			}
		})
	}
}

// What a peer's Terminate does to the oldest request.
func TestTerminateReceived(t *testing.T) {
	known := 0
	for code := proto.Code(1 << 16); code < 1<<17; code++ {
		_, text, _ := strings.Cut(code.String(), " ")
		if text == "(unknown)" {
			continue
		}
		known++
		t.Run(text, func(t *testing.T) {
			a := newEnd(t, New(Options{}), rdma.QPConfig{})
			defer a.close()
			sink := a.mr(64, rdma.AccessLocalWrite)
			p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
			check(t, err)
			for i := range uint64(3) {
				a.send(rdma.SendWR{ID: i, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: sink, Len: 64}}})
			}
			for range 4 {
				p.must()
			}
			p.write(proto.AppendTerminate(nil, &proto.Terminate{Code: code}, p.crc))
			a.dead(code.Class())
			wcs := a.wait(3)
			if wcs[0].ID != 0 || wcs[0].Status != code.Status() || wcs[1].Status != rdma.StatusWRFlushErr || wcs[2].Status != rdma.StatusWRFlushErr {
				t.Fatalf("%+v", wcs)
			}
			// No Terminate in answer to one.
			if u, err := p.next(); err == nil {
				t.Fatalf("answered with % x", u)
			}
			_ = p.conn.Close()
		})
	}
	if known < 31 {
		t.Errorf("%d codes have words", known)
	}
}

// A peer that never stops talking after its Terminate is hung up on.
func TestLingerEnds(t *testing.T) {
	x := newTarget(t, 0)
	p := dialRaw(t, x.end, plainRequest(), rtrWrite(true))
	p.send(untagged(proto.OpSend, true, proto.QueueSend, 1, 0)) // no receive
	x.dead(rdma.ErrReceiverNotReady)
	flood := make([]byte, 64<<10)
	for {
		if _, err := p.conn.Write(flood); err != nil {
			break // reset: the other end has closed
		}
	}
	x.close()
}

// TestNoWriterBehindTheReader: a transmitter that is in the middle of a write
// while the connection dies and its reader ends leaves no goroutine behind:
// Close does not wait for one that starts after it.
func TestNoWriterBehindTheReader(t *testing.T) {
	a := newEnd(t, New(Options{}), rdma.QPConfig{})
	defer a.close()
	p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
	check(t, err)
	q := a.qp.(*qp)
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			q.Mu.Lock()
			ok := done()
			q.Mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("still not so: %s", what)
			}
		}
	}
	until("the RTR frame is out", func() bool { return !q.tx.busy })
	q.Mu.Lock()
	q.tx.busy = true // as if in a system call, with more than it may write at once
	q.tx.buf = &txBuffer{b: make([]byte, 2*txInlineBudget)}
	q.Mu.Unlock()
	check(t, p.conn.(*net.TCPConn).CloseWrite())
	until("the reader has ended", func() bool { return q.rx.gone })
	q.Mu.Lock()
	q.tx.transmit()
	if q.tx.busy || q.tx.buf != nil {
		t.Error("a writer carries on")
	}
	q.Mu.Unlock()
}
