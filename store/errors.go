package store

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/rdmakv/rdmakv/store/region"
)

// The errors of this package. Test for them with errors.Is: what is returned
// is often wrapped in an OpenError or a CorruptError that adds the details.
var (
	// ErrNotFound: the key is not there. Said only when it is certain.
	ErrNotFound = errors.New("store: key not found")
	// ErrKeyEmpty: a key has at least one byte.
	ErrKeyEmpty = errors.New("store: key is empty")
	// ErrKeyTooLarge: see layout.MaxKeyLen.
	ErrKeyTooLarge = errors.New("store: key is too large: at most 4096 bytes")
	// ErrTooLarge: see layout.MaxValueLen.
	ErrTooLarge = errors.New("store: value is too large: at most 64 MiB")
	// ErrShard: the shard number is outside the store's.
	ErrShard = errors.New("store: no such shard")
	// ErrClosed: the store is closing or closed.
	ErrClosed = errors.New("store: closed")
	// ErrOverloaded: a bound on work in flight is reached; try again after a
	// moment. Nothing was ordered.
	ErrOverloaded = errors.New("store: overloaded: too many bytes in flight, try again")
	// ErrGrowing: memory for this write is being registered, which takes a
	// device up to seconds. Nothing was ordered; see Store.Growing.
	ErrGrowing = region.ErrGrowing
	// ErrMustAsk: whether the write may take effect cannot be told without the
	// disk, and the caller does not wait. Nothing was ordered: Submit it again
	// without NoWait, where waiting is allowed.
	ErrMustAsk = errors.New("store: the disk must be asked: submit where waiting is allowed")
	// ErrCondition: the key was not as the write demands; see Write.Actual.
	ErrCondition = errors.New("store: the condition does not hold")
	// ErrNotNumber: an increment met a value that is no decimal int64.
	ErrNotNumber = errors.New("store: the value is not a decimal number of 64 bits")
	// ErrNumberRange: an increment would leave the range of int64.
	ErrNumberRange = errors.New("store: the number would leave the range of 64 bits")
	// ErrCrossShard: the keys of a batch are in different shards. Give them the
	// same tag in braces.
	ErrCrossShard = errors.New("store: the keys of a batch must be in one shard: give them a common {tag}")
	// ErrBatch: a batch is empty or too large, or has a key twice.
	ErrBatch = errors.New("store: bad batch")
	// ErrUnsupported: this store does not do that (mode, operation).
	ErrUnsupported = errors.New("store: not supported by this store")
	// ErrNoSpace: free disk space is below the floor; puts are refused until
	// there is room, gets and deletes go on.
	ErrNoSpace = errors.New("store: free disk space is below the floor: free some, or delete keys")
	// ErrReadOnlyDisk: the file system has become read-only.
	ErrReadOnlyDisk = errors.New("store: the file system is read-only: check the disk, remount, restart")
	// ErrFatal: the log could not be written. Nothing is acknowledged any
	// more; the node must end and be started again.
	ErrFatal = errors.New("store: durability is gone: the log could not be written")
	// ErrOutcomeUnknown: the wait for a write ended before the write did, or a
	// retry came so late that nobody remembers. It may or may not be there.
	ErrOutcomeUnknown = errors.New("store: outcome unknown: the write may or may not have taken effect")

	// ErrCorrupt: bytes on the disk are not what was written there. See
	// CorruptError for which.
	ErrCorrupt = errors.New("store: corrupt")
	// ErrFormatVersion: the store was written by a newer version.
	ErrFormatVersion = errors.New("store: format is too new")
	// ErrForeignDir: the directory holds something that is no store.
	ErrForeignDir = errors.New("store: the directory is not empty and holds no store")
	// ErrNotDir: the path names a file.
	ErrNotDir = errors.New("store: not a directory")
	// ErrLocked: another process (or this one) has the store open.
	ErrLocked = errors.New("store: in use by another process")
	// ErrNoAccess: the directory cannot be read and written.
	ErrNoAccess = errors.New("store: no permission to read and write the directory")
	// ErrShardCount: the store was created with another number of shards.
	ErrShardCount = errors.New("store: number of shards is fixed at creation")
	// ErrNoStore: there is no store in the directory (Inspect and Check only;
	// Open would create one).
	ErrNoStore = errors.New("store: no store in this directory")
	// ErrEpochs: the store was opened 65,535 times. Export it and import it
	// into a new one.
	ErrEpochs = errors.New("store: epochs used up: export the store and import it into a new directory")
)

// An OpenError says which directory could not be opened, why, and what to do.
type OpenError struct {
	Dir  string // as given
	Err  error  // one of the sentinels above, or the file system's error
	Hint string // what to do about it; may be empty
}

// Error returns the directory, the reason and the hint in one line.
func (e *OpenError) Error() string {
	s := fmt.Sprintf("open store %s: %v", strconv.Quote(e.Dir), e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *OpenError) Unwrap() error { return e.Err }

// A CorruptError says what is damaged. errors.Is(e, ErrCorrupt) holds.
type CorruptError struct {
	Shard  uint16 // with Key
	Key    []byte // the damaged record's key; nil if a file is meant
	File   string // the damaged file, if known
	Detail string
	Err    error // the cause, if there is one
	cause  error // the same, when Detail has its text
}

// maxQuotedKey is how much of a key an error text shows.
const maxQuotedKey = 64

// Error names the key or file, and the finding.
func (e *CorruptError) Error() string {
	s := "store: corrupt"
	if e.File != "" {
		s += " file " + strconv.Quote(e.File)
	}
	if e.Key != nil {
		s += fmt.Sprintf(" record of key %s in shard %d", quoteKey(e.Key), e.Shard)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(e, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error {
	if e.Err == nil {
		return e.cause
	}
	return e.Err
}

// quoteKey returns key for an error text, cut if it is long.
func quoteKey(key []byte) string {
	if len(key) <= maxQuotedKey {
		return strconv.Quote(string(key))
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(string(key[:maxQuotedKey])), len(key))
}
