package session

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// MaxTick is the longest time between two ticks.
const MaxTick = 100 * time.Millisecond

// memory is what is remembered of a session from one tick to the next.
type memory struct {
	s         *Session
	used      time.Time // when a get was last made
	dueBefore bool      // the beat was due at the last tick already
	inflight  int       // requests under way
}

// Tick looks for what is overdue. One goroutine calls it, at most MaxTick apart, while
// the session is in force; it waits for nothing.
func (s *Session) Tick(now time.Time) {
	m := &s.lastTick
	if m.s == nil {
		*m = memory{s: s, used: now}
	}
	m.inflight = s.endOverdue(now)
	m.checkLease(now)
	m.checkTime()
	m.reportTouches()
	m.checkView()
	m.checkSilence()
}

// checkLease sees to it that a beat is READ each third of a lease while gets are
// made: the next get takes it along; if none came within a tick the keeper
// READs it.
func (m *memory) checkLease(now time.Time) {
	s := m.s
	l := &s.Lease
	if l.Off {
		if !s.pingTurnFree() { // no answer: does its NIC still give one?
			s.beatWanted.Store(true)
			s.Owner.Wake()
		}
		return
	}
	if l.used.Swap(false) {
		m.used = now
	}
	boot := s.Now()
	lapsed := boot >= l.current.Load().deadline
	l.lapsed.Store(lapsed)
	age := boot - l.lastPost()
	if age < l.Length/3 && !(lapsed && age >= int64(s.Welcome.Beat)) {
		m.dueBefore = false
		return
	}
	active := now.Sub(m.used) < s.Config.LeaseKeep || now.Sub(m.used) < 2*MaxTick ||
		!s.pingTurnFree() // a Ping without answer: does the server still beat?
	if active && (lapsed || m.dueBefore && l.due.Load()) {
		l.due.Store(false)
		m.dueBefore = false
		s.beatWanted.Store(true)
		s.Owner.Wake()
		return
	}
	m.dueBefore = true
	l.due.Store(true)
}

// checkSilence sends a Ping when the client has been silent for as long as the
// server asked, or the server has while it owes replies. A server that does not
// answer it in time, and whose beat does not go on either, is gone: RC has no
// keepalive of its own. One whose beat goes on is alive with its handlers stuck;
// gets go on one-sidedly, and requests end by their deadlines.
func (m *memory) checkSilence() {
	s := m.s
	now := s.Clock.Coarse()
	if !s.pingTurnFree() {
		if m.beatStopped(now) && now-s.pinged.Load() > int64(s.Config.DialTimeout) {
			s.Fail(fmt.Errorf("%w: no answer to a ping and no beat for %v", base.ErrUnavailable, s.Config.DialTimeout))
		}
		return
	}
	quiet := quiet(s)
	owing := m.inflight > 0 && now-max(s.heard.Load(), s.sentAt.Load()) >= min(quiet, int64(time.Second))
	if owing || now-s.sentAt.Load() >= quiet {
		m.ping(nil)
	}
}

// ping posts a Ping. One that has READ alone for a while has no use for its
// credits, whatever the Ping is for.
func (m *memory) ping(t wire.Touches) {
	s := m.s
	s.pingQuietly(m.inflight == 0 && s.Clock.Coarse()-s.askedAt.Load() >= quiet(s), t)
}

// checkTime sends a Ping each second while items that expire are being READ: its
// reply narrows what is known of the server's time.
func (m *memory) checkTime() {
	s, t := m.s, &m.s.Time
	now := s.Clock.Coarse()
	if !t.wanted.Load() || !s.pingTurnFree() || now-t.asked < int64(time.Second) && t.asked != 0 {
		return
	}
	t.wanted.Store(false)
	t.asked = now
	m.ping(nil)
}

// beatStopped reports that the server shows no sign of life to READs either: its
// beat stands still or, without leases, its NIC does not answer.
func (m *memory) beatStopped(now int64) bool {
	if m.s.Lease.Off {
		return now-m.s.overdue.readAt() > int64(m.s.Config.DialTimeout)
	}
	return m.s.Lease.lapsed.Load()
}
