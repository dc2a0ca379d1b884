package session

import (
	"slices"
	"sync"
)

// A gate can stop every handler while fabric, beat and keepalive go on. It is
// a debug hook: with it a test shows that a one-sided get needs no code of the
// store on this side. Requests that arrive meanwhile wait here, as many as
// sessions have credits.
type gate struct {
	mu     sync.Mutex
	closed bool
	parked []*Request
}

// park keeps r if the gate is closed.
func (g *gate) park(r *Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.parked = append(g.parked, r)
	}
	return g.closed
}

// Block closes the gate.
func (g *gate) Block() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
}

// Unblock opens the gate and lets go on what waited.
func (g *gate) Unblock() {
	g.mu.Lock()
	parked := g.parked
	g.parked, g.closed = nil, false
	g.mu.Unlock()
	for _, r := range parked {
		s := r.Session
		r.dispatch()
		s.Flush()
	}
}

// drop ends the waiting requests of a dead session.
func (g *gate) drop(s *Session) {
	var mine []*Request
	g.mu.Lock()
	g.parked = slices.DeleteFunc(g.parked, func(r *Request) bool {
		if r.Session != s {
			return false
		}
		mine = append(mine, r)
		return true
	})
	g.mu.Unlock()
	for _, r := range mine {
		r.Drop()
	}
}

// Waiting returns whether the gate is closed and how many requests wait.
func (g *gate) Waiting() (bool, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed, len(g.parked)
}
