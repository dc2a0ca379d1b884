package pipeline

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// OrderEnv is what ordering needs besides the shards. Its functions are called by the
// goroutine that submits, with no lock held.
type OrderEnv struct {
	Memory  *shard.Memory
	Results *dedup.Table // of requests, for retries
	// Reserve takes memory for an item of size bytes. Class 0: there is none, and the
	// key goes without a slot. Where memory has to be registered first it waits for
	// that, or fails with ErrGrowing if wait is not set.
	Reserve func(size int, wait bool) (place layout.Place, class uint8, err error)
	// Expire orders the removal of a key, if it is listed under a second that is over, and does not wait until that is done. nil: nobody
	// needs it.
	Expire func(sh *shard.Shard, key []byte, second uint64, w Wait) error
	// Read tells the durable state of a key that neither memory nor a write in flight
	// knows.
	Read shard.Ask
}

// A Pusher takes a write that was judged: it numbers the write and queues it. The write is its
// own from then on; after an error it is not. The caller holds the shard's lock.
type Pusher interface {
	Push(f *flight.Flight) error
}

// An Orderer is the first stage of a write: it gives writes their place in the order of
// their shards. Safe for concurrent use.
type Orderer struct {
	env  OrderEnv
	pipe Pusher
}

// NewOrderer returns an orderer that hands what it has ordered to pipe.
func NewOrderer(pipe Pusher, env OrderEnv) *Orderer {
	return &Orderer{env: env, pipe: pipe}
}

// Wait says for what an ordering may wait.
type Wait struct {
	Disk   bool // else ErrMustAsk
	Memory bool // for memory to be registered; else ErrGrowing
}

// Order gives a write its place in the order of its shard and hands it to the
// pipeline: f has its Op, Result, Done and Charge. From here on the write cannot fail:
// the memory it needs is reserved first, and where there is none the key will go
// without a slot. After an error nothing was ordered, and nothing is reserved; with
// ErrCharge the write is to be admitted with what Charge is now, and ordered again.
//
// Errors: ErrMustAsk and ErrGrowing where w does not let it wait, ErrCharge,
// ErrOverloaded (the key changed maxRounds times), ErrOutcomeUnknown for a retry that
// comes too late, ErrClosed, ErrEpochs and ErrNotLeader of the Pusher, those of Read and of the clock.
func (o *Orderer) Order(sh *shard.Shard, f *flight.Flight, w Wait) error {
	f.Reset(o.env.Memory.Seed)
	var disk shard.Ask
	if w.Disk {
		disk = o.env.Read
	}
	for _, e := range f.Effects {
		o.env.Memory.Used(e.Hash)
	}
	if mayExpire(f.Op) {
		if err := o.env.Memory.Clock.Need(w.Disk); err != nil {
			return err
		}
	}
	for rounds := 0; ; rounds++ {
		if rounds == maxRounds {
			o.unreserve(f)
			o.env.Memory.Counts.Unsettled.Add(1)
			return errUnsettled
		}
		// Memory is asked for outside the shard's lock: it may have to be taken
		// from keys of other shards. What an increment or a touch needs is known
		// only once it was judged, so these come by twice.
		if err := o.reserveAll(f, w.Memory); err != nil {
			o.unreserve(f)
			return err
		}
		if err := sh.LockEffects(f.Effects, disk); err != nil {
			o.unreserve(f)
			return err
		}
		ready, err := o.decide(sh, f)
		if err != nil {
			sh.Mu.Unlock()
			o.unreserve(f)
			return err
		}
		lapsed := o.lapsed(sh, f)
		if ready && lapsed == nil {
			break
		}
		sh.Mu.Unlock()
		if ready {
			if err := o.env.Expire(sh, lapsed.Key, lapsed.Unlist, w); err != nil {
				o.unreserve(f)
				return err
			}
		}
	}
	if f.Noop {
		o.unreserve(f) // behind Push it is the pipeline's
	}
	given := len(f.Effects) == 1 && f.Effects[0].Given
	if given {
		f.Given.Taken = true // before the pipeline has it
	}
	err := o.pipe.Push(f)
	if err == nil {
		sh.NoteOrdered(f)
		if f.Recorded() {
			o.env.Results.Ordered(&f.Op.ID, f.Shard)
		}
	}
	sh.Mu.Unlock()
	if err != nil {
		if given {
			f.Given.Taken = false
		}
		o.unreserve(f)
	}
	return err
}

// decide judges a write whose effects' states are known. ready: it may be
// queued as it is; else it needs memory of another size, or a key expired just
// now, and it is to be judged again. Caller holds mu.
func (o *Orderer) decide(sh *shard.Shard, f *flight.Flight) (ready bool, err error) {
	if f.Op.Kind == base.OpForget {
		o.stillObsolete(f)
		return true, nil
	}
	again, err := o.env.Results.Look(&f.Op.ID)
	if err != nil {
		o.env.Memory.Counts.TooLate.Add(1)
		return false, err
	}
	if again {
		f.Repeat()
		return true, nil
	}
	for _, e := range f.Effects {
		if e.TTL > 0 && !e.Judged() {
			e.State, _ = sh.Judge(e.Hash, e.Key, false) // for unlist alone
		}
	}
	f.Evaluate(o.env.Memory.Clock)
	if f.Noop {
		return true, nil
	}
	for _, e := range f.Effects {
		if e.Puts() && e.Size != e.ItemSize() {
			if e.Kind == base.OpTouch && int64(len(e.Key)+len(e.Value)) > f.Charge {
				f.Charge = int64(len(e.Key) + len(e.Value))
				return false, ErrCharge
			}
			return false, nil
		}
	}
	if !sh.Agreed.Load() && !sh.Hide(f) {
		return false, nil
	}
	if e := f.Effects[0]; e.Kind == base.OpTouch && !e.State.Owned {
		e.Value = bytes.Clone(e.Value) // it is an item's or another write's
	}
	return true, nil
}

// lapsed returns an effect by which a write would tell that a key has expired, and leaves it as it is; nil: there is none. Where the shard
// has replicas, another one whose clock is slow may lead next, and would show the key again. So the removal is ordered first
// (R9): what the write tells is told behind it. Caller holds the shard's lock.
func (o *Orderer) lapsed(sh *shard.Shard, f *flight.Flight) *flight.Effect {
	if o.env.Expire == nil || !sh.Agreed.Load() || f.Again {
		return nil
	}
	for _, e := range f.Effects {
		if e.Lapsed && e.Noop {
			return e
		}
	}
	return nil
}

// maxRounds bounds how often a write is judged before it is ordered. Two are
// usual for increments and touches; each further one means that somebody else
// changed the key's value to another length, or that the key expired, between
// the reservation and the lock.
const maxRounds = 100

// errUnsettled: nothing was ordered, and to try again later is right.
var errUnsettled = fmt.Errorf("%w: the key was another one each time that its memory was ready, %d times", base.ErrOverloaded, maxRounds)

// ErrCharge: the value that a touch found is larger than what it was admitted
// with; it is to be admitted again with what is in charge now.
var ErrCharge = errors.New("store: admitted with less than it takes")

// reserveAll takes memory for the items of a write as far as their size is
// known. It may be called again when they have changed.
func (o *Orderer) reserveAll(f *flight.Flight, wait bool) error {
	for _, e := range f.Effects {
		switch {
		case e.Kind == base.OpDelete, e.Size == 0 && e.NeedsValue() && e.Value == nil:
			continue
		case e.Size == e.ItemSize():
			continue
		}
		o.unreserveKey(e)
		size := e.ItemSize()
		place, class, err := o.env.Reserve(size, wait)
		if err != nil {
			return err
		}
		e.Place, e.Class, e.Size = place, class, size
	}
	return nil
}

// unreserve gives back what reserveAll took.
func (o *Orderer) unreserve(f *flight.Flight) {
	for _, e := range f.Effects {
		o.unreserveKey(e)
	}
}

func (o *Orderer) unreserveKey(e *flight.Effect) {
	if e.Class != 0 && !e.Given {
		o.env.Memory.Slabs.Free(e.Place, e.Class)
	}
	e.Class, e.Size, e.Given = 0, 0, false
}

// stillObsolete leaves only those keys to be removed whose slot has not come
// (back) to this shard: a record that is ordered later is committed later.
// Caller holds the shard's lock.
func (o *Orderer) stillObsolete(f *flight.Flight) {
	kept := f.Forget[:0]
	for _, k := range f.Forget {
		if !o.env.Results.Current(f.Shard, k) {
			kept = append(kept, k)
		}
	}
	f.Forget = kept
}

// mayExpire says whether an operation gives a key an expiry of its own.
func mayExpire(op *base.Op) bool {
	for i := range op.Parts {
		if p := &op.Parts[i]; p.TTL > 0 && !p.Delete {
			return true
		}
	}
	return op.TTL > 0
}
