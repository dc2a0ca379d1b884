package disk

import (
	"context"

	"github.com/rdmakv/rdmakv/store/log"
)

// A store that did not stop cleanly has a part of its state in its log alone: the tail,
// which is what stands behind the position of the base. Whoever looks at such a store
// without opening it (Inspect, Check, Adopt) has to count it:
//
//	base   state at its position     read only
//	tail   the newest of each key    written over it, in memory (Adopt: into the base)
//	       behind the position
//	what is looked at: both, of one key the tail's
//
// The records of the log are read by packages above this one, so the tail comes through
// InspectOptions.Tail.

// A TailConfig says which log is to be read, and from where.
type TailConfig struct {
	Dir   log.Dir
	Store [16]byte     // the id of the store
	Place []byte       // the record of the base's position, as it stands under its key; nil: there is none
	Reach log.Position // up to where the log was durable for sure, by the ledger
}

// A Tail is the log of a stopped store, opened to be read and never changed.
type Tail interface {
	// Found returns the newest epoch that the log knows, and whether the last life ended
	// cleanly.
	Found() (epoch uint64, clean bool)
	// Problems are the damages of the log that leave the rest readable.
	Problems() []error
	// Write writes what the log says behind the base's position into to: ranges of the
	// log one after the other, each of them in rising keys of Pebble. A range counts over
	// the base and over the ranges before it.
	Write(ctx context.Context, to TailSink) error
	Close() error
}

// A TailSink takes a Tail. It keeps no slice when a call returns.
type TailSink interface {
	Set(key, value []byte) error
	Delete(key []byte) error
	CutHere() // is nothing to it
	// Values walks the values that stand apart, with all that was written so far. The
	// caller asks for one before each range, and closes it behind.
	Values() (*ValueWalk, error)
}

// OpenTail opens the log of a stopped store to be read. It is called under the lock of
// the directory. What keeps it from reading the log is an error, for which Adopt fails,
// and which Inspect lists as a problem.
type OpenTail func(ctx context.Context, c TailConfig) (Tail, error)
