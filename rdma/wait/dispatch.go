package wait

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Dispatcher lets many goroutines share one CQ. Each posts its work with the
// ID of an Op and waits for that op; the goroutines that wait take turns to poll.
//
//	goroutine A   NewOp ─ PostSend ─ Wait ━━ leads: poll, arm, poll, park in CQ.Wait ━━▶ own WC
//	goroutine B   NewOp ─ PostSend ─ Wait ┄┄ follows: parked on its op ┄┄▶ WC from A ┄▶ or leads next
//	receives      ───────────────────────▶ OnRecv callback, on the goroutine that polls
//
// One waiter at a time leads: it polls the CQ, hands completions to the ops that
// they belong to, and sleeps in CQ.Wait while there are none. If one goroutine
// alone waits, it sleeps in the CQ itself, and no other goroutine has to wake it.
// A leader whose own op is done leaves, and passes the lead to a follower, a
// goroutine that waits without leading. No wake-up can be lost, because the lead
// is never free while a goroutine waits.
//
// Start adds a background poller for what no goroutine waits for: receives and
// detached ops. It takes the lead when there has been no leader for a while
// (Options.Grace), and sleeps in CQ.Wait too while there is nothing to do. When it
// has delivered a completion that a goroutine waited for, it gives the lead back.
//
// # Buffers
//
// Wait returns an error only if the op did NOT complete: its context ended, or the
// CQ is out of order. The memory of the work request then still belongs to the
// fabric and stays in quarantine. The function set with Op.OnDetached runs when
// the completion arrives, at the latest in Close. A completion with an error
// status is no error of Wait: see rdma.WC.Status.
//
// All methods are safe for concurrent use, except that OnRecv and Start must be
// called before the first Wait.
type Dispatcher struct {
	cq      rdma.CQ
	spinner rdma.Spinner // cq, if it is one
	opt     Options
	onRecv  func(rdma.WC)
	ops     opTable

	stats    dispatchCounters
	parkedOn atomic.Uint64 // ID of the reply that a parked leader waits for, else 0
	down     atomic.Bool   // cause is set: no more waiting

	// The leader's: the completions of one poll, and what it does about its time.
	wcs  []rdma.WC
	pace pace

	// mu guards what follows. No callback runs under it, it is held for a few
	// instructions only, and no other lock is taken under it.
	mu        sync.Mutex
	leading   bool   // a waiter or the background poller leads
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
}

// Options tune a Dispatcher. The zero value suits clients.
type Options struct {
	// Wait says how a leader spends the time until a completion comes. The
	// background poller always sleeps.
	Wait Mode
	// Spin is for how long a wait polls an empty CQ before it sleeps, at most; in
	// mode Adaptive mostly for less. Zero means not at all. SpinTime tells a good
	// value.
	Spin time.Duration
	// Batch is how many completions one poll takes; 0 means 32.
	Batch int
	// Grace is for how long the CQ may be without a leader before the background
	// poller takes the lead; 0 means 2 ms. It becomes up to eight times as long
	// while waiters come and go all the time. A short one lets receives be noticed
	// soon; a long one lets a goroutine that waits again and again find the lead
	// free each time.
	Grace time.Duration
	// Eager makes the background poller keep the lead, and all waiters follow. It is
	// for servers, which must notice receives at once.
	Eager bool
	// MaxOps bounds the ops in use; 0 means 65536. Going beyond it panics: a program
	// bounds its work in flight by credits and queue depths, so that more is a fault
	// of the program.
	MaxOps int
}

// NewDispatcher makes a Dispatcher of cq. From then on the program must not call
// Poll, Arm or Wait of cq itself.
func NewDispatcher(cq rdma.CQ, opt Options) *Dispatcher {
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
		wcs:    make([]rdma.WC, opt.Batch),
		pace:   newPace(opt.Wait, opt.Spin),
		bgWake: make(chan struct{}, 1),
		freed:  make(chan struct{}, 1),
	}
	d.spinner, _ = cq.(rdma.Spinner)
	d.ops.init(opt.MaxOps)
	d.stop, d.cancel = context.WithCancel(context.Background())
	return d
}

// OnRecv sets the callback for completions whose ID was made with RecvID, flushed
// ones included. The callback runs on the goroutine that polls, one call at a time.
// It must not block: it may post, Complete and Detach, but not Wait.
func (d *Dispatcher) OnRecv(f func(rdma.WC)) { d.onRecv = f }

// Wait returns the completion of op, or why it gave up waiting: ctx.Err(),
// ErrCQOverrun or ErrClosed. In both cases the caller must not use op afterwards.
// After an error the buffers of the work request stay in quarantine until the
// function set with OnDetached runs. With a ctx that never ends Wait does not
// allocate.
func (d *Dispatcher) Wait(ctx context.Context, op *Op) (rdma.WC, error) {
	if op.Finished() {
		return d.ops.take(op), nil
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
		return d.ops.take(op), nil
	}
	if d.ops.detach(op) {
		return rdma.WC{}, err
	}
	return d.ops.take(op), nil // it came at the last moment
}

// WaitAll waits for all ops; the caller must not use any of them afterwards. It
// returns nil if all of them succeeded. If one did not complete, it returns the
// error of its Wait, and that op's buffers are in quarantine. Else it returns a
// status as an rdma.StatusError: the first that is not a flush, or the flush.
func (d *Dispatcher) WaitAll(ctx context.Context, ops []*Op) error {
	var gaveUp error
	worst := rdma.StatusSuccess
	for _, op := range ops {
		wc, err := d.Wait(ctx, op)
		switch {
		case err != nil && gaveUp == nil:
			gaveUp = err
		case err == nil && (worst == rdma.StatusSuccess || worst == rdma.StatusWRFlushErr) && wc.Status != rdma.StatusSuccess:
			worst = wc.Status
		}
	}
	if gaveUp != nil {
		return gaveUp
	}
	return worst.Err()
}

// Start starts the background poller, which Close ends. Starting twice is
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

// Err is nil while the dispatcher works. Afterwards it says why the dispatcher does
// not: ErrCQOverrun or ErrClosed.
func (d *Dispatcher) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// Close ends the dispatcher. Waiters get ErrClosed, completions that are still in
// the CQ are delivered, and for a detached op whose completion never came the
// function set with OnDetached runs with StatusWRFlushErr. The caller must have
// closed every QP on the CQ: only then does no buffer belong to the fabric any
// more, and only then is a waiter that sleeps in the CQ sure to wake. Close does
// not close the CQ. It must not be called from OnRecv or OnDetached. Closing twice
// is harmless.
func (d *Dispatcher) Close() error {
	d.closing.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

// close ends waiters and the background poller, takes the lead for good, and
// delivers what is left.
func (d *Dispatcher) close() error {
	d.fail(rdma.ErrClosed)
	d.cancel()
	d.bg.Wait()
	d.mu.Lock()
	for d.leading {
		d.mu.Unlock()
		<-d.freed // the leader leaves: its op was flushed, or it was kicked
		d.mu.Lock()
	}
	d.leading = true // for good: no goroutine polls after this
	d.mu.Unlock()
	var err error
	for n := 1; n > 0 && err == nil; {
		n, err = d.poll(0, nil)
	}
	d.ops.drain()
	if err != nil && !errors.Is(err, rdma.ErrClosed) && !errors.Is(err, rdma.ErrCQOverrun) {
		return fmt.Errorf("wait: draining the completion queue: %w", err)
	}
	return nil
}
