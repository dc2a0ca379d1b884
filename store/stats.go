package store

import (
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/slab"
)

// counters are what the store counts by itself.
type counters struct {
	batches                     atomic.Uint64
	resident, absent, pebble    atomic.Uint64
	scans, holds, aside, probes atomic.Uint64
	noMemory, slotless          atomic.Uint64
	damaged, corrupt, published atomic.Uint64
	tooLate, unsettled          atomic.Uint64

	evicted, promoted, refused, promotionsLost atomic.Uint64
	slotsDropped, dropped, cleared, touches    atomic.Uint64
	slotsSwept, sweptKeys                      atomic.Uint64

	retries, conditions, batchWrites, expired   atomic.Uint64
	scrubbed, scrubbedBytes, scrubPasses        atomic.Uint64
	repaired, repairsLost, orphans              atomic.Uint64
	damageReports, reportsDropped, reportsFalse atomic.Uint64
	reportsDead                                 atomic.Uint64
}

// Stats is a store in numbers. Counters run from Open; each value is read at
// its own moment.
type Stats struct {
	Shards       int           `json:"shards"`
	ShardsFilled int           `json:"shards_filled"`
	Epoch        uint16        `json:"epoch"`
	Uptime       time.Duration `json:"uptime_ns"`

	Keys       uint64 `json:"keys"`        // in memory
	PebbleOnly uint64 `json:"pebble_only"` // slots of keys that are not, some of them stale
	Slotless   uint64 `json:"slotless"`    // upper bound of the keys without a slot, as far as counted

	// A full memory: docs/decisions says what is evicted.
	Evicted      uint64 `json:"evicted"`       // items that left memory for others
	Promoted     uint64 `json:"promoted"`      // items that a get brought back
	Refused      uint64 `json:"refused"`       // gets whose key was not worth the coldest item
	Overtaken    uint64 `json:"overtaken"`     // promotions that a write was faster than
	SlotsDropped uint64 `json:"slots_dropped"` // Pebble-only slots given up for a count
	SlotsSwept   uint64 `json:"slots_swept"`   // Pebble-only slots of deleted keys that were cleared
	SweptKeys    uint64 `json:"swept_keys"`    // keys that were read from Pebble for that
	Dropped      uint64 `json:"dropped"`       // mode cache: keys that are gone
	Cleared      uint64 `json:"cleared"`       // runs of memory emptied for another size class
	Touches      uint64 `json:"touches"`       // gets reported by clients
	SketchBytes  uint64 `json:"sketch_bytes"`  // on the heap, not part of the limit

	// Memory, in bytes. MemoryUsed is what the product reports per key: slab
	// pages and index segments in use, retired ones included.
	MemoryUsed    uint64            `json:"memory_used"`
	MemoryLimit   uint64            `json:"memory_limit"`
	Regions       int               `json:"regions"`
	RegionBytes   uint64            `json:"region_bytes"`
	ItemBytes     uint64            `json:"item_bytes"`    // slab pages and spans in use
	ItemLive      uint64            `json:"item_live"`     // of them, places that hold items
	IndexBytes    uint64            `json:"index_bytes"`   // segments and directories in use
	RetiredBytes  uint64            `json:"retired_bytes"` // waiting for a lease
	HeldBytes     int64             `json:"held_bytes"`    // kept for readers
	SlabClasses   []slab.ClassStats `json:"slab_classes"`
	InflightBytes int64             `json:"inflight_bytes"`
	Inflight      int               `json:"inflight"` // writes accepted and not done

	Published      uint64 `json:"published"` // writes published
	Batches        uint64 `json:"batches"`   // Pebble batches
	Resident       uint64 `json:"resident"`  // reads by SEND answered from memory
	Absent         uint64 `json:"absent"`    // ... by memory that proves absence
	FromDisk       uint64 `json:"from_disk"` // ... by Pebble
	Scans          uint64 `json:"scans"`
	Holds          uint64 `json:"holds"`
	HoldsAside     uint64 `json:"holds_aside"` // ... for which there was no room in registered memory
	Probes         uint64 `json:"probes"`      // deletes that had to ask Pebble
	NoMemory       uint64 `json:"no_memory"`   // puts and fills for which there was no place
	Damaged        uint64 `json:"damaged"`     // items in memory that did not verify
	Scrubbed       uint64 `json:"scrubbed"`    // items verified by the background pass
	ScrubbedBytes  uint64 `json:"scrubbed_bytes"`
	ScrubPasses    uint64 `json:"scrub_passes"`    // over all of memory
	Repaired       uint64 `json:"repaired"`        // damaged items rewritten from disk, or sent there
	RepairsLost    uint64 `json:"repairs_lost"`    // ... that gave way to a newer write
	Orphans        uint64 `json:"orphans"`         // damaged items that were nobody's, or had no copy
	DamageReports  uint64 `json:"damage_reports"`  // of clients
	ReportsFalse   uint64 `json:"reports_false"`   // ... where the server found nothing
	ReportsDead    uint64 `json:"reports_dead"`    // ... where it found an item that was whole and dead: a write of it was in flight
	ReportsDropped uint64 `json:"reports_dropped"` // ... beyond the bound
	Corrupt        uint64 `json:"corrupt"`         // records on the disk that did not verify

	Retries     uint64 `json:"retries"`            // writes that came again and were answered as before
	Remembered  int    `json:"results_remembered"` // results of requests, for that
	Conditions  uint64 `json:"conditions_refused"` // writes whose condition did not hold
	BatchWrites uint64 `json:"batch_writes"`       // batches of callers
	Expired     uint64 `json:"expired"`            // keys removed because their time was over
	TooLate     uint64 `json:"retries_too_late"`   // retries of which nothing is remembered
	Unsettled   uint64 `json:"writes_unsettled"`   // writes refused because their key never kept still
	// ResultsEvicted: results that were forgotten before their time, because their
	// owner had too many.
	ResultsEvicted uint64 `json:"results_evicted"`
	// ResultsShort: that was so not long ago.
	ResultsShort bool      `json:"results_short"`
	ServerTime   time.Time `json:"server_time"` // by which keys expire
	// ClockAhead is how far that is ahead of the wall clock; negative: behind.
	ClockAhead time.Duration `json:"clock_ahead_ns"`

	DiskFree      uint64      `json:"disk_free"`    // bytes; 0 if unknown
	PutsRefused   bool        `json:"puts_refused"` // for want of disk space
	Fenced        bool        `json:"fenced"`       // durability is gone
	Pebble        PebbleStats `json:"pebble"`
	FillKeys      uint64      `json:"fill_keys"`
	FillDropped   uint64      `json:"fill_dropped"`
	FillFault     string      `json:"fill_fault"`     // why a shard could not be filled; empty: none
	ReclaimLatest uint64      `json:"reclaim_latest"` // newest reclaim version
}

// PebbleStats is Pebble in numbers.
type PebbleStats struct {
	DiskBytes        uint64 `json:"disk_bytes"` // all files
	WALBytes         uint64 `json:"wal_bytes"`  // logs not yet obsolete
	MemTableBytes    uint64 `json:"mem_table_bytes"`
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

// Stats reads the numbers. It takes each shard's lock for a moment.
func (s *Store) Stats() Stats {
	leave, err := s.enter()
	if err != nil {
		return Stats{Shards: len(s.shards), Fenced: s.fence.failed() != nil}
	}
	defer leave()
	c := &s.counts
	st := Stats{
		Shards: len(s.shards), ShardsFilled: int(s.filler.shards.Load()),
		Epoch: s.facts.epoch, Uptime: time.Since(s.opened),
		MemoryLimit: s.table.Limit(), Regions: len(s.table.View().Regions), RegionBytes: s.table.InUse(),
		HeldBytes: s.heldBytes.Load(),
		Published: c.published.Load(), Batches: c.batches.Load(),
		Resident: c.resident.Load(), Absent: c.absent.Load(), FromDisk: c.pebble.Load(),
		Scans: c.scans.Load(), Holds: c.holds.Load(), HoldsAside: c.aside.Load(), Probes: c.probes.Load(),
		NoMemory: c.noMemory.Load(), Damaged: c.damaged.Load(), Corrupt: c.corrupt.Load(),
		Scrubbed: c.scrubbed.Load(), ScrubbedBytes: c.scrubbedBytes.Load(), ScrubPasses: c.scrubPasses.Load(),
		Repaired: c.repaired.Load(), RepairsLost: c.repairsLost.Load(), Orphans: c.orphans.Load(),
		DamageReports: c.damageReports.Load(), ReportsFalse: c.reportsFalse.Load(), ReportsDropped: c.reportsDropped.Load(),
		DiskFree: s.disk.free.Load(), PutsRefused: s.disk.admits(false) != nil,
		FillKeys: s.filler.keys.Load(), FillDropped: s.filler.dropped.Load(),
		ReclaimLatest: s.reclaim.Version(),
	}
	st.Evicted, st.Promoted, st.Refused, st.Overtaken = c.evicted.Load(), c.promoted.Load(), c.refused.Load(), c.promotionsLost.Load()
	st.SlotsDropped, st.Dropped, st.Cleared, st.Touches = c.slotsDropped.Load(), c.dropped.Load(), c.cleared.Load(), c.touches.Load()
	st.SlotsSwept, st.SweptKeys = c.slotsSwept.Load(), c.sweptKeys.Load()
	st.SketchBytes = uint64(len(s.sketch.words) * 8)
	st.ReportsDead = c.reportsDead.Load()
	st.Retries, st.Conditions, st.BatchWrites, st.Expired = c.retries.Load(), c.conditions.Load(), c.batchWrites.Load(), c.expired.Load()
	st.Remembered, st.TooLate, st.ResultsShort = s.dedup.count(), c.tooLate.Load(), s.dedup.short()
	st.Unsettled = c.unsettled.Load()
	st.ResultsEvicted, st.ServerTime, st.ClockAhead = s.dedup.evicted.Load(), s.Now(), s.ClockAhead()
	st.InflightBytes, st.Inflight = s.gate.inside()
	for _, sh := range s.shards {
		sh.mu.Lock()
		ix := sh.ix.Stats()
		st.Keys += sh.slots
		sh.mu.Unlock()
		st.Slotless += uint64(ix.Slotless)
		st.PebbleOnly += uint64(ix.Pebble)
		st.IndexBytes += ix.Bytes
		st.RetiredBytes += ix.Retired
	}
	items := s.slabs.Stats()
	st.ItemBytes, st.ItemLive, st.SlabClasses = items.InUse, items.Live, items.Classes
	st.RetiredBytes += items.Retired
	st.MemoryUsed = st.ItemBytes + st.IndexBytes + st.RetiredBytes
	s.filler.mu.Lock()
	if s.filler.err != nil {
		st.FillFault = s.filler.err.Error()
	}
	s.filler.mu.Unlock()
	st.Pebble = s.pebbleStats()
	return st
}

func (s *Store) pebbleStats() PebbleStats {
	if s.db == nil {
		return PebbleStats{}
	}
	m, e := s.db.Metrics(), &s.fence.counts
	return PebbleStats{
		DiskBytes: m.DiskSpaceUsage(), WALBytes: m.WAL.Size, MemTableBytes: m.MemTable.Size,
		L0Files: m.Levels[0].TablesCount, Compactions: m.Compact.Count, Flushes: m.Flush.Count,
		CacheHits: m.BlockCache.Hits, CacheMisses: m.BlockCache.Misses,
		BackgroundErrors: e.background.Load(), Corruptions: e.corruption.Load(),
		SlowDisk: e.slow.Load(), WriteStalls: e.stalls.Load(),
	}
}
