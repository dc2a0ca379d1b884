package soft

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Cause is why a connection ends.
type Cause struct {
	Err    error       // wraps a class of package rdma
	Send   rdma.Status // of the oldest send request; 0: it is flushed too
	Recv   rdma.Status // of the receive being filled; 0: likewise
	Vendor uint32      // WC.VendorErr of completions with one of these
}

// LocalFault is the end of a send request whose memory cannot be used: this end's
// own program is at fault.
func LocalFault(op rdma.Opcode) Cause {
	return Cause{
		Err:  fmt.Errorf("%w: %v with memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal, op),
		Send: rdma.StatusLocProtErr,
	}
}

// BadReceive is the end of a receive whose memory cannot be used.
func BadReceive() Cause {
	return Cause{
		Err:  fmt.Errorf("%w: a posted receive names memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal),
		Recv: rdma.StatusLocProtErr,
	}
}

// Fail moves the QP to ERR, once: the first cause stands.
func (q *QP) Fail(c Cause) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.FailLocked(c)
}

// FailLocked is Fail under Mu.
func (q *QP) FailLocked(c Cause) {
	l := &q.life
	if l.state == rdma.QPError {
		return
	}
	addr := ""
	if l.info.RemoteAddr != nil {
		addr = l.info.RemoteAddr.String()
	}
	l.state = rdma.QPError
	q.dying.Store(true)
	l.cause = c
	l.err = &rdma.OpError{Op: "connection", Fabric: q.pd.dev.kind.Fabric, Addr: addr, Err: c.Err}
	close(q.dead)
	if l.abort != nil {
		l.abort()
	}
	q.outer.HangUp()
}

// Overrun ends the QP, one of whose CQs has no room.
func (q *QP) Overrun(err error) { q.Fail(Cause{Err: err}) }

// FlushLocked completes everything that is queued on a dead QP, with its cause,
// once. Requests that are posted later are flushed at once. It is called when no
// goroutine of the fabric touches the program's memory. The caller holds Mu.
func (q *QP) FlushLocked() {
	if q.life.settled {
		return
	}
	q.life.settled = true
	q.flush(q.life.cause.Send, q.life.cause.Recv)
	close(q.quiet)
}

// flushLate flushes what was posted to a dead QP.
func (q *QP) flushLate() {
	if q.life.settled {
		q.flush(0, 0)
	}
}

// flush completes everything that is queued: the oldest send request and the
// receive under way with their status if they have one, the rest as flushed.
func (q *QP) flush(send, recv rdma.Status) {
	for q.SQ.Head != q.SQ.Tail {
		w := q.SQ.pop()
		if w.Done { // carried out, but behind a READ that is not
			q.SendCQ.Push(q.failed(w.ID, 0))
		} else {
			q.SendCQ.Push(q.failed(w.ID, send))
			send = 0
		}
		w.free()
	}
	if q.Inbox.Receiving {
		q.Inbox.Receiving = false
		q.RecvCQ.Push(q.failed(q.Inbox.Recv.ID, recv))
	}
	var e RecvWQE
	if q.srq == nil {
		for q.RQ.Take(&e) {
			q.RecvCQ.Push(q.failed(e.ID, 0))
		}
	}
}

// failed is the completion of a request with status s; 0: flushed.
func (q *QP) failed(id uint64, s rdma.Status) rdma.WC {
	if s == rdma.StatusSuccess {
		s = rdma.StatusWRFlushErr
	}
	wc := rdma.WC{ID: id, Status: s, QPN: q.num}
	if s != rdma.StatusWRFlushErr {
		wc.VendorErr = q.life.cause.Vendor
	}
	return wc
}

// Disconnect moves the QP to ERR and tells the peer.
func (q *QP) Disconnect() error {
	q.Fail(Cause{Err: fmt.Errorf("%w: disconnected here", rdma.ErrClosed)})
	return nil
}

// Close disconnects, waits until the fabric has released every buffer and all its
// workers have ended, and destroys the QP.
func (q *QP) Close() error {
	q.Mu.Lock()
	first := !q.life.closed
	q.life.closed = true
	q.FailLocked(Cause{Err: fmt.Errorf("%w: closed here", rdma.ErrClosed)})
	q.Mu.Unlock()
	<-q.quiet
	q.Workers.Wait()
	if !first {
		return nil
	}
	q.pd.dev.numbers.Drop(q.num)
	q.SendCQ.detach(q.outer)
	q.RecvCQ.detach(q.outer)
	if q.srq != nil {
		q.srq.detach()
	}
	q.pd.unuse()
	q.pd.dev.qps.Drop()
	return nil
}
