package iwarp

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// The functions of this file put what comes off the wire where it goes. They
// run in the reader, without QP.Mu, while rx.busy is set. Each returns nil or
// the end of the connection.

// onSend places a segment of a SEND into a posted receive.
func (rx *receiver) onSend(s proto.Segment, payload, ulpdu []byte) *cause {
	q := rx.q
	if !q.Inbox.Receiving {
		switch {
		case s.MSN != rx.sendMSN+1:
			return violation(proto.CodeMSNRange, ulpdu)
		case s.MO != 0:
			return violation(proto.CodeMO, ulpdu)
		}
		if !q.RQ.Take(&q.Inbox.Recv) {
			return violation(proto.CodeNoBuffer, ulpdu)
		}
		rx.sendMSN++
		q.Inbox.Receiving, rx.recvOp, q.Inbox.Got = true, s.Op, 0
		if !q.Inbox.Recv.SGL.Check(&q.pd.PD, rdma.AccessLocalWrite) {
			return rx.badReceive(ulpdu)
		}
	} else {
		switch {
		case s.MSN != rx.sendMSN:
			return violation(proto.CodeMSNRange, ulpdu)
		case s.Op != rx.recvOp:
			return violation(proto.CodeOpcode, ulpdu)
		case s.MO != q.Inbox.Got:
			return violation(proto.CodeMO, ulpdu)
		}
	}
	if uint64(q.Inbox.Got)+uint64(len(payload)) > min(q.Inbox.Recv.SGL.Total(), soft.MaxMsgSize) {
		c := violation(proto.CodeTooLong, ulpdu)
		c.Recv = rdma.StatusLocLenErr
		return c
	}
	if !q.Inbox.Recv.SGL.Scatter(uint64(q.Inbox.Got), payload) {
		return rx.badReceive(ulpdu)
	}
	q.Inbox.Got += uint32(len(payload))
	if !s.Last {
		return nil
	}
	wc := rdma.WC{ID: q.Inbox.Recv.ID, Op: rdma.OpRecv, QPN: q.QPN(), ByteLen: q.Inbox.Got}
	if s.Op == proto.OpSendSE {
		wc.Flags = rdma.WCSolicited
	}
	q.Inbox.Receiving = false
	rx.buf.wcs = append(rx.buf.wcs, wc)
	if len(rx.buf.wcs) == rxBatchWCs {
		rx.pushReceives()
	}
	return nil
}

// badReceive is the end of a receive whose memory cannot be used: this end is
// at fault.
func (rx *receiver) badReceive(ulpdu []byte) *cause {
	c := violation(proto.CodeDDPCatastrophic, ulpdu)
	local := soft.BadReceive()
	c.Err, c.Recv = local.Err, local.Recv
	return c
}

// onReadRequest notes what the peer asks to read. Whether the peer may read it
// is decided now, so that nothing that follows a forbidden READ is acted upon,
// and again when the READ is served, so that rights taken back meanwhile count.
// The refusal itself has to wait: the READs before this one get their answers
// first.
func (rx *receiver) onReadRequest(s proto.Segment, payload, ulpdu []byte, first bool) *cause {
	if s.MSN != rx.readMSN+1 {
		return violation(proto.CodeMSNRange, ulpdu)
	}
	if s.MO != 0 {
		return violation(proto.CodeMO, ulpdu)
	}
	req, ok := proto.ParseReadRequest(payload)
	if !ok || !s.Last {
		return violation(proto.CodeUnspecified, ulpdu)
	}
	rx.readMSN++
	if len(rx.buf.reads) >= rx.q.IRD {
		// The queue would refuse it anyway; the check keeps one round from
		// growing.
		return violation(proto.CodeNoBuffer, ulpdu)
	}
	r := askedRead{ReadRequest: req, rtr: first && req.Size == 0}
	if _, r.bad = rx.q.resp.admit(&r); r.bad != 0 {
		rx.stopped = true
	}
	rx.buf.reads = append(rx.buf.reads, r)
	return nil
}

// onReadResponse places a segment of the response to the oldest READ. RFC 5040
// checks it as a tagged buffer; we also insist that it is the very response
// that was asked for: this buffer, in order, not a byte more, and the last
// segment where the last byte is.
func (rx *receiver) onReadResponse(s proto.Segment, payload, ulpdu []byte) *cause {
	w, ok := rx.q.req.ring.front()
	if !ok {
		return badResponse(proto.CodeOpcode, ulpdu)
	}
	var length, stag uint32
	var to uint64
	if w != nil {
		length = w.Length
		stag, to = sinkOf(w)
	}
	switch n := uint64(rx.readGot) + uint64(len(payload)); {
	case s.STag != stag:
		return badResponse(proto.CodeDDPInvalidSTag, ulpdu)
	case s.TO != to+uint64(rx.readGot), n > uint64(length), s.Last != (n == uint64(length)):
		return badResponse(proto.CodeDDPBounds, ulpdu)
	}
	if len(payload) > 0 && !w.SGL.Scatter(uint64(rx.readGot), payload) {
		return rx.lostSink(ulpdu)
	}
	rx.q.req.placed(uint32(len(payload)), s.Last)
	return nil
}

// badResponse is the end of the oldest READ when a response does not fit it.
func badResponse(code proto.Code, ulpdu []byte) *cause {
	c := violation(code, ulpdu)
	c.Send = rdma.StatusBadRespErr
	c.Err = fmt.Errorf("%w: a READ response that fits no READ: %v", rdma.ErrProtocol, code)
	return c
}

// onWrite places a segment of an RDMA WRITE. Every segment names its buffer, so
// none needs to know the one before. A WRITE of no bytes touches no memory:
// only the right on the QP counts, and for the RTR frame not even that.
func (rx *receiver) onWrite(s proto.Segment, payload, ulpdu []byte, first bool) *cause {
	q := rx.q
	if first && len(payload) == 0 {
		return nil
	}
	if q.Access()&rdma.AccessRemoteWrite == 0 {
		return violation(proto.CodeAccess, ulpdu)
	}
	if len(payload) == 0 {
		return nil
	}
	m := q.pd.dev.Regions.Get(s.STag)
	switch {
	case m == nil:
		return violation(proto.CodeDDPInvalidSTag, ulpdu)
	case m.Owner() != &q.pd.PD:
		return violation(proto.CodeDDPNotAssociated, ulpdu)
	case m.Access()&rdma.AccessRemoteWrite == 0:
		return violation(proto.CodeAccess, ulpdu)
	case s.TO+uint64(len(payload)) < s.TO:
		return violation(proto.CodeDDPTOWrap, ulpdu)
	case !m.Within(s.TO, uint32(len(payload))):
		return violation(proto.CodeDDPBounds, ulpdu)
	case !m.Acquire():
		return violation(proto.CodeDDPInvalidSTag, ulpdu)
	}
	copy(m.Bytes()[s.TO:], payload)
	m.Release()
	return nil
}
