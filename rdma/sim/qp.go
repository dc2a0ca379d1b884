package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A qp is one end of a connection, guarded by Network.mu.
type qp struct {
	pd             *pd
	net            *Network
	num            uint32
	sendCQ, recvCQ *cq
	srq            *srq
	limits         rdma.QPCap
	signalAll      bool
	access         rdma.Access

	state rdma.QPState
	begun bool // Connect or Accept was called
	peer  *qp
	info  rdma.ConnInfo
	err   error
	done  chan struct{}
	gone  bool // Close has returned
	// ghost: the program takes this end for dead, but the adapter has not noticed
	// and still answers READs. This is so after Kill, and while paused.
	ghost bool

	// These name the connection for the dice: the host that dialed, the number
	// of its dial, and which end this is.
	conn, end uint64
	posts     uint64 // send requests so far

	sinks []rdma.SGE // of prepared READs

	requester
	responder
	rq recvQueue
}

// A requester is the half of a QP that sends requests.
type requester struct {
	sq      []*wqe // oldest first
	sent    int    // of them launched
	reading int    // READs launched and not answered
	out     int64  // when the last request arrives at the peer
	lost    uint64 // number of the first request that never arrives; 0: none
}

// lose notes that a request never arrives. What was posted behind it comes out of sequence, so
// the peer's adapter carries none of it out, and waits for the one that is missing.
func (r *requester) lose(w *wqe) {
	if r.lost == 0 || w.seq < r.lost {
		r.lost = w.seq
	}
}

// A responder is the half of a QP that carries out the peer's requests, in order of
// arrival, and answers its READs in order.
type responder struct {
	inq  []*wqe // arrived and not begun
	serv []*wqe // READs begun and not answered
	back int64  // when the last answer arrives at the peer
}

// A wqe is a send request under way. It is the message itself: the peer's
// responder sees the same object.
type wqe struct {
	q        *qp // the QP that posted it
	id       uint64
	seq      uint64
	op       rdma.Opcode
	flags    rdma.SendFlags
	sgl      sgl
	inline   []byte
	remote   rdma.RemoteAddr
	signaled bool

	done   bool        // finished, waits for its turn to complete
	status rdma.Status // of a finished one
	cause  error       // why the connection ends, with a status
	over   bool        // completed or flushed: the memory is the program's again

	// These are of a READ at the responder.
	region *mr
	off    int
	left   int // pieces not yet loaded
	ready  bool
	refuse bool
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	d := p.dev
	caps := cfg.Cap
	if err := soft.Caps(&caps, &d.attr); err != nil {
		return nil, err
	}
	scq, ok1 := cfg.SendCQ.(*cq)
	rcq, ok2 := cfg.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq == nil || rcq == nil || scq.dev != d || rcq.dev != d {
		return nil, fmt.Errorf("%w: a queue pair needs send and receive CQs of its own device", rdma.ErrInvalid)
	}
	var shared *srq
	if cfg.SRQ != nil {
		s, ok := cfg.SRQ.(*srq)
		if !ok || s == nil || s.pd != p {
			return nil, fmt.Errorf("%w: the shared receive queue is not of this protection domain", rdma.ErrInvalid)
		}
		shared = s
	}
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range []*cq{scq, rcq} {
		if err := c.usable(); err != nil {
			return nil, err
		}
	}
	if shared != nil && shared.closed {
		return nil, fmt.Errorf("%w: shared receive queue", rdma.ErrClosed)
	}
	if len(d.qps) >= maxQP {
		return nil, fmt.Errorf("%w: %d queue pairs", rdma.ErrLimit, len(d.qps))
	}
	if err := p.use(); err != nil {
		return nil, err
	}
	n.qpns++
	q := &qp{
		pd: p, net: n, num: n.qpns, sendCQ: scq, recvCQ: rcq, srq: shared, limits: caps, signalAll: cfg.SignalAll,
		access: cfg.Access, state: rdma.QPInit, done: make(chan struct{}), rq: recvQueue{limit: caps.MaxRecvWR},
	}
	scq.qps[q]++
	rcq.qps[q]++
	if shared != nil {
		shared.users = append(shared.users, q)
	}
	d.qps = append(d.qps, q)
	return q, nil
}

func (q *qp) QPN() uint32 { return q.num }
func (q *qp) PD() rdma.PD { return q.pd }

func (q *qp) State() rdma.QPState {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.state
}

func (q *qp) Access() rdma.Access {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.access
}

func (q *qp) Info() rdma.ConnInfo {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.info
}

func (q *qp) Done() <-chan struct{} { return q.done }

func (q *qp) Err() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.err
}

// SetAccess replaces the remote rights.
func (q *qp) SetAccess(a rdma.Access) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if a&^(rdma.AccessLocalWrite|rdma.AccessRemoteMask) != 0 {
		return fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(a))
	}
	if q.state == rdma.QPError {
		return fmt.Errorf("%w: state %v", rdma.ErrNotConnected, q.state)
	}
	q.access = a
	return nil
}

// PostSend posts a batch.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	defer q.net.turn()
	for i := range wrs {
		if err := q.post(&wrs[i]); err != nil {
			q.launch()
			return i, err
		}
	}
	q.launch()
	return len(wrs), nil
}

// post appends one request, or flushes it at once on a dead QP.
func (q *qp) post(wr *rdma.SendWR) error {
	switch {
	case q.gone:
		return fmt.Errorf("%w: queue pair", rdma.ErrClosed)
	case q.state != rdma.QPRTS && q.state != rdma.QPError:
		return fmt.Errorf("%w: state %v", rdma.ErrNotConnected, q.state)
	}
	switch wr.Op {
	case rdma.OpSend, rdma.OpRDMARead:
	case rdma.OpRDMAWrite, rdma.OpSendInv, rdma.OpLocalInv, rdma.OpAtomicCmpSwap, rdma.OpAtomicFetchAdd, rdma.OpBindWindow:
		return fmt.Errorf("%w: %v", rdma.ErrNotSupported, wr.Op)
	default:
		return fmt.Errorf("%w: opcode %v in a send queue", rdma.ErrInvalid, wr.Op)
	}
	w := &wqe{q: q, id: wr.ID, op: wr.Op, flags: wr.Flags, remote: wr.Remote, signaled: q.signalAll || wr.Flags&rdma.SendSignaled != 0}
	if wr.Flags&rdma.SendInline != 0 {
		switch {
		case wr.Op != rdma.OpSend || len(wr.SGL) > 0:
			return fmt.Errorf("%w: inline data is for SENDs without an SGL", rdma.ErrInvalid)
		case len(wr.Inline) > q.limits.MaxInline:
			return fmt.Errorf("%w: %d bytes inline, the limit is %d", rdma.ErrInvalid, len(wr.Inline), q.limits.MaxInline)
		}
		w.inline = slices.Clone(wr.Inline)
		if w.inline == nil {
			w.inline = []byte{}
		}
	} else {
		var err error
		if w.sgl, err = makeSGL(wr.SGL, q.limits.MaxSGE); err != nil {
			return err
		}
		if w.sgl.total > soft.MaxMsgSize {
			return fmt.Errorf("%w: a message of %d bytes, the limit is %d", rdma.ErrInvalid, w.sgl.total, soft.MaxMsgSize)
		}
	}
	if q.state == rdma.QPError {
		q.sendCQ.push(q, rdma.WC{ID: w.id, Status: rdma.StatusWRFlushErr, QPN: q.num})
		return nil
	}
	if len(q.sq) >= q.limits.MaxSendWR {
		return fmt.Errorf("%w: %d send requests posted", rdma.ErrQueueFull, q.limits.MaxSendWR)
	}
	q.posts++
	w.seq = q.posts
	q.sq = append(q.sq, w)
	return nil
}

// PostRecv posts receives; SENDs that wait for one are delivered.
func (q *qp) PostRecv(wrs []rdma.RecvWR) (int, error) {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	defer q.net.turn()
	switch {
	case q.gone:
		return 0, fmt.Errorf("%w: queue pair", rdma.ErrClosed)
	case q.srq != nil:
		return 0, fmt.Errorf("%w: the queue pair has a shared receive queue", rdma.ErrInvalid)
	case q.state == rdma.QPError:
		for i := range wrs {
			if _, err := makeSGL(wrs[i].SGL, q.limits.MaxSGE); err != nil {
				return i, err
			}
			q.recvCQ.push(q, rdma.WC{ID: wrs[i].ID, Status: rdma.StatusWRFlushErr, QPN: q.num})
		}
		return len(wrs), nil
	}
	k, err := q.rq.post(wrs, q.limits.MaxSGE)
	q.serve()
	return k, err
}

// Disconnect moves the QP to ERR and tells the peer.
func (q *qp) Disconnect() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.fail(cause{err: fmt.Errorf("%w: disconnected here", rdma.ErrClosed)})
	q.net.turn()
	return nil
}

// Close disconnects and destroys the QP. Everything is flushed when fail
// returns, because it holds the lock that the responder needs.
func (q *qp) Close() error {
	n := q.net
	n.mu.Lock()
	defer n.mu.Unlock()
	q.fail(cause{err: fmt.Errorf("%w: closed here", rdma.ErrClosed)})
	if !q.gone {
		q.gone = true
		d := q.pd.dev
		for _, c := range []*cq{q.sendCQ, q.recvCQ} {
			if c.qps[q]--; c.qps[q] <= 0 {
				delete(c.qps, q)
			}
		}
		without := func(list []*qp) []*qp {
			return slices.DeleteFunc(list, func(x *qp) bool { return x == q })
		}
		if q.srq != nil {
			q.srq.users = without(q.srq.users)
		}
		d.qps = without(d.qps)
		q.pd.users--
	}
	n.turn()
	return nil
}

// Connect dials a listener.
func (q *qp) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	info, err := q.connect(ctx, addr, p)
	if err != nil {
		return info, opError("connect", addr, err)
	}
	return info, nil
}
