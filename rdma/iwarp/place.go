package iwarp

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// What comes off the wire and where it goes. These run in the reader, without
// QP.mu, while rxBusy is set. Each returns nil or the end of the connection.

// onSend places a segment of a SEND into a posted receive.
func (q *qp) onSend(s segment, payload, ulpdu []byte) *cause {
	rx := &q.rx
	if !rx.receiving {
		switch {
		case s.msn != rx.sendMSN+1:
			return violation(termMSNRange, ulpdu)
		case s.mo != 0:
			return violation(termMO, ulpdu)
		}
		if !q.rq.take(&rx.recv) {
			return violation(termNoBuffer, ulpdu)
		}
		rx.sendMSN++
		rx.receiving, rx.recvOp, rx.recvGot = true, s.op, 0
		if !rx.recv.sgl.check(q.pd, rdma.AccessLocalWrite) {
			return q.badReceive(ulpdu)
		}
	} else {
		switch {
		case s.msn != rx.sendMSN:
			return violation(termMSNRange, ulpdu)
		case s.op != rx.recvOp:
			return violation(termOpcode, ulpdu)
		case s.mo != rx.recvGot:
			return violation(termMO, ulpdu)
		}
	}
	if uint64(rx.recvGot)+uint64(len(payload)) > min(rx.recv.sgl.total, maxMsgSize) {
		c := violation(termTooLong, ulpdu)
		c.recv = rdma.StatusLocLenErr
		return c
	}
	if !rx.recv.sgl.scatter(uint64(rx.recvGot), payload) {
		return q.badReceive(ulpdu)
	}
	rx.recvGot += uint32(len(payload))
	if !s.last {
		return nil
	}
	wc := rdma.WC{ID: rx.recv.id, Op: rdma.OpRecv, QPN: q.num, ByteLen: rx.recvGot}
	if s.op == opSendSE {
		wc.Flags = rdma.WCSolicited
	}
	rx.receiving = false
	rx.buf.wcs = append(rx.buf.wcs, wc)
	if len(rx.buf.wcs) == rxBatchWCs {
		q.pushReceives()
	}
	return nil
}

// badReceive is a receive whose memory cannot be used: our own fault.
func (q *qp) badReceive(ulpdu []byte) *cause {
	c := violation(termDDPCatastrophic, ulpdu)
	c.err = fmt.Errorf("%w: a posted receive names memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal)
	c.recv = rdma.StatusLocProtErr
	return c
}

// onReadRequest notes what the peer wants to read. Whether it may is decided
// now, so that nothing that follows a forbidden READ is acted upon, and again
// when it is served, so that rights taken back meanwhile count. The refusal
// itself has to wait: the READs before this one get their answers first.
func (q *qp) onReadRequest(s segment, payload, ulpdu []byte, first bool) *cause {
	rx := &q.rx
	if s.msn != rx.readMSN+1 {
		return violation(termMSNRange, ulpdu)
	}
	if s.mo != 0 {
		return violation(termMO, ulpdu)
	}
	r, ok := parseReadRequest(payload)
	if !ok || !s.last {
		return violation(termUnspecified, ulpdu)
	}
	rx.readMSN++
	if len(rx.buf.reads) >= q.ird {
		// The queue would refuse it anyway; do not let one round grow.
		return violation(termNoBuffer, ulpdu)
	}
	r.rtr = first && r.size == 0
	if _, r.bad = q.admit(&r); r.bad != 0 {
		rx.stopped = true
	}
	rx.buf.reads = append(rx.buf.reads, r)
	return nil
}

// onReadResponse places a segment of the response to the oldest READ. RFC 5040
// checks it as a tagged buffer; we also insist that it is the very response
// that was asked for: this buffer, in order, not a byte more, and the last
// segment where the last byte is.
func (q *qp) onReadResponse(s segment, payload, ulpdu []byte) *cause {
	rx := &q.rx
	w, ok := q.orq.front()
	if !ok {
		return badResponse(termOpcode, ulpdu)
	}
	var length, stag uint32
	var to uint64
	if w != nil {
		length = w.length
		stag, to = w.sink()
	}
	switch n := uint64(rx.readGot) + uint64(len(payload)); {
	case s.stag != stag:
		return badResponse(termDDPInvalidSTag, ulpdu)
	case s.to != to+uint64(rx.readGot), n > uint64(length), s.last != (n == uint64(length)):
		return badResponse(termDDPBounds, ulpdu)
	}
	if len(payload) > 0 && !w.sgl.scatter(uint64(rx.readGot), payload) {
		return q.lostSink(ulpdu)
	}
	q.placed(uint32(len(payload)), s.last)
	return nil
}

// badResponse is a response that does not fit the READ: the oldest request
// says so.
func badResponse(code termCode, ulpdu []byte) *cause {
	c := violation(code, ulpdu)
	c.status = rdma.StatusBadRespErr
	c.err = fmt.Errorf("%w: a READ response that fits no READ: %v", rdma.ErrProtocol, code)
	return c
}

// onWrite places a segment of an RDMA WRITE. Every segment names its buffer, so
// none needs to know the one before. One of no bytes touches no memory: only
// the right on the QP counts, and for the RTR frame not even that.
func (q *qp) onWrite(s segment, payload, ulpdu []byte, first bool) *cause {
	if first && len(payload) == 0 {
		return nil
	}
	if rdma.Access(q.access.Load())&rdma.AccessRemoteWrite == 0 {
		return violation(termAccess, ulpdu)
	}
	if len(payload) == 0 {
		return nil
	}
	m := q.pd.dev.mrs.get(s.stag)
	switch {
	case m == nil:
		return violation(termDDPInvalidSTag, ulpdu)
	case m.pd != q.pd:
		return violation(termDDPNotAssociated, ulpdu)
	case m.access&rdma.AccessRemoteWrite == 0:
		return violation(termAccess, ulpdu)
	case s.to+uint64(len(payload)) < s.to:
		return violation(termDDPTOWrap, ulpdu)
	case !m.within(s.to, uint32(len(payload))):
		return violation(termDDPBounds, ulpdu)
	case !m.acquire():
		return violation(termDDPInvalidSTag, ulpdu)
	}
	copy(m.buf[s.to:], payload)
	m.release()
	return nil
}
