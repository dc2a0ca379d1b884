package wait

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

// opList is the list of followers, linked through the ops themselves.
type opList struct{ newest *Op }

func (l *opList) push(op *Op) {
	op.linked, op.prev, op.succ = true, l.newest, nil
	if l.newest != nil {
		l.newest.succ = op
	}
	l.newest = op
}

func (l *opList) remove(op *Op) {
	if !op.linked {
		return
	}
	if op.succ != nil {
		op.succ.prev = op.prev
	} else {
		l.newest = op.prev
	}
	if op.prev != nil {
		op.prev.succ = op.succ
	}
	op.linked, op.prev, op.succ = false, nil, nil
}

// enter takes the lead if it is free, else makes op a follower.
func (d *Dispatcher) enter(op *Op) (leader bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause != nil {
		return false, d.cause
	}
	if d.leading {
		d.followers.push(op)
		return false, nil
	}
	d.leading = true
	return true, nil
}

// leave passes the lead on. The newest follower gets it: its completion is
// likely to come last, so it keeps the lead longest.
func (d *Dispatcher) leave() {
	d.mu.Lock()
	toPoller := d.cause != nil || d.opt.Eager && d.bgParked
	for op := d.followers.newest; op != nil && !toPoller; op = d.followers.newest {
		d.followers.remove(op)
		if op.Finished() {
			continue // about to go, with a token of its own
		}
		op.leads.Store(true)
		d.mu.Unlock()
		op.signal()
		return
	}
	d.leading = false
	d.turns++
	wake := d.bgParked
	d.bgParked = false
	closing := d.cause != nil
	d.mu.Unlock()
	if wake {
		token(d.bgWake)
	}
	if closing {
		token(d.freed)
	}
}

// token leaves one token in a channel of capacity 1.
func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// lead drives the CQ until op is done, and passes the lead on.
func (d *Dispatcher) lead(ctx context.Context, op *Op) error {
	err := d.drive(ctx, op)
	rest := d.pace.restDue()
	d.leave()
	if rest {
		runtime.Gosched()
	}
	return err
}

// follow parks until a leader has finished op or passed the lead to it.
// Tokens may be stale (see Op.wake), so each one only means: look again.
func (d *Dispatcher) follow(ctx context.Context, op *Op) error {
	done := ctx.Done()
	for {
		var err error
		switch {
		case op.Finished():
		case d.down.Load():
			err = d.Err()
		case op.leads.CompareAndSwap(true, false):
			return d.lead(ctx, op) // already unlinked
		case done == nil:
			<-op.wake
			continue
		default:
			select {
			case <-op.wake:
				continue
			case <-done:
				err = ctx.Err()
			}
		}
		d.quit(op)
		return err
	}
}

// quit takes op off the list of followers. Once op is off, the lead cannot be
// passed to it; if it was passed just before, it goes on.
func (d *Dispatcher) quit(op *Op) {
	d.mu.Lock()
	d.followers.remove(op)
	d.mu.Unlock()
	if op.leads.CompareAndSwap(true, false) {
		d.leave()
	}
}

// drive is the loop of a leader: poll, and when there is nothing, arm, poll
// once more, park. It returns nil when op is done; for the background poller
// (op nil) when it should give the lead to waiters.
func (d *Dispatcher) drive(ctx context.Context, op *Op) error {
	done := ctx.Done()
	// armed says that no Wait of this leader has taken the event of an Arm yet.
	// The event may have come meanwhile; then the next Wait returns at once,
	// which costs one turn and loses nothing.
	armed := false
	w := d.pace.begin(op)
	before := d.ops.finished.Load()
	for {
		switch {
		case op != nil && op.Finished():
			w.ends(true)
			return nil
		case d.down.Load():
			w.ends(false)
			return d.Err()
		case op == nil && !d.opt.Eager && d.ops.finished.Load() != before:
			return nil
		}
		select {
		case <-done:
			w.ends(false)
			return ctx.Err()
		default:
		}
		spin := w.left()
		if spin <= 0 && !armed {
			if err := d.cq.Arm(); err != nil {
				return d.fail(err)
			}
			armed = true
		}
		n, err := d.poll(spin, op)
		if err != nil {
			w.ends(false)
			return d.fail(err)
		}
		if op != nil && op.Finished() {
			w.ends(true) // before looked reads the clock
			return nil
		}
		w.looked(n, min(spin, spinSlice))
		if n > 0 || spin > 0 {
			continue
		}
		w.sleeps()
		if err := d.park(ctx, op); err != nil {
			return d.fail(err)
		}
		armed = false
	}
}

// poll takes one batch from the CQ and delivers it. Only the leader calls it;
// spin is for how long it may look for one (see look), self the op it waits for.
func (d *Dispatcher) poll(spin time.Duration, self *Op) (int, error) {
	n, err := d.look(spin)
	d.deliver(n, self)
	return n, err
}

// deliver hands out the first n completions of wcs. Only the leader calls it.
func (d *Dispatcher) deliver(n int, self *Op) {
	if n > 0 {
		d.pace.saw(n, d.wcs[n-1].Polled)
	}
	for i := range n {
		wc := d.wcs[i]
		switch {
		case wc.ID&idRecv != 0 && d.onRecv != nil:
			d.stats.receives.Add(1)
			d.onRecv(wc)
		case wc.ID == 0: // a request without a waiter, flushed
		case wc.ID&(idRecv|idReply) != 0 || !d.ops.finish(wc.ID, wc, self):
			d.stats.strays.Add(1)
		}
	}
}

// park sleeps in the CQ until an event has come or ctx has ended. A leader that
// waits for a reply can also be kicked, because a reply may be completed by a
// goroutine that does not poll.
func (d *Dispatcher) park(ctx context.Context, op *Op) error {
	d.stats.parks.Add(1)
	var err error
	if op == nil || !op.isReply() {
		err = d.cq.Wait(ctx)
	} else {
		wctx, release := d.kickContext(ctx)
		d.parkedOn.Store(op.ID())
		// The goroutine that completes the reply stores that first and looks at
		// parkedOn after; here the order is reversed, so one of the two sees the
		// other.
		if !op.Finished() && !d.down.Load() {
			err = d.cq.Wait(wctx)
		}
		d.parkedOn.Store(0)
		release()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil // the loop looks at ctx itself; a kick says: look at op
	}
	return err
}

// kicker interrupts the park of a leader that waits for a reply.
type kicker struct {
	cancel context.CancelFunc // of the context in use; nil: no leader can be kicked
	// shared serves every leader whose own context never ends, until a kick
	// has used it up, so that their waits do not allocate.
	shared       context.Context
	cancelShared context.CancelFunc
}

// kickContext returns what to park with so that kickLeader works.
func (d *Dispatcher) kickContext(ctx context.Context) (wctx context.Context, release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := &d.kick
	if ctx.Done() == nil {
		if k.shared == nil || k.shared.Err() != nil {
			k.shared, k.cancelShared = context.WithCancel(context.Background())
		}
		k.cancel = k.cancelShared
		return k.shared, func() {}
	}
	wctx, cancel := context.WithCancel(ctx)
	k.cancel = cancel
	return wctx, cancel
}

// kickLeader wakes a leader that parks, or is about to, for a reply.
func (d *Dispatcher) kickLeader() {
	d.mu.Lock()
	cancel := d.kick.cancel
	d.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// fail takes the dispatcher out of service and wakes every waiter; it returns the
// first cause.
func (d *Dispatcher) fail(err error) error {
	d.mu.Lock()
	if d.cause == nil {
		d.cause = err
		d.down.Store(true)
		for op := d.followers.newest; op != nil; op = op.prev {
			op.signal()
		}
	}
	err = d.cause
	d.mu.Unlock()
	d.kickLeader()
	return err
}

// background leads while no waiter does. It looks once per grace period. If the
// lead was free all the time it takes the lead; if one leader had it all the time
// it sleeps until that one leaves; else the program is busy and it stays away,
// each time for twice as long, up to busyGraces grace periods, because every look
// wakes a thread.
func (d *Dispatcher) background() {
	grace := d.opt.Grace
	timer := time.NewTimer(grace)
	defer timer.Stop()
	seen := d.turnsNow()
	for !d.down.Load() {
		busy := false
		d.stats.looks.Add(1)
		d.mu.Lock()
		switch {
		case !d.leading && (d.turns == seen || d.opt.Eager):
			d.leading = true
			d.mu.Unlock()
			_ = d.drive(d.stop, nil) // an error is kept in cause, for every waiter
			d.leave()
		case d.leading && (d.turns == seen || d.opt.Eager):
			d.bgParked = true
			d.mu.Unlock()
			select {
			case <-d.bgWake:
			case <-d.stop.Done():
				return
			}
		default:
			busy = true
			d.mu.Unlock()
		}
		seen = d.turnsNow()
		if d.opt.Eager {
			continue
		}
		if grace = min(2*grace, busyGraces*d.opt.Grace); !busy {
			grace = d.opt.Grace
		}
		timer.Reset(grace)
		select {
		case <-timer.C:
		case <-d.stop.Done():
			return
		}
	}
}

// busyGraces bounds how many grace periods the background poller of a busy
// program stays away.
const busyGraces = 8

func (d *Dispatcher) turnsNow() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turns
}

type dispatchCounters struct {
	receives, strays, parks, looks atomic.Uint64
}

// Stats are counts since NewDispatcher, and InUse, which is of now.
type Stats struct {
	Finished uint64 // completions handed to waiters
	Receives uint64 // completions handed to OnRecv
	Strays   uint64 // completions with an ID that is of no op in use: a fault somewhere
	Parks    uint64 // how often a leader slept in the CQ
	Looks    uint64 // how often the background poller looked whether it is needed
	InUse    int64  // ops now: waited for, posted or detached
	// Spins counts the waits that polled before they slept, for work requests
	// and for replies together.
	Spins SpinStats
}

// Stats reads the counters. They are read one by one, so that they need not be of
// the same moment.
func (d *Dispatcher) Stats() Stats {
	spins := d.pace.work.Stats()
	spins.Add(d.pace.reply.Stats())
	return Stats{
		Spins:    spins,
		Finished: d.ops.finished.Load(),
		Receives: d.stats.receives.Load(),
		Strays:   d.stats.strays.Load(),
		Parks:    d.stats.parks.Load(),
		Looks:    d.stats.looks.Load(),
		InUse:    d.ops.inUse.Load(),
	}
}
