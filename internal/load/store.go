package load

import (
	"context"
	"errors"
)

// A Store is what is measured, as one caller sees it. Each caller has a Store of
// its own and makes one call at a time; resources that stores share, such as a
// connection, are up to the stores.
//
// Keys and values that a call is given are the caller's again when it returns.
type Store interface {
	// Get returns the value of key: in dst, overwritten from its beginning, if its
	// capacity is enough, else in a new slice; either is the caller's. A key that
	// does not exist is ErrNotFound.
	Get(ctx context.Context, key, dst []byte) (value []byte, path Path, err error)
	// Put stores a value. When it returns the value is as durable as the store
	// makes it.
	Put(ctx context.Context, key, value []byte) error
	// Delete removes a key; one that does not exist is no error.
	Delete(ctx context.Context, key []byte) error
	// Scan reads up to n keys with their values in order of keys, from start on. It
	// returns how many there were. ErrUnsupported if the store has no order.
	Scan(ctx context.Context, start []byte, n int) (int, error)
	Close() error
}

// A BatchStore also has calls for many keys: Options.Batch needs it. The latency
// of such a call is that of each of its keys.
type BatchStore interface {
	Store
	// GetMany gets keys[i] into values[i], overwritten from its beginning or
	// replaced by a new slice, and says in errs[i] how that went: nil, ErrNotFound
	// or another error. All errs are nil before.
	GetMany(ctx context.Context, keys, values [][]byte, errs []error)
	// PutMany stores values[i] under keys[i], and says in errs[i] how that went;
	// all errs are nil before. A
	// key may be there twice: then either value may be the last.
	PutMany(ctx context.Context, keys, values [][]byte, errs []error)
}

// A RoomyStore has memory of its own in which a value is put or got with fewer copies
// than in any other slice.
type RoomyStore interface {
	Store
	// Room is that memory, the caller's between calls. Put may be given a slice of it
	// from its beginning on, and Get may return one. nil: there is none.
	Room() []byte
}

var (
	// ErrNotFound: the store has no such key.
	ErrNotFound = errors.New("key not found")
	// ErrUnsupported: the store has no such operation.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrWrongValue: a get brought what was never put under that key.
	ErrWrongValue = errors.New("wrong value")
	// ErrOptions: an option is out of range.
	ErrOptions = errors.New("invalid options")
)

// A Path is how a call was answered, for stores that know. Latencies are kept
// apart by it.
type Path uint8

// The paths.
const (
	PathNone     Path = iota // the store has only one, or does not tell
	PathRead1                // one RDMA READ
	PathRead2                // two RDMA READs
	PathReadMore             // more of them
	PathLarge                // a large value, READ in chunks
	PathSend                 // a message
	PathBatch                // together with other keys, in one call
	pathFailed               // not answered: an error
	numPaths
)

// pathNames are the names in results.
var pathNames = [numPaths]string{"", "read_1", "read_2", "read_more", "read_large", "send", "batch", "failed"}

// String returns the name that results have for the path, "" for PathNone.
func (p Path) String() string {
	if p < numPaths {
		return pathNames[p]
	}
	return "unknown"
}

// An Op is a kind of operation.
type Op uint8

// The operations.
const (
	OpGet    Op = iota // read one key
	OpPut              // write one key that exists: YCSB's update
	OpInsert           // write one key that is new
	OpScan             // read some keys in order
	OpRMW              // get one key, then put it: YCSB's read-modify-write
	OpDelete           // remove one key
	numOps
)

var opNames = [numOps]string{"get", "put", "insert", "scan", "rmw", "delete"}

// String returns the operation's name in mixes and results.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return "unknown"
}
