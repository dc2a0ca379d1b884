package store

import (
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/parts"
	"github.com/rdmakv/rdmakv/store/internal/replica"
	"github.com/rdmakv/rdmakv/store/slab"
)

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
	Evicted      uint64      `json:"evicted"`       // items that left memory for others
	Promoted     uint64      `json:"promoted"`      // items that a get brought back
	Refused      uint64      `json:"refused"`       // gets whose key was not worth the coldest item
	Overtaken    uint64      `json:"overtaken"`     // promotions that a write was faster than
	SlotsDropped uint64      `json:"slots_dropped"` // Pebble-only slots given up for a count
	SlotsSwept   uint64      `json:"slots_swept"`   // Pebble-only slots of deleted keys that were cleared
	SweptKeys    uint64      `json:"swept_keys"`    // keys that were read from Pebble for that
	Parts        parts.Stats `json:"parts"`         // values in parts; Keys counts each part
	Dropped      uint64      `json:"dropped"`       // mode cache: keys that are gone
	Cleared      uint64      `json:"cleared"`       // runs of memory emptied for another size class
	Touches      uint64      `json:"touches"`       // gets reported by clients
	SketchBytes  uint64      `json:"sketch_bytes"`  // on the heap, not part of the limit

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
	FromDisk       uint64 `json:"from_disk"` // ... by the log or the base
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
	Log           LogStats    `json:"log"`
	Pebble        PebbleStats `json:"pebble"`
	FillKeys      uint64      `json:"fill_keys"`
	FillDropped   uint64      `json:"fill_dropped"`
	FillFault     string      `json:"fill_fault"`     // why a shard could not be filled; empty: none
	ReclaimLatest uint64      `json:"reclaim_latest"` // newest reclaim version
}

// Stats reads the numbers. It takes each shard's lock for a moment.
func (s *Store) Stats() Stats {
	leave, err := s.door.Enter()
	if err != nil {
		return Stats{Shards: len(s.shards), Fenced: s.fence.Failed() != nil}
	}
	defer leave()
	c := s.counts
	held, _ := s.HoldUse()
	filled, keys, dropped, fault := s.filler.Filled()
	st := Stats{
		Shards: len(s.shards), ShardsFilled: filled,
		Epoch: s.disk.Epoch(), Uptime: time.Since(s.opened),
		MemoryLimit: s.mem.Table.Limit(), Regions: len(s.mem.Table.View().Regions), RegionBytes: s.mem.Table.InUse(),
		HeldBytes: held,
		Published: c.Published.Load(), Batches: c.Batches.Load(),
		Resident: c.Resident.Load(), Absent: c.Absent.Load(), FromDisk: c.Pebble.Load(),
		Scans: c.Scans.Load(), Holds: c.Holds.Load(), HoldsAside: c.Aside.Load(), Probes: c.Probes.Load(),
		NoMemory: c.NoMemory.Load(), Damaged: c.Damaged.Load(), Corrupt: c.Corrupt.Load(),
		Scrubbed: c.Scrubbed.Load(), ScrubbedBytes: c.ScrubbedBytes.Load(), ScrubPasses: c.ScrubPasses.Load(),
		Repaired: c.Repaired.Load(), RepairsLost: c.RepairsLost.Load(), Orphans: c.Orphans.Load(),
		DamageReports: c.DamageReports.Load(), ReportsFalse: c.ReportsFalse.Load(), ReportsDropped: c.ReportsDropped.Load(),
		DiskFree: s.disk.Free(), PutsRefused: s.disk.Admits(false) != nil,
		FillKeys: keys, FillDropped: dropped,
		ReclaimLatest: s.mem.Reclaim.Version(),
	}
	st.Evicted, st.Promoted, st.Refused, st.Overtaken = c.Evicted.Load(), c.Promoted.Load(), c.Refused.Load(), c.PromotionsLost.Load()
	st.SlotsDropped, st.Dropped, st.Cleared, st.Touches = c.SlotsDropped.Load(), c.Dropped.Load(), c.Cleared.Load(), c.Touches.Load()
	st.SlotsSwept, st.SweptKeys = c.SlotsSwept.Load(), c.SweptKeys.Load()
	st.Parts = s.parts.Stats()
	st.SketchBytes = s.mem.Sketch.Bytes()
	st.ReportsDead = c.ReportsDead.Load()
	st.Retries, st.Conditions, st.BatchWrites, st.Expired = c.Retries.Load(), c.Conditions.Load(), c.BatchWrites.Load(), c.Expired.Load()
	st.Remembered, st.TooLate, st.ResultsShort = s.dedup.Count(), c.TooLate.Load(), s.dedup.Short()
	st.Unsettled = c.Unsettled.Load()
	st.ResultsEvicted, st.ServerTime, st.ClockAhead = s.dedup.Evicted(), s.Now(), s.ClockAhead()
	st.InflightBytes, st.Inflight = s.gate.Inside()
	for _, sh := range s.shards {
		ix, keys := sh.Counts()
		st.Keys += keys
		st.Slotless += uint64(ix.Slotless)
		st.PebbleOnly += uint64(ix.Pebble)
		st.IndexBytes += ix.Bytes
		st.RetiredBytes += ix.Retired
	}
	items := s.mem.Slabs.Stats()
	st.ItemBytes, st.ItemLive, st.SlabClasses = items.InUse, items.Live, items.Classes
	st.RetiredBytes += items.Retired
	st.MemoryUsed = st.ItemBytes + st.IndexBytes + st.RetiredBytes
	if fault != nil {
		st.FillFault = fault.Error()
	}
	st.Pebble = s.disk.Stats()
	st.Log = s.logStats()
	return st
}

// ResultUse returns how many results of requests are remembered for retries, how many
// may be, and how many had to go before their time since the store was opened.
func (s *Store) ResultUse() (n, limit int, evicted uint64) {
	return s.dedup.Count(), s.cfg.dedupEntries, s.dedup.Evicted()
}

// Lag says how far what readers see is behind what was ordered, at one moment
// for each shard. All zero in a store at rest.
type Lag struct {
	Unpublished  int // writes that are ordered and not published, by key
	NotDurable   int // shards with ordered > durable
	NotPublished int // shards with durable > published
}

// Lag looks at the marks of all shards.
func (s *Store) Lag() (l Lag) {
	for _, sh := range s.shards {
		m := sh.Marks()
		l.Unpublished += m.Flying
		if m.Ordered > m.Durable {
			l.NotDurable++
		}
		if m.Durable > m.Published {
			l.NotPublished++
		}
	}
	return l
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

// GroupStats is what the replicas of a store have done since it was opened, in numbers: sums over its groups.
//
// How they stand now the engine tells (EngineOf), which knows what others have.
type GroupStats struct {
	// Elected is how often a replica of this store was elected to lead its group, and Terms how often one has heard of a later term, which an
	// election makes, whoever wins it.
	Elected uint64 `json:"elected"`
	Terms   uint64 `json:"terms"`
	// Entries are those of writes that replicas of this store have proposed as leaders, and EntryBytes theirs.
	Entries    uint64 `json:"entries"`
	EntryBytes uint64 `json:"entry_bytes"`
	// Sent counts snapshots that replicas elsewhere were begun to be sent, because the log has no entries for them any more; Received those that took the
	// place of what a replica here had.
	Sent     uint64 `json:"snapshots_sent"`
	Received uint64 `json:"snapshots_received"`
	// Checks are those that came to a digest, and ChecksFailed those that did not.
	Checks       uint64 `json:"checks"`
	ChecksFailed uint64 `json:"checks_failed"`
}

// GroupStatsOf reads the numbers, each at its own moment; all are 0 in a store without replicas. It waits for no disk, and is safe for
// concurrent use.
func GroupStatsOf(s *Store) GroupStats {
	g := s.groups
	g.past.mu.Lock()
	defer g.past.mu.Unlock()
	st := g.past.stats
	st.Sent, st.Received = g.sent.Load(), g.received.Load()
	for _, m := range g.list() {
		st.add(m)
	}
	return st
}

// add adds what a replica has done.
func (st *GroupStats) add(m *member) {
	c := replica.CountsOf(m.Replica)
	st.Elected, st.Terms = st.Elected+c.Elected, st.Terms+c.Terms
	st.Entries, st.EntryBytes = st.Entries+c.Entries, st.EntryBytes+c.Bytes
	st.Checks, st.ChecksFailed = st.Checks+c.Checks, st.ChecksFailed+c.Failed
}

// A past is what replicas have done that the store has given up, so that no counter falls. Its lock is held while one goes from the list of those that are there
// to this.
type past struct {
	mu    sync.Mutex
	stats GroupStats
}
