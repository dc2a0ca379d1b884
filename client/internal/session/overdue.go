package session

import (
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
)

// Calls without a deadline of their own rely on a goroutine that looks at the clock
// for them: the watch for the session in force, WatchAside for one that calls are
// still under way on although it is not.

// overdue is what is remembered of a session's READs from one look to the next.
type overdue struct {
	mu    sync.Mutex // one looks at a time
	reads uint64     // batches done when last looked
	at    int64      // coarse time at which that last changed
	moved time.Time  // when that last changed, or nothing was under way; zero: not looked yet
}

// readAt is the coarse time at which a READ was last seen to complete.
func (o *overdue) readAt() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at
}

// endOverdue ends the calls that have waited for too long, and returns how many
// requests are under way.
func (s *Session) endOverdue(now time.Time) (inflight int) {
	o := &s.overdue
	o.mu.Lock()
	defer o.mu.Unlock()
	coarse := s.Clock.At(now) // what the watch sets the clock to
	inflight = s.expire(coarse)
	done := s.readsDone.Load()
	if done != o.reads || o.moved.IsZero() {
		o.at = coarse
	}
	if done != o.reads || s.readsPosted.Load() == done || o.moved.IsZero() {
		o.reads, o.moved = done, now
		return inflight
	}
	// READs are under way and none has completed for a whole timeout, and the tick
	// that calls have beyond it: giving up the connection ends the calls that wait
	// for them. Not sooner: requests that are overdue at the same moment would be
	// sent again on another connection with no time left for an answer.
	if stuck := now.Sub(o.moved); stuck > s.Config.Timeout+s.Clock.Every() {
		s.Fail(fmt.Errorf("%w: no READ has completed for %v", base.ErrUnavailable, stuck.Round(time.Millisecond)))
	}
	return inflight
}

// WatchAside ends overdue calls of a session that is not the one in force. It returns when over
// says so, after Config.Timeout at the latest, or when the session or the client
// has ended.
func (s *Session) WatchAside(over func() bool) {
	ticker := time.NewTicker(max(min(s.Clock.Every(), s.Config.Timeout/100), 100*time.Microsecond))
	defer ticker.Stop()
	end := time.NewTimer(s.Config.Timeout)
	defer end.Stop()
	for !over() {
		select {
		case <-ticker.C:
			s.endOverdue(time.Now())
		case <-end.C: // a last look, however late the ticks have come
			s.endOverdue(time.Now())
			return
		case <-s.Down:
			return
		case <-s.Clock.Done():
			return
		}
	}
}

// UntilIdle watches a session that no new call uses until nothing is under way on it, for
// Config.Timeout at most.
func (s *Session) UntilIdle() {
	s.WatchAside(func() bool { return s.users.Load() == 0 && s.readsDone.Load() == s.readsPosted.Load() })
}

// Finish ends a session that no new call uses, as soon as nothing is under way
// on it, at the latest after Config.Timeout: for the given reason, or ErrClosed.
func (s *Session) Finish(why error) {
	s.UntilIdle()
	if s.Clock.Ended() {
		s.Fail(base.ErrClosed)
	}
	s.Fail(why)
}
