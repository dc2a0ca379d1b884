package client

import (
	"fmt"
	"sync"
	"time"
)

// Calls without a deadline of their own rely on somebody who looks at the clock
// for them: the watch for the session in force, mindAside for one that calls are
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

// mindCalls ends the calls that have waited for too long, and returns how many
// requests are under way.
func (s *session) mindCalls(now time.Time) (inflight int) {
	o := &s.overdue
	o.mu.Lock()
	defer o.mu.Unlock()
	coarse := int64(now.Sub(s.c.start)) // what the watch sets the clock to
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
	if stuck := now.Sub(o.moved); stuck > s.c.cfg.Timeout+time.Duration(s.c.tick.Load()) {
		s.fail(fmt.Errorf("%w: no READ has completed for %v", ErrUnavailable, stuck.Round(time.Millisecond)))
	}
	return inflight
}

// mindAside minds a session that is not the one in force. It returns when over
// says so, after Config.Timeout at the latest, or when the session or the client
// has ended.
func (s *session) mindAside(over func() bool) {
	c := s.c
	ticker := time.NewTicker(max(min(time.Duration(c.tick.Load()), c.cfg.Timeout/100), 100*time.Microsecond))
	defer ticker.Stop()
	end := time.NewTimer(c.cfg.Timeout)
	defer end.Stop()
	for !over() {
		select {
		case <-ticker.C:
			s.mindCalls(time.Now())
		case <-end.C: // a last look, however late the ticks have come
			s.mindCalls(time.Now())
			return
		case <-s.down:
			return
		case <-c.done.Done():
			return
		}
	}
}
