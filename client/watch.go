package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Two goroutines mind a client. The watch ticks every 100 ms or less, never
// waits for anything, and sees what is overdue: it is what lets calls do
// without timers of their own. The keeper does what takes a round trip and that
// no get should wait for: a beat when no get comes by to carry it, the reclaim
// list, a newer view.

// maxTick is the longest time between two ticks.
const maxTick = 100 * time.Millisecond

// minding is what the watch remembers of one session.
type minding struct {
	s         *session
	used      time.Time // when a get was last made
	dueBefore bool      // the beat was due at the last tick already
	inflight  int       // requests under way
}

func (c *peer) watch() {
	ticker := time.NewTicker(time.Duration(c.tick.Load()))
	defer ticker.Stop()
	var m minding
	for {
		select {
		case <-ticker.C:
		case <-c.done.Done():
			return
		}
		now := time.Now()
		c.coarse.Store(int64(now.Sub(c.start)))
		c.ticked.Store(c.now())
		s := c.current.Load()
		if s == nil || s.isDown() {
			continue
		}
		if m.s != s {
			m = minding{s: s, used: now}
			tick := min(maxTick, c.cfg.Timeout/8, s.welcome.Lease/16)
			tick = max(tick, time.Millisecond)
			c.tick.Store(int64(tick))
			ticker.Reset(tick)
		}
		m.inflight = s.mindCalls(now)
		m.mindLease(now)
		m.mindTime()
		m.mindTouches()
		m.mindView()
		m.mindSilence()
	}
}

// mindLease sees to it that a beat is READ each third of a lease while gets are
// made: the next get takes it along; if none came within a tick the keeper
// READs it.
func (m *minding) mindLease(now time.Time) {
	s := m.s
	l := &s.lease
	if l.off {
		if !s.pingTurnFree() { // no answer: does its NIC still give one?
			s.beatWanted.Store(true)
			s.c.poke()
		}
		return
	}
	if l.used.Swap(false) {
		m.used = now
	}
	boot := s.now()
	lapsed := boot >= l.current.Load().deadline
	l.lapsed.Store(lapsed)
	age := boot - l.lastPost()
	if age < l.length/3 && !(lapsed && age >= int64(s.welcome.Beat)) {
		m.dueBefore = false
		return
	}
	active := now.Sub(m.used) < s.c.cfg.LeaseKeep || now.Sub(m.used) < 2*maxTick ||
		!s.pingTurnFree() // a Ping without answer: does the server still beat?
	if active && (lapsed || m.dueBefore && l.due.Load()) {
		l.due.Store(false)
		m.dueBefore = false
		s.beatWanted.Store(true)
		s.c.poke()
		return
	}
	m.dueBefore = true
	l.due.Store(true)
}

// mindSilence sends a Ping when the client has been silent for as long as the
// server asked, or the server has while it owes replies. A server that does not
// answer it in time, and whose beat does not go on either, is gone: RC has no
// keepalive of its own. One whose beat goes on is alive with its handlers stuck;
// gets go on one-sidedly, and requests end by their deadlines.
func (m *minding) mindSilence() {
	s := m.s
	now := s.c.coarse.Load()
	if !s.pingTurnFree() {
		if m.beatStopped(now) && now-s.pinged.Load() > int64(s.c.cfg.DialTimeout) {
			s.fail(fmt.Errorf("%w: no answer to a ping and no beat for %v", ErrUnavailable, s.c.cfg.DialTimeout))
		}
		return
	}
	quiet := s.quiet()
	owing := m.inflight > 0 && now-max(s.heard.Load(), s.sentAt.Load()) >= min(quiet, int64(time.Second))
	if owing || now-s.sentAt.Load() >= quiet {
		m.ping(nil)
	}
}

// quiet is for how long, in nanoseconds, a client may be silent.
func (s *session) quiet() int64 {
	if k := int64(s.welcome.Keepalive); k > 0 {
		return k
	}
	return int64(time.Second)
}

// ping posts a Ping. One that has READ alone for a while has no use for its
// credits, whatever the Ping is for.
func (m *minding) ping(t wire.Touches) {
	s := m.s
	s.pingQuietly(m.inflight == 0 && s.c.coarse.Load()-s.askedAt.Load() >= s.quiet(), t)
}

// mindTime sends a Ping each second while items that expire are being READ: its
// reply narrows what is known of the server's time.
func (m *minding) mindTime() {
	s, t := m.s, &m.s.time
	now := s.c.coarse.Load()
	if !t.wanted.Load() || !s.pingTurnFree() || now-t.asked < int64(time.Second) && t.asked != 0 {
		return
	}
	t.wanted.Store(false)
	t.asked = now
	m.ping(nil)
}

// beatStopped reports that the server shows no sign of life to READs either: its
// beat stands still or, without leases, its NIC does not answer.
func (m *minding) beatStopped(now int64) bool {
	if m.s.lease.off {
		return now-m.s.overdue.readAt() > int64(m.s.c.cfg.DialTimeout)
	}
	return m.s.lease.lapsed.Load()
}

func (s *session) pingTurnFree() bool {
	free, _ := s.pingTurn.state()
	return free > 0
}

// pingQuietly posts a Ping nobody waits for, with touches. idle gives the unused
// credits back but one.
func (s *session) pingQuietly(idle bool, t wire.Touches) {
	sl, err := s.openPing(nil)
	if err != nil {
		return
	}
	m := wire.Ping{Touches: t, View: s.viewInPing()}
	if idle {
		m.Return = uint16(min(s.rq.credits.takeIdle(1), 1<<16-1))
	}
	if sl.post(wire.AppendPing(sl.buf[:0], sl.id(), m)) == nil {
		s.d.Detach(sl.op)
	}
}

// errPingUnderWay: there is a Ping already.
var errPingUnderWay = errors.New("a ping is under way")

// openPing takes the slot of the Ping. Without patience it does not wait. Every
// failure is an errNotSent.
func (s *session) openPing(p *patience) (*slot, error) {
	if !s.use() {
		return nil, errNotSent{errLost}
	}
	var until int64
	if p == nil {
		if !s.pingTurn.tryEnter(1) {
			s.unuse()
			return nil, errNotSent{errPingUnderWay}
		}
	} else {
		until = p.until
		if err := p.enter(s.pingTurn, 1); err != nil {
			s.unuse()
			return nil, errNotSent{err}
		}
	}
	s.pinged.Store(s.c.coarse.Load())
	sl := s.rq.slots[len(s.rq.slots)-1]
	sl.begun = s.now()
	sl.arm(until)
	return sl, nil
}

// poke wakes the keeper.
func (c *peer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *peer) keep() {
	for {
		select {
		case <-c.wake:
		case <-c.done.Done():
			return
		}
		s := c.current.Load()
		if s == nil || s.isDown() {
			continue
		}
		s.keepLease()
		s.examine()
		if s.viewWanted.Load() > s.view.Load().Version && s.refreshing.CompareAndSwap(false, true) {
			// A goroutine of its own: a server with stuck handlers must not
			// keep the keeper from the lease.
			c.wg.Go(s.keepView)
		}
		if s.node != "" && s.newsDue.Load() && s.newsAsked.CompareAndSwap(false, true) {
			s.newsDue.Store(false)
			c.wg.Go(s.keepNews)
		}
	}
}

func (s *session) keepView() {
	defer s.refreshing.Store(false)
	ctx, cancel := context.WithTimeout(s.c.done, s.c.cfg.Timeout)
	defer cancel()
	want := s.viewWanted.Load()
	p := patience{c: s.c, ctx: ctx}
	if err := s.refreshView(&p); err != nil {
		s.c.log.Info("refreshing the region table failed", "server", s.addr, "err", err)
		return
	}
	// A version that somebody only guessed at is not asked for again.
	s.viewWanted.CompareAndSwap(want, 0)
}

// keepLease READs a beat if one is wanted, and the reclaim list if a proved
// lease waits for it.
func (s *session) keepLease() {
	if s.sendOnly {
		return // it READs nothing, so no beat
	}
	ctx, cancel := context.WithTimeout(s.c.done, max(s.welcome.Lease, time.Second))
	defer cancel()
	p := patience{c: s.c, ctx: ctx}
	l := &s.lease
	old := l.lapsed.Load() && s.now()-l.lastPost() >= int64(s.welcome.Beat)
	if s.beatWanted.Swap(false) || old {
		b := s.newBatch(s.view.Load())
		b.addBeat()
		if b.beat < 0 {
			b.release()
		} else if mine, err := b.run(&p); mine {
			b.release()
			if err != nil {
				return
			}
		}
	}
	for range 4 { // each turn may show that the list has grown
		want, ok := l.wanted()
		if !ok || !s.readReclaims(&p, want) {
			return
		}
	}
}

// readReclaims READs the list of retired pages up to version want, and takes the
// lease that waits for it into use.
func (s *session) readReclaims(p *patience, want uint64) bool {
	log := s.lease.current.Load().retired
	if want <= log.version {
		return false
	}
	v := s.view.Load()
	s.c.n.reclaims.Add(1)
	n1, n2, ok := ringSpan(log.version, want, v.ReclaimEntries)
	if !ok { // we lag too far: every place remembered counts as retired
		s.lease.reclaimed(log.forget(want))
		return true
	}
	b := s.newBatch(v)
	_, err := b.add(v.RetiredPlace(log.version+1), n1*layout.RetiredSize)
	if err == nil && n2 > 0 {
		_, err = b.add(v.RetiredPlace(log.version+1+uint64(n1)), n2*layout.RetiredSize)
	}
	if err != nil {
		b.release()
		return false
	}
	mine, err := b.run(p)
	if !mine {
		return false
	}
	defer b.release()
	if err != nil {
		return false
	}
	entries, ok := parseRing(nil, b.bytes(0), log.version+1, n1)
	if ok && n2 > 0 {
		entries, ok = parseRing(entries, b.bytes(1), log.version+1+uint64(n1), n2)
	}
	if !ok {
		s.lease.reclaimed(log.forget(want))
		return true
	}
	s.lease.reclaimed(log.extend(entries))
	return true
}
