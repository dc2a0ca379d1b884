package base

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
	WordReads   uint64 `json:"word_reads"`   // of Reads, those of cells of voters that do not lead
	Bounded     uint64 `json:"bounded"`      // gets with a bound (ReadBounded) that a replica has answered by READs, whether it leads or not
	BoundLooks  uint64 `json:"bound_looks"`  // how often it was looked how new a replica is, for all of these
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
	Words    uint64 `json:"words"`     // of a replicated key: it is not known who leads, or too few voters said so
	Bound    uint64 `json:"bound"`     // with a bound: no replica is known to be new enough. These were made without a bound, not all of them by SEND
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

// Counts is the live form of Counters.
type Counts struct {
	Gets, Hits, Misses, SendGets                                     atomic.Uint64
	LongHits                                                         atomic.Uint64 // of hits, by more than one READ
	Reads, ReadBytes, ReadBatches                                    atomic.Uint64
	CacheHits, CacheMisses, CacheStale                               atomic.Uint64
	LargeReads                                                       atomic.Uint64
	Puts, LargePuts, Deletes, ScanPages                              atomic.Uint64
	Updates, Batches, RetryWrite, RetryRefused                       atomic.Uint64
	FallbackSlotless, FallbackPebble, FallbackRounds                 atomic.Uint64
	FallbackNoLease, FallbackNoRegion, FallbackNoRoom, FallbackOther atomic.Uint64
	FallbackWords, WordReads                                         atomic.Uint64
	FallbackBound, Bounded, BoundLooks                               atomic.Uint64
	FallbackExpiry, ExpiredItems                                     atomic.Uint64
	RetryTorn, RetryPending, RetryDead, RetryMisfit, RetryMarked     atomic.Uint64
	RetryMismatch, RetryChunk, RetryLease, RetryLost                 atomic.Uint64
	Renewals, LeaseExpired, ViewRefreshes                            atomic.Uint64
	Reclaims, ReclaimDropped                                         atomic.Uint64
	Connects, ConnectsFailed, SessionsLost                           atomic.Uint64
	Moves, Reports, Damaged                                          atomic.Uint64
	Timeouts, OutcomeUnknown                                         atomic.Uint64
	GetTimes, WriteTimes                                             Latency

	_     [64]byte
	Quick [Stripes]Stripe // gets, one-sided hits, READs and cache hits of gets that are copies
}

// Wrote counts a write.
func (n *Counts) Wrote(typ wire.Type) {
	switch typ {
	case wire.TypePut:
		n.Puts.Add(1)
	case wire.TypeDelete:
		n.Deletes.Add(1)
	case wire.TypeUpdate:
		n.Updates.Add(1)
	case wire.TypeBatch:
		n.Batches.Add(1)
	}
}

// Snapshot reads every counter once. The numbers belong to nearly, not
// exactly, the same moment.
func (n *Counts) Snapshot() Counters {
	long := n.LongHits.Load() // before the hits, which are more
	var quick, quickBytes uint64
	for i := range n.Quick {
		quick += n.Quick[i].Hits.Load()
		quickBytes += n.Quick[i].Bytes.Load()
	}
	hits := n.Hits.Load() + quick
	return Counters{
		OneReadHits: hits - min(long, hits),
		Gets:        n.Gets.Load() + quick, OneSidedHits: hits, OneSidedMisses: n.Misses.Load(), SendGets: n.SendGets.Load(), ExpiredMisses: n.ExpiredItems.Load(),
		Reads: n.Reads.Load() + quick, ReadBytes: n.ReadBytes.Load() + quickBytes, ReadBatches: n.ReadBatches.Load() + quick,
		CacheHits: n.CacheHits.Load() + quick, CacheMisses: n.CacheMisses.Load(), CacheStale: n.CacheStale.Load(),
		LargeReads: n.LargeReads.Load(), WordReads: n.WordReads.Load(), Bounded: n.Bounded.Load(), BoundLooks: n.BoundLooks.Load(),
		Puts: n.Puts.Load(), LargePuts: n.LargePuts.Load(), Deletes: n.Deletes.Load(), Updates: n.Updates.Load(), Batches: n.Batches.Load(), ScanPages: n.ScanPages.Load(),
		Fallbacks: FallbackCounters{
			Slotless: n.FallbackSlotless.Load(), Pebble: n.FallbackPebble.Load(), Rounds: n.FallbackRounds.Load(),
			NoLease: n.FallbackNoLease.Load(), NoRegion: n.FallbackNoRegion.Load(), NoRoom: n.FallbackNoRoom.Load(), Expiry: n.FallbackExpiry.Load(), Words: n.FallbackWords.Load(), Bound: n.FallbackBound.Load(), Other: n.FallbackOther.Load(),
		},
		Retries: RetryCounters{
			Torn: n.RetryTorn.Load(), Pending: n.RetryPending.Load(), Dead: n.RetryDead.Load(), Misfit: n.RetryMisfit.Load(),
			Marked: n.RetryMarked.Load(), Mismatch: n.RetryMismatch.Load(), Chunk: n.RetryChunk.Load(),
			Lease: n.RetryLease.Load(), Session: n.RetryLost.Load(), Write: n.RetryWrite.Load(), Refused: n.RetryRefused.Load(),
		},
		LeaseRenewals: n.Renewals.Load(), LeaseExpired: n.LeaseExpired.Load(), ViewRefreshes: n.ViewRefreshes.Load(),
		ReclaimUpdates: n.Reclaims.Load(), ReclaimDropped: n.ReclaimDropped.Load(),
		Connects: n.Connects.Load(), ConnectsFailed: n.ConnectsFailed.Load(), SessionsLost: n.SessionsLost.Load(), Moves: n.Moves.Load(),
		Reports: n.Reports.Load(), Damaged: n.Damaged.Load(),
		Timeouts: n.Timeouts.Load(), OutcomeUnknown: n.OutcomeUnknown.Load(),
	}
}

// AddCounters adds what another peer has counted to c.
func AddCounters(c *Counters, other *Counters) {
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

// stripes is into how many parts counters are cut that every direct get writes, so
// that two processors seldom write the same line.
const Stripes = 16

// A Stripe is a part of the counters of quick.
type Stripe struct {
	Hits, Bytes atomic.Uint64
	_           [48]byte
}

// WaitCounters says how calls have waited for what they had asked the fabric
// for. Waits that found it at the first look, or that another call polled for,
// are in none of them.
type WaitCounters struct {
	SpinsGot  uint64 `json:"spins_got"`  // waits that polled, and it came
	SpinsVain uint64 `json:"spins_vain"` // waits that polled, and nothing came in their time
	Parks     uint64 `json:"parks"`      // how often a goroutine slept
	SpinNanos uint64 `json:"spin_nanos"` // time spent polling
}
