package store

import (
	"math"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The keeper is a goroutine that does what is due by the clock: it syncs under
// the policy Interval, leaves a heartbeat in the log, watches the disk's free
// space, and begins a new epoch long before one is used up.

const (
	heartbeatEvery = time.Second
	diskEvery      = time.Second
)

func (s *Store) runKeeper() {
	every := heartbeatEvery
	if s.cfg.Sync == Interval {
		every = s.cfg.SyncInterval
	}
	beat, disk := time.NewTicker(every), time.NewTicker(diskEvery)
	defer beat.Stop()
	defer disk.Stop()
	for {
		select {
		case <-s.life.Stop:
			return
		case <-s.fence.Down:
			return
		case <-beat.C:
			s.disk.Heartbeat()
		case <-disk.C:
			s.disk.LookSpace()
			s.extendEpoch()
			s.disk.NoteKeys(s.keyCounts())
		}
	}
}

// extendEpoch makes the next epoch durable when half of this one's sequence
// numbers are gone, so that the numbers can run on into it.
func (s *Store) extendEpoch() {
	next, limit := s.pipe.Versions()
	last := (limit - 1).Epoch()
	if limit-next > 1<<39 || last == math.MaxUint16 {
		return
	}
	if s.disk.RaiseEpoch(last + 1) {
		s.pipe.Extend(min(limit+1<<40, layout.MaxVersion))
	}
}

// runClock draws the clock and keeps its bound ahead.
func (s *Store) runClock() {
	s.life.Every(clock.Every, func() { _ = s.clock.Tick() }) // a store whose bound cannot be written is fenced
}
