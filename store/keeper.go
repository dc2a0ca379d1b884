package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

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
	defer s.workers.Done()
	every := heartbeatEvery
	if s.cfg.Sync == Interval {
		every = s.cfg.SyncInterval
	}
	beat, disk := time.NewTicker(every), time.NewTicker(diskEvery)
	defer beat.Stop()
	defer disk.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-beat.C:
			s.heartbeat()
		case <-disk.C:
			s.disk.look(s.cfg)
			s.extendEpoch()
			s.noteKeys()
		}
	}
}

// heartbeat writes a small synced record, if anything was written since the
// last one. Under Interval that is the sync that the policy promises. Always:
// each sync leaves in the log how far it is known to be whole, so damage
// before that point is found at the next start; damage behind the last one
// looks like the end. Off keeps no such record.
func (s *Store) heartbeat() {
	if !s.unbeaten.Swap(false) {
		return
	}
	if s.cfg.Sync == Off {
		s.handOver()
		return
	}
	s.facts.beats++
	if !s.setMetaNow(metaBeat, binary.LittleEndian.AppendUint64(nil, s.facts.beats)) {
		return
	}
	// From here on a log or manifest that has lost its end is found out.
	if err := s.ledger.raise(s.facts.beats); err != nil {
		s.fence.report(levelError, "ledger", "err", err)
	}
}

// handOver sees to it that the kernel has the log. Without a sync Pebble hands it
// over block by block, and the last one stays in its memory until others fill it:
// a killed process would lose what it acknowledged any time ago. Pebble can be
// asked for the block only together with a sync.
func (s *Store) handOver() {
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		s.fence.fail(fmt.Errorf("sync of the log: %w", err))
	}
}

// extendEpoch makes the next epoch durable when half of this one's sequence
// numbers are gone, so that the numbers can run on into it.
func (s *Store) extendEpoch() {
	q := s.queue
	q.mu.Lock()
	left := q.limit - q.next
	last := (q.limit - 1).Epoch()
	q.mu.Unlock()
	if left > 1<<39 || last == math.MaxUint16 {
		return
	}
	if s.setMetaNow(metaEpoch, binary.LittleEndian.AppendUint16(nil, last+1)) {
		q.mu.Lock()
		q.limit = min(q.limit+1<<40, layout.MaxVersion)
		q.mu.Unlock()
	}
}

// setMetaNow writes one fact durably.
func (s *Store) setMetaNow(name string, value []byte) bool {
	b := s.db.NewBatch()
	defer b.Close()
	err := setMeta(b, name, value)
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	if err != nil {
		s.fence.fail(fmt.Errorf("write of %s: %w", name, err))
	}
	return err == nil
}

// A disk says whether writes may be accepted. Refusing early keeps room for
// Pebble to compact and to write its log: an ENOSPC there is the end.
type disk struct {
	fence *fence
	low   atomic.Bool // below the floor: no puts
	out   atomic.Bool // below half of it: no deletes either
	free  atomic.Uint64
	known atomic.Bool // free was read
}

// look reads the free space.
func (d *disk) look(c Config) {
	free, ok := freeBytes(c.FS, c.Dir)
	d.known.Store(ok)
	if !ok || c.MinFreeBytes < 0 {
		// No floor. An ENOSPC that Pebble met is forgotten, to be met again.
		d.fence.noSpace.Store(false)
		return
	}
	d.free.Store(free)
	floor := uint64(c.MinFreeBytes)
	if d.low.Load() {
		floor += floor / 8 // not to and fro at the edge
	}
	low := free < floor
	if low != d.low.Swap(low) {
		c.Logger.Warn("disk space", "free", free, "floor", c.MinFreeBytes, "puts_refused", low)
	}
	d.out.Store(free < uint64(c.MinFreeBytes)/2)
	if !low {
		d.fence.noSpace.Store(false)
	}
}

// admits says whether a write may be accepted. Deletes free space in the end,
// so they go on for longer.
func (d *disk) admits(del bool) error {
	switch {
	case d.fence.readOnly.Load():
		return ErrReadOnlyDisk
	case d.out.Load(), !del && (d.low.Load() || d.fence.noSpace.Load()):
		return ErrNoSpace
	}
	return nil
}
