package store

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
)

// A Kind says what an Op does.
type Kind = base.Kind

const (
	OpPut       = base.OpPut       // store Value under Key
	OpDelete    = base.OpDelete    // take Key away
	OpIncrement = base.OpIncrement // add Delta to the decimal number under Key
	OpTouch     = base.OpTouch     // give Key another expiry; its value stays
	OpBatch     = base.OpBatch     // put and delete the keys of Parts, all or nothing
)

// A Cond is what must hold of the key for a write to take effect.
type Cond = base.Cond

const (
	CondNone    = base.CondNone    // always
	CondAbsent  = base.CondAbsent  // the key does not exist
	CondVersion = base.CondVersion // the key exists, at version IfVersion
	CondExists  = base.CondExists  // the key exists
)

// A RequestID names a request for ever, so that a retry of it is told from a
// new one. The zero ID asks for no such thing.
type RequestID = base.RequestID

// MaxRetryAge is the age from which a request is refused with
// ErrOutcomeUnknown if it may have been sent before.
const MaxRetryAge = dedup.MaxRetryAge

// MaxParts is how many parts a batch may have, and MaxBatchBytes how many
// bytes of keys and values together.
const (
	MaxParts      = base.MaxParts
	MaxBatchBytes = base.MaxBatchBytes
)

// A Part is one key of a batch. Key and Value belong to the store until Done.
type Part = base.Part

// An Op is one operation that changes something, as its caller asks for it: the
// key or the parts, the value, the condition, the TTL, the request's ID.
type Op = base.Op

// A Result is what became of an Op. The store fills it in until Done.
type Result = base.Result

// A Write is an Op on its way through the store. The caller fills Op, Done and
// User, the store Result and the rest. It may be used again after Done; from
// Submit to Done it must not be copied.
type Write struct {
	Op
	Result
	// Done is called once, when the write is durable (as far as the sync
	// policy goes) and published, on the store's publishing goroutine: it
	// must not block and must not call the store. It is not called if Submit
	// returned an error, nor after the store was fenced (Config.OnFatal).
	Done func(*Write)
	User any // the caller's
	// Room, if it is not nil, is where Value stands. A put of the lengths that the Room was made
	// for takes the place over; any other write copies out of it.
	Room *Room
	// Reign, if it is not 0, is the one in which this store has to order the write, else it fails with ErrNotLeader: it was decided on what
	// was true in that reign (ReignOf).
	Reign uint64

	flight  flight.Flight // its way; points into this Write
	counted bool          // what slows puts down has let it in, and it was not ordered
}

// begin makes a write's flight refer to it. The Write must not be copied from here on.
func (w *Write) begin() *flight.Flight {
	f := &w.flight
	f.Op, f.Result, f.Done, f.Carrier, f.Given = &w.Op, &w.Result, done, w, nil
	f.Reign = w.Reign
	if w.Room != nil && w.Room.fits(&w.Op) {
		f.Given = &w.Room.given
	}
	return f
}

// done tells the caller that a write is over.
func done(f *flight.Flight) {
	w := f.Carrier.(*Write)
	w.Done(w)
}
