//go:build linux

package shm

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
)

// A qp is a reliable connection: a socket, a channel of two rings, the regions
// that each end shows the other, and the queues.
//
// Ownership. mu guards everything in its block. Whoever holds txMu is the
// producer of our ring, whoever holds rxMu the consumer of the peer's; buffers of
// the program are touched by these two only, so whoever has both can flush.
// Order: rxMu, then mu; txMu is only ever tried under mu, and taken before it by
// finish alone.
type qp struct {
	num    uint32
	pd     *pd
	cfg    rdma.QPConfig // with defaults filled in
	sendCQ *cq
	recvCQ *cq
	srq    *srq
	rq     *recvQueue // the QP's own or the SRQ's
	ownRQ  recvQueue

	access atomic.Uint32 // rdma.Access that the peer has; written under mu
	dying  atomic.Bool   // in ERR

	mu      sync.Mutex
	state   rdma.QPState
	info    rdma.ConnInfo
	err     error
	cause   cause
	settled bool // in ERR and everything flushed
	closed  bool // Close was called
	claimed bool // by Connect or Accept: a QP connects once
	sq      sendQueue
	reads   []*sendWQE // READ requests in the peer's hands, oldest first; at most ord
	resp    []response // READs of the peer; at most ird
	turn    bool       // fairness between responses and requests
	again   bool       // the producer is to look once more
	abort   func()     // ends a Connect under way; nil without one
	ord     int
	ird     int
	conn    *net.UnixConn
	raw     syscall.RawConn // of conn
	ch      *channel
	proof   proofFile // held for as long as we map the peer's memory; nil: none

	txMu sync.Mutex
	tx   producer

	rxMu sync.Mutex
	rx   receiver

	show    showing // our regions, as the peer sees them
	seen    seen    // the peer's
	sockets sync.WaitGroup
	workers sync.WaitGroup // finish

	dead  chan struct{} // closed on entering ERR
	quiet chan struct{} // closed when settled
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := &qp{pd: p, state: rdma.QPInit, dead: make(chan struct{}), quiet: make(chan struct{})}
	if err := q.configure(cfg); err != nil {
		return nil, err
	}
	if err := p.dev.numQP.add("queue pairs"); err != nil {
		return nil, err
	}
	var ok bool
	undo := []func(){p.dev.numQP.drop}
	step := func(err error, back func()) error {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
			return err
		}
		undo = append(undo, back)
		return nil
	}
	if err := step(p.use(), p.unuse); err != nil {
		return nil, err
	}
	if err := step(q.sendCQ.attach(q), func() { q.sendCQ.detach(q) }); err != nil {
		return nil, err
	}
	if err := step(q.recvCQ.attach(q), func() { q.recvCQ.detach(q) }); err != nil {
		return nil, err
	}
	if q.srq != nil {
		if err := step(q.srq.attach(), q.srq.detach); err != nil {
			return nil, err
		}
	}
	if q.num, ok = p.dev.fabric.qpns.take(); !ok {
		return nil, step(fmt.Errorf("%w: all numbers of queue pairs are in use", rdma.ErrLimit), nil)
	}
	return q, nil
}

// configure checks cfg and fills in defaults.
func (q *qp) configure(cfg rdma.QPConfig) error {
	var ok bool
	if q.sendCQ, ok = cfg.SendCQ.(*cq); !ok || q.sendCQ == nil || q.sendCQ.dev != q.pd.dev {
		return fmt.Errorf("%w: SendCQ is not of this device", rdma.ErrInvalid)
	}
	if q.recvCQ, ok = cfg.RecvCQ.(*cq); !ok || q.recvCQ == nil || q.recvCQ.dev != q.pd.dev {
		return fmt.Errorf("%w: RecvCQ is not of this device", rdma.ErrInvalid)
	}
	if cfg.SRQ != nil {
		if q.srq, ok = cfg.SRQ.(*srq); !ok || q.srq == nil || q.srq.pd != q.pd {
			return fmt.Errorf("%w: SRQ is not of this protection domain", rdma.ErrInvalid)
		}
	}
	for _, l := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxSendWR", &cfg.Cap.MaxSendWR, defaultSendWR, maxQPWR},
		{"MaxRecvWR", &cfg.Cap.MaxRecvWR, defaultRecvWR, maxQPWR},
		{"MaxSGE", &cfg.Cap.MaxSGE, defaultSGE, maxSGE},
		{"MaxInline", &cfg.Cap.MaxInline, 0, maxInline},
	} {
		if *l.v == 0 {
			*l.v = l.def
		}
		if *l.v < 0 || *l.v > l.max {
			return fmt.Errorf("%w: %s %d is not within 0 and %d", rdma.ErrInvalid, l.name, *l.v, l.max)
		}
	}
	if err := checkAccess(cfg.Access); err != nil {
		return err
	}
	q.cfg = cfg
	q.access.Store(uint32(cfg.Access))
	q.sq.limit = cfg.Cap.MaxSendWR
	q.ownRQ.limit, q.ownRQ.maxSGE = cfg.Cap.MaxRecvWR, cfg.Cap.MaxSGE
	q.rq = &q.ownRQ
	if q.srq != nil {
		q.rq = &q.srq.q
	}
	return nil
}

func checkAccess(a rdma.Access) error {
	const known = rdma.AccessLocalWrite | rdma.AccessRemoteMask
	if a&^known != 0 {
		return fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(a&^known))
	}
	if a&rdma.AccessRemoteAtomic != 0 {
		return fmt.Errorf("%w: remote atomics", rdma.ErrNotSupported)
	}
	return nil
}

func (q *qp) QPN() uint32 { return q.num }
func (q *qp) PD() rdma.PD { return q.pd }

// State is the state at this moment.
func (q *qp) State() rdma.QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// Info is the outcome of Connect or Accept; zero before.
func (q *qp) Info() rdma.ConnInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.info
}

// Done is closed when the QP has entered ERR.
func (q *qp) Done() <-chan struct{} { return q.dead }

// Err is nil while the QP lives.
func (q *qp) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Access is what the peer may do now.
func (q *qp) Access() rdma.Access { return rdma.Access(q.access.Load()) }

// SetAccess replaces the remote rights of the peer. READs through the rings look
// at them when they begin to be served; for those that the peer does itself the
// words in our half say so before SetAccess returns.
func (q *qp) SetAccess(a rdma.Access) error {
	if err := checkAccess(a); err != nil {
		return err
	}
	q.mu.Lock()
	if q.state == rdma.QPError {
		defer q.mu.Unlock()
		return fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, q.state)
	}
	q.access.Store(uint32(a))
	q.mu.Unlock()
	q.grant()
	return nil
}

// PostSend posts a batch. Requests for which there is room in the ring, and READs
// of regions that the peer has shown, are carried out before it returns.
func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state < rdma.QPRTS || q.closed {
		return 0, fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, q.state)
	}
	n, err := q.enqueueSends(wrs)
	if q.state == rdma.QPError {
		q.flushIfSettled()
	} else if n > 0 {
		q.pump()
	}
	return n, err
}

func (q *qp) enqueueSends(wrs []rdma.SendWR) (int, error) {
	for i := range wrs {
		if q.sq.len() >= q.sq.limit {
			return i, fmt.Errorf("%w: %d send work requests posted", rdma.ErrQueueFull, q.sq.limit)
		}
		if wrs[i].Op == rdma.OpRDMARead && q.ord == 0 && q.state == rdma.QPRTS {
			return i, fmt.Errorf("%w: the peer serves no READs (ORD 0)", rdma.ErrInvalid)
		}
		w, err := q.newSendWQE(&wrs[i])
		if err != nil {
			return i, err
		}
		q.sq.put(w)
	}
	return len(wrs), nil
}

// PostRecv posts receives to the QP's own queue.
func (q *qp) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, fmt.Errorf("%w: the queue pair receives from an SRQ; post there", rdma.ErrInvalid)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	n, err := q.rq.post(wrs)
	if q.state == rdma.QPError {
		q.flushIfSettled()
	}
	return n, err
}

var _ rdma.QP = (*qp)(nil)
