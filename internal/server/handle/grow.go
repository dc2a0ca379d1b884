package handle

import (
	"context"
	"slices"
	"sync"
)

// growth keeps the puts for which memory is being registered. A device takes up
// to seconds for a large region; the lane cannot wait for that, because all else
// that its sessions want, with puts that have room, would wait too. There are as
// many as sessions have credits at most.
type growth struct {
	wake chan struct{} // something was parked; room for one

	mu     sync.Mutex
	parked []*op
	closed bool // Run has ended
}

// park keeps r until Run submits it again. false: Run has ended, and r is the caller's.
func (g *growth) park(r *op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.parked = append(g.parked, r)
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return true
}

// take takes everything out, oldest first. With last nothing is parked again.
func (g *growth) take(last bool) []*op {
	g.mu.Lock()
	defer g.mu.Unlock()
	parked := g.parked
	g.parked, g.closed = nil, last
	return parked
}

// drop ends the waiting puts of a dead session.
func (g *growth) drop(c *conn) {
	var mine []*op
	g.mu.Lock()
	g.parked = slices.DeleteFunc(g.parked, func(r *op) bool {
		if r.c != c {
			return false
		}
		mine = append(mine, r)
		return true
	})
	g.mu.Unlock()
	for _, r := range mine {
		drop(r)
	}
}

// waiting returns how many puts wait.
func (g *growth) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.parked)
}

// Run submits parked puts again: when the memory is there, or known not to come; when the log
// has room for them. It returns when ctx ends; from then on no put is parked.
func (h *Handlers) Run(ctx context.Context) {
	var slow sync.WaitGroup
	slow.Go(func() { h.slowly(ctx) })
	defer slow.Wait()
	defer func() {
		for _, r := range h.grow.take(true) {
			drop(r) // its session is ending too
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.grow.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-h.Store.Growing():
		}
		for _, r := range h.grow.take(false) {
			s := r.Session // r belongs to the next message once it is answered
			r.resubmit()
			s.Flush()
		}
	}
}
