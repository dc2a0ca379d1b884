package base

import (
	"context"
	"sync/atomic"
	"time"
)

// A Clock is the time of one peer, as its calls and its leases count it.
//
// The coarse clock moves with the ticks of the peer's keeper alone: reading it
// costs one load, where the machine's clock costs more than a part of a get. Call
// times are bounded by it. The lease clock is Now; Ticked is what it was at the
// last tick, for uses that allow a reading which is a tick old.
//
// Safe for concurrent use, but that one goroutine calls Tick and SetEvery.
type Clock struct {
	// Now is the lease clock in nanoseconds; as a rule boottime.Nanos.
	Now func() int64

	start  time.Time
	coarse atomic.Int64 // nanoseconds since start, at the last tick
	ticked atomic.Int64 // the lease clock at the last tick
	every  atomic.Int64 // nanoseconds between ticks
	done   <-chan struct{}
}

// Start begins the clock: now is the lease clock, every the time between ticks,
// and done is closed when the peer is: rests end then (Limit.Rest). It is called
// once, before any other method.
func (c *Clock) Start(now func() int64, every time.Duration, done <-chan struct{}) {
	c.Now, c.start, c.done = now, time.Now(), done
	c.every.Store(int64(every))
	c.ticked.Store(now())
}

// Tick sets the coarse clock to t.
func (c *Clock) Tick(t time.Time) {
	c.coarse.Store(c.At(t))
	c.ticked.Store(c.Now())
}

// At is what the coarse clock shows once it has been set to t.
func (c *Clock) At(t time.Time) int64 { return int64(t.Sub(c.start)) }

// Coarse is the coarse clock: nanoseconds since Start, at the last tick.
func (c *Clock) Coarse() int64 { return c.coarse.Load() }

// Ticked is the lease clock at the last tick.
func (c *Clock) Ticked() int64 { return c.ticked.Load() }

// Every is the time between ticks: by so much the coarse clock may be behind.
func (c *Clock) Every() time.Duration { return time.Duration(c.every.Load()) }

// SetEvery changes the time between ticks.
func (c *Clock) SetEvery(d time.Duration) { c.every.Store(int64(d)) }

// A Limit is how long one call may wait: until its context ends or, if that
// has no deadline, for Config.Timeout.
//
// A timer per call would cost more than the rest of a one-READ get, so the
// default limit needs none: it is a time on the coarse clock, and only a call
// that really has to wait makes a context with a timer (Bounded). Replies that
// are overdue are failed by the keeper, READs by giving up a connection on which
// nothing moves. The limit is kept to within two ticks.
type Limit struct {
	Ctx context.Context // of the call

	clock *Clock
	until int64 // on the coarse clock; 0: Ctx decides alone
	ended bool  // the time was over during a rest

	patience int64 // of Hurry, in nanoseconds; 0: none
	whole    int64 // until, as it was before Hurry
}

// Done is closed when the peer is.
func (c *Clock) Done() <-chan struct{} { return c.done }

// Ended reports whether the peer has been closed.
func (c *Clock) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Limit begins the limit of one call: timeout counts from now, if ctx has no
// deadline.
func (c *Clock) Limit(ctx context.Context, timeout time.Duration) Limit {
	l := Limit{Ctx: ctx, clock: c}
	if _, ok := ctx.Deadline(); !ok {
		l.until = c.coarse.Load() + int64(timeout) + c.every.Load()
	}
	return l
}

// Unlimited is a limit that ends with ctx alone.
func (c *Clock) Unlimited(ctx context.Context) Limit { return Limit{Ctx: ctx, clock: c} }

// Hurry ends the limit after patience, if it would not end sooner: for one try of a call that
// may be made at another server. The time counts anew with every word of the server (Heard).
func (l *Limit) Hurry(patience time.Duration) {
	if l.patience == 0 {
		l.whole = l.until
	}
	l.patience = int64(patience)
	l.Heard()
}

// Heard notes that the server has answered, and is not yet done.
func (l *Limit) Heard() {
	if l.patience == 0 {
		return
	}
	l.until = l.clock.coarse.Load() + l.patience + l.clock.every.Load()
	if l.whole != 0 {
		l.until = min(l.until, l.whole)
	}
}

// Until is when the call must end, on the coarse clock; 0: Ctx decides alone.
func (l *Limit) Until() int64 { return l.until }

// Left is how long the call may go on by the coarse clock; it may be negative. It
// means nothing where Until is 0.
func (l *Limit) Left() time.Duration { return time.Duration(l.until - l.clock.coarse.Load()) }

// Over returns why the call must end now, or nil.
func (l *Limit) Over() error {
	if err := l.Ctx.Err(); err != nil {
		return err
	}
	if l.ended || l.until != 0 && l.clock.coarse.Load() > l.until {
		return ErrTimeout
	}
	return nil
}

// Bounded returns a context that ends when the limit does. It allocates.
func (l *Limit) Bounded() (context.Context, context.CancelFunc) {
	if l.until == 0 {
		return l.Ctx, func() {}
	}
	return context.WithDeadlineCause(l.Ctx, l.clock.start.Add(time.Duration(l.until)), ErrTimeout)
}

// monoStarted is where MonoNanos counts from.
var monoStarted = time.Now()

// MonoNanos is the lease clock of a session with a server on the same machine: the two
// sleep together, so the clock need not count suspend as boottime.Nanos does, and this one takes half
// as long to read.
func MonoNanos() int64 { return int64(time.Since(monoStarted)) }
