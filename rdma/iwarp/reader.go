package iwarp

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// A receiver is the state of the incoming direction. It belongs to whoever holds
// QP.rxMu (look.go); over TLS to the reader goroutine. While QP.rxBusy is set it
// is in use; settle may look at receiving and recv otherwise.
type receiver struct {
	sock       sockReader
	buf        *rxBuffer // only while there are bytes
	start, end int       // unprocessed bytes of buf

	ended  bool   // the reader goroutine has gone, or is about to
	looks  uint64 // by waiters, for the keeper
	served uint64 // READ requests that have come
	attendant
	direct direct

	begun   bool // the first FPDU has come
	stopped bool // a READ was refused: nothing behind it counts
	rtr     RTR  // kind of frame that the peer was to begin with

	sendMSN uint32 // of the SEND under way, or the last complete one
	readMSN uint32 // of the last READ request

	receiving bool // a SEND has begun and recv is its buffer
	recvOp    opcode
	recv      recvWQE
	recvGot   uint32

	readGot   uint32 // bytes placed of the oldest READ
	readsDone int    // READs completed in this round
}

// A readRing remembers the READs under way, oldest first, for the reader: the
// responses come in the order of the requests. The transmitter pushes under
// QP.mu; the reader looks at the front without a lock, which is why tail is
// atomic. Slots are reused only after retired, under QP.mu, has passed them.
type readRing struct {
	slots   []*sendWQE    // length a power of two ≥ ORD; nil: an RTR READ
	tail    atomic.Uint64 // written by the transmitter
	head    uint64        // next expected: the reader's
	retired uint64        // under QP.mu
}

func (r *readRing) push(w *sendWQE) {
	t := r.tail.Load()
	r.slots[t&uint64(len(r.slots)-1)] = w
	r.tail.Store(t + 1)
}

// front is the oldest READ without its whole response.
func (r *readRing) front() (w *sendWQE, ok bool) {
	if r.head == r.tail.Load() {
		return nil, false
	}
	return r.slots[r.head&uint64(len(r.slots)-1)], true
}

// read is the reader goroutine: one RawConn.Read for the whole life of the
// connection, whose callback does the work and asks to be called again when
// the socket is readable.
func (q *qp) read() {
	defer q.workers.Done()
	var err error
	if q.secure != nil {
		err = q.readSecure()
	} else {
		err = q.raw.Read(q.readable)
	}
	q.stopLooks()
	q.fail(lost("read", err)) // a QP that was dead before keeps its first cause
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readerGone = true
	if !q.txBusy { // else a writer with the last bytes, until failLocked's deadline
		_ = q.conn.Close()
	}
}

// readable is the RawConn callback: it takes what the socket has. It returns
// false to be called again when there is more, true to end.
func (q *qp) readable(uintptr) bool {
	q.rxMu.Lock()
	defer q.rxMu.Unlock()
	if q.rx.ended {
		return true
	}
	return q.drain() == drainEnd || q.attend() == drainEnd
}

func (q *qp) dropBuffer() {
	b := q.rx.buf
	b.wcs, b.reads = b.wcs[:0], b.reads[:0] // nothing of this connection goes to the next
	q.rx.buf = nil
	q.rx.start, q.rx.end = 0, 0
	rxPool.Put(b)
}

// round processes the complete FPDUs in the buffer and then does everything
// that needs the lock, once: completions, responses, requests that waited for
// these READs. It returns false when a dead QP has lingered long enough: a peer
// that never stops sending would not be stopped by the socket's deadline.
func (q *qp) round() bool {
	rx := &q.rx
	q.mu.Lock()
	if q.state == rdma.QPError || rx.stopped {
		defer q.mu.Unlock()
		rx.start, rx.end = 0, 0 // read and forget
		return q.state != rdma.QPError || time.Now().Before(q.lingerEnd)
	}
	q.rxBusy = true
	q.mu.Unlock()

	bad := q.segments()
	reads := rx.readsDone
	burst := len(rx.buf.wcs) + reads
	q.pushReceives()

	q.mu.Lock()
	defer q.mu.Unlock()
	q.burst = burst
	rx.served += uint64(len(rx.buf.reads))
	q.finishReads()
	if bad == nil {
		bad = q.queueResponses()
	}
	rx.buf.reads = rx.buf.reads[:0] // also those that a violation has voided
	q.rxBusy = false
	if rx.begun && q.txHold {
		q.txHold = false
	}
	if bad != nil {
		q.failLocked(*bad)
	}
	q.settle() // if it failed meanwhile
	if reads >= burstMin && q.hushed.Load() && !q.respReady() && q.state == rdma.QPRTS {
		q.ringing = true // company is coming: who looks next rings for all
		q.rings.Store(true)
		return true
	}
	q.kick()
	return true
}

// segments handles FPDU after FPDU. What is left of the buffer is the start of
// one that has not come whole; it is moved to the front if it would not fit.
func (q *qp) segments() *cause {
	rx := &q.rx
	for {
		if rx.direct.w != nil {
			done, bad := q.endDirect()
			if bad != nil {
				return bad
			}
			if !done {
				return nil
			}
		}
		ulpdu, n, want, err := nextFPDU(rx.buf.b[rx.start:rx.end], q.crc)
		if err != nil {
			return violation(termCRC, nil)
		}
		if n == 0 {
			if rx.start == rx.end || q.beginDirect(rx.buf.b[rx.start:rx.end], want) {
				rx.start, rx.end = 0, 0
			} else if rx.start+want > len(rx.buf.b) || rx.start+fpduLengthLen > len(rx.buf.b) {
				rx.end = copy(rx.buf.b, rx.buf.b[rx.start:rx.end])
				rx.start = 0
			}
			return nil
		}
		if bad := q.segment(ulpdu); bad != nil {
			return bad
		}
		rx.start += n
		if rx.stopped {
			return nil
		}
	}
}

// segment handles one DDP segment.
func (q *qp) segment(ulpdu []byte) *cause {
	first := !q.rx.begun
	if first {
		q.rx.begun = true
		if q.started != nil {
			close(q.started)
		}
		if len(ulpdu) == 0 && q.rx.rtr == RTRSend {
			return nil
		}
	}
	s, payload, bad := parseSegment(ulpdu)
	if bad != 0 {
		return violation(bad, ulpdu)
	}
	switch s.op {
	case opSend, opSendSE:
		if first && q.rx.rtr == RTRSend && len(payload) == 0 && s.last && s.msn == 1 {
			q.rx.sendMSN = 1
			return nil // a zero-length SEND as RTR takes no receive
		}
		return q.onSend(s, payload, ulpdu)
	case opSendInv, opSendSEInv:
		return violation(termCannotInvalidate, ulpdu)
	case opReadResp:
		return q.onReadResponse(s, payload, ulpdu)
	case opReadReq:
		return q.onReadRequest(s, payload, ulpdu, first)
	case opWrite:
		return q.onWrite(s, payload, ulpdu, first)
	}
	return q.onTerminate(s, payload)
}

// onTerminate takes the peer's last word.
func (q *qp) onTerminate(s segment, payload []byte) *cause {
	t, ok := parseTerminate(payload)
	if !ok || s.msn != 1 || s.mo != 0 || !s.last {
		return &cause{err: fmt.Errorf("%w: malformed Terminate", rdma.ErrProtocol), status: rdma.StatusGeneralErr}
	}
	c := &cause{
		err:    fmt.Errorf("%w: the peer sent Terminate %v", t.code.class(), t.code),
		status: t.code.status(),
	}
	// No buffer on queue 1 is no missing receive but a READ beyond IRD.
	if t.code == termNoBuffer && len(t.header) >= ctrlLen && opcode(t.header[1]&15) == opReadReq {
		c.err = fmt.Errorf("%w: the peer sent Terminate: more READs in flight than its IRD", rdma.ErrProtocol)
		c.status = rdma.StatusGeneralErr
	}
	return c
}

// pushReceives hands over the receives completed in this round.
func (q *qp) pushReceives() {
	b := q.rx.buf
	if len(b.wcs) > 0 {
		q.recvCQ.push(b.wcs...)
		b.wcs = b.wcs[:0]
	}
}

// finishReads completes the READs whose responses are all there. Under mu.
func (q *qp) finishReads() {
	n := q.rx.readsDone
	if n == 0 {
		return
	}
	q.rx.readsDone = 0
	q.reads -= n
	for ; n > 0; n-- {
		w := q.orq.slots[q.orq.retired&uint64(len(q.orq.slots)-1)]
		if w != nil {
			q.owed.Add(-owedEach - int64(w.length))
		}
		q.orq.slots[q.orq.retired&uint64(len(q.orq.slots)-1)] = nil
		q.orq.retired++
		if w != nil {
			w.done = true
		}
	}
	q.retire()
}

// queueResponses moves the READ requests of this round to the queue, which
// holds at most IRD. Under mu.
func (q *qp) queueResponses() *cause {
	for _, r := range q.rx.buf.reads {
		if q.resp.len() >= q.ird && !teeth.Off(teeth.D7ReadDepth) {
			ulpdu := appendUntagged(nil, opReadReq, true, queueRead, q.resp.msn+1, 0)
			return violation(termNoBuffer, appendReadRequest(ulpdu, r))
		}
		q.resp.put(r)
	}
	return nil
}
