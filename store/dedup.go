package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Exactly once (rule F31). A client that got no reply sends its request again,
// with the same RequestID, and is answered with what became of the first: the
// result is kept, in memory and, in the same Pebble batch as the write itself,
// on the disk. Whatever a crash takes, it takes both or none.
//
// A client has one request at a time in a slot, so the newest result of each
// slot is enough. A request of a slot
//
//	with a higher number     is new: applied
//	with the same number     is a retry: it travels in order, changes nothing and
//	                         takes the result of the first, in flight or not
//	with a lower number      comes too late: ErrOutcomeUnknown
//	of an unknown slot       is new, if it was never sent before (Age 0), or if a
//	                         result of it could not have been forgotten
//
// Results are forgotten after forgetAfter, and those least recently used when
// there are too many: of the owner who has more than his part, so that nobody's
// requests, however many and whatever comes of them, take another's results
// (dedupowner.go). Both are judged by time in which this process ran, not by
// a clock: a server that was stopped for an hour finds retries in its queues
// that were sent a second after the first. After a start all begin anew.
//
// The records are kept under the shard of the write; the table is one for the
// store, so that a slot costs one entry however many shards it has been to.

const (
	// MaxRetryAge is the age from which a request is refused with
	// ErrOutcomeUnknown if it may have been sent before.
	MaxRetryAge = 9 * time.Minute
	forgetAfter = 10 * time.Minute

	dedupTick = 5 * time.Second
	// dedupMargin is how long a request may take from its client, who says its
	// age, to its place in the order.
	dedupMargin = time.Minute

	dedupStripes = 16
	dedupLimit   = 1 << 18 // entries of about 150 bytes, over all stripes
)

// A dedupKey names a slot of a client.
type dedupKey struct {
	client [16]byte
	slot   uint16
}

func (id *RequestID) key() dedupKey { return dedupKey{id.Client, id.Slot} }

// An outcome is how a write ended, as it is recorded.
type outcome uint8

const (
	outcomeDone outcome = iota
	outcomeCondition
	outcomeNotNumber
	outcomeNumberRange
	numOutcomes
)

var outcomeErrs = [numOutcomes]error{
	outcomeCondition: ErrCondition, outcomeNotNumber: ErrNotNumber, outcomeNumberRange: ErrNumberRange,
}

func outcomeOf(err error) outcome {
	for o, e := range outcomeErrs {
		if e == err {
			return outcome(o)
		}
	}
	panic(fmt.Sprintf("store: no outcome for %v", err))
}

// A result is what a retry is told.
type result struct {
	seq     uint64
	owner   uint32
	version layout.Version
	actual  layout.Version
	number  int64
	part    uint16
	outcome outcome
	existed bool
}

func resultOf(w *Write) result {
	return result{
		seq: w.ID.Seq, owner: w.ID.Owner, version: w.Version, actual: w.Actual, number: w.Number,
		part: uint16(w.Part), outcome: outcomeOf(w.Err), existed: w.Existed,
	}
}

// repeat makes a write one that takes its result from an earlier one.
func (w *Write) repeat() {
	w.again, w.noop, w.Err = true, true, nil
	for _, e := range w.effects {
		e.noop = true
	}
}

// give sets the results of a write.
func (r *result) give(w *Write) {
	w.Version, w.Actual, w.Number = r.version, r.actual, r.number
	w.Part, w.Err, w.Existed = int(r.part), outcomeErrs[r.outcome], r.existed
}

// A dedup is the table of results. Its locks are taken under those of shards.
type dedup struct {
	ticks   atomic.Int64  // of dedupTick, that this process ran
	used    atomic.Bool   // there are records, or have been
	evicted atomic.Uint64 // results that had to go before their time
	stripes [dedupStripes]dedupStripe
}

const neverEarly = math.MinInt64

// A dedupStripe is the part of the table for some clients.
type dedupStripe struct {
	mu      sync.Mutex
	limit   int
	entries map[dedupKey]*dedupEntry
	owners  map[uint32]*dedupOwner
	// early is 0 if an earlier incarnation was short of room, else neverEarly:
	// like dedupOwner.early, for all owners.
	early int64
}

type dedupEntry struct {
	key        dedupKey
	owner      *dedupOwner
	result     result
	shard      uint16 // where the newest record is
	flying     bool   // ordered, not published: result has only the seq
	anyones    bool   // its record names no owner: it may be older than owners are
	used       int64  // tick of the last use
	prev, next *dedupEntry
}

func newDedup(limit int) *dedup {
	d := &dedup{}
	for i := range d.stripes {
		st := &d.stripes[i]
		st.limit, st.early = max(1, limit/dedupStripes), neverEarly
		st.entries, st.owners = make(map[dedupKey]*dedupEntry), make(map[uint32]*dedupOwner)
	}
	return d
}

func (d *dedup) stripe(k *dedupKey) *dedupStripe { return &d.stripes[k.client[0]%dedupStripes] }

// recorded says whether the write's result is to be recorded.
func (w *Write) recorded() bool { return w.ID.Seq != 0 && !w.again }

// look says whether w was seen before: again, or ErrOutcomeUnknown if that
// cannot be told. Caller holds the lock of w's shard, until ordered.
func (d *dedup) look(w *Write) (again bool, err error) {
	if w.ID.Seq == 0 {
		return false, nil
	}
	k := w.ID.key()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case e != nil && e.flying && teeth.Off(teeth.F31InFlight):
		return false, nil
	case e != nil && e.result.seq == w.ID.Seq:
		return true, nil
	case e != nil && e.result.seq > w.ID.Seq:
		return false, ErrOutcomeUnknown
	case teeth.Off(teeth.F31RetryAge):
		return false, nil
	case w.ID.Age > MaxRetryAge:
		return false, ErrOutcomeUnknown
	case e == nil && w.ID.Age > 0:
		// The first of these was sent at sent or later. Had it been applied,
		// its result would have been used then or later.
		sent := d.ticks.Load() - int64((w.ID.Age+dedupMargin)/dedupTick) - 1
		if sent <= st.earlyOf(w.ID.Owner) {
			return false, ErrOutcomeUnknown
		}
	}
	return false, nil
}

// ordered notes a write that was just ordered. Caller holds the shard's lock.
func (d *dedup) ordered(w *Write) {
	if !w.recorded() {
		return
	}
	k := w.ID.key()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	d.used.Store(true)
	e := st.entries[k]
	if e != nil && e.result.seq > w.ID.Seq {
		return // two at once in a slot: no client does that
	}
	if e == nil {
		e = st.add(k, w.ID.Owner)
	} else {
		st.use(e, w.ID.Owner)
	}
	e.result, e.shard, e.flying, e.used = result{seq: w.ID.Seq}, w.Shard, true, d.ticks.Load()
	e.anyones = false // if it was, what it knew is known to be older
	d.evicted.Add(st.shrink(e.owner))
}

// published notes the result of a write, or gives it to one that came again.
// Caller holds the shard's lock.
func (d *dedup) published(w *Write) {
	if w.ID.Seq == 0 {
		return
	}
	k := w.ID.key()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case !w.again:
		if e != nil && e.result.seq == w.ID.Seq {
			e.result, e.flying = resultOf(w), false
		}
	case e == nil || e.result.seq != w.ID.Seq || e.flying:
		w.Err = ErrOutcomeUnknown // forgotten while it was on its way
	default:
		e.result.give(w)
		st.use(e, e.owner.id)
		e.used = d.ticks.Load()
	}
}

// tick lets dedupTick pass and drops what has been silent for forgetAfter.
func (d *dedup) tick() {
	now := d.ticks.Add(1)
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		st.age(now)
		st.mu.Unlock()
	}
}

// current says whether the newest record of a slot is in this shard, so that
// it is to be kept there.
func (d *dedup) current(shard uint16, k dedupKey) bool {
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	return e != nil && e.shard == shard
}

// short says whether results had to go before their time, not long ago.
func (d *dedup) short() bool {
	now := d.ticks.Load()
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		short := lately(st.early, now)
		for _, o := range st.owners {
			short = short || lately(o.early, now)
		}
		st.mu.Unlock()
		if short {
			return true
		}
	}
	return false
}

// wasShort says that an earlier incarnation was short of room for results: of
// what was sent before now, unknown means nothing.
func (d *dedup) wasShort() {
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		st.early = max(st.early, 0)
		st.mu.Unlock()
	}
}

// The record of a result, under the key client 16 | slot 2 (big endian):
//
//	 0        8        16       24        25      26     28
//	+--------+--------+--------+---------+-------+------+-----
//	| seq    | actual | number | outcome | flags | part | owner
//	| u64    | u64    | i64    | u8      | u8    | u16  | u32
//	+--------+--------+--------+---------+-------+------+-----
//
// The write's version stands in the record's header. Flag 1: the key existed.
const (
	dedupKeyLen   = 18
	dedupValueLen = 32
)

func (k *dedupKey) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint16(append(dst, k.client[:]...), k.slot)
}

func parseDedupKey(b []byte) (k dedupKey, ok bool) {
	if len(b) != dedupKeyLen {
		return k, false
	}
	copy(k.client[:], b)
	k.slot = binary.BigEndian.Uint16(b[16:])
	return k, true
}

func (r *result) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, r.seq)
	le.PutUint64(b[8:], uint64(r.actual))
	le.PutUint64(b[16:], uint64(r.number))
	b[24], b[25] = byte(r.outcome), 0
	if r.existed {
		b[25] = 1
	}
	le.PutUint16(b[26:], r.part)
	le.PutUint32(b[28:], r.owner)
}

// parseResult reads what encode wrote.
func parseResult(version layout.Version, b []byte) (r result, ok bool) {
	if len(b) != dedupValueLen || outcome(b[24]) >= numOutcomes {
		return r, false
	}
	le := binary.LittleEndian
	return result{
		seq: le.Uint64(b), owner: le.Uint32(b[28:]), version: version, actual: layout.Version(le.Uint64(b[8:])),
		number: int64(le.Uint64(b[16:])), outcome: outcome(b[24]), existed: b[25]&1 != 0, part: le.Uint16(b[26:]),
	}, true
}
