package client

import (
	"reflect"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// Counters is a snapshot of what a client has done since Dial. Where a get
// was answered tells whether the one-sided way works: on a healthy store
// OneSidedHits and OneSidedMisses make up nearly all of Gets.
type Counters struct {
	Gets           uint64 `json:"gets"`             // keys asked for: Get, GetInto, GetRange, Exists, Stat, each key of MultiGet
	OneSidedHits   uint64 `json:"one_sided_hits"`   // found by READs alone
	OneReadHits    uint64 `json:"one_read_hits"`    // of these, by one READ: of the item, at a remembered place
	OneSidedMisses uint64 `json:"one_sided_misses"` // proved absent by READs alone
	ExpiredMisses  uint64 `json:"expired_misses"`   // of these, items that had expired
	SendGets       uint64 `json:"send_gets"`        // answered by SEND

	Reads       uint64 `json:"reads"`        // RDMA READs posted, of any kind
	ReadBytes   uint64 `json:"read_bytes"`   //
	ReadBatches uint64 `json:"read_batches"` // doorbells, and READs that were copies
	CacheHits   uint64 `json:"cache_hits"`   // gets that began with a remembered place
	CacheMisses uint64 `json:"cache_misses"` //
	CacheStale  uint64 `json:"cache_stale"`  // remembered places that did not hold the key any more
	LargeReads  uint64 `json:"large_reads"`  // values above 64 KiB READ in chunks

	Puts      uint64 `json:"puts"`
	LargePuts uint64 `json:"large_puts"` // of these, READ by the server
	Deletes   uint64 `json:"deletes"`
	Updates   uint64 `json:"updates"` // increments and touches
	Batches   uint64 `json:"batches"`
	ScanPages uint64 `json:"scan_pages"`

	// Fallbacks counts by cause why a get went by SEND.
	Fallbacks FallbackCounters `json:"fallbacks"`
	// Retries counts by cause why something was READ or sent again.
	Retries RetryCounters `json:"retries"`
	// Waits counts how calls have waited.
	Waits WaitCounters `json:"waits"`

	LeaseRenewals  uint64 `json:"lease_renewals"`
	LeaseExpired   uint64 `json:"lease_expired"` // results thrown away because the lease had run out
	ViewRefreshes  uint64 `json:"view_refreshes"`
	ReclaimUpdates uint64 `json:"reclaim_updates"` // lists of retired pages read
	ReclaimDropped uint64 `json:"reclaim_dropped"` // remembered places dropped because of them
	Connects       uint64 `json:"connects"`        // sessions made, the first included
	ConnectsFailed uint64 `json:"connects_failed"` //
	SessionsLost   uint64 `json:"sessions_lost"`   //
	Reports        uint64 `json:"reports"`         // samples of hits that the server was told of
	Damaged        uint64 `json:"damaged"`         // items that the server was told are damaged in its memory
	Moves          uint64 `json:"moves"`           // to a fabric that comes before the one in use
	Timeouts       uint64 `json:"timeouts"`        // calls that ended at their deadline
	OutcomeUnknown uint64 `json:"outcome_unknown"` // puts and deletes without a reply

	BufferBytes      int64 `json:"buffer_bytes"`      // registered now, for gets
	StagingBytes     int64 `json:"staging_bytes"`     // registered now, for large puts
	QuarantinedBytes int64 `json:"quarantined_bytes"` // given up on, still the fabric's
}

// FallbackCounters says why gets went by SEND.
type FallbackCounters struct {
	Slotless uint64 `json:"slotless"`  // the index says that keys live without a slot here
	Pebble   uint64 `json:"pebble"`    // the value is on the server's disk only
	Rounds   uint64 `json:"rounds"`    // the key was written too fast to be read
	NoLease  uint64 `json:"no_lease"`  // no lease in force
	NoRegion uint64 `json:"no_region"` // a region younger than the view; some of these learn it and READ again
	NoRoom   uint64 `json:"no_room"`   // more candidates than one batch holds
	Expiry   uint64 `json:"expiry"`    // whether the key has expired was too close to tell
	Other    uint64 `json:"other"`
}

// RetryCounters says why something was done again.
type RetryCounters struct {
	Torn     uint64 `json:"torn"`     // the checksum did not hold: overwritten during the READ, or moved
	Pending  uint64 `json:"pending"`  // a put was about to take effect
	Dead     uint64 `json:"dead"`     // a put or delete had just killed the item
	Misfit   uint64 `json:"misfit"`   // a bucket of another segment: the directory had changed
	Marked   uint64 `json:"marked"`   // a segment that was being copied
	Mismatch uint64 `json:"mismatch"` // an item with another key
	Chunk    uint64 `json:"chunk"`    // a chunk of a large value was overwritten
	Lease    uint64 `json:"lease"`    // the lease ran out before the result was handled
	Session  uint64 `json:"session"`  // the connection was lost
	Write    uint64 `json:"write"`    // a write that was refused for now, or whose outcome the server did not know
	Refused  uint64 `json:"refused"`  // a read by SEND for which the server had no room for now
}

// counters is the live form of Counters.
type counters struct {
	gets, hits, misses, sendGets            atomic.Uint64
	longHits                                atomic.Uint64 // of hits, by more than one READ
	reads, readBytes, readBatches           atomic.Uint64
	cacheHits, cacheMisses, cacheStale      atomic.Uint64
	largeReads                              atomic.Uint64
	puts, largePuts, deletes, scanPages     atomic.Uint64
	updates, batches, writeRetry, refused   atomic.Uint64
	fbSlotless, fbPebble, fbRounds          atomic.Uint64
	fbNoLease, fbNoRegion, fbNoRoom, fbElse atomic.Uint64
	fbExpiry, expiredItems                  atomic.Uint64
	torn, pending, dead, misfit, marked     atomic.Uint64
	mismatch, chunk, leaseRetry, lost       atomic.Uint64
	renewals, expired, views                atomic.Uint64
	reclaims, reclaimDropped                atomic.Uint64
	connects, connectsFailed, sessionsLost  atomic.Uint64
	moves, reports, damaged                 atomic.Uint64
	timeouts, unknown                       atomic.Uint64
	getTimes, writeTimes                    latency

	_     [64]byte
	quick [stripes]stripe // gets, one-sided hits, READs and cache hits of direct.go
}

// wrote counts a write.
func (n *counters) wrote(typ wire.Type) {
	switch typ {
	case wire.TypePut:
		n.puts.Add(1)
	case wire.TypeDelete:
		n.deletes.Add(1)
	case wire.TypeUpdate:
		n.updates.Add(1)
	case wire.TypeBatch:
		n.batches.Add(1)
	}
}

// snapshot reads every counter once. The numbers belong to nearly, not
// exactly, the same moment.
func (n *counters) snapshot() Counters {
	long := n.longHits.Load() // before the hits, which are more
	var quick, quickBytes uint64
	for i := range n.quick {
		quick += n.quick[i].hits.Load()
		quickBytes += n.quick[i].bytes.Load()
	}
	hits := n.hits.Load() + quick
	return Counters{
		OneReadHits: hits - min(long, hits),
		Gets:        n.gets.Load() + quick, OneSidedHits: hits, OneSidedMisses: n.misses.Load(), SendGets: n.sendGets.Load(), ExpiredMisses: n.expiredItems.Load(),
		Reads: n.reads.Load() + quick, ReadBytes: n.readBytes.Load() + quickBytes, ReadBatches: n.readBatches.Load() + quick,
		CacheHits: n.cacheHits.Load() + quick, CacheMisses: n.cacheMisses.Load(), CacheStale: n.cacheStale.Load(),
		LargeReads: n.largeReads.Load(),
		Puts:       n.puts.Load(), LargePuts: n.largePuts.Load(), Deletes: n.deletes.Load(), Updates: n.updates.Load(), Batches: n.batches.Load(), ScanPages: n.scanPages.Load(),
		Fallbacks: FallbackCounters{
			Slotless: n.fbSlotless.Load(), Pebble: n.fbPebble.Load(), Rounds: n.fbRounds.Load(),
			NoLease: n.fbNoLease.Load(), NoRegion: n.fbNoRegion.Load(), NoRoom: n.fbNoRoom.Load(), Expiry: n.fbExpiry.Load(), Other: n.fbElse.Load(),
		},
		Retries: RetryCounters{
			Torn: n.torn.Load(), Pending: n.pending.Load(), Dead: n.dead.Load(), Misfit: n.misfit.Load(),
			Marked: n.marked.Load(), Mismatch: n.mismatch.Load(), Chunk: n.chunk.Load(),
			Lease: n.leaseRetry.Load(), Session: n.lost.Load(), Write: n.writeRetry.Load(), Refused: n.refused.Load(),
		},
		LeaseRenewals: n.renewals.Load(), LeaseExpired: n.expired.Load(), ViewRefreshes: n.views.Load(),
		ReclaimUpdates: n.reclaims.Load(), ReclaimDropped: n.reclaimDropped.Load(),
		Connects: n.connects.Load(), ConnectsFailed: n.connectsFailed.Load(), SessionsLost: n.sessionsLost.Load(), Moves: n.moves.Load(),
		Reports: n.reports.Load(), Damaged: n.damaged.Load(),
		Timeouts: n.timeouts.Load(), OutcomeUnknown: n.unknown.Load(),
	}
}

// add adds what another peer has counted.
func (c *Counters) add(other *Counters) {
	addNumbers(reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem())
}

func addNumbers(sum, v reflect.Value) {
	for i := range v.NumField() {
		switch a, b := sum.Field(i), v.Field(i); b.Kind() {
		case reflect.Uint64:
			a.SetUint(a.Uint() + b.Uint())
		case reflect.Int64:
			a.SetInt(a.Int() + b.Int())
		case reflect.Struct:
			addNumbers(a, b)
		}
	}
}
