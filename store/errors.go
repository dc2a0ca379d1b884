package store

import (
	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
)

// The errors of this package. Test for them with errors.Is: what is returned
// is often wrapped in an OpenError or a CorruptError that adds the details.
var (
	// ErrNotFound: the key is not there. Said only when it is certain.
	ErrNotFound = base.ErrNotFound
	// ErrKeyEmpty: a key has at least one byte.
	ErrKeyEmpty = base.ErrKeyEmpty
	// ErrKeyTooLarge: see layout.MaxKeyLen.
	ErrKeyTooLarge = base.ErrKeyTooLarge
	// ErrTooLarge: see layout.MaxValueLen.
	ErrTooLarge = base.ErrTooLarge
	// ErrShard: the shard number is outside the store's.
	ErrShard = base.ErrShard
	// ErrClosed: the store is closing or closed.
	ErrClosed = base.ErrClosed
	// ErrOverloaded: a bound on work in flight is reached; try again after a
	// moment. Nothing was ordered.
	ErrOverloaded = base.ErrOverloaded
	// ErrGrowing: memory for this write is being registered, which takes a
	// device up to seconds. Nothing was ordered; see Store.Growing.
	ErrGrowing = base.ErrGrowing
	// ErrMustAsk: whether the write may take effect cannot be told without the
	// disk, and the caller does not wait. Nothing was ordered: Submit it again
	// without NoWait, where waiting is allowed.
	ErrMustAsk = base.ErrMustAsk
	// ErrCondition: the key was not as the write demands; see Result.Actual.
	ErrCondition = base.ErrCondition
	// ErrNotNumber: an increment met a value that is no decimal int64.
	ErrNotNumber = base.ErrNotNumber
	// ErrNumberRange: an increment would leave the range of int64.
	ErrNumberRange = base.ErrNumberRange
	// ErrCrossShard: the keys of a batch are in different shards. Give them the
	// same tag in braces.
	ErrCrossShard = base.ErrCrossShard
	// ErrBatch: a batch is empty or too large, or has a key twice.
	ErrBatch = base.ErrBatch
	// ErrUnsupported: this store does not do that (mode, operation).
	ErrUnsupported = base.ErrUnsupported
	// ErrNoSpace: free disk space is below the floor; puts are refused until
	// there is room, gets and deletes go on.
	ErrNoSpace = base.ErrNoSpace
	// ErrReadOnlyDisk: the file system has become read-only.
	ErrReadOnlyDisk = base.ErrReadOnlyDisk
	// ErrFatal: the log or the base could not be written. Nothing is acknowledged any
	// more; the node must end and be started again.
	ErrFatal = base.ErrFatal
	// ErrOutcomeUnknown: the wait for a write ended before the write did, also that of a
	// replica which hears no majority, or a retry came so late that nobody remembers. It
	// may or may not be there.
	ErrOutcomeUnknown = base.ErrOutcomeUnknown

	// ErrCorrupt: bytes on the disk are not what was written there. See
	// CorruptError for which.
	ErrCorrupt = base.ErrCorrupt
	// ErrFormatVersion: the store was written by a newer version.
	ErrFormatVersion = base.ErrFormatVersion
	// ErrForeignDir: the directory holds something that is no store.
	ErrForeignDir = base.ErrForeignDir
	// ErrNotDir: the path names a file.
	ErrNotDir = base.ErrNotDir
	// ErrLocked: another process (or this one) has the store open.
	ErrLocked = base.ErrLocked
	// ErrNoAccess: the directory cannot be read and written.
	ErrNoAccess = base.ErrNoAccess
	// ErrShardCount: the store was created with another number of shards.
	ErrShardCount = base.ErrShardCount
	// ErrNoStore: there is no store in the directory (Inspect and Check only;
	// Open would create one).
	ErrNoStore = base.ErrNoStore
	// ErrEpochs: the store was opened 65,535 times. Export it and import it
	// into a new one.
	ErrEpochs = base.ErrEpochs
)

// An OpenError says which directory could not be opened (Dir), why (Err: one of
// the sentinels above, or the file system's error), and what to do (Hint).
type OpenError = base.OpenError

// A CorruptError says what is damaged: the record of Key in Shard, or File.
// errors.Is(e, ErrCorrupt) holds.
type CorruptError = base.CorruptError

// A LogError is an ErrOverloaded because of the log. If it is not Full, puts are slowed down to
// what checkpoints take in, and Submit may let the write in after its Wait.
type LogError = admit.LogError
