package iwarp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A transmitter is what the goroutine that set QP.txBusy needs.
type transmitter struct {
	buf     *txBuffer // set while txBusy
	target  int       // bytes of the next buffer: the first ones are short, so that the peer has something to do soon
	sendMSN uint32    // of the SEND being framed, or the last one
	readMSN uint32
	rtr     RTR // the frame to begin with, if any
	// first is QP.sq.next when the buffer was begun: what is framed in it.
	first uint64
	// deaf: the peer has reset the connection, and the reader looks whether
	// it said why. Under QP.mu.
	deaf bool
}

// kick sends what can be sent. Called under mu. If somebody transmits already
// it returns at once: the transmitter looks again before it stops.
func (q *qp) kick() {
	if q.txBusy || q.conn == nil || !q.txPending() {
		return
	}
	q.txBusy = true
	q.tx.buf, q.tx.target = txPool.Get().(*txBuffer), txTarget
	if q.pd.dev.numPD.n.Load() < 2 { // else the first one is what needs no turn
		q.tx.target = txFirst
	}
	q.transmit()
}

// doorbell is kick for a poster. If the last round completed several requests,
// the goroutines that wait for them are about to run, and each will post its
// next one: so the first poster lets them, and then one system call takes what
// all of them posted. A lone poster never waits. Called under mu, which it lets
// go of.
func (q *qp) doorbell() {
	switch {
	case q.ringing:
		return // whoever rings will kick
	case q.burst < burstMin || q.txBusy:
		q.kick()
		return
	}
	q.ringing = true
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
	q.ringing = false
	q.kick()
}

// burstMin is how many completions in one round promise company.
const burstMin = 4

// txPending reports whether fill would produce anything.
func (q *qp) txPending() bool {
	if q.state == rdma.QPError {
		return !q.finished
	}
	if q.tx.deaf {
		return false
	}
	return q.tx.rtr != 0 || q.respReady() || q.sendReady()
}

// respReady: an acceptor may not even answer before the first FPDU, but that
// FPDU is what brings the request, so no test for txHold is needed.
func (q *qp) respReady() bool { return q.resp.len() > 0 }

// sendReady reports whether the next request may go out: not behind a fence
// while READs are under way, and no READ beyond ORD.
func (q *qp) sendReady() bool {
	if q.sq.next == q.sq.tail || q.txHold || q.state != rdma.QPRTS {
		return false
	}
	w := q.sq.at(q.sq.next)
	if w.fence && w.sent == 0 && q.reads > 0 {
		return false
	}
	return w.op != rdma.OpRDMARead || q.reads < q.ord
}

// transmit fills and writes without waiting, until there is nothing left, the
// socket is full or the budget is spent; in the last two cases a writer
// goroutine carries on. Called under mu with txBusy set; returns under mu.
func (q *qp) transmit() {
	for budget := q.inlineBudget(); ; {
		q.fill()
		tb := q.tx.buf
		if tb.off == len(tb.b) {
			q.stopTransmit()
			return
		}
		if q.secure == nil {
			q.mu.Unlock()
			err := q.tryWrite(tb)
			q.mu.Lock()
			budget -= tb.off
			if err != nil {
				q.writeFailed(err)
				return
			}
			q.retire()
		} // else: TLS knows no write that does not wait
		if tb.off < len(tb.b) || budget <= 0 {
			if q.readerGone {
				// Dead, and nobody hears the rest. A writer now would be one
				// that Close, which may wait for the workers already, does not
				// know; while there is a reader, it waits for that.
				q.writeFailed(nil)
				return
			}
			q.workers.Add(1)
			go q.writer()
			return
		}
		tb.b, tb.off = tb.b[:0], 0
		q.afterWrite()
	}
}

// tryWrite gives the socket what it takes without waiting. It goes past RawConn,
// whose deadline is for those who wait; who transmits keeps the socket open.
func (q *qp) tryWrite(tb *txBuffer) error {
	for tb.off < len(tb.b) {
		n, err := sockWrite(q.fd, tb.b[tb.off:])
		switch {
		case err == nil:
			tb.off += n
		case err == syscall.EAGAIN:
			return nil
		case err != syscall.EINTR:
			return err
		}
	}
	return nil
}

// writer carries on where transmit stopped, and waits for the socket: for each
// buffer as long as TCP would wait for a dead peer, because one that is alive
// and does not read is no better.
func (q *qp) writer() {
	defer q.workers.Done()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		tb := q.tx.buf
		if tb.off < len(tb.b) {
			if q.state != rdma.QPError {
				_ = q.conn.SetWriteDeadline(time.Now().Add(q.pd.dev.fabric.opts.PeerTimeout))
			}
			q.mu.Unlock()
			n, err := q.conn.Write(tb.b[tb.off:])
			q.mu.Lock()
			tb.off += n
			if err != nil {
				q.writeFailed(err)
				return
			}
		}
		tb.b, tb.off = tb.b[:0], 0
		q.afterWrite()
		turn := q.takeTurn()
		q.fill()
		q.retire()
		if turn {
			// What the socket takes belongs to the turn, too: it is most of the
			// work. Over TLS, where a write may wait, the turn ends before it.
			q.mu.Unlock()
			var err error
			if q.secure == nil {
				err = q.tryWrite(tb)
			}
			q.pd.dev.egress.give()
			q.mu.Lock()
			if err != nil {
				q.writeFailed(err)
				return
			}
			if len(tb.b) > 0 {
				continue
			}
		}
		if len(tb.b) == 0 {
			if q.state != rdma.QPError {
				_ = q.conn.SetWriteDeadline(time.Time{})
			}
			q.stopTransmit()
			return
		}
	}
}

// afterWrite says goodbye once the last bytes of a dead QP are in the socket.
func (q *qp) afterWrite() {
	if !q.finished {
		return
	}
	if q.secure == nil {
		_ = q.conn.CloseWrite()
		return
	}
	// TLS has a last word of its own, and may wait for the socket. With the
	// reader gone nobody waits for it, and the connection is closed anyway.
	if !q.readerGone {
		q.workers.Add(1)
		go func() {
			defer q.workers.Done()
			_ = q.conn.CloseWrite()
		}()
	}
}

// stopTransmit ends the reign of this transmitter. Called under mu, with
// everything written.
func (q *qp) stopTransmit() {
	q.afterWrite()
	q.releaseTx()
	q.settle()
}

func (q *qp) releaseTx() {
	tb := q.tx.buf
	tb.b, tb.off = tb.b[:0], 0
	q.tx.buf = nil
	txPool.Put(tb)
	q.txBusy = false
	if q.readerGone {
		_ = q.conn.Close()
	}
}

// writeFailed ends the connection: nothing can be sent on it any more. But a
// peer that refused something says so in a Terminate and closes, and a request
// that we send meanwhile makes its kernel reset the connection: then the reason
// stands unread in our socket. So after a reset the reader, who finds either the
// Terminate or the end of the stream, decides how the connection has ended.
func (q *qp) writeFailed(err error) {
	q.releaseTx()
	if q.state != rdma.QPError && !q.readerGone && isReset(err) {
		q.tx.deaf = true
		q.unsend()
		_ = q.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		return
	}
	q.finished = true
	q.failLocked(lost("write", err))
	// Also when the QP was dead before: nothing is left to say, and the reader
	// must not wait for an answer.
	_ = q.conn.SetReadDeadline(time.Now())
	q.settle()
}

// unsend takes back that the requests of the lost buffer were carried out, so
// far as nobody has been told yet: they fail with the connection.
func (q *qp) unsend() {
	first := max(q.sq.head, q.tx.first)
	for i := first; i < q.sq.next; i++ {
		if w := q.sq.at(i); w.op != rdma.OpRDMARead { // of those the reader knows
			w.done = false
		}
	}
	q.sq.next = first
}

// isReset reports whether a write failed because the peer has closed.
func isReset(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// fill frames what may go out into the transmit buffer, about tx.target bytes,
// in turns one response and one request. Called under mu; it may let go of it
// while it copies.
func (q *qp) fill() {
	tb := q.tx.buf
	q.tx.first = q.sq.next
	defer func() { q.tx.target = min(2*q.tx.target, txTarget) }()
	for frames := 0; len(tb.b) < q.tx.target && frames < txFrames; frames++ {
		start := len(tb.b)
		if q.state == rdma.QPError {
			q.fillLast(tb)
			q.settle()
			return
		}
		ok := true
		switch {
		case q.tx.rtr != 0:
			q.frameRTR(tb)
		case q.respReady() && (q.respTurn || !q.sendReady()):
			q.respTurn = false
			ok = q.frameResponse(tb)
		case q.sendReady():
			q.respTurn = true
			ok = q.frameRequest(tb)
		default:
			return
		}
		if !ok {
			tb.b = tb.b[:start] // a segment that was not completed
		}
	}
}

// fillLast appends the Terminate, if there is one to send, once.
func (q *qp) fillLast(tb *txBuffer) {
	if q.finished {
		return
	}
	q.finished = true
	if t := q.cause.term; t != nil {
		tb.b = appendTerminateFPDU(tb.b, t, q.crc)
	}
}

// retire completes the oldest requests that are done, in order. Under mu.
func (q *qp) retire() {
	var wcs [16]rdma.WC
	n := 0
	for q.sq.head != q.sq.next {
		w := q.sq.at(q.sq.head)
		if !w.done {
			break
		}
		if w.signaled {
			wc := rdma.WC{ID: w.id, Op: w.op, QPN: q.num}
			if w.op == rdma.OpRDMARead {
				wc.ByteLen = w.length
			}
			wcs[n] = wc
			if n++; n == len(wcs) {
				q.sendCQ.push(wcs[:]...)
				n = 0
			}
		}
		q.sq.popHead().free()
	}
	if n > 0 {
		q.sendCQ.push(wcs[:n]...)
	}
}

// lost is the end of a connection whose TCP stream broke.
func lost(what string, err error) cause {
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the peer closed the connection")
	}
	return cause{
		err:    fmt.Errorf("%w: %s: %w", rdma.ErrPeerGone, what, err),
		status: rdma.StatusRetryExcErr,
	}
}
