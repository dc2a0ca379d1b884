package store

import (
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Beat is WriteBeat and then Reclaim: for who has one goroutine for both.
func (s *Store) Beat(now time.Time) {
	s.WriteBeat(now)
	s.Reclaim(now)
}

// WriteBeat rewrites the beat of region 0, by which clients renew their leases.
// The server calls it every Config.BeatInterval, from one goroutine, for as
// long as it may serve; a store that is fenced or closed does not beat. It
// waits for nothing: no disk, no device, no lock that is held over either. It
// shows the server's time (Now), read behind the last beat; the argument is
// not looked at.
func (s *Store) WriteBeat(time.Time) {
	leave, err := s.enter()
	if err != nil {
		return
	}
	defer leave()
	s.table.Beat(s.clock.now())
}

// Reclaim frees what has waited for a lease. It is to be called about every
// Config.BeatInterval from one goroutine, which may wait for locks of the
// store. now must carry a monotonic reading taken after the last call returned.
func (s *Store) Reclaim(now time.Time) {
	leave, err := s.enter()
	if err != nil {
		return
	}
	defer leave()
	s.reclaim.Tick(now)
}

// View returns the region table as clients are to be handed it. It is a
// snapshot and must not be changed.
func (s *Store) View() layout.View { return s.table.View() }

// ViewVersion returns the version of the newest view.
func (s *Store) ViewVersion() uint64 { return s.table.ViewVersion() }

// ReclaimVersion returns the newest reclaim version: it stands in the beat.
func (s *Store) ReclaimVersion() uint64 { return s.reclaim.Version() }

// Incarnation returns the random number of this opening of the store. Nothing
// in registered memory verifies under another.
func (s *Store) Incarnation() uint64 { return s.incarnation }

// ID returns the store's id: 16 random bytes, made when it was created.
func (s *Store) ID() [16]byte { return s.facts.id }

// Began is when this opening began, in microseconds since 1970: later than any
// before it of this directory, or of one that it was copied from.
func (s *Store) Began() uint64 { return s.facts.began }

// Epoch is that of the first versions of this opening. Each opening has a higher
// one than those before it; a cache has none that means anything (its versions
// follow the time of day).
func (s *Store) Epoch() uint16 { return s.facts.epoch }

// Filled reports whether every shard is filled: misses are believed.
func (s *Store) Filled() bool { return s.filler.done.Load() }

// BumpView raises the view version although the regions are the same, so that
// clients come for a new view. It returns the version; ErrClosed or ErrFatal
// when the store does not serve any more.
func (s *Store) BumpView() (uint64, error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return s.table.Bump(), nil
}
