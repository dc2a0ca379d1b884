package iwarp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A qp is a reliable connection: a TCP socket, its queues, and the state of
// both directions.
//
// Ownership. mu guards everything in its block. The transmitter, whoever set
// txBusy, owns the fields of tx alone and may let go of mu while it copies and
// writes. The receiver, while it has set rxBusy, owns those of rx. Buffers of the
// program are touched by these two only; so when the QP is in ERR and neither
// is busy, everything can be flushed (settle).
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

	// rxMu is held by whoever is the receiver, see look.go. It comes before mu.
	rxMu     sync.Mutex
	fd       int          // of conn, open until rx.ended; set once
	lookable atomic.Bool  // not TLS, and not ended
	hushed   atomic.Bool  // SO_RCVLOWAT is raised; written under rxMu
	rings    atomic.Bool  // whoever looks next is to ring; written under mu
	owed     atomic.Int64 // by the peer: the bytes of READs that are under way, and owedEach for each; written under mu

	mu         sync.Mutex
	state      rdma.QPState
	info       rdma.ConnInfo
	err        error
	cause      cause
	settled    bool // in ERR and everything flushed
	closed     bool // Close was called
	sq         sendQueue
	reads      int // READs sent and not completed; at most ord
	orq        readRing
	resp       responseQueue
	txBusy     bool
	rxBusy     bool
	txFraming  bool      // the transmitter copies program memory without mu
	txHold     bool      // an acceptor's silence before the first FPDU from the peer
	respTurn   bool      // fairness between responses and requests
	claimed    bool      // by Connect or Accept: a QP connects once
	abort      func()    // ends a Connect under way; nil without one
	readerGone bool      // the reader has ended: who comes last closes the socket
	lingerEnd  time.Time // of a dead QP
	finished   bool      // the last bytes, Terminate or none, have been dealt with
	conn       stream
	raw        syscall.RawConn // of conn; nil if that is TLS
	secure     *secure         // conn, if it is TLS
	workers    sync.WaitGroup  // reader and writer goroutines
	burst      int             // completions of the reader's last round
	ringing    bool            // somebody has let others run first and then kicks

	crc        bool
	maxPayload int
	ord        int
	ird        int

	tx transmitter
	rx receiver

	dead    chan struct{} // closed on entering ERR
	quiet   chan struct{} // closed when settled
	started chan struct{} // closed by the first FPDU; nil if nobody waits for it
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

// SetAccess replaces the remote rights of the peer. Requests are checked
// under mu when they begin to be served, so taking it here is what puts the
// new rights in force for every later one.
func (q *qp) SetAccess(a rdma.Access) error {
	if err := checkAccess(a); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == rdma.QPError {
		return fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, q.state)
	}
	q.access.Store(uint32(a))
	return nil
}

// PostSend posts a batch: everything that the socket takes at once is sent
// before it returns, by this goroutine, unless another one is sending.
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
		q.doorbell()
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
		if err := q.sq.vacant().set(&wrs[i], q); err != nil {
			return i, err
		}
		q.sq.put()
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
