package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// An Op says what a Write does.
type Op uint8

const (
	OpPut       Op = iota // store Value under Key
	OpDelete              // take Key away
	OpIncrement           // add Delta to the decimal number under Key
	OpTouch               // give Key another expiry; its value stays
	OpBatch               // put and delete the keys of Parts, all or nothing
	numOps

	opForget // internal: records of requests that nobody retries any more
)

// String names the operation.
func (o Op) String() string {
	switch o {
	case OpPut:
		return "put"
	case OpDelete:
		return "delete"
	case OpIncrement:
		return "increment"
	case OpTouch:
		return "touch"
	case OpBatch:
		return "batch"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// A Cond is what must hold of the key for a write to take effect.
type Cond uint8

const (
	CondNone    Cond = iota // always
	CondAbsent              // the key does not exist
	CondVersion             // the key exists, at version IfVersion
	CondExists              // the key exists
	numConds
)

// String names the condition.
func (c Cond) String() string {
	switch c {
	case CondNone:
		return "none"
	case CondAbsent:
		return "absent"
	case CondVersion:
		return "version"
	case CondExists:
		return "exists"
	}
	return fmt.Sprintf("Cond(%d)", uint8(c))
}

// A RequestID names a request for ever, so that a retry of it is told from a
// new one (dedup.go). The zero ID asks for no such thing.
type RequestID struct {
	// Client is random, and one client's own for as long as it lives.
	Client [16]byte
	// Owner is who the client belongs to, a number that means nothing to the
	// store: results of requests are forgotten early for want of room among those
	// of the owner who has too many. A client has the same for ever.
	Owner uint32
	// Slot is one of the client's places for a request in flight. A client
	// has one request at a time in a slot.
	Slot uint16
	// Seq rises with every new request of a slot; a retry has the same. 0: none.
	Seq uint64
	// Age is how long ago, by the client's own clock, it first sent this
	// request. What is too old to be remembered is not applied.
	Age time.Duration
}

// MaxParts is how many parts a batch may have, and MaxBatchBytes how many
// bytes of keys and values together.
const (
	MaxParts      = 4096
	MaxBatchBytes = 4 << 20
)

// A Part is one key of a batch. Key and Value belong to the store until Done.
type Part struct {
	Key, Value []byte
	Delete     bool
	If         Cond
	IfVersion  layout.Version
	TTL        time.Duration // of a put; as Write.TTL
}

// A Write is one operation on its way that changes something. The caller fills
// the first part, the store the second. It may be used again after Done.
type Write struct {
	Shard uint16
	Key   []byte // belongs to the store until Done; of a batch: empty
	Value []byte // of a put; belongs to the store until Done
	Op    Op
	// NoWait has Submit fail where it would wait: with ErrGrowing until memory
	// for the item has been registered, with ErrMustAsk for the disk.
	NoWait bool
	// Done is called once, when the write is durable (as far as the sync
	// policy goes) and published, on the store's publishing goroutine: it
	// must not block and must not call the store. It is not called if Submit
	// returned an error, nor after the store was fenced (Config.OnFatal).
	Done func(*Write)
	User any // the caller's

	// If is the condition under which the write takes effect; it is judged
	// once, when the write is ordered. A batch has conditions in its parts.
	If        Cond
	IfVersion layout.Version // with CondVersion
	// TTL is after how long, by the server's time, the key expires. A put or
	// touch with 0 makes it last; an increment keeps what the key has, so it is
	// refused with a TTL, and so is a delete (ErrUnsupported).
	TTL   time.Duration
	Delta int64  // of an increment
	Parts []Part // of a batch: at least one, at most MaxParts; no key twice
	// ID makes retries of this write one with it.
	ID RequestID

	// Version is the write's place in the order; set when Submit returns. A
	// write without effect has one too. A batch has the version of its last
	// part; its parts have the versions up to it, in order.
	Version layout.Version
	// Existed says whether the key was there before. Known after a delete, an
	// increment, a touch, and any write with a condition.
	Existed bool
	// Err is why the write had no effect, or nil: ErrCondition, ErrNotNumber,
	// ErrNumberRange, ErrOutcomeUnknown.
	Err error
	// Actual is, with ErrCondition, the version that the key had; 0: it did
	// not exist. Part is then the part of a batch that was refused.
	Actual layout.Version
	Part   int
	// Number is the value after an increment.
	Number int64

	hash   layout.Hash
	place  layout.Place // reserved memory; with class
	class  uint8        // 0: none, the key goes without a slot
	size   int          // of the item for which memory was asked; 0: not yet
	noop   bool         // the key stays as it is
	hidden bool         // published dead: the next write in flight depends on this one's life
	expiry uint64       // server time in microseconds since 1970; 0: never
	unlist uint64       // the second under which the expiry that it replaces is listed; 0: none
	due    uint64       // a delete by the expirer: the second under which the key was listed
	older  *Write       // overlay: the next older write of this hash in flight
	state  keyState     // the key as it was judged; while it is being ordered
	digits [maxDigits]byte

	effects []*Write  // of a write that was begun: itself, or the parts of a batch
	one     [1]*Write // backs effects
	batch   *Write    // of a part: its batch
	again   bool      // a retry: it takes the result of the first (dedup.go)
	forget  []dedupKey
	charge  int64 // bytes admitted
}

// removes says whether the key is gone after the write.
func (w *Write) removes() bool { return w.Op == OpDelete }

// item is what a put stores in memory.
func (w *Write) item() layout.Item {
	return layout.Item{Version: w.Version, Key: w.Key, Value: w.Value, Expiry: w.expiry, Shard: w.Shard}
}

// begin makes a write ready to be ordered, for the first time or again.
func (w *Write) begin(seed uint64) {
	w.Version, w.Existed, w.Err, w.Actual, w.Part, w.Number = 0, false, nil, 0, 0, 0
	w.class, w.size, w.noop, w.hidden, w.expiry, w.unlist = 0, 0, false, false, 0, 0
	w.older, w.state, w.again, w.batch = nil, keyState{}, false, nil
	switch w.Op {
	case OpBatch:
		parts := make([]Write, len(w.Parts))
		w.effects = make([]*Write, len(parts))
		for i := range parts {
			p, e := &w.Parts[i], &parts[i]
			*e = Write{Shard: w.Shard, Key: p.Key, Value: p.Value, If: p.If, IfVersion: p.IfVersion, TTL: p.TTL, batch: w}
			if p.Delete {
				e.Op, e.Value = OpDelete, nil
			}
			e.hash = layout.HashKey(seed, e.Key)
			w.effects[i] = e
		}
	case opForget:
		w.effects, w.noop = nil, true
	default:
		if w.needsValue() {
			w.Value = nil
		}
		w.hash = layout.HashKey(seed, w.Key)
		w.one[0] = w
		w.effects = w.one[:]
	}
}

// mayExpire says whether the write gives a key an expiry of its own.
func (w *Write) mayExpire() bool {
	for i := range w.Parts {
		if w.Parts[i].TTL > 0 {
			return true
		}
	}
	return w.TTL > 0
}
