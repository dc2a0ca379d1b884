package server

import (
	"sync"
	"time"
)

// bumpEvery is the shortest time between two view versions that are raised for
// the sake of the cluster's view: each has every client of this node come for it
// once.
const bumpEvery = time.Second

// bumper raises the view version of the beat, at most once a second. The zero
// value is ready.
type bumper struct {
	mu    sync.Mutex
	last  time.Time
	timer *time.Timer // one is on its way; nil: none
}

// Bump has the clients of this node learn that there is something new to fetch:
// the view version in the beat (and in the replies to Pings) rises, now or when
// a second has passed since the last time. Calls in between are one. It does not
// wait, and does nothing once the store is closed. To be called after Start.
func (srv *Server) Bump() {
	b := &srv.regions.bump
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		return
	}
	if rest := bumpEvery - time.Since(b.last); rest > 0 && !b.last.IsZero() {
		b.timer = time.AfterFunc(rest, func() {
			b.mu.Lock()
			b.timer, b.last = nil, time.Now()
			b.mu.Unlock()
			srv.bumpNow()
		})
		return
	}
	b.last = time.Now()
	srv.bumpNow()
}

func (srv *Server) bumpNow() {
	if srv.serving.Load() {
		srv.store.BumpView() // an error: the store has ended, and its clients with it
	}
}
