package iwarp

import (
	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// A response is a READ request of the peer that waits to be answered, or is
// being answered. Responses are made when there is room in the socket, never
// before: 28 bytes may ask for 4 GiB.
type response struct {
	readRequest
	msn     uint32
	sent    uint32 // bytes framed
	started bool   // checked and allowed
	mr      *mr    // the source once started
}

// A responseQueue is a ring of at most IRD responses. Under QP.mu.
type responseQueue struct {
	ring       []response // length a power of two
	head, tail uint64
	msn        uint32 // of the last request queued
}

func (r *responseQueue) len() int { return int(r.tail - r.head) }

func (r *responseQueue) front() *response { return &r.ring[r.head&uint64(len(r.ring)-1)] }

func (r *responseQueue) put(req readRequest) {
	if r.len() == len(r.ring) {
		old := r.ring
		r.ring = make([]response, max(4, 2*len(old)))
		for i := r.head; i != r.tail; i++ {
			r.ring[i&uint64(len(r.ring)-1)] = old[i&uint64(len(old)-1)]
		}
	}
	r.msn++
	r.ring[r.tail&uint64(len(r.ring)-1)] = response{readRequest: req, msn: r.msn}
	r.tail++
}

func (r *responseQueue) pop() {
	*r.front() = response{}
	r.head++
}

// admit decides whether the peer may read what it asks for: the
// right on the QP at this moment, the STag, its PD, its right, and bounds in
// 64 bits without overflow. A READ of nothing touches no memory, so its STag
// is not looked at (RFC 5040 section 5.2), but the right on the QP is, except
// for the RTR frame: it opens the connection, when no right can have been given.
func (q *qp) admit(r *readRequest) (*mr, termCode) {
	if r.rtr {
		return nil, 0
	}
	if rdma.Access(q.access.Load())&rdma.AccessRemoteRead == 0 {
		return nil, termAccess
	}
	if r.size == 0 {
		return nil, 0
	}
	m := q.pd.dev.mrs.get(r.srcSTag)
	switch {
	case m == nil:
		return nil, termInvalidSTag
	case m.pd != q.pd:
		return nil, termNotAssociated
	case m.access&rdma.AccessRemoteRead == 0:
		return nil, termAccess
	case r.srcTO+uint64(r.size) < r.srcTO:
		return nil, termTOWrap
	case !m.within(r.srcTO, r.size):
		return nil, termBounds
	}
	return m, 0
}

// frameResponse appends the next segment of the oldest response to tb. Called
// under QP.mu, which it may let go of meanwhile. False: the QP has failed.
func (q *qp) frameResponse(tb *txBuffer) bool {
	r := q.resp.front()
	if !r.started {
		bad := r.bad
		if bad == 0 {
			r.mr, bad = q.admit(&r.readRequest)
			if bad == termAccess && teeth.Off(teeth.D6RightsWhenServed) { // it had them when it arrived
				r.mr, bad = q.pd.dev.mrs.get(r.srcSTag), 0
			}
		}
		if bad != 0 {
			q.refuse(r, bad)
			return false
		}
		r.started = true
	}
	n := min(r.size-r.sent, uint32(q.maxPayload))
	last := r.sent+n == r.size
	if n > 0 && !r.mr.acquire() {
		q.refuse(r, termInvalidSTag)
		return false
	}
	resp := *r
	if n >= copyUnlocked {
		q.txFraming = true
		q.mu.Unlock()
	}
	tb.b = appendReadResponse(tb.b, &resp, n, last, q.crc)
	if n >= copyUnlocked {
		q.mu.Lock()
		q.txFraming = false
	}
	if n > 0 {
		resp.mr.release()
	}
	if q.state == rdma.QPError {
		return false
	}
	// The reader may have put more responses meanwhile and grown the ring.
	r = q.resp.front()
	r.sent += n
	if last {
		q.resp.pop()
	}
	return true
}

// appendReadResponse frames n bytes of r's source. The rule is to copy once:
// words are loaded from the region into the buffer, and the CRC is computed
// over the buffer that goes out. Computed over the region, it would not fit
// what is sent once a writer got between the two.
func appendReadResponse(dst []byte, r *response, n uint32, last, crc bool) []byte {
	dst, start := beginFPDU(dst)
	dst = appendTagged(dst, opReadResp, last, r.sinkSTag, r.sinkTO+uint64(r.sent))
	from := r.srcTO + uint64(r.sent)
	at := len(dst)
	dst = dst[:at+int(n)]
	if n > 0 {
		copyRegion(dst[at:], r.mr.buf, from)
	}
	dst = endFPDU(dst, start, crc)
	if teeth.Off(teeth.F15CopyOnce) && n > 0 {
		teeth.At("iwarp.copy-twice", from, uint64(n))
		copy(dst[at:at+int(n)], r.mr.buf[from:]) // the wrong way: a second look at the region
	}
	return dst
}

// copyRegion copies len(dst) bytes from off of a region that others may be
// writing. Whole aligned words are loaded once each, atomically. The store
// posts READs of whole words only; other lengths and offsets are legal too, and
// their ragged edges come out of the word around them.
func copyRegion(dst, region []byte, off uint64) {
	if skew := wordSkew(region, off); skew != 0 {
		n := min(8-skew, uint64(len(dst)))
		copyEdge(dst[:n], region, off)
		dst, off = dst[n:], off+n
	}
	body := uint64(len(dst)) &^ 7
	memory.LoadWords(dst, region[off:off+body])
	if tail := dst[body:]; len(tail) > 0 {
		copyEdge(tail, region, off+body)
	}
}

// copyEdge copies a part of one aligned word: out of a single load of it, or
// byte by byte where the region does not hold the whole word.
func copyEdge(dst, region []byte, off uint64) {
	skew := wordSkew(region, off)
	if off < skew || off-skew+8 > uint64(len(region)) {
		copy(dst, region[off:])
		return
	}
	var w [8]byte
	memory.LoadWords(w[:], region[off-skew:off-skew+8])
	copy(dst, w[skew:])
}

// refuse ends the connection because of a READ request.
func (q *qp) refuse(r *response, code termCode) {
	ulpdu := appendUntagged(nil, opReadReq, true, queueRead, r.msn, 0)
	ulpdu = appendReadRequest(ulpdu, r.readRequest)
	q.failLocked(*violation(code, ulpdu))
}
