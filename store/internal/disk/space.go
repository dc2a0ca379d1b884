package disk

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// A space says whether writes may be accepted. Refusing early keeps room for
// Pebble to compact and to write its log: an ENOSPC there is the end.
type space struct {
	*events
	low   atomic.Bool // below the floor: no puts
	out   atomic.Bool // below half of it: no deletes either
	free  atomic.Uint64
	known atomic.Bool // free was read
}

// look reads the free space.
func (s *space) look(c Config) {
	free, ok := freeBytes(c.FS, c.Dir)
	s.known.Store(ok)
	if !ok || c.MinFreeBytes < 0 {
		// No floor. An ENOSPC that Pebble met is forgotten, to be met again.
		s.noSpace.Store(false)
		return
	}
	s.free.Store(free)
	floor := uint64(c.MinFreeBytes)
	if s.low.Load() {
		floor += floor / 8 // not to and fro at the edge
	}
	low := free < floor
	if low != s.low.Swap(low) {
		c.Logger.Warn("disk space", "free", free, "floor", c.MinFreeBytes, "puts_refused", low)
	}
	s.out.Store(free < uint64(c.MinFreeBytes)/2)
	if !low {
		s.noSpace.Store(false)
	}
}

// admits says whether a write may be accepted. Deletes free space in the end,
// so they go on for longer.
func (s *space) admits(del bool) error {
	switch {
	case s.readOnly.Load():
		return base.ErrReadOnlyDisk
	case s.out.Load(), !del && (s.low.Load() || s.noSpace.Load()):
		return base.ErrNoSpace
	}
	return nil
}

// LookSpace reads the free space, for Admits and Free.
func (d *Disk) LookSpace() { d.space.look(d.c) }

// Admits says whether a write may be accepted; del: one that frees space in the end.
// Errors: ErrReadOnlyDisk, ErrNoSpace.
func (d *Disk) Admits(del bool) error { return d.space.admits(del) }

// Free returns the bytes that were free when LookSpace looked; 0 if that is not known.
func (d *Disk) Free() uint64 { return d.space.free.Load() }

// Stats is Pebble in numbers.
type Stats struct {
	DiskBytes        uint64 `json:"disk_bytes"` // all files of the base
	L0Files          int64  `json:"l0_files"`
	Compactions      int64  `json:"compactions"`
	Flushes          int64  `json:"flushes"`
	CacheHits        int64  `json:"cache_hits"`
	CacheMisses      int64  `json:"cache_misses"`
	BackgroundErrors uint64 `json:"background_errors"`
	Corruptions      uint64 `json:"corruptions"`
	SlowDisk         uint64 `json:"slow_disk"`
	WriteStalls      uint64 `json:"write_stalls"`
}

// Stats reads the numbers; all zero of a cache.
func (d *Disk) Stats() Stats {
	if !d.Durable() {
		return Stats{}
	}
	m, e := d.db.Metrics(), &d.events.counts
	return Stats{
		DiskBytes: m.DiskSpaceUsage(),
		L0Files:   m.Levels[0].TablesCount, Compactions: m.Compact.Count, Flushes: m.Flush.Count,
		CacheHits: m.BlockCache.Hits, CacheMisses: m.BlockCache.Misses,
		BackgroundErrors: e.background.Load(), Corruptions: e.corruption.Load(),
		SlowDisk: e.slow.Load(), WriteStalls: e.stalls.Load(),
	}
}
