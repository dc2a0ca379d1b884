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
func (c *Peer) watch() {
	ticker := time.NewTicker(c.Clock.Every())
	defer ticker.Stop()
	var at *session.Session // whose pace the ticker has
	for {
		select {
		case <-ticker.C:
		case <-c.done.Done():
			return
		}
		now := time.Now()
		c.Clock.Tick(now)
		s := c.current.Load()
		if s == nil || s.IsDown() {
			continue
		}
		if at != s {
			at = s
			tick := max(min(session.MaxTick, c.cfg.Timeout/8, s.Welcome.Lease/16), time.Millisecond)
			c.Clock.SetEvery(tick)
			ticker.Reset(tick)
		}
		s.Tick(now)
	}
}

func (c *Peer) keep() {
	for {
		select {
		case <-c.wake:
		case <-c.done.Done():
			return
		}
		s := c.current.Load()
		if s == nil || s.IsDown() {
			continue
		}
		s.Keep(c.done)
		if s.Node != "" && s.BeginNews() {
			c.Go(func(ctx context.Context) { c.keepNews(ctx, s) })
		}
	}
}

// Wake wakes the keeper. (owner)
func (c *Peer) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Go runs f until the peer closes. (owner)
func (c *Peer) Go(f func(context.Context)) { c.wg.Go(func() { f(c.done) }) }
