package base

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A Kind says what an Op does.
type Kind uint8

const (
	OpPut       Kind = iota // store Value under Key
	OpDelete                // take Key away
	OpIncrement             // add Delta to the decimal number under Key
	OpTouch                 // give Key another expiry; its value stays
	OpBatch                 // put and delete the keys of Parts, all or nothing
	NumKinds

	OpForget // internal: records of requests that nobody retries any more
)

// String names the operation.
func (k Kind) String() string {
	switch k {
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
	return fmt.Sprintf("Op(%d)", uint8(k))
}

// A Cond is what must hold of the key for a write to take effect.
type Cond uint8

const (
	CondNone    Cond = iota // always
	CondAbsent              // the key does not exist
	CondVersion             // the key exists, at version IfVersion
	CondExists              // the key exists
	NumConds
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
// new one. The zero ID asks for no such thing.
type RequestID struct {
	// Client is random, and one client's own for as long as it lives.
	Client [16]byte
	// Owner is whom the client belongs to, a number that means nothing to the
	// store: results of requests are forgotten early for want of room among those
	// of the owner that has too many. A client has the same for ever.
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

// A SlotKey names a slot of a client, in all of its requests.
type SlotKey struct {
	Client [16]byte
	Slot   uint16
}

// SlotKey returns the slot that the request is in.
func (id *RequestID) SlotKey() SlotKey { return SlotKey{id.Client, id.Slot} }

// SlotKeyLen is the length of a SlotKey on the disk.
const SlotKeyLen = 18

// Append appends the slot as it stands on the disk: client 16 | slot 2, big endian.
func (k *SlotKey) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint16(append(dst, k.Client[:]...), k.Slot)
}

// ParseSlotKey reads what Append wrote.
func ParseSlotKey(b []byte) (k SlotKey, ok bool) {
	if len(b) != SlotKeyLen {
		return k, false
	}
	copy(k.Client[:], b)
	k.Slot = binary.BigEndian.Uint16(b[16:])
	return k, true
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
	TTL        time.Duration // of a put; as Op.TTL
}

// CheckKey refuses keys and shards that cannot be in a store of so many shards:
// ErrKeyEmpty, ErrKeyTooLarge, ErrShard.
func CheckKey(shard uint16, key []byte, shards int) error {
	switch {
	case len(key) == 0:
		return ErrKeyEmpty
	case len(key) > layout.MaxKeyLen:
		return ErrKeyTooLarge
	case int(shard) >= shards:
		return ErrShard
	}
	return nil
}

// An Op is one operation that changes something, as its caller asks for it. The
// store does not own it.
type Op struct {
	Shard uint16
	Key   []byte // belongs to the store until Done; of a batch: empty
	Value []byte // of a put; belongs to the store until Done
	Kind  Kind
	// NoWait has Submit fail where it would wait: with ErrGrowing until memory
	// for the item has been registered, with ErrMustAsk for the disk.
	NoWait bool
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
}

// A Result is what became of an Op. The store fills it in until Done.
type Result struct {
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
}

// An Effect is what becomes of one key: all that the disk, the events and whoever
// repeats the write elsewhere have to know of it.
type Effect struct {
	Shard   uint16
	Kind    Kind // what was asked; an increment puts
	Noop    bool // the key stays as it is
	Key     []byte
	Value   []byte // of what is put
	Apart   bool   // the value stands elsewhere in the log, and Value is its description (logged.Write.Join)
	Bytes   *Bytes // where the value stands, if it is in a table of values; nil: in Value, or apart
	Version layout.Version
	Expiry  uint64 // server time in microseconds since 1970; 0: never
	Unlist  uint64 // the second under which the expiry that it replaces is listed; 0: none
	Due     uint64 // a delete by the expirer: the second under which the key was listed
}

// Bytes say where the bytes of a value stand that were written once, at the time of the put,
// into a table of values (package tables). They are never changed.
type Bytes struct {
	Table  uint64 // its number; from 1 on, never used again
	Number uint32 // of the value in the table, from 0 on, in the order of the log
	Offset uint64 // in the table's file
	Length uint64
	Sum    uint64 // xxh3-64
}
