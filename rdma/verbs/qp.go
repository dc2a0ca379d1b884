package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A qp is an RC QP of the device and the connection beneath it.
type qp struct {
	pd     *pd
	hw     *ibv.QP
	num    uint32
	sendCQ *cq
	recvCQ *cq
	srq    *srq

	maxSGE    int
	maxInline int

	state  atomic.Uint32 // rdma.QPState; written under mu
	access atomic.Uint32 // rdma.Access that the peer has; written under modMu
	ord    atomic.Int32  // READs that the peer serves at a time

	sendMu  sync.Mutex
	scratch []ibv.SendWR  // requests in the device's words, of the post under way; nil before the first
	sent    bool          // something was posted
	shut    bool          // Close takes no more sends, and frees inline
	inline  *memory.Block // where inline payloads wait for the call; nil without

	recvMu   sync.Mutex
	received bool // a receive was posted
	recvShut bool // Close takes no more receives

	modMu sync.Mutex // one ibv_modify_qp with access flags at a time

	mu      sync.Mutex
	info    rdma.ConnInfo
	err     error
	claimed bool   // by Connect or Accept: a QP connects once
	closed  bool   // Close has begun: no new workers
	abort   func() // ends a set-up under way; nil without one
	link    link   // nil before the connection
	workers sync.WaitGroup

	suspected atomic.Bool   // a worker is looking why it flushes
	dead      chan struct{} // closed on entering ERR
	quiet     chan struct{} // closed when Close is done

	sendDrained, recvDrained atomic.Bool   // the last work request came back
	lastWQE                  chan struct{} // closed when it has left its SRQ alone
	lastWQEOnce              sync.Once
	early                    chan struct{} // closed when data came before the set-up's last message
	earlyOnce                sync.Once
}

// A link is the connection beneath a QP: an identifier of librdmacm or a TCP
// socket.
type link interface {
	// disconnect tells the peer. It does not wait.
	disconnect()
	// close waits a moment for the peer to have heard and frees the link.
	close()
}

// CreateQP creates an RC QP in state INIT.
func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := &qp{pd: p, dead: make(chan struct{}), quiet: make(chan struct{}), lastWQE: make(chan struct{}), early: make(chan struct{})}
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
	if q.maxInline > 0 {
		var err error
		q.inline, err = memory.Alloc(q.maxInline*smallBatch, memory.Options{Tag: "inline"})
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
	q.maxSGE, q.maxInline = cfg.Cap.MaxSGE, cfg.Cap.MaxInline
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
