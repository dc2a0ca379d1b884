package sim

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// This is the requester: requests leave in the order of posting, as many READs
// at a time as the connection allows, and complete in that order.

// launch sends what may leave. The caller holds mu and calls turn.
func (q *qp) launch() {
	n := q.net
	for q.state == rdma.QPRTS && q.sent < len(q.sq) && !q.pd.dev.life.paused {
		w := q.sq[q.sent]
		read := w.op == rdma.OpRDMARead
		if read && q.reading >= q.info.ORD || w.flags&rdma.SendFence != 0 && q.reading > 0 {
			return
		}
		q.sent++
		need := rdma.Access(0)
		if read {
			need = rdma.AccessLocalWrite
			q.reading++
		}
		if w.inline == nil && !w.sgl.good(q.pd, need) {
			q.finish(w, rdma.StatusLocProtErr, localFault(w.op))
			continue
		}
		die := chancesOf(q, w.seq, askPath)
		d := q.path(&die)
		if !read && w.inline == nil && n.adverse.Delay > 0 && die.is(0.5) {
			// An adapter may fetch the payload at once, so that the message
			// arrives though its sender has died, or fetch it as late as it
			// sends.
			w.inline = w.sgl.gather()
		}
		if fault := chancesOf(q, w.seq, askFault); fault.is(n.adverse.Lose) && q.disturb(w, &fault) {
			continue
		}
		q.out = max(q.out, n.now()+int64(d))
		n.at(q.out, func() { q.peer.arrive(w) })
	}
}

func localFault(op rdma.Opcode) error {
	return fmt.Errorf("%w: %v with memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal, op)
}

// path is how long something takes from one end to the other.
func (q *qp) path(die *chance) time.Duration {
	if q.net.adverse.Delay == 0 || die.is(0.5) {
		return 0
	}
	return die.delay(q.net.adverse.Delay)
}

// finish notes the outcome of a request, and completes the requests that are
// first in order now. If the status is not success the connection dies when the
// request's turn comes.
func (q *qp) finish(w *wqe, s rdma.Status, why error) {
	if w.over || w.done || q.state == rdma.QPError {
		return
	}
	w.done, w.status, w.cause = true, s, why
	if w.op == rdma.OpRDMARead {
		q.reading--
	}
	for len(q.sq) > 0 && q.sq[0].done {
		first := q.sq[0]
		if first.status != rdma.StatusSuccess {
			q.fail(cause{err: first.cause})
			return
		}
		q.sq = q.sq[1:]
		q.sent--
		first.over = true
		if first.signaled {
			q.sendCQ.push(q, rdma.WC{ID: first.id, Op: first.op, QPN: q.num, ByteLen: uint32(first.sgl.total)})
		}
	}
	q.launch()
}

// disturb ends the connection at this request, in one of the ways that
// connections end. It returns false if nothing happens this time.
func (q *qp) disturb(w *wqe, die *chance) bool {
	n := q.net
	gone := func(why string) error { return fmt.Errorf("%w: %s (by the seed)", rdma.ErrPeerGone, why) }
	soon := die.delay(n.opts.RetryTimeout)
	end := func(s rdma.Status, err error) {
		n.counts.Lost++
		n.after(soon, func() { q.finish(w, s, err) })
	}
	switch die.n(6) {
	case 1: // carried out, but the acknowledgement is lost
		n.logf("%s: acknowledgement of %d lost", q.label(), w.seq)
		q.out = max(q.out, n.now()) // not before those that were posted before it
		n.at(q.out, func() { q.peer.arrive(w) })
		w.status = rdma.StatusRetryExcErr // what arrives does not count
		end(rdma.StatusRetryExcErr, gone("no acknowledgement"))
		return true
	case 0: // lost on the way, told by the retry counter
		n.logf("%s: request %d lost", q.label(), w.seq)
		end(rdma.StatusRetryExcErr, gone("no acknowledgement"))
	case 2:
		if w.op != rdma.OpSend || !q.pd.dev.attr.Caps.Has(rdma.CapRNR) {
			return false
		}
		n.logf("%s: request %d: RNR", q.label(), w.seq)
		end(rdma.StatusRNRRetryExcErr, fmt.Errorf("%w: (by the seed)", rdma.ErrReceiverNotReady))
	case 3:
		if w.op != rdma.OpRDMARead {
			return false
		}
		n.logf("%s: READ %d refused", q.label(), w.seq)
		end(rdma.StatusRemAccessErr, fmt.Errorf("%w: (by the seed)", rdma.ErrAccess))
	case 4: // both ends see the connection end, at different times, without the cause
		n.logf("%s: connection lost at %d", q.label(), w.seq)
		other := die.delay(n.opts.RetryTimeout)
		n.after(other, func() { q.peer.fail(cause{err: gone("connection lost"), silent: true}) })
		n.after(soon, func() { q.fail(cause{err: gone("connection lost"), silent: true}) })
	default:
		n.logf("%s: remote operation error at %d", q.label(), w.seq)
		end(rdma.StatusRemOpErr, gone("remote operation error"))
	}
	q.lose(w)
	return true
}

// unreachable says whether a request does not come to this end. Then it is repeated until the retry counter is used up.
func (q *qp) unreachable(w *wqe) bool {
	if q.alive() && !q.net.cut(w.q.host(), q.host()) {
		return false
	}
	w.unanswered()
	return true
}

// unanswered ends a request that gets no acknowledgement.
func (w *wqe) unanswered() {
	p, n := w.q, w.q.net
	n.after(n.opts.RetryTimeout, func() {
		p.finish(w, rdma.StatusRetryExcErr, fmt.Errorf("%w: no acknowledgement within %v", rdma.ErrPeerGone, n.opts.RetryTimeout))
	})
}
