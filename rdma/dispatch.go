package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Dispatcher lets many goroutines share one CQ. Each posts its work with the
// ID of an Op and waits for that op; whoever waits does the work for all.
//
//	goroutine A   NewOp ─ PostSend ─ Wait ━━ leads: poll, arm, poll, park in CQ.Wait ━━▶ own WC
//	goroutine B   NewOp ─ PostSend ─ Wait ┄┄ follows: parked on its op ┄┄▶ WC from A ┄▶ or leads next
//	receives      ───────────────────────▶ OnRecv callback, on whatever goroutine polls
//
// One waiter at a time leads: it polls the CQ, hands completions to the ops
// they belong to, and parks in CQ.Wait when there is nothing to do. So in a
// program with one goroutine that goroutine itself sleeps in the CQ, without a
// hop through another one. A leader whose own op is done leaves, and passes the
// lead to a follower if there is one: leadership is never free while somebody
// waits, which is why no wake-up can be lost.
//
// Start adds a background poller. It leads when nobody has waited for a while
// (DispatcherOptions.Grace), so that receives and detached ops make progress,
// and costs nothing when idle: it is parked in CQ.Wait too. As soon as it has
// delivered something that somebody waited for, it gives the lead back.
//
// # Buffers
//
// Wait returns an error only if the op did NOT complete: the context ended or
// the CQ died. The memory of the work request then still belongs to the fabric
// and stays in quarantine; what was set with OnDetached runs when the
// completion arrives, at the latest in Close. A completion with an error
// status is no error of Wait: see WC.Status.
//
// All methods are safe for concurrent use, except that OnRecv and Start come
// before the first Wait.
type Dispatcher struct {
	cq      CQ
	spinner Spinner // cq, if it is one
	opt     DispatcherOptions
	onRecv  func(WC)
	ops     opTable

	stats    dispatchCounters
	parkedOn atomic.Uint64 // ID of the reply that a parked leader waits for, else 0
	down     atomic.Bool   // cause is set: no more waiting

	born time.Time // what nanos counts from

	// The leader's: the completions of one poll; how long waits spin, for work
	// requests and for replies; and which op's PostSend has spun since when.
	wcs                 []WC
	workSpin, replySpin *SpinBudget
	spunFor             uint64
	spunSince           int64
	polled, rested      int64  // WC.Polled of the last completion, and when it was time to rest
	delivered           uint64 // completions, for restDue

	// mu guards what follows. No callback runs under it and it is held for a
	// few instructions only; there is no other lock to order it against.
	mu        sync.Mutex
	leading   bool   // somebody leads: a waiter or the background poller
	turns     uint64 // how often the lead became free
	followers opList // newest last
	cause     error  // why the dispatcher is down
	kick      kicker // interrupts a leader that waits for a reply
	bgParked  bool   // the background poller sleeps until the lead is free
	started   bool

	bgWake chan struct{} // cap 1: the lead is free
	freed  chan struct{} // cap 1: likewise, for Close
	stop   context.Context
	cancel context.CancelFunc
	bg     sync.WaitGroup

	closing  sync.Once
	closeErr error
	drained  atomic.Bool // Close has emptied the CQ: no completion comes any more
}

// DispatcherOptions tune a Dispatcher. The zero value is good for clients.
type DispatcherOptions struct {
	// Wait says how a waiter that leads spends the time until a completion
	// comes; the background poller never spins.
	Wait WaitMode
	// Spin is for how long a wait polls an empty CQ before it parks, at most; in
	// mode adaptive mostly for less. Zero means not at all: see SpinTime.
	Spin time.Duration
	// Batch is how many completions one poll takes; 0 means 32.
	Batch int
	// Grace is for how long the CQ may stay unattended after the last waiter
	// left, before the background poller takes over; 0 means 2 ms, and it may be
	// eight times that when waiters have come and gone all the time. Short
	// enough for receives that nobody waits for, long enough that a goroutine
	// which waits again and again always finds the lead free.
	Grace time.Duration
	// Eager makes the background poller keep the lead for good: for servers,
	// whose receives must be noticed at once. Waiters then follow.
	Eager bool
	// MaxOps bounds the ops in use; 0 means 65536. The caller bounds its work
	// in flight by credits and queue depths, so passing it is a programming
	// error and panics.
	MaxOps int
}

// NewDispatcher makes the only user of cq's Poll, Arm and Wait.
func NewDispatcher(cq CQ, opt DispatcherOptions) *Dispatcher {
	if opt.Batch <= 0 {
		opt.Batch = 32
	}
	if opt.Grace <= 0 {
		opt.Grace = 2 * time.Millisecond
	}
	if opt.MaxOps <= 0 {
		opt.MaxOps = defaultOps
	}
	opt.MaxOps = min(opt.MaxOps, maxOpsBound)
	d := &Dispatcher{
		cq:     cq,
		opt:    opt,
		born:   time.Now(),
		wcs:    make([]WC, opt.Batch),
		bgWake: make(chan struct{}, 1),
		freed:  make(chan struct{}, 1),
	}
	d.spinner, _ = cq.(Spinner)
	d.workSpin, d.replySpin = NewSpinBudget(opt.Wait, opt.Spin), NewSpinBudget(opt.Wait, opt.Spin)
	d.ops.chunks = make([]atomic.Pointer[[opsPerChunk]Op], (opt.MaxOps+opsPerChunk-1)/opsPerChunk)
	d.stop, d.cancel = context.WithCancel(context.Background())
	return d
}

// OnRecv sets the callback for completions whose ID was made with RecvID,
// flushed ones included. It runs on the goroutine that polls, one call at a
// time, must not block, and may post, Complete and Detach, but not Wait.
func (d *Dispatcher) OnRecv(f func(WC)) { d.onRecv = f }

// Wait returns the completion of op, or an error if it will not wait any
// longer: ctx.Err(), ErrCQOverrun, ErrClosed. In both cases op is gone
// afterwards; after an error its buffers stay in quarantine until OnDetached
// runs. With a ctx that never ends it does not allocate.
func (d *Dispatcher) Wait(ctx context.Context, op *Op) (WC, error) {
	if op.finished() {
		return d.take(op), nil
	}
	op.check(opPending, opClaimed)
	leader, err := d.enter(op)
	switch {
	case err != nil:
	case leader:
		err = d.lead(ctx, op)
	default:
		err = d.follow(ctx, op)
	}
	if err == nil {
		return d.take(op), nil
	}
	if d.detach(op) {
		return WC{}, err
	}
	return d.take(op), nil // it came at the last moment
}

// WaitAll waits for all ops; every one of them is gone afterwards. It returns
// nil if all succeeded; an error of Wait if any did not complete, whose buffers
// then are in quarantine; else, as a StatusError, the first status that is not
// a flush, or the flush.
func (d *Dispatcher) WaitAll(ctx context.Context, ops []*Op) error {
	var gaveUp error
	worst := StatusSuccess
	for _, op := range ops {
		wc, err := d.Wait(ctx, op)
		switch {
		case err != nil && gaveUp == nil:
			gaveUp = err
		case err == nil && (worst == StatusSuccess || worst == StatusWRFlushErr) && wc.Status != StatusSuccess:
			worst = wc.Status
		}
	}
	if gaveUp != nil {
		return gaveUp
	}
	return worst.Err()
}

// Start starts the background poller; Close ends it. Starting twice is
// harmless.
func (d *Dispatcher) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started || d.cause != nil {
		return
	}
	d.started = true
	d.bg.Go(d.background)
}

// Err is nil while the dispatcher works; afterwards why it does not:
// ErrCQOverrun or ErrClosed.
func (d *Dispatcher) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// Close ends waiting: waiters get ErrClosed, what is still in the CQ is
// delivered, and the cleanups of detached ops whose completion never came run
// with StatusWRFlushErr. Every QP on the CQ must be closed before, for only
// then does no buffer belong to the fabric any more, and only then is a waiter
// that sleeps in the CQ sure to wake. It does not close the CQ, and must not be
// called from OnRecv or OnDetached. Closing twice is harmless.
func (d *Dispatcher) Close() error {
	d.closing.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

func (d *Dispatcher) close() error {
	d.fail(ErrClosed)
	d.cancel()
	d.bg.Wait()
	d.mu.Lock()
	for d.leading {
		d.mu.Unlock()
		<-d.freed // the leader leaves: its op was flushed, or it was kicked
		d.mu.Lock()
	}
	d.leading = true // for good: nobody polls after this
	d.mu.Unlock()
	var err error
	for n := 1; n > 0 && err == nil; {
		n, err = d.poll(0, nil)
	}
	d.drained.Store(true)
	for i := range d.ops.made.Load() {
		op := d.ops.at(i)
		d.flush(op, op.tag())
	}
	if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrCQOverrun) {
		return fmt.Errorf("rdma: draining the completion queue: %w", err)
	}
	return nil
}
