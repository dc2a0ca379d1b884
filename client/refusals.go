package client

import (
	"context"
	"errors"
	"time"
)

// refusals are what a read has met at a server that had no room for it: a bound of
// the server, or of the tenant, was reached. That passes, and a value that was
// acknowledged is there all the while; so the read is made again until the call's
// time is over, as a write is.
type refusals struct {
	last  error // nil: none yet
	pause time.Duration
}

// again rests if err is such a refusal, and returns nil: make the request again.
// Otherwise, and when the call's time is over, it returns what the call fails with.
// What our own queues refuse was not sent, and is no such refusal.
func (r *refusals) again(c *peer, p *patience, err error) error {
	if not := (errNotSent{}); !errors.Is(err, ErrOverloaded) || errors.As(err, &not) {
		return r.because(err)
	}
	r.last = err
	r.pause = min(max(2*r.pause, retryFirst), retryMost)
	c.n.refused.Add(1)
	c.rest(p, r.pause)
	if over := p.over(); over != nil {
		return r.because(over)
	}
	return nil
}

// because is err, which ends the call, with the refusal that made it wait if it is
// its time that was over.
func (r *refusals) because(err error) error {
	if r.last == nil || !timeOver(err) {
		return err
	}
	return because(r.last, err)
}

// timeOver says whether a call ended because its time was over, or was called off.
func timeOver(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
