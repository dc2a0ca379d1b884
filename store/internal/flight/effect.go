package flight

import (
	"bytes"
	"strconv"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An Effect is what a write does to one key: what is asked, what was decided when
// it was ordered, and where its item stands.
type Effect struct {
	base.Effect

	If        base.Cond
	IfVersion layout.Version
	TTL       time.Duration
	Delta     int64

	Existed bool           // the key was there before
	Err     error          // why there is no effect
	Actual  layout.Version // with Err: the version that the key had
	Number  int64          // after an increment

	Hash   layout.Hash
	Place  layout.Place // reserved memory; with Class
	Class  uint8        // 0: none, the key goes without a slot
	Size   int          // of the item for which memory was asked; 0: not yet
	Given  bool         // that memory is the Flight's Given
	Lapsed bool         // it was judged on a key whose time is over, and that is not removed yet
	Hidden bool         // published dead: the next write in flight depends on this one's expiry

	Older *Effect  // the next older effect in flight on a key of this hash
	State KeyState // the key as it was judged; while it is being ordered

	part   bool // of a batch
	digits [maxDigits]byte
}

// Removes says whether the key is gone after the write.
func (e *Effect) Removes() bool { return e.Kind == base.OpDelete }

// Puts says whether there is an item to store.
func (e *Effect) Puts() bool { return !e.Noop && e.Kind != base.OpDelete }

// Item is what a put stores in memory.
func (e *Effect) Item() layout.Item {
	return layout.Item{Version: e.Version, Key: e.Key, Value: e.Value, Expiry: e.Expiry, Shard: e.Shard}
}

// ItemSize is the size of the item that a put stores.
func (e *Effect) ItemSize() int { return layout.ItemSize(len(e.Key), len(e.Value), e.expires()) }

// expires says whether the item that a put stores carries an expiry, as far as
// that is known: an increment keeps the one of what it finds, so only its
// evaluation tells. The one place that decides it: memory that was reserved by
// another answer would never fit.
func (e *Effect) expires() bool {
	return e.Expiry != 0 || e.TTL > 0 && e.Kind != base.OpIncrement
}

// Visible is the state that the item is published in. One on whose expiry a later
// write in flight depends is never live.
func (e *Effect) Visible() layout.State {
	if e.Hidden {
		return layout.Dead
	}
	return layout.Live
}

// Judged says whether the effect depends on the key's state.
func (e *Effect) Judged() bool {
	// A put with a TTL looks for the expiry that it replaces, if it is known
	// without asking, so it is not judged.
	return e.Kind != base.OpPut || e.If != base.CondNone
}

// NeedsValue says whether the value of the key has to be known.
func (e *Effect) NeedsValue() bool { return e.Kind == base.OpIncrement || e.Kind == base.OpTouch }

// DependsOnExpiry says whether others could tell the effect from that of one to
// which the key had expired. A delete or an increment leaves nothing behind that
// outlives the old expiry, so for them it is as if they had taken effect just
// before it.
func (e *Effect) DependsOnExpiry() bool {
	if !e.State.Exists || e.State.Expiry == 0 {
		return false
	}
	if e.part {
		return e.If != base.CondNone || e.Kind != base.OpDelete && e.Kind != base.OpPut
	}
	return e.Kind == base.OpTouch || e.Kind == base.OpPut && e.If != base.CondNone
}

// A KeyState is a key in the ordered state, as it is stored: an expired key
// exists until it is deleted, see Alive.
type KeyState struct {
	Exists  bool
	Version layout.Version // 0: does not exist
	Expiry  uint64         // 0: never
	// Value is there if it was asked for. It may be the memory of a write in
	// flight or of an item: good while the shard's lock is held.
	Value []byte
	Owned bool    // Value is a copy of its own
	From  *Effect // the write in flight that makes it so, or nil
}

// Alive says whether the key is there at a time.
func (k *KeyState) Alive(now uint64) bool {
	return k.Exists && (k.Expiry == 0 || now < k.Expiry)
}

// StateAfter is the state of a key once e, which is no Noop, has taken effect.
func StateAfter(e *Effect) KeyState {
	if e.Removes() {
		return KeyState{From: e}
	}
	return KeyState{Exists: true, Version: e.Version, Expiry: e.Expiry, Value: e.Value, From: e}
}

// Evaluate sets what the flight comes to: its effects, or Result.Err. It changes
// nothing but the flight. The clock is asked only if something can expire.
func (f *Flight) Evaluate(c *clock.Clock) {
	for _, e := range f.Effects {
		e.Lapsed = false // of those behind one that is refused nothing is told
	}
	for i, e := range f.Effects {
		e.evaluate(c)
		if e.Err == nil {
			continue
		}
		// All or nothing.
		*f.Result = base.Result{Err: e.Err, Actual: e.Actual, Existed: e.Existed, Part: i}
		f.noEffect()
		return
	}
	if f.Op.Kind != base.OpBatch {
		e := f.Effects[0]
		f.Noop = e.Noop
		*f.Result = base.Result{Existed: e.Existed, Number: e.Number}
	}
}

// evaluate is Evaluate for one key.
func (e *Effect) evaluate(c *clock.Clock) {
	var t uint64
	if e.TTL > 0 || e.State.Expiry != 0 {
		t = c.Now()
	}
	e.Noop, e.Err, e.Actual, e.Expiry, e.Unlist = false, nil, 0, 0, 0
	if e.Due != 0 {
		e.evaluateDue(t)
		return
	}
	was := e.State.Alive(t)
	e.Existed, e.Lapsed = was, e.State.Exists && !was
	if e.State.Expiry != 0 {
		e.Unlist = clock.Second(e.State.Expiry)
	}
	if !e.met(was) {
		e.Err, e.Noop = base.ErrCondition, true
		if was {
			e.Actual = e.State.Version
		}
		return
	}
	switch e.Kind {
	case base.OpPut:
		e.Expiry = clock.ExpiryAfter(t, e.TTL)
	case base.OpDelete:
		// Nothing to take away: no tombstone. It still travels in order, so
		// that its answer waits for the writes it was judged against.
		e.Noop = !was
	case base.OpTouch:
		if e.Value = e.State.Value; e.Value == nil {
			e.Value = []byte{} // nil is not known yet (reserveAll)
		}
		e.Expiry = clock.ExpiryAfter(t, e.TTL)
	case base.OpIncrement:
		e.increment(was)
	}
}

// evaluateDue judges a delete by the expirer: if what was found has expired
// and is still there. The entry is removed in any case.
func (e *Effect) evaluateDue(now uint64) {
	expired := e.State.Exists && e.State.Expiry != 0 && e.State.Expiry <= now
	e.Noop = !expired || clock.Second(e.State.Expiry) > e.Due
	e.Existed = !e.Noop
}

// met says whether the condition is.
func (e *Effect) met(was bool) bool {
	if e.Kind == base.OpTouch && !was {
		return false // there is nothing to touch
	}
	switch e.If {
	case base.CondAbsent:
		return !was
	case base.CondExists:
		return was
	case base.CondVersion:
		return was && e.State.Version == e.IfVersion
	}
	return true
}

// increment computes the new number. A value is a number if it is what
// strconv would write for it: 0 has no sign, and nothing leads with zeros.
func (e *Effect) increment(was bool) {
	var old int64
	if was {
		v := e.State.Value
		var err error
		if len(v) <= maxDigits {
			old, err = strconv.ParseInt(string(v), 10, 64)
		}
		if len(v) > maxDigits || err != nil || !bytes.Equal(strconv.AppendInt(e.digits[:0], old, 10), v) {
			e.Err, e.Noop, e.Actual = base.ErrNotNumber, true, e.State.Version
			return
		}
		e.Expiry = e.State.Expiry
	}
	sum := old + e.Delta
	if (sum > old) != (e.Delta > 0) && e.Delta != 0 {
		e.Err, e.Noop = base.ErrNumberRange, true
		if was {
			e.Actual = e.State.Version
		}
		return
	}
	e.Number = sum
	e.Value = strconv.AppendInt(e.digits[:0], sum, 10)
}

// maxDigits is the length of the longest int64.
const maxDigits = 20
