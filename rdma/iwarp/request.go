package iwarp

import "github.com/rdmakv/rdmakv/rdma"

// How requests of the program become segments. All of these run in the
// transmitter, under QP.mu except where they say otherwise.

// frameRTR appends the frame that opens a peer-to-peer connection.
func (q *qp) frameRTR(tb *txBuffer) {
	dst, start := beginFPDU(tb.b)
	switch q.tx.rtr {
	case RTRWrite:
		dst = appendTagged(dst, opWrite, true, 0, 0)
	case RTRRead:
		q.tx.readMSN++
		dst = appendUntagged(dst, opReadReq, true, queueRead, q.tx.readMSN, 0)
		dst = appendReadRequest(dst, readRequest{})
		q.reads++
		q.orq.push(nil)
	}
	tb.b = endFPDU(dst, start, q.crc)
	q.tx.rtr = 0
}

// frameRequest appends the next segment of the next request.
func (q *qp) frameRequest(tb *txBuffer) bool {
	w := q.sq.at(q.sq.next)
	if w.op == rdma.OpRDMARead {
		return q.frameRead(tb, w)
	}
	if w.sent == 0 && w.inline == nil && !w.sgl.check(q.pd, 0) {
		q.failLocked(localFault(w.op))
		return false
	}
	n := min(w.length-w.sent, uint32(q.maxPayload))
	if w.op == rdma.OpSend && w.sent == 0 {
		q.tx.sendMSN++
	}
	if n >= copyUnlocked {
		q.txFraming = true
		q.mu.Unlock()
	}
	ok := q.appendData(tb, w, n)
	if n >= copyUnlocked {
		q.mu.Lock()
		q.txFraming = false
		if q.state == rdma.QPError {
			return false
		}
	}
	if !ok {
		q.failLocked(localFault(w.op))
		return false
	}
	w.sent += n
	if w.sent == w.length {
		w.done = true
		q.sq.next++
	}
	return true
}

// appendData frames n bytes of a SEND or WRITE. Touches the program's memory;
// runs with or without mu.
func (q *qp) appendData(tb *txBuffer, w *sendWQE, n uint32) bool {
	dst, start := beginFPDU(tb.b)
	last := w.sent+n == w.length
	if w.op == rdma.OpSend {
		op := opSend
		if w.solicit {
			op = opSendSE
		}
		dst = appendUntagged(dst, op, last, queueSend, q.tx.sendMSN, w.sent)
	} else {
		dst = appendTagged(dst, opWrite, last, w.remote.RKey, w.remote.Addr+uint64(w.sent))
	}
	ok := true
	if w.inline != nil {
		dst = append(dst, w.inline[w.sent:w.sent+n]...)
	} else {
		dst, ok = w.sgl.gather(dst, uint64(w.sent), int(n))
	}
	tb.b = endFPDU(dst, start, q.crc)
	return ok
}

// frameRead appends a READ request and remembers what to expect.
func (q *qp) frameRead(tb *txBuffer, w *sendWQE) bool {
	if !w.sgl.check(q.pd, rdma.AccessLocalWrite) {
		q.failLocked(localFault(w.op))
		return false
	}
	stag, to := w.sink()
	q.tx.readMSN++
	dst, start := beginFPDU(tb.b)
	dst = appendUntagged(dst, opReadReq, true, queueRead, q.tx.readMSN, 0)
	dst = appendReadRequest(dst, readRequest{
		sinkSTag: stag, sinkTO: to, size: w.length,
		srcSTag: w.remote.RKey, srcTO: w.remote.Addr,
	})
	tb.b = endFPDU(dst, start, q.crc)
	q.reads++
	q.owed.Add(owedEach + int64(w.length))
	q.sq.next++
	q.orq.push(w)
	return true
}

// sink is the tagged buffer that a READ names to the responder, who only
// echoes it. With several entries it is the first one, as if the others
// followed it: the responses are placed by the list.
func (w *sendWQE) sink() (stag uint32, to uint64) {
	if w.sgl.n == 0 {
		return 0, 0
	}
	e := w.sgl.at(0)
	return e.mr.stag, e.off
}
