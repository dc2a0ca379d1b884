package server

import "sync"

// A gate can stop every handler while fabric, beat and keepalive go on. It is
// a debug hook: with it a test shows that a one-sided get needs no code of the
// store on this side. Requests that arrive meanwhile wait here, as many as
// sessions have credits.
type gate struct {
	mu     sync.Mutex
	closed bool
	parked []*request
}

// park keeps r if the gate is closed.
func (g *gate) park(r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.parked = append(g.parked, r)
	}
	return g.closed
}

// block closes the gate.
func (g *gate) block() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
}

// unblock opens the gate and lets go on what waited.
func (g *gate) unblock() {
	g.mu.Lock()
	parked := g.parked
	g.parked, g.closed = nil, false
	g.mu.Unlock()
	for _, r := range parked {
		s := r.s
		r.dispatch()
		s.flush()
	}
}

// drop ends the waiting requests of a dead session.
func (g *gate) drop(s *session) {
	g.mu.Lock()
	var mine []*request
	kept := g.parked[:0]
	for _, r := range g.parked {
		if r.s == s {
			mine = append(mine, r)
		} else {
			kept = append(kept, r)
		}
	}
	clear(g.parked[len(kept):])
	g.parked = kept
	g.mu.Unlock()
	for _, r := range mine {
		r.drop()
	}
}

// waiting returns whether the gate is closed and how many requests wait.
func (g *gate) waiting() (bool, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed, len(g.parked)
}

// BlockHandlers stops every session handler: requests are received and wait.
// Fabric, beat, keepalive and writes already submitted go on. For tests and
// the debug endpoint.
func (srv *Server) BlockHandlers() {
	for _, sp := range srv.everySpace() {
		sp.gate.block()
	}
	srv.log.Warn(limitNone, "debug: handlers blocked")
}

// UnblockHandlers undoes BlockHandlers.
func (srv *Server) UnblockHandlers() {
	for _, sp := range srv.everySpace() {
		sp.gate.unblock()
	}
	srv.log.Warn(limitNone, "debug: handlers unblocked")
}
