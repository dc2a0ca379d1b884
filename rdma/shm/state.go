//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// A bye is what an end leaves in its half for the other one before it hangs up.
type bye uint64

const (
	byeNone     bye = iota // it died without a word
	byeClosed              // Disconnect or Close
	byeAccess              // one of us asked for memory that it may not have
	byeNotReady            // a SEND met no receive
	byeProtocol            // the other one broke the protocol, or a SEND was too long
	byeLocal               // it made a mistake of its own
)

// A cause is why a connection ends.
type cause struct {
	err    error       // wraps a class of package rdma
	status rdma.Status // of the oldest send request; 0: it is flushed too
	recv   rdma.Status // of the receive being filled; 0: likewise
	bye    bye         // what to tell the peer
}

// localFault is the end that a bad scatter/gather list brings.
func localFault(op rdma.Opcode) cause {
	return cause{
		err:    fmt.Errorf("%w: %v with memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal, op),
		status: rdma.StatusLocProtErr,
		bye:    byeLocal,
	}
}

// violation is the end that a peer brings who breaks the protocol.
func violation(err error) cause { return cause{err: err, bye: byeProtocol} }

// forbidden is the end that a READ or WRITE brings which is not allowed.
func forbidden(who string, why error) cause {
	return cause{err: fmt.Errorf("%w: %s: %w", rdma.ErrAccess, who, why), bye: byeAccess}
}

// hungUp is the end of a connection whose peer has hung up, by its last word:
// hostile, so that an unknown one says nothing. oldest is the oldest request.
func hungUp(last bye, oldest *sendWQE) cause {
	op := rdma.Opcode(0)
	if oldest != nil {
		op = oldest.op
	}
	switch last {
	case byeAccess:
		c := cause{err: fmt.Errorf("%w: said by the peer", rdma.ErrAccess)}
		if op == rdma.OpRDMARead || op == rdma.OpRDMAWrite {
			c.status = rdma.StatusRemAccessErr
		}
		return c
	case byeNotReady:
		c := cause{err: fmt.Errorf("%w: said by the peer", rdma.ErrReceiverNotReady)}
		if op == rdma.OpSend {
			c.status = rdma.StatusRNRRetryExcErr
		}
		return c
	case byeProtocol:
		return cause{err: fmt.Errorf("%w: said by the peer of something of ours", rdma.ErrProtocol)}
	}
	what := errors.New("the peer's process is gone")
	switch last {
	case byeClosed:
		what = errors.New("the peer closed the connection")
	case byeLocal:
		what = errors.New("the peer made a mistake and closed the connection")
	}
	return cause{err: fmt.Errorf("%w: %w", rdma.ErrPeerGone, what), status: rdma.StatusRetryExcErr}
}

// fail moves the QP to ERR, once.
func (q *qp) fail(c cause) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failLocked(c)
}

func (q *qp) failLocked(c cause) {
	if q.state == rdma.QPError {
		return
	}
	addr := ""
	if q.info.RemoteAddr != nil {
		addr = q.info.RemoteAddr.String()
	}
	q.state = rdma.QPError
	q.dying.Store(true)
	q.cause = c
	q.err = opError("connection", addr, c.err)
	close(q.dead)
	if q.abort != nil {
		q.abort()
	}
	q.workers.Go(q.finish)
}

// finish hangs up, waits until nobody touches the program's memory, flushes, and
// lets go of everything that is the peer's or shared with it.
func (q *qp) finish() {
	q.mu.Lock()
	ch, conn, c := q.ch, q.conn, q.cause
	q.mu.Unlock()
	if ch != nil {
		ch.out.bye.Store(uint64(max(c.bye, byeClosed)))
		raceRelease()
	}
	if conn != nil {
		_ = conn.Close()
	}
	q.rxMu.Lock()
	q.txMu.Lock()
	q.mu.Lock()
	q.settled = true
	q.rx.live = false
	q.flush(c.status, c.recv)
	q.mu.Unlock()
	q.txMu.Unlock()
	q.rxMu.Unlock()
	close(q.quiet)

	q.sendCQ.unwatch(q)
	q.recvCQ.unwatch(q)
	q.stopShowing()
	q.sockets.Wait()
	if q.proof != nil && teeth.Off(teeth.D6LockUnmapped) {
		_ = q.proof.Close()
	}
	q.seen.close()
	if ch != nil {
		_ = ch.unmap()
	}
	// Only now: whoever waits for this lock wants to know that nobody has the
	// memory any more.
	if q.proof != nil {
		_ = q.proof.Close()
	}
}

// flushIfSettled flushes what was posted to a dead QP.
func (q *qp) flushIfSettled() {
	if q.settled {
		q.flush(0, 0)
	}
}

// flush completes everything that is queued: the oldest send request and the
// receive under way with their status if they have one, the rest as flushed.
func (q *qp) flush(send, recv rdma.Status) {
	for q.sq.head != q.sq.tail {
		w := q.sq.popHead()
		if w.done { // carried out, but behind a READ that is not
			q.sendCQ.push(q.failed(w.id, 0))
		} else {
			q.sendCQ.push(q.failed(w.id, send))
			send = 0
		}
		w.free()
	}
	q.resp, q.reads = nil, nil
	if q.rx.receiving {
		q.rx.receiving = false
		q.recvCQ.push(q.failed(q.rx.recv.id, recv))
	}
	var e recvWQE
	if q.srq == nil {
		for q.rq.take(&e) {
			q.recvCQ.push(q.failed(e.id, 0))
		}
	}
}

func (q *qp) failed(id uint64, s rdma.Status) rdma.WC {
	if s == rdma.StatusSuccess {
		s = rdma.StatusWRFlushErr
	}
	return rdma.WC{ID: id, Status: s, QPN: q.num}
}

// Disconnect moves the QP to ERR and tells the peer by hanging up.
func (q *qp) Disconnect() error {
	q.fail(cause{err: fmt.Errorf("%w: disconnected here", rdma.ErrClosed)})
	return nil
}

// Close disconnects, waits until the fabric has let go of every buffer, of its
// socket and of all memory of the peer, and destroys the QP.
func (q *qp) Close() error {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	q.failLocked(cause{err: fmt.Errorf("%w: closed here", rdma.ErrClosed)})
	q.mu.Unlock()
	<-q.quiet
	q.workers.Wait()
	if !first {
		return nil
	}
	q.pd.dev.fabric.qpns.drop(q.num)
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	if q.srq != nil {
		q.srq.detach()
	}
	q.pd.unuse()
	q.pd.dev.numQP.drop()
	return nil
}

// ctxError is ctx.Err, marked as a deadline if it is one.
func ctxError(ctx context.Context) error {
	err := ctx.Err()
	if err == context.DeadlineExceeded {
		return fmt.Errorf("%w: %w", rdma.ErrDeadline, err)
	}
	return err
}

func opError(op, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: fabricName, Addr: addr, Err: err}
}
