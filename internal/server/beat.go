package server

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// beatLoop rewrites the beat for as long as this node may serve. It waits for
// nothing but its clock: no handler, no client, no disk, no device, no lock
// that is held over any of them. When it stops, every client stops believing
// this node's memory within a lease.
func (srv *Server) beatLoop(ctx context.Context) {
	defer close(srv.beatDone)
	tick := time.NewTicker(srv.cfg.Beat)
	defer tick.Stop()
	last := time.Now()
	var lanes pulse
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.fenced:
			return
		case now := <-tick.C:
			if srv.Err() != nil && !teeth.Off(teeth.D6FencedBeat) {
				return // both had come
			}
			srv.store.WriteBeat(now)
			srv.lastBeat.Store(srv.now())
			srv.met.beats.Add(1)
			srv.feelLanes(&lanes)
			// A late beat is what clients notice first when this process gets
			// no processor.
			if late := now.Sub(last) - srv.cfg.Beat; late > srv.cfg.Lease/2 {
				srv.met.lateBeats.Add(1)
				srv.log.Warn(limitLate, "beat is late", "by", late)
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
		case <-srv.fenced:
			return
		case <-tick.C:
			srv.store.Reclaim(time.Now()) // not the tick's time: that may be older than the last call
		}
	}
}

// janitorLoop ends sessions that are silent or that do not take what is sent
// to them, and forgets held places that have run out.
func (srv *Server) janitorLoop(ctx context.Context) {
	defer srv.wg.Done()
	// Often enough that no bound is passed by more than a quarter.
	period := min(srv.cfg.Idle, srv.cfg.SendTimeout, 2*srv.cfg.Lease) / 4
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			srv.creditShare.Store(srv.receiveShare())
			for _, s := range srv.sessionList() {
				s.check(srv.now())
			}
		}
	}
}

// check ends the session if it has passed one of its bounds.
func (s *session) check(now int64) {
	cfg := &s.srv.cfg
	s.mu.Lock()
	slow := len(s.sent) > 0 && now-s.sentSince > int64(cfg.SendTimeout)
	if slow {
		s.endLocked(causeSlow, nil)
	}
	s.mu.Unlock()
	// A client whose requests are being handled may well wait in silence; one
	// that has not said Hello has a deadline of its own (watch).
	if !slow && sessionState(s.state.Load()) == stateOpen && s.inflight.Load() == 1 && now-s.heard.Load() > int64(cfg.Idle) {
		s.leave(causeIdle, wire.StatusIdle, "")
	}
	s.expireHolds(now)
}
