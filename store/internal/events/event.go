package events

import (
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Op is what happened to a key.
type Op uint8

const (
	Put    Op = 1 // put, or incremented
	Delete Op = 2
	Expire Op = 3 // its time was over
	Touch  Op = 4 // another expiry and version, the value as it was
)

// String names the operation.
func (o Op) String() string {
	switch o {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Expire:
		return "expire"
	case Touch:
		return "touch"
	}
	return fmt.Sprintf("EventOp(%d)", uint8(o))
}

// An Event is one published change of one key.
type Event struct {
	Version layout.Version
	Op      Op
	// More says that the next event of this watch is of the same batch: a batch
	// is whole with the first event without More.
	More   bool
	Key    []byte
	ValLen int    // bytes of the value of a put
	Value  []byte // if HasValue
	// HasValue is false where no values were asked for, and for values that are
	// too large for the ring or for an answer: get them by their key.
	HasValue bool
}

// A Cursor is a place in the order: behind the write of Version. The zero
// cursor is "from now". It outlives the store's life that gave it out.
type Cursor struct {
	Incarnation uint64
	Version     layout.Version
}

// A Request asks for events behind a cursor.
type Request struct {
	From   Cursor
	Prefix []byte // of keys; empty: all
	Values bool
	// MaxBytes bounds the events, each counted with its key, its value and
	// Overhead; it must have room for one with the longest key. An event that
	// alone is too large comes without its value.
	MaxBytes, Overhead int
}

// A Page is the answer.
type Page struct {
	Events []Event
	Next   Cursor // to ask from next
	// Skipped says that writes between From and the first event here may be
	// missing: the ring has lost them, or a life of the store has ended in a
	// way that leaves open what came after From.
	Skipped bool
	// More says that there is more to look at behind Next already.
	More bool
}

// Stats is the watching in numbers. Counters run from Open.
type Stats struct {
	Bytes   int    `json:"bytes"`   // memory of the events that are kept
	Events  int    `json:"events"`  // that are kept
	Waiting int    `json:"waiting"` // prefixes that somebody waits for
	Noted   uint64 `json:"noted"`   // events kept since Open
	Told    uint64 `json:"told"`    // events given out, once for each caller
	Skipped uint64 `json:"skipped"` // answers that had to say "skipped"
	Asked   uint64 `json:"asked"`   // how often somebody has asked, or told that somebody watches at another replica
}

// Add adds the numbers of other events.
func (s *Stats) Add(o Stats) {
	s.Bytes, s.Events, s.Waiting = s.Bytes+o.Bytes, s.Events+o.Events, s.Waiting+o.Waiting
	s.Noted, s.Told, s.Skipped, s.Asked = s.Noted+o.Noted, s.Told+o.Told, s.Skipped+o.Skipped, s.Asked+o.Asked
}
