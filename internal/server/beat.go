package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
)

// beats are the beat of a node, or of a space.
type beats struct {
	beat     context.Context
	stopBeat context.CancelFunc
	beatDone chan struct{}
	lastBeat atomic.Int64 // now
	bump     bumper       // of the clients, for the sake of the cluster's view
}

func newBeats() beats {
	ctx, stop := context.WithCancel(context.Background())
	return beats{beat: ctx, stopBeat: stop, beatDone: make(chan struct{})}
}

// beatLoop rewrites the beat for as long as this node may serve. It waits for
// nothing but its clock: no handler, no client, no disk, no device, no lock
// that is held over any of them. When it stops, every client stops believing
// this node's memory within a lease.
func (srv *Server) beatLoop(ctx context.Context) {
	defer close(srv.beatDone)
	tick := time.NewTicker(srv.cfg.Beat)
	defer tick.Stop()
	last := time.Now()
	var lanes session.Pulse
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.fence.Done():
			return
		case now := <-tick.C:
			if srv.Err() != nil {
				return // both had come
			}
			srv.store.WriteBeat(now)
			srv.lastBeat.Store(srv.now())
			srv.met.Beats.Add(1)
			srv.feelLanes(&lanes)
			// A late beat is what clients notice first when this process gets
			// no processor.
			if late := now.Sub(last) - srv.cfg.Beat; late > srv.cfg.Lease/2 {
				srv.met.LateBeats.Add(1)
				srv.log.Warn(base.LogLate, "beat is late", "by", late)
			}
			last = now
		}
	}
}

// beatAge is how long ago the last beat was written.
func (srv *Server) beatAge() time.Duration { return time.Duration(srv.now() - srv.lastBeat.Load()) }

// reclaimLoop frees what has waited for a lease. It may have to wait for locks
// of the store, so it is not the goroutine that beats.
func (srv *Server) reclaimLoop(ctx context.Context) {
	defer srv.wg.Done()
	tick := time.NewTicker(srv.cfg.Beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.fence.Done():
			return
		case <-tick.C:
			srv.store.Reclaim(time.Now()) // not the tick's time: that may be older than the last call
		}
	}
}

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
	b := &srv.bump
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
