package client

import (
	"context"
	"errors"
	"time"
)

// A patience is how long one call may wait: until its context ends or, if that
// has no deadline, for Config.Timeout.
//
// A timer per call would cost more than the rest of a one-READ get, so the
// default limit needs none: the client's watch ticks a coarse clock, begin
// reads it, and only a call that really has to wait makes a context with a
// timer (bounded). Replies that are overdue are failed by the watch, READs by
// giving up a connection on which nothing moves (watch.go). The limit is kept
// to within two ticks.
type patience struct {
	c     *peer
	ctx   context.Context
	until int64 // coarse nanoseconds; 0: ctx has a deadline of its own
}

// begin starts the patience of one call.
func (c *peer) begin(ctx context.Context) patience {
	p := patience{c: c, ctx: ctx}
	if _, ok := ctx.Deadline(); !ok {
		p.until = c.coarse.Load() + int64(c.cfg.Timeout) + c.tick.Load()
	}
	return p
}

// over returns why the call must end now, or nil.
func (p *patience) over() error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.until != 0 && p.c.coarse.Load() > p.until {
		return ErrTimeout
	}
	return nil
}

// bounded returns a context that ends when patience does. It allocates.
func (p *patience) bounded() (context.Context, context.CancelFunc) {
	if p.until == 0 {
		return p.ctx, func() {}
	}
	return context.WithDeadlineCause(p.ctx, p.c.start.Add(time.Duration(p.until)), ErrTimeout)
}

// enter passes a turnstile; only a call that has to wait pays for it.
func (p *patience) enter(t *turnstile, n int) error {
	if t.tryEnter(n) {
		return nil
	}
	ctx, cancel := p.bounded()
	defer cancel()
	return t.enter(ctx, n)
}

// buffer gets registered memory in the same manner.
func (p *patience) buffer(pool *bufferPool, n int) (*buffer, error) {
	b, _, err := pool.try(n)
	if b != nil || err != nil {
		return b, err
	}
	ctx, cancel := p.bounded()
	defer cancel()
	return pool.get(ctx, n)
}

// fail makes the *Error that a call returns. A context's end becomes
// ErrTimeout if it was a deadline and stays itself if it was a cancellation.
func (c *peer) fail(op string, key []byte, server string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	if !errors.Is(err, ErrOutcomeUnknown) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errLate)) {
		err = because(ErrTimeout, err)
	}
	if errors.Is(err, ErrTimeout) {
		c.n.timeouts.Add(1)
	}
	return &Error{Op: op, Server: server, Node: c.node, Key: quoteKey(key), Err: err}
}
