package store

import "time"

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
	leave, err := s.door.Enter()
	if err != nil {
		return
	}
	defer leave()
	s.mem.Table.Beat(s.clock.Now())
}

// Reclaim frees what has waited for a lease. It is to be called about every
// Config.BeatInterval from one goroutine, which may wait for locks of the
// store. now must carry a monotonic reading taken after the last call returned.
func (s *Store) Reclaim(now time.Time) {
	leave, err := s.door.Enter()
	if err != nil {
		return
	}
	defer leave()
	s.mem.Reclaim.Tick(now)
}

// Now is the server's time: what the beat shows, and what keys expire by.
func (s *Store) Now() time.Time { return time.UnixMicro(int64(s.clock.Now())) }

// ClockAhead is by how much the server's time is ahead of the wall clock: 6 s at
// most, or what the wall clock was set back and 6 s; negative if it is behind.
func (s *Store) ClockAhead() time.Duration { return s.clock.Ahead() }

// Incarnation returns the random number of this opening of the store. Nothing
// in registered memory verifies under another.
func (s *Store) Incarnation() uint64 { return s.mem.Incarnation }

// ID returns the store's id: 16 random bytes, made when it was created.
func (s *Store) ID() [16]byte { return s.disk.ID() }

// Began is when this opening began, in microseconds since 1970: later than any
// before it of this directory, or of one that it was copied from.
func (s *Store) Began() uint64 { return s.disk.Began() }

// Epoch is that of the first versions of this opening. Each opening has a higher
// one than those before it; a cache has none that means anything (its versions
// follow the time of day).
func (s *Store) Epoch() uint16 { return s.disk.Epoch() }

// Filled reports whether every shard is filled: misses are believed.
func (s *Store) Filled() bool { return s.filler.Done() }
