package linear

import (
	"context"
	"errors"
)

// ErrNothing: the call ended without an answer, and the library says that nothing
// was changed. It is no operation then; if something was changed after all, the
// history does not fit.
var ErrNothing = errors.New("no answer, and nothing was changed")

// A Found is a key that a scan showed.
type Found struct {
	Key     []byte
	Val     Value // if the scan was for values
	Version uint64
}

// A Store is one client of what is tested. Its methods are safe for concurrent
// use and end with their contexts. An error is ErrNothing, or one that must not
// happen and ends the run. A write whose outcome the client does not know is no
// error but an Output with Unknown set.
type Store interface {
	// Do does an operation on one key; what it stores is in.Val.Bytes(size).
	Do(ctx context.Context, key []byte, in *Input, size int) (Output, error)
	// Batch does a batch: parts name keys.
	Batch(ctx context.Context, keys [][]byte, in *Input, size int) (Output, error)
	// MultiGet gets all keys in one call; nil where there was no answer.
	MultiGet(ctx context.Context, keys [][]byte) ([]*Output, error)
	// Scan lists what begins with prefix, in order.
	Scan(ctx context.Context, prefix []byte, values bool) ([]Found, error)
}

// Abilities says what a Store can do beside get, put and delete.
type Abilities struct {
	Versions  bool // gets with versions, conditional writes
	Increment bool
	TTL       bool
	Batch     bool
	Scan      bool
}
