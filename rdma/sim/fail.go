package sim

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// A cause is why an end of a connection fails.
type cause struct {
	err    error
	status rdma.Status // of the oldest send request; 0: it is flushed too
	silent bool        // the peer is not told: it finds out by itself
	peer   error       // the error of the peer's end; nil: ErrPeerGone
}

// fail moves the QP to ERR, once, and flushes everything. The caller holds mu
// and calls turn.
func (q *qp) fail(c cause) {
	if q.state == rdma.QPError {
		return
	}
	n, was := q.net, q.state
	if q.pd.dev.life.paused && was == rdma.QPRTS && !c.silent {
		q.ghost = true // until the program runs, the adapter knows nothing of it
	}
	q.state = rdma.QPError
	addr := ""
	if q.info.RemoteAddr != nil {
		addr = q.info.RemoteAddr.String()
	}
	q.err = opError("connection", addr, c.err)
	n.logf("%s: dies: %v", q.label(), c.err)
	close(q.done)
	flush := func(cq *cq, id uint64, s rdma.Status) {
		cq.push(q, rdma.WC{ID: id, Status: s, QPN: q.num})
	}
	for i, w := range q.sq {
		w.over = true
		s := rdma.StatusWRFlushErr
		switch {
		case i > 0: // everything behind the first one is flushed, also what was carried out
		case w.done:
			s = w.status // the cause of the connection's end
		case c.status != 0:
			s = c.status
		}
		flush(q.sendCQ, w.id, s)
	}
	q.sq, q.sent, q.reading = nil, 0, 0
	if !q.ghost {
		q.inq, q.serv = nil, nil
	}
	if q.srq == nil {
		for _, e := range q.rq.list {
			flush(q.recvCQ, e.id, rdma.StatusWRFlushErr)
		}
		q.rq.list = nil
	}
	if was != rdma.QPRTS && was != rdma.QPRTR || q.peer == nil || c.silent {
		return
	}
	p, why := q.peer, c.peer
	if why == nil {
		why = fmt.Errorf("%w: the peer ended the connection", rdma.ErrPeerGone)
	}
	die := chancesOf(q, ^uint64(0), askEnd)
	untold := die.is(n.adverse.Setup / 4)
	q.pd.dev.life.says(func() {
		q.ghost, q.inq, q.serv = false, nil, nil
		if untold {
			n.logf("%s: its end is not told", q.label())
			return
		}
		q.back = max(q.back, n.now()+int64(die.delay(n.adverse.Delay)))
		n.at(q.back, func() {
			if !n.cut(q.host(), p.host()) {
				p.fail(cause{err: why})
			}
		})
	})
}

// alive reports whether the adapter of this end still works for the connection.
func (q *qp) alive() bool {
	return (q.state != rdma.QPError || q.ghost) && !q.pd.dev.life.gone
}

func (q *qp) host() *Host { return q.pd.dev.life.host }

// label names an end in the log: the dialer's or the acceptor's.
func (q *qp) label() string {
	return fmt.Sprintf("%s/%d(%x%c)", q.host().name, q.num, q.conn&0xffff, "ab"[q.end])
}

// These are the questions that dice decide, each with a name of its own, so
// that answers are independent.
const (
	askPath = iota
	askRead
	askFault
	askEnd
	askSetup
)

// chancesOf are the dice for one question about one request of an end.
func chancesOf(q *qp, seq, question uint64) chance {
	return about(q.net.opts.Seed, q.conn, q.end, seq, question)
}
