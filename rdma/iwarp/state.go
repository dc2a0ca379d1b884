package iwarp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A cause is why a connection ends.
type cause struct {
	err    error       // wraps a class of package rdma
	status rdma.Status // of the oldest send request; 0: it is flushed too
	recv   rdma.Status // of the receive being filled; 0: likewise
	term   *terminate  // what to tell the peer, if anything
}

// lingerTimeout bounds how long a dead QP keeps its socket: to get the last
// bytes out, and to read until the peer closes too. Closing a socket with
// unread bytes would reset it, and the reset could overtake the Terminate.
const lingerTimeout = 500 * time.Millisecond

// violation is the end that a rule broken by the peer brings: a Terminate with
// the headers of ulpdu, the segment that broke it.
func violation(code termCode, ulpdu []byte) *cause {
	t := &terminate{code: code}
	t.about(ulpdu)
	t.header = slices.Clone(t.header) // ulpdu is in a buffer that goes back
	what := "a segment"
	if len(ulpdu) >= ctrlLen {
		what = "its " + opcode(ulpdu[1]&15).String()
	}
	return &cause{
		err:  fmt.Errorf("%w: refused %s of the peer: %v", code.class(), what, code),
		term: t,
	}
}

// localFault is the end that a bad scatter/gather list brings.
func localFault(op rdma.Opcode) cause {
	return cause{
		err:    fmt.Errorf("%w: %v with memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal, op),
		status: rdma.StatusLocProtErr,
		term:   &terminate{code: termLocalCatastrophic},
	}
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
	op := "connection"
	addr := ""
	if q.info.RemoteAddr != nil {
		addr = q.info.RemoteAddr.String()
	}
	q.state = rdma.QPError
	q.cause = c
	q.err = &rdma.OpError{Op: op, Fabric: "iwarp", Addr: addr, Err: c.err}
	close(q.dead)
	if q.abort != nil {
		q.abort()
	}
	if q.conn != nil {
		// From here on the socket is on borrowed time, in both directions.
		q.lingerEnd = time.Now().Add(lingerTimeout)
		_ = q.conn.SetDeadline(q.lingerEnd)
		q.kick()
	}
	q.settle()
}

// settle flushes everything once the QP is in ERR and nobody touches the
// program's memory any more. Called under mu at each point where one of these
// may just have become true.
func (q *qp) settle() {
	if q.state != rdma.QPError || q.settled || q.txFraming || q.rxBusy {
		return
	}
	q.settled = true
	q.flush(q.cause.status, q.cause.recv)
	close(q.quiet)
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
	q.resp.ring, q.resp.head, q.resp.tail = nil, 0, 0
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
	wc := rdma.WC{ID: id, Status: s, QPN: q.num}
	if s != rdma.StatusWRFlushErr && q.cause.term != nil {
		wc.VendorErr = uint32(q.cause.term.code &^ termSet)
	}
	return wc
}

// Disconnect moves the QP to ERR and tells the peer by closing.
func (q *qp) Disconnect() error {
	q.fail(cause{err: fmt.Errorf("%w: disconnected here", rdma.ErrClosed)})
	return nil
}

// Close disconnects, waits until the fabric has let go of every buffer and of
// its socket, and destroys the QP.
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

// waitStarted waits for the first FPDU of the peer.
func (q *qp) waitStarted(ctx context.Context) error {
	timeout := time.NewTimer(q.pd.dev.fabric.opts.SetupTimeout)
	defer timeout.Stop()
	select {
	case <-q.started:
		return nil
	case <-q.dead:
		return q.Err()
	case <-ctx.Done():
		return ctxError(ctx)
	case <-timeout.C:
		return fmt.Errorf("%w: no ready-to-receive frame within %v", rdma.ErrDeadline, q.pd.dev.fabric.opts.SetupTimeout)
	}
}

// ctxError is ctx.Err, marked as a deadline if it is one.
func ctxError(ctx context.Context) error {
	err := ctx.Err()
	if err == context.DeadlineExceeded {
		return fmt.Errorf("%w: %w", rdma.ErrDeadline, err)
	}
	return err
}
