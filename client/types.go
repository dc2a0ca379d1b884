package client

import (
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
)

// Info is what is known of a key without its value. Its fields: Size, bytes of the value; Version,
// which rises with every write of the key and is never used twice; Expiry, when the key expires, by
// the server's time, zero for never.
type Info = base.Info

// Item is what GetItem returns.
type Item struct {
	Value   []byte    // belongs to the caller
	Version uint64    // rises with every write of the key; never used twice
	Expiry  time.Time // when the key expires, by the server's time; zero: never
}

// Entry is one key of a Scan. Its slices belong to the caller.
type Entry struct {
	Key     []byte
	Value   []byte    // nil with ScanOptions.KeysOnly
	Size    int64     // bytes of the value, whether it is here or not
	Version uint64    // 0 where KeysOnly kept the server from reading it
	Expiry  time.Time // by the server's time; zero: never
}

// ScanOptions narrow a Scan. The zero value means all keys with their values.
type ScanOptions struct {
	Prefix []byte // only keys that begin so
	Start  []byte // only keys from this one on, in byte order
	End    []byte // only keys before this one
	// After is only keys behind this one: a scan that goes on where another one
	// ended, behind its last key.
	After    []byte
	Limit    int  // at most so many; 0 means all
	KeysOnly bool // leave the values out
}

// Result is the answer to one key of a MultiGet. Its fields: Value, which belongs to the caller
// and is empty where Err is not nil; Err, which is nil, ErrNotFound, or why this key was not answered.
type Result = base.Result

// Pair is one write of a MultiPut: its Key and its Value.
type Pair = base.Pair

// Counters is a snapshot of what a client has done since Dial. Where a get was answered tells
// whether the one-sided way works: on a healthy store OneSidedHits and OneSidedMisses make up
// nearly all of Gets.
//
// Gets are keys asked for: by Get, GetInto, GetRange, GetItem, Exists, Stat, each key of MultiGet.
// Of them OneSidedHits were found by READs alone (OneReadHits by one, of the item, at a remembered
// place), OneSidedMisses proved absent by READs alone (ExpiredMisses because the item had expired),
// and SendGets were answered by SEND; Fallbacks has their causes.
//
// Reads counts RDMA READs of any kind, ReadBytes their bytes, ReadBatches doorbells, and READs that
// were copies. CacheHits are gets that began with a remembered place, CacheMisses those that did
// not, CacheStale remembered places that did not hold the key any more. LargeReads are values
// above 64 KiB, READ in chunks.
//
// Puts, LargePuts (of these, READ by the server), Deletes, Updates (increments and touches),
// Batches and ScanPages are requests. Retries counts by cause what was READ or sent again, Waits
// how calls have waited.
//
// LeaseRenewals; LeaseExpired, results thrown away because the lease had run out; ViewRefreshes;
// ReclaimUpdates, lists of retired pages read; ReclaimDropped, remembered places dropped because of
// them; Connects, sessions made, the first included; ConnectsFailed; SessionsLost; Reports, samples
// of hits that the server was told of; Damaged, items that the server was told are damaged in its
// memory; Moves, to a fabric that comes before the one in use; Timeouts, calls that ended at their
// deadline; OutcomeUnknown, writes without a reply.
//
// BufferBytes are registered now for gets, StagingBytes for large puts, QuarantinedBytes are given
// up on and still the fabric's.
type Counters = base.Counters

// FallbackCounters says why gets went by SEND. Slotless: the index says that keys live without a
// slot here. Pebble: the value is on the server's disk only. Rounds: the key was written too fast to
// be read. NoLease: no lease in force. NoRegion: a region younger than the view; some of these learn
// it and READ again. NoRoom: more candidates than one batch holds. Expiry: whether the key has
// expired was too close to tell. Other.
type FallbackCounters = base.FallbackCounters

// RetryCounters says why something was done again. Torn: the checksum did not hold, for the item was
// overwritten during the READ, or moved. Pending: a put was about to take effect. Dead: a put or
// delete had just killed the item. Misfit: a bucket of another segment, as the directory had changed.
// Marked: a segment that was being copied. Mismatch: an item with another key. Chunk: a chunk of a
// large value was overwritten. Lease: the lease ran out before the result was handled. Session: the
// connection was lost. Write: a write was refused for now, or the server did not know its outcome.
// Refused: a read by SEND for which the server had no room for now.
type RetryCounters = base.RetryCounters

// WaitCounters says how calls have waited for what they had asked the fabric for. Waits that found it
// at the first look, or that another call polled for, are in none of them. SpinsGot are waits that
// polled, and it came; SpinsVain those that polled, and nothing came in their time; Parks, how often
// a goroutine slept; SpinNanos, the time spent polling.
type WaitCounters = base.WaitCounters
