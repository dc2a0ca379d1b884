package peer

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/session"
)

// Two goroutines keep a peer. The watch ticks every 100 ms or less, never
// waits for anything, and sees what is overdue: it is what lets calls do
// without timers of their own. The keeper does what takes a round trip and that
// no get should wait for: a beat when no get comes by to carry it, the reclaim
// list, a newer view.

// watch ticks the peer's clock and the session in force.
func (p *Peer) watch() {
	ticker := time.NewTicker(p.Clock.Every())
	defer ticker.Stop()
	var at *session.Session // whose pace the ticker has
	for {
		select {
		case <-ticker.C:
		case <-p.done.Done():
			return
		}
		now := time.Now()
		p.Clock.Tick(now)
		s := p.current.Load()
		if s == nil || s.IsDown() {
			continue
		}
		if at != s {
			at = s
			tick := max(min(session.MaxTick, p.cfg.Timeout/8, s.Welcome.Lease/16), time.Millisecond)
			p.Clock.SetEvery(tick)
			ticker.Reset(tick)
		}
		s.Tick(now)
	}
}

func (p *Peer) keep() {
	for {
		select {
		case <-p.wake:
		case <-p.done.Done():
			return
		}
		s := p.current.Load()
		if s == nil || s.IsDown() {
			continue
		}
		s.Keep(p.done)
		if s.Node != "" && s.BeginNews() {
			p.Go(func(ctx context.Context) { p.keepNews(ctx, s) })
		}
	}
}

// Wake wakes the keeper. (owner)
func (p *Peer) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Go runs f until the peer closes. On a peer that has been closed f is run at once, with a context that has ended. (owner)
func (p *Peer) Go(f func(context.Context)) {
	k := &p.conn
	k.mu.Lock()
	closed := k.closed
	if !closed { // close waits for those that have begun, so none begins while it does
		p.wg.Go(func() { f(p.done) })
	}
	k.mu.Unlock()
	if closed {
		f(p.done)
	}
}
