package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A qp is an RC QP of the device and the connection beneath it. Its queues and its end
// are parts of their own, which know it by a back pointer.
type qp struct {
	pd     *pd
	hw     *ibv.QP
	num    uint32
	sendCQ *cq
	recvCQ *cq
	srq    *srq
	maxSGE int

	state  atomic.Uint32 // rdma.QPState; written under mu
	access atomic.Uint32 // rdma.Access that the peer has; written under modMu

	sends sendQueue
	recvs recvQueue
	drain drain
	sinks atomic.Pointer[sinks] // PrepareSinks made them

	modMu sync.Mutex // one ibv_modify_qp with access flags at a time

	mu      sync.Mutex
	info    rdma.ConnInfo
	err     error
	setup   attempt
	closed  bool // Close has begun: no new workers
	link    link // nil before the connection
	workers sync.WaitGroup

	suspected atomic.Bool   // a worker is looking why it flushes
	dead      chan struct{} // closed on entering ERR
	quiet     chan struct{} // closed when Close is done
}

// An attempt is the one set-up that a QP has, by Connect or Accept.
type attempt struct {
	claimed bool   // it has begun; under the QP's mu
	abort   func() // ends it while it is under way, else nil; under the QP's mu
	early   signal // data came before its last message
}

// A signal is given once; to give it again does nothing.
type signal struct {
	once sync.Once
	ch   chan struct{} // closed then
}

func (s *signal) give() { s.once.Do(func() { close(s.ch) }) }

// newQP is a QP that the device does not know yet.
func newQP(p *pd) *qp {
	q := &qp{pd: p, dead: make(chan struct{}), quiet: make(chan struct{})}
	q.sends.q, q.recvs.q, q.drain.q = q, q, q
	q.setup.early.ch, q.drain.leftSRQ.ch = make(chan struct{}), make(chan struct{})
	return q
}

// A link is the connection beneath a QP: an identifier of librdmacm or a TCP
// socket.
type link interface {
	// Disconnect tells the peer. It does not wait.
	Disconnect()
	// Close waits a moment for the peer to confirm the end, and frees the link.
	Close()
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := newQP(p)
	if err := q.configure(&cfg); err != nil {
		return nil, err
	}
	var undo []func()
	step := func(err error, back func()) error {
		if err == nil {
			undo = append(undo, back)
			return nil
		}
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
		return err
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
	if err := step(q.create(&cfg), func() { _ = q.hw.Close() }); err != nil {
		return nil, classify(err)
	}
	if q.sends.maxInline > 0 {
		var err error
		q.sends.inline, err = mem.Alloc(q.sends.maxInline*smallBatch, mem.Options{Tag: "inline"})
		if err := step(err, nil); err != nil {
			return nil, fmt.Errorf("%w: %w", rdma.ErrLimit, err)
		}
	}
	p.dev.enter(q)
	return q, nil
}

// configure checks cfg and fills in defaults.
func (q *qp) configure(cfg *rdma.QPConfig) error {
	d := q.pd.dev
	var ok bool
	if q.sendCQ, ok = cfg.SendCQ.(*cq); !ok || q.sendCQ == nil || q.sendCQ.dev != d {
		return fmt.Errorf("%w: SendCQ is not of this device", rdma.ErrInvalid)
	}
	if q.recvCQ, ok = cfg.RecvCQ.(*cq); !ok || q.recvCQ == nil || q.recvCQ.dev != d {
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
		{"MaxSendWR", &cfg.Cap.MaxSendWR, min(defaultSendWR, d.attr.MaxQPWR), d.attr.MaxQPWR},
		{"MaxRecvWR", &cfg.Cap.MaxRecvWR, min(defaultRecvWR, d.attr.MaxQPWR), d.attr.MaxQPWR},
		{"MaxSGE", &cfg.Cap.MaxSGE, min(defaultSGE, d.attr.MaxSGE), d.attr.MaxSGE},
		{"MaxInline", &cfg.Cap.MaxInline, 0, d.attr.MaxInline},
	} {
		if *l.v == 0 {
			*l.v = l.def
		}
		if *l.v < 0 || *l.v > l.max {
			return fmt.Errorf("%w: %s %d is not within 0 and %d", rdma.ErrInvalid, l.name, *l.v, l.max)
		}
	}
	if err := d.checkAccess(cfg.Access); err != nil {
		return err
	}
	q.access.Store(uint32(cfg.Access))
	q.maxSGE, q.sends.maxInline = cfg.Cap.MaxSGE, cfg.Cap.MaxInline
	return nil
}

// create makes the QP and moves it to INIT, with the rights of the
// configuration: normally none. Each queue has room for the one work request
// more that Close posts.
func (q *qp) create(cfg *rdma.QPConfig) error {
	d := q.pd.dev
	init := ibv.QPInit{
		SendCQ: q.sendCQ.hw, RecvCQ: q.recvCQ.hw, SigAll: cfg.SignalAll,
		Cap: ibv.QPCap{
			MaxSendWR: uint32(cfg.Cap.MaxSendWR + 1), MaxRecvWR: uint32(cfg.Cap.MaxRecvWR + 1),
			MaxSendSGE: uint32(cfg.Cap.MaxSGE), MaxRecvSGE: uint32(cfg.Cap.MaxSGE), MaxInline: uint32(cfg.Cap.MaxInline),
		},
	}
	if q.srq != nil {
		init.SRQ = q.srq.hw
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 0, 0
	}
	hw, _, err := q.pd.hw.CreateQP(init)
	if err != nil {
		return err
	}
	q.hw, q.num = hw, hw.Num()
	d.mu.Lock()
	port := d.port.num
	d.mu.Unlock()
	if err := q.toInit(port, uint16(d.fabric.opts.PKeyIndex)); err != nil {
		_ = hw.Close()
		return err
	}
	q.state.Store(uint32(rdma.QPInit))
	return nil
}

func (q *qp) QPN() uint32 { return q.num }
func (q *qp) PD() rdma.PD { return q.pd }

// State is the state at this moment.
func (q *qp) State() rdma.QPState { return rdma.QPState(q.state.Load()) }

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

// SetAccess replaces the remote rights of the peer. The device knows them when
// ibv_modify_qp has returned. Before the connection they are noted, and set
// with the transition to RTR; on iWARP, where the kernel makes that transition,
// they are set at once.
func (q *qp) SetAccess(a rdma.Access) error {
	if err := q.pd.dev.checkAccess(a); err != nil {
		return err
	}
	q.modMu.Lock()
	defer q.modMu.Unlock()
	switch s := q.State(); {
	case s == rdma.QPError:
		return fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, s)
	case s == rdma.QPInit && !q.pd.dev.iwarp:
	default:
		attr := ibv.QPAttr{AccessFlags: remoteRights(a)}
		if err := q.hw.Modify(&attr, ibv.QPMaskAccessFlags); err != nil {
			if q.State() == rdma.QPError {
				return fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, rdma.QPError)
			}
			return opError("set access", "", classify(err))
		}
	}
	q.access.Store(uint32(a))
	return nil
}

// remoteRights are the flags of a QP: local write is a matter of regions.
func remoteRights(a rdma.Access) ibv.Access { return ibv.Access(a & rdma.AccessRemoteMask) }

var _ rdma.QP = (*qp)(nil)
