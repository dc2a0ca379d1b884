package base

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/rdmakv/rdmakv/store/region"
)

// The errors of the store. Package store gives them to its callers, and says there
// what each of them means.
var (
	ErrNotFound       = errors.New("store: key not found")
	ErrKeyEmpty       = errors.New("store: key is empty")
	ErrKeyTooLarge    = errors.New("store: key is too large: at most 4096 bytes")
	ErrTooLarge       = errors.New("store: value is too large: at most 64 MiB")
	ErrShard          = errors.New("store: no such shard")
	ErrClosed         = errors.New("store: closed")
	ErrOverloaded     = errors.New("store: overloaded: too many bytes in flight, try again")
	ErrGrowing        = region.ErrGrowing
	ErrMustAsk        = errors.New("store: the disk must be asked: submit where waiting is allowed")
	ErrCondition      = errors.New("store: the condition does not hold")
	ErrNotNumber      = errors.New("store: the value is not a decimal number of 64 bits")
	ErrNumberRange    = errors.New("store: the number would leave the range of 64 bits")
	ErrCrossShard     = errors.New("store: the keys of a batch must be in one shard: give them a common {tag}")
	ErrBatch          = errors.New("store: bad batch")
	ErrUnsupported    = errors.New("store: not supported by this store")
	ErrNoSpace        = errors.New("store: free disk space is below the floor: free some, or delete keys")
	ErrReadOnlyDisk   = errors.New("store: the file system is read-only: check the disk, remount, restart")
	ErrFatal          = errors.New("store: durability is gone")
	ErrNotLeader      = errors.New("store: this replica does not lead the key's group: ask the one that does")
	ErrOutcomeUnknown = errors.New("store: outcome unknown: the write may or may not have taken effect")

	ErrCorrupt       = errors.New("store: corrupt")
	ErrFormatVersion = errors.New("store: format is too new")
	ErrForeignDir    = errors.New("store: the directory is not empty and holds no store")
	ErrNotDir        = errors.New("store: not a directory")
	ErrLocked        = errors.New("store: in use by another process")
	ErrNoAccess      = errors.New("store: no permission to read and write the directory")
	ErrShardCount    = errors.New("store: number of shards is fixed at creation")
	ErrNoStore       = errors.New("store: no store in this directory")
	ErrEpochs        = errors.New("store: epochs used up: export the store and import it into a new directory")
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

// Corrupt is a CorruptError about a file whose detail has the text of its cause.
func Corrupt(file, detail string, cause error) *CorruptError {
	return &CorruptError{File: file, Detail: detail, cause: cause}
}

// MaxQuotedKey is how much of a key an error text shows.
const MaxQuotedKey = 64

// Error names the key or file, and the finding.
func (e *CorruptError) Error() string {
	s := "store: corrupt"
	if e.File != "" {
		s += " file " + strconv.Quote(e.File)
	}
	if e.Key != nil {
		s += fmt.Sprintf(" record of key %s in shard %d", QuoteKey(e.Key), e.Shard)
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

// QuoteKey returns key for an error text, cut if it is long.
func QuoteKey(key []byte) string {
	if len(key) <= MaxQuotedKey {
		return strconv.Quote(string(key))
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(string(key[:MaxQuotedKey])), len(key))
}
