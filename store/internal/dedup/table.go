// Package dedup is why a write takes effect once. A client that got no
// reply sends its request again, with the same RequestID, and is answered with what
// became of the first: the result is kept, in memory and, in the same Pebble batch
// as the write itself, on the disk. Whatever a crash takes, it takes both or none.
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
// Results are forgotten after ForgetAfter, and those least recently used when
// there are too many: of the owner that has more than an equal part, so that nobody's
// requests, however many and whatever comes of them, take another's results
// (owner.go). Both are judged by time in which this process ran, not by
// a clock: a server that was stopped for an hour finds retries in its queues
// that were sent a second after the first. After a start all begin anew.
//
// The records are kept under the shard of the write; the table is one for the
// store, so that a slot costs one entry however many shards it has been to.
package dedup

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

const (
	// MaxRetryAge is the age from which a request is refused with
	// ErrOutcomeUnknown if it may have been sent before.
	MaxRetryAge = 9 * time.Minute
	// ForgetAfter is for how long a result is kept that nobody asks for.
	ForgetAfter = 10 * time.Minute

	// TickEvery is how often Tick is to be called.
	TickEvery = 5 * time.Second
	// margin is how long a request may take from its client, which says its
	// age, to its place in the order.
	margin = time.Minute

	// Stripes is how many parts the table has, each with a lock of its own.
	Stripes = 16
	// Limit is how many results are usual, of about 150 bytes each, over all stripes.
	Limit = 1 << 18
)

// A Table is the table of results. Safe for concurrent use. Its locks are taken under those of shards.
type Table struct {
	ticks   atomic.Int64  // of TickEvery, that this process ran
	used    atomic.Bool   // there are records, or have been
	evicted atomic.Uint64 // results that had to go before their time
	stripes [Stripes]stripe
}

const neverEarly = math.MinInt64

// A stripe is the part of the table for some clients.
type stripe struct {
	mu      sync.Mutex
	limit   int
	entries map[base.SlotKey]*entry
	owners  map[uint32]*owner
	// early is 0 if an earlier incarnation was short of room, else neverEarly:
	// like owner.early, for all owners.
	early int64
}

type entry struct {
	key        base.SlotKey
	owner      *owner
	result     Result
	shard      uint16 // where the newest record is
	flying     bool   // ordered, not published: result has only the seq
	untold     bool   // the result of seq was forgotten when a later write of the slot was ordered
	before     uint64 // with flying: the seq of the request before it; 0: none
	anyones    bool   // its record names no owner: it may be older than owners are
	used       int64  // tick of the last use
	prev, next *entry
}

// New returns an empty table of at most limit results.
func New(limit int) *Table {
	d := &Table{}
	for i := range d.stripes {
		st := &d.stripes[i]
		st.limit, st.early = max(1, limit/Stripes), neverEarly
		st.entries, st.owners = make(map[base.SlotKey]*entry), make(map[uint32]*owner)
	}
	return d
}

func (d *Table) stripe(k *base.SlotKey) *stripe { return &d.stripes[k.Client[0]%Stripes] }

// Look says whether a request was seen before: again, or ErrOutcomeUnknown if that
// cannot be told. Caller holds the lock of its write's shard, until ordered.
func (d *Table) Look(id *base.RequestID) (again bool, err error) {
	if id.Seq == 0 {
		return false, nil
	}
	k := id.SlotKey()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case e != nil && e.result.seq == id.Seq && !e.untold:
		return true, nil
	case e != nil && e.result.seq >= id.Seq:
		return false, base.ErrOutcomeUnknown
	case id.Age > MaxRetryAge:
		return false, base.ErrOutcomeUnknown
	case e == nil && id.Age > 0:
		// The first of these was sent at sent or later. Had it been applied,
		// its result would have been used then or later.
		sent := d.ticks.Load() - int64((id.Age+margin)/TickEvery) - 1
		if sent <= st.earlyOf(id.Owner) {
			return false, base.ErrOutcomeUnknown
		}
	}
	return false, nil
}

// Ordered notes a request whose write was just ordered, in a shard, and which is
// no retry. Caller holds the shard's lock.
func (d *Table) Ordered(id *base.RequestID, shard uint16) {
	if id.Seq == 0 {
		return
	}
	k := id.SlotKey()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	d.used.Store(true)
	e := st.entries[k]
	if e != nil && e.result.seq > id.Seq {
		return // two at once in a slot: no client does that
	}
	if e == nil {
		e = st.add(k, id.Owner)
	} else {
		st.use(e, id.Owner)
		if !e.flying || e.result.seq < id.Seq {
			e.before = e.result.seq
		}
	}
	e.result, e.shard, e.flying, e.untold, e.used = Result{seq: id.Seq}, shard, true, false, d.ticks.Load()
	e.anyones = false // if it was, what it knew is known to be older
	d.evicted.Add(st.shrink(e.owner))
}

// Published notes what a request came to, or tells it to one that came again.
// Caller holds the shard's lock.
func (d *Table) Published(id *base.RequestID, r *base.Result, again bool) {
	if id.Seq == 0 {
		return
	}
	k := id.SlotKey()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case !again:
		if e != nil && e.result.seq == id.Seq {
			e.result, e.flying = ResultOf(id, r), false
		}
	case e == nil || e.result.seq != id.Seq || e.flying:
		r.Err = base.ErrOutcomeUnknown // forgotten while it was on its way
	default:
		e.result.give(r)
		st.use(e, e.owner.id)
		e.used = d.ticks.Load()
	}
}

// Void takes back what Ordered has noted: the write will never take effect, and the request is
// new when it comes again. Of the request before it in its slot the result is forgotten, because
// a client that uses a slot again has been answered; but a late copy of it is not new. If it were,
// it would be applied twice.
func (d *Table) Void(id *base.RequestID) {
	if id.Seq == 0 {
		return
	}
	k := id.SlotKey()
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch e := st.entries[k]; {
	case e == nil || !e.flying || e.result.seq != id.Seq:
	case e.before == 0:
		st.drop(e)
	default:
		e.result, e.flying, e.untold = Result{seq: e.before}, false, true
	}
}

// Tick lets TickEvery pass and drops what has been silent for ForgetAfter.
func (d *Table) Tick() {
	now := d.ticks.Add(1)
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		st.age(now)
		st.mu.Unlock()
	}
}

// Current says whether the newest record of a slot is in this shard, so that
// it is to be kept there.
func (d *Table) Current(shard uint16, k base.SlotKey) bool {
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	return e != nil && e.shard == shard
}

// Short says whether results had to go before their time, not long ago.
func (d *Table) Short() bool {
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

// WasShort says that somebody was short of room for results whose results these are now, an earlier incarnation or another replica: of
// what was sent before now, unknown means nothing.
func (d *Table) WasShort() {
	now := d.ticks.Load()
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		st.early = max(st.early, now)
		st.mu.Unlock()
	}
}

// Removed notes that the record of a slot in a shard is about to be removed because another replica says so, which had no room for it or
// thinks it old. What is remembered here is not forgotten. early: the record is not old, so a later incarnation, which has no record, must
// know that it does not know all (Short).
//
// A record is old a little before ForgetAfter, because the other's ticks are not in step with those here.
func (d *Table) Removed(shard uint16, k base.SlotKey) (early bool) {
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	if e == nil || e.shard != shard || d.ticks.Load()-e.used >= int64(ForgetAfter/TickEvery)-skew {
		return false
	}
	st.wasEarly(e)
	return true
}

// skew is how many ticks one replica may be before another.
const skew = 3

// Load takes in a record, unless a newer one of its slot is there.
func (d *Table) Load(shard uint16, k base.SlotKey, r Result) {
	d.used.Store(true)
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case e == nil:
		e = st.add(k, r.owner)
	case e.result.seq > r.seq || e.result.seq == r.seq && !e.flying && !e.untold:
		if e.flying {
			e.before = max(e.before, r.seq) // it is known, also when the one on its way turns out void
		}
		return
	default:
		st.use(e, r.owner)
	}
	// An older request of the slot may be on its way here, in another group of replicas whose leader this store was: whatever comes
	// of that says nothing of this one.
	e.flying = false
	e.result, e.shard, e.anyones, e.untold, e.used = r, shard, r.owner == 0, false, d.ticks.Load()
	d.evicted.Add(st.shrink(e.owner))
}

// Forget forgets the results whose newest records are in these shards, because the store has given up its replica of them. Nothing is in flight in the shards.
//
// Which request was the newest of a slot stays known for as long as its result would have been: a late copy of one before it, to another shard, is not
// new. If it were, it would be applied twice. Load brings a result back, should the store get a replica of the shard again.
func (d *Table) Forget(shards []uint16) {
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		for _, e := range st.entries {
			if !e.flying && slices.Contains(shards, e.shard) {
				e.result, e.untold = Result{seq: e.result.seq}, true
			}
		}
		st.mu.Unlock()
	}
}

// Count returns how many results of requests are remembered.
func (d *Table) Count() (n int) {
	for i := range d.stripes {
		st := &d.stripes[i]
		st.mu.Lock()
		n += len(st.entries)
		st.mu.Unlock()
	}
	return n
}

// Used says whether there are results, or have been.
func (d *Table) Used() bool { return d.used.Load() }

// Evicted returns how many results had to go before their time.
func (d *Table) Evicted() uint64 { return d.evicted.Load() }
