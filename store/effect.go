package store

import (
	"bytes"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What a write does to its keys, as a pure function of their ordered state,
// the write and the server's time.

// judged says whether the write's effect on its key depends on the key's state.
func (w *Write) judged() bool {
	// A put with a TTL looks for the expiry that it replaces, if it is known
	// without asking, so it is not judged.
	return w.Op != OpPut || w.If != CondNone
}

// needsValue says whether the value of the key has to be known.
func (w *Write) needsValue() bool { return w.Op == OpIncrement || w.Op == OpTouch }

// puts says whether the write has an item to store.
func (w *Write) puts() bool { return !w.noop && w.Op != OpDelete }

// dependsOnLife says whether others could tell the write's effect from that of
// one to which the key had expired. A delete or an increment leaves nothing
// behind that outlives the old expiry, so for them it is as if they had taken
// effect just before it.
func (w *Write) dependsOnLife() bool {
	if !w.state.exists || w.state.expiry == 0 {
		return false
	}
	if w.batch != nil {
		return w.If != CondNone || w.Op != OpDelete && w.Op != OpPut
	}
	return w.Op == OpTouch || w.Op == OpPut && w.If != CondNone
}

// evaluate sets what the write comes to: its effects, or Err. It changes
// nothing but the write. The clock is asked only if something can expire.
func (w *Write) evaluate(c *clock) {
	for i, e := range w.effects {
		e.evaluateKey(c)
		if e.Err == nil {
			continue
		}
		// All or nothing.
		w.Err, w.Actual, w.Existed, w.Part = e.Err, e.Actual, e.Existed, i
		for _, e := range w.effects {
			e.noop = true
		}
		w.noop = true
		return
	}
}

// evaluateKey is evaluate for one key.
func (e *Write) evaluateKey(c *clock) {
	var t uint64
	if e.TTL > 0 || e.state.expiry != 0 {
		t = c.now()
	}
	e.noop, e.Err, e.Actual, e.expiry, e.unlist = false, nil, 0, 0, 0
	if e.due != 0 {
		e.evaluateDue(t)
		return
	}
	was := e.state.alive(t)
	e.Existed = was
	if e.state.expiry != 0 {
		e.unlist = second(e.state.expiry)
	}
	if !e.holds(was) {
		e.Err, e.noop = ErrCondition, true
		if was {
			e.Actual = e.state.version
		}
		return
	}
	switch e.Op {
	case OpPut:
		e.expiry = expiryAfter(t, e.TTL)
	case OpDelete:
		// Nothing to take away: no tombstone. It still travels in order, so
		// that its answer waits for the writes it was judged against.
		e.noop = !was
	case OpTouch:
		if e.Value = e.state.value; e.Value == nil {
			e.Value = []byte{} // nil is not known yet (reserveAll)
		}
		e.expiry = expiryAfter(t, e.TTL)
	case OpIncrement:
		e.increment(was)
	}
}

// holds says whether the write's condition does.
func (e *Write) holds(was bool) bool {
	if e.Op == OpTouch && !was {
		return false // there is nothing to touch
	}
	switch e.If {
	case CondAbsent:
		return !was
	case CondExists:
		return was
	case CondVersion:
		return was && e.state.version == e.IfVersion
	}
	return true
}

// increment computes the new number. A value is a number if it is what
// strconv would write for it: 0 has no sign, and nothing leads with zeros.
func (e *Write) increment(was bool) {
	var old int64
	if was {
		v := e.state.value
		var err error
		if len(v) <= maxDigits {
			old, err = strconv.ParseInt(string(v), 10, 64)
		}
		if len(v) > maxDigits || err != nil || !bytes.Equal(strconv.AppendInt(e.digits[:0], old, 10), v) {
			e.Err, e.noop, e.Actual = ErrNotNumber, true, e.state.version
			return
		}
		e.expiry = e.state.expiry
	}
	sum := old + e.Delta
	if (sum > old) != (e.Delta > 0) && e.Delta != 0 {
		e.Err, e.noop = ErrNumberRange, true
		if was {
			e.Actual = e.state.version
		}
		return
	}
	e.Number = sum
	e.Value = strconv.AppendInt(e.digits[:0], sum, 10)
}

// maxDigits is the length of the longest int64.
const maxDigits = 20

// hide makes sure that nobody sees a key expire on whose life a write in
// flight depends: what was judged alive is as good as overwritten from here on.
// One-sided readers meet a dead item and ask, and who asks waits for the write
// in flight. Else one could say "expired" after the old expiry and before the
// write is published, and another see the touched value later.
//
// false: a key expired before it could be hidden. Everything is as before, and
// the write is to be judged again. Caller holds mu.
func (s *Store) hide(sh *shard, w *Write) bool {
	if teeth.Off(teeth.F12HideTouched) || w.noop {
		return true
	}
	var undo []func()
	var first uint64 // the earliest expiry among those hidden
	for _, e := range w.effects {
		if !e.dependsOnLife() || !e.Existed {
			continue
		}
		if first == 0 || e.state.expiry < first {
			first = e.state.expiry
		}
		// What is in flight will be published without ever being live. All of
		// it, and what it replaces: an increment goes on with the life of what
		// it found.
		for old := e.state.from; old != nil; old = old.older {
			if was := old.hidden; !was && bytes.Equal(old.Key, e.Key) {
				old.hidden = true
				undo = append(undo, func() { old.hidden = false })
			}
			if teeth.Off(teeth.F12HideChain) {
				break
			}
		}
		it, ok := sh.resident(s, e.hash, e.Key)
		if !ok || it.Expiry == 0 {
			continue // readers ask, or it never expires
		}
		s.kill(sh, it.slot)
		undo = append(undo, func() { s.revive(sh, it.slot) })
	}
	if first == 0 || s.clock.now() < first {
		return true
	}
	for _, f := range undo {
		f()
	}
	return false
}

// revive takes back a kill under the same lock. Caller holds mu.
func (s *Store) revive(sh *shard, slot layout.Slot) {
	mem := s.table.Bytes(slot.Place(), layout.ItemHeaderSize)
	v, _ := layout.LoadState(mem)
	if h := sh.held[slot.Place()]; h != nil {
		h.killed = false
	}
	layout.SetState(mem, v, layout.Live)
}
