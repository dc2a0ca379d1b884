package server

import (
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// How refusals of a tenant's bounds (limits.go) are answered.
//
// A refusal that is answered at once and with its credit asks for the next request:
// who sends again whenever he is refused would have the node do nothing but refuse.
// So one refusal of each session is held back, longer each time, and until it is
// answered others of the session are answered without their credits. Those come back
// one by one, with replies that give one. A session that goes on being refused is soon
// left with a few requests in each backoffMax, and one that is admitted again has all
// its credits after as many replies.
const (
	backoffFirst = time.Millisecond
	// backoffDoublings bounds the time for which a refusal is held back: 256 ms.
	backoffDoublings = 8
	backoffMax       = backoffFirst << backoffDoublings
)

// A backoff is what a session has of it.
type backoff struct {
	// level is how often the time has been doubled. A refusal raises it, a request
	// that is admitted lowers it.
	level atomic.Int32
	// Guarded by session.mu.
	held   *request // the refusal that is held back
	detail string
	owed   int // credits of refusals that were answered meanwhile
}

// refuseSlowly counts that a bound of the tenant was met and refuses the request.
// r must not be used afterwards.
func (r *request) refuseSlowly(k limitKind, detail string) {
	s := r.s
	s.srv.loginHit(s.login, k)
	r.untake() // it is not in flight while it is held back
	b := &s.backoff
	s.mu.Lock()
	if b.held != nil {
		b.owed++
		s.mu.Unlock()
		r.grant = 0
		r.fail(wire.StatusOverloaded, detail)
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
			r.fail(wire.StatusOverloaded, detail)
			s.flush()
		}
	})
}

// admitted notes that a request was not refused.
func (b *backoff) admitted() {
	if n := b.level.Load(); n > 0 {
		b.level.CompareAndSwap(n, n-1)
	}
}

// takeHeld takes the refusal that is held back; it is the caller's. nil: none is.
func (s *session) takeHeld() (*request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, detail := s.backoff.held, s.backoff.detail
	s.backoff.held, s.backoff.detail = nil, ""
	return r, detail
}
