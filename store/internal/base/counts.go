package base

import "sync/atomic"

// Counters are what the store counts from Open on. Each room counts what it does
// itself; package store reads them all (Stats). Safe for concurrent use.
//
// A new counter is a field here and a field of store.Stats, and a line where the
// server makes metrics of them, which its tests ask for.
type Counters struct {
	// Writes.

	Published   atomic.Uint64 // writes published
	Batches     atomic.Uint64 // Pebble batches
	BatchWrites atomic.Uint64 // batches of callers
	Conditions  atomic.Uint64 // writes whose condition did not hold
	Expired     atomic.Uint64 // keys removed because their time was over
	Retries     atomic.Uint64 // writes that came again and were answered as before
	TooLate     atomic.Uint64 // retries of which nothing is remembered
	Unsettled   atomic.Uint64 // writes refused because their key never kept still
	Probes      atomic.Uint64 // orderings that had to ask Pebble

	// Reads.

	Resident atomic.Uint64 // reads by SEND answered from memory
	Absent   atomic.Uint64 // ... by memory that proves absence
	Pebble   atomic.Uint64 // ... by the log or the base
	FromLog  atomic.Uint64 // reads of one key, by whomever, that a record of the log answered
	Scans    atomic.Uint64
	Holds    atomic.Uint64
	Aside    atomic.Uint64 // holds for which there was no room in registered memory
	Touches  atomic.Uint64 // gets reported by clients

	// A full memory.

	NoMemory       atomic.Uint64 // puts and fills for which there was no place
	Slotless       atomic.Uint64 // keys that went without a slot
	Evicted        atomic.Uint64 // items that left memory for others
	Promoted       atomic.Uint64 // items that a get brought back
	Refused        atomic.Uint64 // gets whose key was not worth the coldest item
	PromotionsLost atomic.Uint64 // promotions that a write was faster than
	SlotsDropped   atomic.Uint64 // Pebble-only slots given up for a count
	SlotsSwept     atomic.Uint64 // Pebble-only slots of deleted keys that were cleared
	SweptKeys      atomic.Uint64 // keys that were read from Pebble for that
	Dropped        atomic.Uint64 // mode cache: keys that are gone
	Cleared        atomic.Uint64 // runs of memory emptied for another size class

	// Damage, in memory and on the disk.

	Damaged        atomic.Uint64 // items in memory that did not verify
	Corrupt        atomic.Uint64 // records on the disk that did not verify
	Scrubbed       atomic.Uint64 // items verified by the background pass
	ScrubbedBytes  atomic.Uint64
	ScrubPasses    atomic.Uint64 // over all of memory
	Repaired       atomic.Uint64 // damaged items rewritten from disk, or sent there
	RepairsLost    atomic.Uint64 // ... that gave way to a newer write
	Orphans        atomic.Uint64 // damaged items that were nobody's, or had no copy
	DamageReports  atomic.Uint64 // of clients
	ReportsFalse   atomic.Uint64 // ... where the server found nothing
	ReportsDead    atomic.Uint64 // ... where it found an item that was whole and dead
	ReportsDropped atomic.Uint64 // ... beyond the bound
}
