package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// rkeys are capabilities, and change: on request and at an age. A region is
// registered anew beside its old registration, the table with the new rkey is
// published, and the old registration goes when nobody can use it any more:
//
//	RegMR ──▶ table says the new rkey ──▶ view version in the beat ──▶ … ──▶ old MR closed
//	                                                                   │
//	                                            a lease and the rate bound, and every
//	                                            session has said that it is past that version
//
// # Who must know what before the old MR may go
//
// A READ with an rkey that is no more ends the connection, and one with an rkey
// that has come back names other memory. Two things are waited for, because each
// lacks something:
//
//   - A lease with the rate bound (store/reclaim), counted from the moment at which
//     the version stood in the beat. It bounds what is *believed*: an answer counts
//     only before the deadline in force when its first READ was posted, so nothing
//     that was READ with the old rkey counts any more. It also outlives what the
//     network may still carry, repeated requests among them. It does not bound what
//     is *posted*: a client without a lease READs all the same, if only the beat; one
//     in the middle of a large value that is held for it goes by the hold's time; and
//     a READ may wait in a queue, or be repeated by a NIC while a link is down, for
//     as long as the fabric's own retries last.
//   - The word of every session. A client that has a newer view posts nothing under
//     the old one, waits until what it had posted before has completed, and then says
//     so in a Ping (wire.Ping.View): no READ with a rkey from an older view is under
//     way or ever will be. A session may know old rkeys from the first page of the
//     table that it was sent (session.table); one that ends takes them along, once its
//     QP is closed. So no clock decides about it, and no conforming client's QP dies.
//
// A client learns of the version by the beat that its gets carry along, and by the
// reply to each Ping, of which a silent one sends one per Keepalive. One that has
// not spoken after tableTime is told to connect again, and cut off if it does not:
// an end of its session, but no failed call. Its QP is closed before the MR.
//
// The other direction needs no rule. Which rkey a page of the table shows is
// looked up after the session is noted, new rkeys are in place before the version
// rises, and an older version that shows a newer rkey is none the worse for it.
//
// Large puts are READ by the server from the client's memory, staging is local:
// no rkey of either is in the table.
//
// # How much is registered twice
//
// Devices have a number of MRs, and kernels count locked memory once per
// registration. So a rotation goes in waves: the old registrations of one wave are
// gone before the next begins. Where not even one region more can be registered,
// the rotation ends with that error, and what was not renewed stays as it was.
const (
	waveRegions = 64
	// A wave is a quarter of the regions at most (but at least one).
	waveShare = 4
)

// tableTime is how long a session may take to say that it uses a new table:
// Idle, within which it has had to send something, and as long for the answer.
func (srv *Server) tableTime() time.Duration { return 2 * srv.cfg.Idle }

var errRotating = errors.New("a rotation is under way")

// rotation is the state of the rkeys of one Server.
type rotation struct {
	asked chan struct{} // one is to begin; room for one

	mu sync.Mutex
	st RotationStat // of the one under way, or the last
}

// RotationStat is how far the rotation of rkeys is, in one space of the node.
type RotationStat struct {
	Space   string `json:"space"`
	Running bool   `json:"running"`
	Regions int    `json:"regions"` // when it began
	Renewed int    `json:"renewed"` // of them: have a new rkey
	Old     int    `json:"old"`     // old registrations that wait
	// Waiting is how many sessions may still use old rkeys.
	Waiting     int    `json:"waiting_sessions"`
	ViewVersion uint64 `json:"view_version"`
	Began       string `json:"began"` // RFC 3339; empty: never
	Ended       string `json:"ended"` // empty: never, or it runs
	Error       string `json:"error"` // why it ended early
}

// startRotation begins to renew the rkeys of all regions of this space. It fails
// with errRotating, and when the Server does not serve.
func (srv *Server) startRotation() error {
	if !srv.Ready() {
		return errNotServing
	}
	ro := &srv.regions.rotation
	ro.mu.Lock()
	defer ro.mu.Unlock()
	if ro.st.Running {
		return errRotating
	}
	v := srv.store.View()
	ro.st = RotationStat{
		Running: true, Regions: len(v.Regions), ViewVersion: v.Version, Began: time.Now().UTC().Format(time.RFC3339),
	}
	ro.asked <- struct{}{} // there is room: none runs
	return nil
}

// rotationStat is how far it is.
func (srv *Server) rotationStat() RotationStat {
	ro := &srv.regions.rotation
	ro.mu.Lock()
	st := ro.st
	ro.mu.Unlock()
	if st.Space = srv.space; st.Space == "" {
		st.Space = mainSpace
	}
	if st.Old > 0 {
		st.Waiting = len(srv.behind(st.ViewVersion))
	}
	return st
}

func (ro *rotation) note(f func(st *RotationStat)) {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	f(&ro.st)
}

// rotate renews the rkeys of every region. ctx ends with the Server. It runs on
// the goroutine that retires regions, so that the two never meet.
func (srv *Server) rotate(ctx context.Context) {
	ro := &srv.regions.rotation
	begun := time.Now()
	renewed, err := srv.renewAll(ctx)
	ro.note(func(st *RotationStat) {
		st.Running, st.Ended = false, time.Now().UTC().Format(time.RFC3339)
		if err != nil {
			st.Error = err.Error()
		}
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		srv.log.Error(limitMemory, "rotation of rkeys ended early: the other regions keep theirs", "renewed", renewed, "err", err)
	default:
		srv.log.Info("rkeys rotated", "regions", renewed, "took", time.Since(begun).Round(time.Millisecond))
	}
}

// renewAll goes over the regions that there are now, wave by wave. A region that
// is added meanwhile has a fresh rkey.
func (srv *Server) renewAll(ctx context.Context) (renewed int, err error) {
	left := srv.store.View().Regions
	// Regions may have come or gone since the rotation was asked for.
	srv.regions.rotation.note(func(st *RotationStat) { st.Regions = len(left) })
	most := max(1, min(waveRegions, len(left)/waveShare))
	for len(left) > 0 {
		var wave []uint32
		var full error
		for len(wave) < most && len(left) > 0 && full == nil {
			var ok bool
			if ok, full = srv.regions.renew(left[0].ID); full == nil {
				if ok {
					wave = append(wave, left[0].ID)
				}
				left = left[1:]
			}
		}
		if len(wave) == 0 {
			if full != nil {
				return renewed, full
			}
			continue
		}
		// What the device or the limit of locked memory has no room for may find
		// some when the old registrations of this wave are gone.
		version, err := srv.store.BumpView()
		if err != nil {
			return renewed, err
		}
		renewed += len(wave)
		srv.regions.renewed.Add(uint64(len(wave)))
		srv.regions.rotation.note(func(st *RotationStat) {
			st.Renewed, st.Old, st.ViewVersion = renewed, len(wave), version
		})
		if err := srv.waitTable(ctx, version); err != nil {
			return renewed, err
		}
		if err := srv.regions.dropOld(wave); err != nil {
			return renewed, err
		}
		srv.regions.rotation.note(func(st *RotationStat) { st.Old = 0 })
	}
	return renewed, nil
}

// waitTable waits until nothing can be READ any more that is not in the view of
// that version: a lease, and the word of every session. It fails when the Server
// ends.
func (srv *Server) waitTable(ctx context.Context, version uint64) error {
	begun := srv.now()
	over := make(chan struct{})
	if err := srv.store.AfterLease(func() { close(over) }); err != nil {
		return err
	}
	if !teeth.Off(teeth.D6OldKeysRest) {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tick := time.NewTicker(srv.cfg.Beat)
	defer tick.Stop()
	for {
		late := srv.behind(version)
		if len(late) == 0 || teeth.Off(teeth.D6SessionsSpeak) {
			return nil
		}
		for _, s := range late {
			s.hurry(srv.now()-begun, int64(srv.tableTime()), version)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// behind returns the sessions that may still READ under views before that
// version.
func (srv *Server) behind(version uint64) (late []*session) {
	for _, s := range srv.sessionList() {
		if v := s.table.Load(); v != 0 && v < version {
			late = append(late, s)
		}
	}
	return late
}

// hurry ends a session that has not said for too long that it uses the new
// table: first it is asked to go, then it is cut off.
func (s *session) hurry(waited, limit int64, version uint64) {
	switch {
	case waited > limit+int64(s.srv.cfg.SendTimeout):
		s.end(causeTable, fmt.Errorf("it uses the region table of version %d, not of %d", s.table.Load(), version))
	case waited > limit:
		s.dismiss(causeTable)
	}
}

// regionsLoop renews rkeys and gives back regions, one at a time.
func (srv *Server) regionsLoop(ctx context.Context) {
	defer srv.wg.Done()
	cfg := &srv.cfg
	look, stopLook := every(cfg.RegionIdle / 4)
	defer stopLook()
	age, stopAge := every(cfg.RKeyMaxAge)
	defer stopAge()
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.fenced:
			return
		case <-srv.regions.rotation.asked:
			srv.rotate(ctx)
		case <-srv.regions.gathering.asked:
			srv.regions.gather(ctx)
		case <-age:
			srv.startRotation() // refused: one is about to begin
		case <-look:
			srv.retireIdle(ctx)
		}
	}
}

// every ticks in a period; never if that is 0.
func every(period time.Duration) (<-chan time.Time, func()) {
	if period <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(period)
	return t.C, t.Stop
}
