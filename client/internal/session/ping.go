package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// openPing takes the slot of the Ping. Without a limit it does not wait. Every
// failure is a base.NotSent.
func (l *link) openPing(p *base.Limit) (*Slot, error) {
	if !l.life.Enter() {
		return nil, base.NotSent(base.ErrLost)
	}
	var until int64
	if p == nil {
		if !l.pingTurn.TryEnter(1) {
			l.life.Leave()
			return nil, base.NotSent(base.ErrPingUnderWay)
		}
	} else {
		until = p.Until()
		if err := p.Enter(l.pingTurn, 1); err != nil {
			l.life.Leave()
			return nil, base.NotSent(err)
		}
	}
	l.pinged.Store(l.clock.Coarse())
	sl := l.rq.slots[len(l.rq.slots)-1]
	sl.begun = l.life.Now()
	sl.arm(until)
	return sl, nil
}

// pingQuietly posts a Ping for which no caller waits, with touches. idle gives the unused
// credits back but one.
func (s *Session) pingQuietly(idle bool, t wire.Touches) {
	sl, err := s.openPing(nil)
	if err != nil {
		return
	}
	m := wire.Ping{Touches: t, View: s.viewInPing()}
	if idle {
		m.Return = uint16(min(s.rq.credits.TakeIdle(1), 1<<16-1))
	}
	if sl.Post(wire.AppendPing(sl.Buf[:0], sl.ID(), m)) == nil {
		sl.Detach()
	}
}

// Ping asks the server, which answers without its store, and returns how long that
// took.
func (s *Session) Ping(p *base.Limit) (took time.Duration, err error) {
	sl, err := s.openPing(p)
	if err != nil {
		return 0, err
	}
	echo := uint64(s.Clock.Now())
	begin := time.Now()
	r, err := sl.Call(p, wire.AppendPing(sl.Buf[:0], sl.ID(), wire.Ping{Echo: echo, View: s.viewInPing()}))
	if err != nil {
		return 0, err
	}
	took = time.Since(begin)
	m, err := wire.ParsePingReply(r.Body)
	if err != nil || m.Echo != echo {
		return took, r.Malformed(errors.Join(err, fmt.Errorf("echo %d of %d", m.Echo, echo)))
	}
	s.pong(m, sl.begun)
	s.sawView(m.ViewVersion)
	r.Done()
	return took, nil
}

// PingRead READs the beat and returns how long that took.
func (s *Session) PingRead(p *base.Limit) (took time.Duration, err error) {
	if s.SendOnly {
		return 0, fmt.Errorf("%w: this tenant has no one-sided access: all its gets are SENDs", base.ErrUnsupported)
	}
	b := s.NewReads(s.view.Load())
	b.AddBeat()
	if !b.HasBeat() {
		b.Release()
		return 0, fmt.Errorf("%w: the region table has no place for the beat", base.ErrProtocol)
	}
	begin := time.Now()
	mine, err := b.Run(p)
	took = time.Since(begin)
	if mine {
		b.Release()
	}
	return took, err
}

func (l *link) pingTurnFree() bool {
	free, _ := l.pingTurn.State()
	return free > 0
}

// quiet is for how long, in nanoseconds, a client may be silent.
func quiet(s *Session) int64 {
	if k := int64(s.Welcome.Keepalive); k > 0 {
		return k
	}
	return int64(time.Second)
}

// pong takes what the reply to a Ping says, which was posted at the given time of
// the lease clock.
func (s *Session) pong(m wire.PingReply, posted int64) {
	s.Time.Pong(m.TimeMicros, posted)
	s.Touches.wanted.Store(m.Touches)
}
