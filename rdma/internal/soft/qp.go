package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// An Outer is a fabric's QP, in which ours is embedded.
type Outer interface {
	User
	// HangUp is called once, under QP.Mu, when the QP has just entered ERR: Done is
	// closed, and a set-up under way was aborted. It tells the peer, and ensures
	// that FlushLocked is called when no goroutine touches the program's memory any
	// more.
	HangUp()
}

// A QP is what a reliable connection is to the program: queues, a state, and an end.
// A fabric embeds it in its own, and adds PostSend, Connect and HangUp.
//
// Two goroutines at a time work for a connection: the transmitter, which takes
// requests from SQ and answers the peer's, and the receiver, which owns Inbox. The
// fabric ensures that there is no second one of either. Only these two touch buffers
// of the program; so when the QP is in ERR and neither is at work, everything can be
// flushed.
//
// Locks come in this order: the fabric's lock of the receiver, that of the
// transmitter, Mu, a receive queue's, a CQ's. The locks of a device, a PD, a table
// of regions, of keys and of numbers are leaves.
type QP struct {
	pd     *PD
	outer  Outer
	num    uint32
	Config rdma.QPConfig // with defaults filled in
	SendCQ *CQ
	RecvCQ *CQ
	RQ     *RecvQueue // the QP's own or the SRQ's
	srq    *SRQ
	ownRQ  RecvQueue

	rights atomic.Uint32 // rdma.Access that the peer has; written under Mu
	dying  atomic.Bool   // in ERR

	Mu       sync.Mutex
	SQ       SendQueue // under Mu
	life     life      // under Mu
	ORD, IRD int       // under Mu; set once, by EstablishLocked

	// Inbox is the receiver's. FlushLocked looks at it when there is no receiver.
	Inbox Inbox

	// Workers are the goroutines of the connection: Close waits for them.
	Workers sync.WaitGroup

	dead  chan struct{} // closed on entering ERR
	quiet chan struct{} // closed when everything is flushed
}

// An Inbox is the receive that a SEND of the peer is filling.
type Inbox struct {
	Receiving bool // a SEND has begun and Recv is its buffer
	Recv      RecvWQE
	Got       uint32 // bytes placed
}

// A life is where a QP is between INIT and its end.
type life struct {
	state   rdma.QPState
	info    rdma.ConnInfo
	err     error
	cause   Cause
	claimed bool   // by Connect or Accept: a QP connects once
	abort   func() // ends a Connect under way; nil without one
	settled bool   // in ERR and everything flushed
	closed  bool   // Close was called
}

// Init makes q a QP of pd in state INIT; outer is the fabric's, in which q is
// embedded. An error means that there is none: ErrInvalid, ErrNotSupported,
// ErrLimit, ErrClosed, ErrCQOverrun.
func (q *QP) Init(pd *PD, outer Outer, cfg rdma.QPConfig) error {
	q.pd, q.outer = pd, outer
	q.life.state = rdma.QPInit
	q.dead, q.quiet = make(chan struct{}), make(chan struct{})
	if err := q.configure(cfg); err != nil {
		return err
	}
	d := pd.dev
	if err := d.qps.Add("queue pairs"); err != nil {
		return err
	}
	undo := []func(){d.qps.Drop}
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
	if err := step(pd.use(), pd.unuse); err != nil {
		return err
	}
	if err := step(q.SendCQ.attach(q.outer), func() { q.SendCQ.detach(q.outer) }); err != nil {
		return err
	}
	if err := step(q.RecvCQ.attach(q.outer), func() { q.RecvCQ.detach(q.outer) }); err != nil {
		return err
	}
	if q.srq != nil {
		if err := step(q.srq.attach(), q.srq.detach); err != nil {
			return err
		}
	}
	var ok bool
	if q.num, ok = d.numbers.Take(); !ok {
		return step(fmt.Errorf("%w: all numbers of queue pairs are in use", rdma.ErrLimit), nil)
	}
	return nil
}

// configure checks cfg and fills in defaults.
func (q *QP) configure(cfg rdma.QPConfig) error {
	if q.SendCQ = q.ours(cfg.SendCQ); q.SendCQ == nil {
		return fmt.Errorf("%w: SendCQ is not of this device", rdma.ErrInvalid)
	}
	if q.RecvCQ = q.ours(cfg.RecvCQ); q.RecvCQ == nil {
		return fmt.Errorf("%w: RecvCQ is not of this device", rdma.ErrInvalid)
	}
	if cfg.SRQ != nil {
		var ok bool
		if q.srq, ok = cfg.SRQ.(*SRQ); !ok || q.srq == nil || q.srq.pd != q.pd {
			return fmt.Errorf("%w: SRQ is not of this protection domain", rdma.ErrInvalid)
		}
	}
	if err := Caps(&cfg.Cap, &q.pd.dev.attr); err != nil {
		return err
	}
	if err := CheckAccess(cfg.Access); err != nil {
		return err
	}
	q.Config = cfg
	q.rights.Store(uint32(cfg.Access))
	q.SQ.limit = cfg.Cap.MaxSendWR
	q.ownRQ = RecvQueue{limit: cfg.Cap.MaxRecvWR, maxSGE: cfg.Cap.MaxSGE, kind: q.pd.dev.kind}
	q.RQ = &q.ownRQ
	if q.srq != nil {
		q.RQ = &q.srq.queue
	}
	return nil
}

// ours returns the CQ that is embedded in c; nil if that is none of the device.
func (q *QP) ours(c rdma.CQ) *CQ {
	b, ok := c.(interface{ base() *CQ })
	if !ok || b.base().dev != q.pd.dev {
		return nil
	}
	return b.base()
}

// Outer returns the fabric's QP.
func (q *QP) Outer() Outer { return q.outer }

// QPN returns the number.
func (q *QP) QPN() uint32 { return q.num }

// PD returns the parent.
func (q *QP) PD() rdma.PD { return q.pd.outer }

// State returns the state at this moment.
func (q *QP) State() rdma.QPState {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.life.state
}

// StateLocked is State under Mu.
func (q *QP) StateLocked() rdma.QPState { return q.life.state }

// Dying reports whether the QP is in ERR, without a lock.
func (q *QP) Dying() bool { return q.dying.Load() }

// Info returns the outcome of Connect or Accept; zero before.
func (q *QP) Info() rdma.ConnInfo {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.life.info
}

// Done is closed when the QP has entered ERR.
func (q *QP) Done() <-chan struct{} { return q.dead }

// Err is nil while the QP lives.
func (q *QP) Err() error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.life.err
}

// Access returns what the peer may do now.
func (q *QP) Access() rdma.Access { return rdma.Access(q.rights.Load()) }

// SetAccess replaces the remote rights of the peer. Requests are checked when they
// begin to be served.
func (q *QP) SetAccess(a rdma.Access) error {
	if err := CheckAccess(a); err != nil {
		return err
	}
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.life.state == rdma.QPError {
		return fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, q.life.state)
	}
	q.rights.Store(uint32(a))
	return nil
}

// PostLocked puts requests into SQ and returns how many were taken, and whether
// there is something to transmit now: on a dead QP the requests are flushed. The
// caller holds Mu.
func (q *QP) PostLocked(wrs []rdma.SendWR) (n int, live bool, err error) {
	l := &q.life
	if l.state < rdma.QPRTS || l.closed {
		return 0, false, fmt.Errorf("%w: the queue pair is in state %v", rdma.ErrNotConnected, l.state)
	}
	n, err = q.SQ.post(wrs, &q.Config, q.ORD > 0 || l.state != rdma.QPRTS, q.pd.dev.kind)
	if l.state == rdma.QPError {
		q.flushLate()
		return n, false, err
	}
	return n, n > 0, err
}

// PostRecv posts receives to the QP's own queue.
func (q *QP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.srq != nil {
		return 0, fmt.Errorf("%w: the queue pair receives from an SRQ; post there", rdma.ErrInvalid)
	}
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.life.closed {
		return 0, fmt.Errorf("%w: the queue pair was closed", rdma.ErrNotConnected)
	}
	n, err := q.RQ.post(wrs)
	if q.life.state == rdma.QPError {
		q.flushLate()
	}
	return n, err
}

// RetireLocked completes the oldest requests that are done, in order. The caller
// holds Mu.
func (q *QP) RetireLocked() {
	s := &q.SQ
	for s.Head != s.Next && s.At(s.Head).Done {
		if s.Head+1 != s.Next && s.At(s.Head+1).Done {
			q.retireBatch()
			continue
		}
		if wc, wanted := q.retireOne(); wanted {
			q.SendCQ.Push(wc)
		}
	}
}

// retireBatch completes up to 16 requests at once. It is apart from RetireLocked, so
// that a single request need not clear the array.
func (q *QP) retireBatch() {
	var wcs [16]rdma.WC
	s := &q.SQ
	n := 0
	for n < len(wcs) && s.Head != s.Next && s.At(s.Head).Done {
		if wc, wanted := q.retireOne(); wanted {
			wcs[n] = wc
			n++
		}
	}
	if n > 0 {
		q.SendCQ.Push(wcs[:n]...)
	}
}

// retireOne takes the oldest request off. wanted says that the request gets a
// completion.
func (q *QP) retireOne() (wc rdma.WC, wanted bool) {
	w := q.SQ.pop()
	if wanted = w.Signaled; wanted {
		wc = rdma.WC{ID: w.ID, Op: w.Op, QPN: q.num}
		if w.Op == rdma.OpRDMARead {
			wc.ByteLen = w.Length
		}
	}
	w.free()
	return wc, wanted
}

// Begin claims the QP for one attempt to connect, the only one that it has.
func (q *QP) Begin() error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.life.state != rdma.QPInit || q.life.claimed {
		return fmt.Errorf("%w: a queue pair connects once, this one is in state %v", rdma.ErrInvalid, q.life.state)
	}
	q.life.claimed = true
	return nil
}

// OnFail sets what ends a set-up that is under way when the QP dies. abort is
// called under Mu.
func (q *QP) OnFail(abort func()) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.life.abort = abort
}

// EstablishLocked says that the connection is there: state is RTR or RTS. It fails
// with ErrClosed if the QP has died meanwhile, and then changes nothing. The caller
// holds Mu.
func (q *QP) EstablishLocked(info rdma.ConnInfo, ird, ord int, state rdma.QPState) error {
	if q.life.state != rdma.QPInit {
		return fmt.Errorf("%w: while connecting", rdma.ErrClosed)
	}
	q.life.info, q.IRD, q.ORD, q.life.state = info, ird, ord, state
	return nil
}

// ReadyLocked moves a QP from RTR to RTS; if the QP has died it returns why. The
// caller holds Mu.
func (q *QP) ReadyLocked() error {
	if q.life.state == rdma.QPError {
		return q.life.err
	}
	q.life.state = rdma.QPRTS
	return nil
}
