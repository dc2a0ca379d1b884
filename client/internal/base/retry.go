package base

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/internal/turnstile"
)

// What the rooms of the client tell each other about a request that came to
// nothing, and what may be done about it. Programs never see these errors alone:
// a call that ends with one wraps it in an error of errors.go.
var (
	// ErrLost: the session ended while a request was under way or before it could
	// be posted. What it means depends on the request: a read is made again, a
	// write is sent again under its id.
	ErrLost = errors.New("connection lost")
	// ErrLate: a request whose reply is overdue was given up.
	ErrLate = errors.New("no reply in time")
	// ErrClosing: the server refused because it is shutting down; nothing happened.
	ErrClosing = errors.New("server is shutting down")
	// ErrPingUnderWay: there is a Ping already.
	ErrPingUnderWay = errors.New("a ping is under way")
	// ErrNoRegion: the region table does not have the place; a newer one may.
	ErrNoRegion = errors.New("place outside the known regions")
	// ErrOverwritten: the value is not there any more, in that version.
	ErrOverwritten = errors.New("value was overwritten while it was read")
)

// notSent is the error of a request that was not posted.
type notSent struct{ cause error }

func (e notSent) Error() string { return "not sent: " + e.cause.Error() }
func (e notSent) Unwrap() error { return e.cause }

// NotSent wraps what prevented a request from being posted: the request
// certainly had no effect.
func NotSent(cause error) error { return notSent{cause} }

// IsNotSent reports whether a request that failed with err was never posted.
func IsNotSent(err error) bool { return errors.As(err, new(notSent)) }

// Plain takes off the mark that a request was not sent: of a request that
// changes nothing it tells nothing.
func Plain(err error) error {
	if not := (notSent{}); errors.As(err, &not) {
		return not.cause
	}
	return err
}

// Again reports whether the same request may be made on another session: it was
// not sent, or it changes nothing and was lost.
func Again(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		return false
	}
	return errors.Is(err, ErrLost) || errors.Is(err, ErrClosing)
}

// Fatal reports that connecting again cannot help unless a configuration is
// changed.
func Fatal(err error) bool {
	return errors.Is(err, ErrAuth) || errors.Is(err, ErrVersion) || errors.Is(err, ErrOtherCluster)
}

// TimeOver reports whether a call ended because its time was over, or because its
// caller gave it up.
func TimeOver(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, ErrLate) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// A request that was refused for now is made again after a rest that grows from
// RetryFirst to RetryMost, shortened by a random part.
const (
	RetryFirst = 2 * time.Millisecond
	RetryMost  = 200 * time.Millisecond
)

// Refusals are what a read has met at a server that had no room for it: a bound of
// the server, or of the tenant, was reached. That passes, and a value that was
// acknowledged is there all the while; so the read is made again until the call's
// time is over, as a write is. The zero value is a read that was not refused yet.
type Refusals struct {
	last  error // nil: none yet
	pause time.Duration
}

// Again rests if err is such a refusal, and returns nil: make the request again.
// Otherwise, and when the call's time is over, it returns what the call fails with.
// What our own queues refuse was not sent, and is no such refusal.
func (r *Refusals) Again(n *Counts, l *Limit, err error) error {
	if !errors.Is(err, ErrOverloaded) || IsNotSent(err) {
		return r.Because(err)
	}
	r.last = err
	r.pause = min(max(2*r.pause, RetryFirst), RetryMost)
	n.RetryRefused.Add(1)
	l.Rest(r.pause)
	if over := l.Over(); over != nil {
		return r.Because(over)
	}
	return nil
}

// Because is err, which ends the call, with the refusal that made it wait if it is
// its time that was over.
func (r *Refusals) Because(err error) error {
	if r.last == nil || !TimeOver(err) {
		return err
	}
	return Because(r.last, err)
}

// Rest waits for between a half and the whole of d, or until the call's time is
// over, or the peer is closed. If the call's time ends during a rest, Over says so from
// then on, because the coarse clock may show it a tick later; if not, a call that was
// refused would be made again and again, without a rest, until the next tick.
func (l *Limit) Rest(d time.Duration) {
	ctx, cancel := l.Bounded()
	defer cancel()
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		l.ended = true
	case <-l.clock.done:
	}
}

// Pause waits for between a half and the whole of d; false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Enter passes a turnstile; only a call that has to wait pays for it.
func (l *Limit) Enter(t *turnstile.Turnstile, n int) error {
	if t.TryEnter(n) {
		return nil
	}
	ctx, cancel := l.Bounded()
	defer cancel()
	return t.Enter(ctx, n)
}
