package base

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// What conditional and numeric writes fail with. None of these has changed
// anything.
var (
	// ErrExists: a put if absent found the key. The error is a *VersionError.
	ErrExists = errors.New("key exists")
	// ErrVersionMismatch: the key has another version than the one demanded, or
	// does not exist. The error is a *VersionError.
	ErrVersionMismatch = errors.New("key has another version")
	// ErrNotNumber: the value to be incremented is no decimal int64.
	ErrNotNumber = errors.New("the value is not a decimal integer")
	// ErrNumberRange: an increment would leave the range of an int64.
	ErrNumberRange = errors.New("number out of range")
	// ErrCrossShard: the keys of a batch are not all of one shard. Keys with the
	// same {tag} always are: what stands between the first { and the next }.
	ErrCrossShard = errors.New("keys of a batch are of different shards; give them a common {tag}")
	// ErrBatch: a batch is empty, too large, or has a key twice.
	ErrBatch = errors.New("invalid batch")
	// ErrOptions: the options of a call are out of range or exclude each other.
	ErrOptions = errors.New("invalid options")
	// ErrUnsupported: the server does not do this in its mode (a store without
	// a disk cannot scan, say).
	ErrUnsupported = errors.New("not supported by this server")
)

// A VersionError says which version a key had when a condition on it was judged
// and found not to hold. It is ErrExists or ErrVersionMismatch (errors.Is).
type VersionError struct {
	Actual uint64 // the key's version; 0: it did not exist
	Part   int    // of a batch: which part was refused, from 0

	class error
}

// Error tells the reason with the version.
func (e *VersionError) Error() string {
	if e.Actual == 0 {
		return e.class.Error() + ": it does not exist"
	}
	return fmt.Sprintf("%v: it is at version %d", e.class, e.Actual)
}

// Unwrap returns ErrExists or ErrVersionMismatch.
func (e *VersionError) Unwrap() error { return e.class }

// ConditionError is the error of a condition that did not hold.
func ConditionError(cond wire.Cond, actual uint64, part int) error {
	switch cond {
	case wire.CondExists:
		return ErrNotFound
	case wire.CondAbsent:
		return &VersionError{Actual: actual, Part: part, class: ErrExists}
	case wire.CondVersion:
		return &VersionError{Actual: actual, Part: part, class: ErrVersionMismatch}
	}
	return fmt.Errorf("%w: a write without a condition was refused by one", ErrProtocol)
}
