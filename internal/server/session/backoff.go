package session

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// How refusals of a tenant's bounds (base.Bound) are answered.
//
// A refusal that is answered at once and with its credit asks for the next request:
// a client that sends again whenever it is refused would have the node do nothing else.
// So one refusal of each session is held back, longer each time, and until it is
// answered others of the session are answered without their credits. Those come back
// one by one, with replies that give one. A session that goes on being refused is soon
// left with a few requests in each backoffMax, and one that is admitted again has all
// its credits after as many replies.
const (
	backoffFirst = time.Millisecond
	// backoffDoublings bounds the time for which a refusal is held back: 256 ms.
	backoffDoublings = 8
	BackoffMax       = backoffFirst << backoffDoublings
)

// A backoff is what a session has of it.
type backoff struct {
	// level is how often the time has been doubled. A refusal raises it, a request
	// that is admitted lowers it.
	level atomic.Int32
	// Guarded by session.mu.
	held   *Request // the refusal that is held back
	detail string
	owed   int // credits of refusals that were answered meanwhile
}

// refuseSlowly counts that a bound of the tenant was met and refuses the request.
// r must not be used afterwards.
func (r *Request) refuseSlowly(k base.Bound, detail string) {
	s := r.Session
	s.Login.Hit(s.group.Bounds, k)
	r.untake() // it is not in flight while it is held back
	b := &s.backoff
	s.mu.Lock()
	if b.held != nil {
		b.owed++
		s.mu.Unlock()
		r.grant = 0
		r.Fail(wire.StatusOverloaded, detail)
		return
	}
	b.held, b.detail = r, detail
	d := backoffFirst << b.level.Load()
	if b.level.Load() < backoffDoublings {
		b.level.Add(1)
	}
	s.mu.Unlock()
	time.AfterFunc(d, func() {
		if r, detail := s.takeHeld(); r != nil {
			r.Fail(wire.StatusOverloaded, detail)
			s.Flush()
		}
	})
}

// admitted notes that a request was not refused.
func (b *backoff) admitted() {
	if n := b.level.Load(); n > 0 {
		b.level.CompareAndSwap(n, n-1)
	}
}

// Refused says whether a bound of the tenant was met lately, and refusals are held back.
func (s *Session) Refused() bool { return s.backoff.level.Load() > 0 }

// takeHeld takes the refusal that is held back; it is the caller's. nil: none is.
func (s *Session) takeHeld() (*Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, detail := s.backoff.held, s.backoff.detail
	s.backoff.held, s.backoff.detail = nil, ""
	return r, detail
}

// take counts a request with n bytes as in flight. false: it was refused.
func (r *Request) take(n int) bool {
	l := r.Session.Login
	r.flight = int64(n)
	reqs, bytes := l.Requests.Add(1), l.Bytes.Add(r.flight)
	switch {
	case int(reqs) > l.MaxRequests:
		r.refuseSlowly(base.BoundLoginRequests, fmt.Sprintf("tenant %s has %d requests in flight", l.Label, l.MaxRequests))
		return false
	case bytes > l.MaxInflightBytes:
		r.refuseSlowly(base.BoundLoginBytes, fmt.Sprintf("tenant %s has %d bytes in flight", l.Label, l.MaxInflightBytes))
		return false
	}
	if t := r.Header.Type; t != wire.TypePutLarge && t != wire.TypeBatchLarge { // takeMore is to come
		r.Session.backoff.admitted()
	}
	return true
}

// TakeMore counts n bytes more, which the server is to READ. false: it was
// refused.
func (r *Request) TakeMore(n uint64) bool {
	l := r.Session.Login
	r.flight += int64(n) // bounded by the caller to the largest value
	if l.Bytes.Add(int64(n)) > l.MaxInflightBytes {
		r.refuseSlowly(base.BoundLoginBytes, fmt.Sprintf("tenant %s has %d bytes in flight", l.Label, l.MaxInflightBytes))
		return false
	}
	r.Session.backoff.admitted()
	return true
}

func (r *Request) Overloaded(k base.Bound, detail string) bool {
	r.Session.Login.Hit(r.Session.group.Bounds, k)
	r.Fail(wire.StatusOverloaded, detail)
	return false
}

// untake ends the count of a request; once.
func (r *Request) untake() {
	if r.flight > 0 {
		r.Session.Login.Requests.Add(-1)
		r.Session.Login.Bytes.Add(-r.flight)
		r.flight = 0
	}
}
