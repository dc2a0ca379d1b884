package iwarp

import (
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// An askedRead is a READ request of the peer, with what was noted when it came.
type askedRead struct {
	proto.ReadRequest
	rtr bool       // the zero-length READ that opened the connection
	bad proto.Code // refused when it came; answered in its turn
}

// A response is a READ request of the peer that waits to be answered, or is
// being answered. Responses are made when there is room in the socket, never
// before: 28 bytes may ask for 4 GiB.
type response struct {
	askedRead
	msn     uint32
	sent    uint32   // bytes framed
	started bool     // checked and allowed
	mr      *soft.MR // the source once started
}

// A responder answers the peer's READs: a ring of at most IRD responses. QP.Mu guards
// it.
type responder struct {
	q          *qp
	ring       []response // length a power of two
	head, tail uint64
	msn        uint32 // of the last request queued
}

func (r *responder) len() int { return int(r.tail - r.head) }

// ready reports whether there is a response to frame. An acceptor may not even answer
// before the first FPDU, but that FPDU brings the request, so ready need not look at
// tx.silent.
func (resp *responder) ready() bool { return resp.len() > 0 }

func (r *responder) front() *response { return &r.ring[r.head&uint64(len(r.ring)-1)] }

// put appends a READ request, and grows the ring if it is full. QP.Mu is held.
func (r *responder) put(req askedRead) {
	if r.len() == len(r.ring) {
		old := r.ring
		r.ring = make([]response, max(4, 2*len(old)))
		for i := r.head; i != r.tail; i++ {
			r.ring[i&uint64(len(r.ring)-1)] = old[i&uint64(len(old)-1)]
		}
	}
	r.msn++
	r.ring[r.tail&uint64(len(r.ring)-1)] = response{askedRead: req, msn: r.msn}
	r.tail++
}

func (r *responder) pop() {
	*r.front() = response{}
	r.head++
}

// queue takes over the READ requests of this round, up to IRD. The caller holds Mu.
func (resp *responder) queue() *cause {
	for _, r := range resp.q.rx.buf.reads {
		if resp.len() >= resp.q.IRD {
			ulpdu := proto.AppendUntagged(nil, proto.OpReadRequest, true, proto.QueueRead, resp.msn+1, 0)
			return violation(proto.CodeNoBuffer, proto.AppendReadRequest(ulpdu, r.ReadRequest))
		}
		resp.put(r)
	}
	return nil
}

// admit decides whether the peer may read what it asks for: the right on the QP at
// this moment, the STag, its PD, its right, and bounds in 64 bits without overflow. A
// READ of nothing touches no memory, so admit does not look at its STag (RFC 5040
// section 5.2), but the right on the QP counts, except for the RTR frame: it opens
// the connection, when no right can have been given.
func (resp *responder) admit(r *askedRead) (*soft.MR, proto.Code) {
	q := resp.q
	if r.rtr {
		return nil, 0
	}
	if q.Access()&rdma.AccessRemoteRead == 0 {
		return nil, proto.CodeAccess
	}
	if r.Size == 0 {
		return nil, 0
	}
	m := q.pd.dev.Regions.Get(r.SourceSTag)
	switch {
	case m == nil:
		return nil, proto.CodeInvalidSTag
	case m.Owner() != &q.pd.PD:
		return nil, proto.CodeNotAssociated
	case m.Access()&rdma.AccessRemoteRead == 0:
		return nil, proto.CodeAccess
	case r.SourceTO+uint64(r.Size) < r.SourceTO:
		return nil, proto.CodeTOWrap
	case !m.Within(r.SourceTO, r.Size):
		return nil, proto.CodeBounds
	}
	return m, 0
}

// frame appends the next segment of the oldest response to tb. The caller holds
// QP.Mu, which frame may release meanwhile. It returns false if the QP has failed.
func (resp *responder) frame(tb *txBuffer) bool {
	q := resp.q
	r := resp.front()
	if !r.started {
		bad := r.bad
		if bad == 0 {
			r.mr, bad = resp.admit(&r.askedRead)
		}
		if bad != 0 {
			resp.refuse(r, bad)
			return false
		}
		r.started = true
	}
	n := min(r.Size-r.sent, uint32(q.wire.maxPayload))
	last := r.sent+n == r.Size
	if n > 0 && !r.mr.Acquire() {
		resp.refuse(r, proto.CodeInvalidSTag)
		return false
	}
	now := *r
	switch {
	case n >= gatherMin && q.wire.bare():
		if !tb.appendReadAround(&now, n, last) {
			now.mr.Release()
		}
	case n >= copyUnlocked:
		q.tx.framing = true
		q.Mu.Unlock()
		tb.b = appendReadResponse(tb.b, &now, n, last, q.wire.crc)
		now.mr.Release()
		q.Mu.Lock()
		q.tx.framing = false
	default:
		tb.b = appendReadResponse(tb.b, &now, n, last, q.wire.crc)
		if n > 0 {
			now.mr.Release()
		}
	}
	if q.StateLocked() == rdma.QPError {
		return false
	}
	// The reader may have put more responses meanwhile and grown the ring.
	r = resp.front()
	r.sent += n
	if last {
		resp.pop()
	}
	return true
}

// appendReadResponse frames n bytes of r's source. The source is copied once: words
// are loaded from the region into the buffer, and the CRC is computed over the buffer
// that goes out. If it were computed over the region, a writer could change the
// region in between, and the CRC would not fit what is sent.
func appendReadResponse(dst []byte, r *response, n uint32, last, crc bool) []byte {
	dst, start := proto.BeginFPDU(dst)
	dst = proto.AppendTagged(dst, proto.OpReadResponse, last, r.SinkSTag, r.SinkTO+uint64(r.sent))
	from := r.SourceTO + uint64(r.sent)
	at := len(dst)
	dst = dst[:at+int(n)]
	if n > 0 {
		mem.Copy(dst[at:], r.mr.Bytes(), from)
	}
	return proto.EndFPDU(dst, start, crc)
}

// refuse ends the connection because of a READ request.
func (resp *responder) refuse(r *response, code proto.Code) {
	ulpdu := proto.AppendUntagged(nil, proto.OpReadRequest, true, proto.QueueRead, r.msn, 0)
	ulpdu = proto.AppendReadRequest(ulpdu, r.ReadRequest)
	resp.q.failLocked(violation(code, ulpdu))
}
