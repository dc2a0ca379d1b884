package linear

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

// MaxKeys is how many keys an object can have.
const MaxKeys = 3

// A keyState is what is known of one key after some of the operations.
type keyState struct {
	present bool
	val     Value
	// version is the one it has, 0 if it is not known yet: after a write with an
	// unknown outcome, or by a call that does not tell.
	version uint64
	// floor is the lowest version that it, or its next write, can have.
	floor uint64
	// from and to say when its deadline comes: not before from, and not after to,
	// in nanoseconds of the clock. Both 0: it lives for ever.
	from, to int64
	// fuzzy: an operation with an unknown outcome depends on whether the deadline
	// had come when it took effect. Until a client reads or writes the key, it may
	// be anything.
	fuzzy bool
}

// A state is what is known of an object. It can be compared.
type state [MaxKeys]keyState

// newModel is the sequential specification of an object. Its histories have *Op
// as input and nothing as output.
func newModel(slack Slack) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			ok, next := slack.step(s.(state), input.(*Op))
			return ok, next
		},
		Hash:              func(s any) uint64 { return s.(state).hash() },
		DescribeOperation: func(input, _ any) string { return input.(*Op).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

// step says whether an object in state s can answer o as it did, and what it is
// afterwards.
func (sl Slack) step(s state, o *Op) (bool, state) {
	in, out := &o.In, &o.Out
	if in.Op == OpBatch {
		for _, p := range in.Parts {
			s[p.Key].expire(o, false)
		}
		return stepBatch(s, o, max(1, sl.Step))
	}
	k := &s[in.Key]
	k.expire(o, k.saidAbsent(o))
	if in.Op == OpGet || in.Op == OpPeek {
		return k.read(in.Op == OpGet, out), s
	}
	if k.fuzzy && !k.sharpen(in, out) {
		return true, s
	}
	holds, known := k.holds(in.If, in.IfVersion)
	if out.Unknown {
		if k.present && k.from != 0 && (in.If != CondNone || in.Op == OpIncrement || in.Op == OpTouch) {
			k.blur()
			return true, s
		}
		// Whether it takes effect is decided by when; the condition by the state.
		// A version that is not known yet is none that a caller could have named.
		if holds && known {
			k.apply(in, out, sl.deadline(o))
		}
		return true, s
	}
	if out.Refused {
		return in.If != CondNone && k.refuses(in, out), s
	}
	if !known {
		k.learn(in.IfVersion)
		holds = k.version == in.IfVersion
	}
	return holds && k.apply(in, out, sl.deadline(o)), s
}

// read: a read saw what is there.
func (k *keyState) read(value bool, out *Output) bool {
	if k.fuzzy && (!out.Present || value) {
		*k = keyState{present: out.Present, val: out.Val, floor: k.floor, from: k.from, to: k.to}
	}
	if k.fuzzy {
		return true
	}
	if out.Present != k.present {
		return false
	}
	if !k.present {
		return true
	}
	if value && out.Val != k.val {
		return false
	}
	return k.sawVersion(out.Version)
}

// sawVersion: the key was said to have this version; 0 says nothing.
func (k *keyState) sawVersion(v uint64) bool {
	switch {
	case v == 0 || v == k.version:
		return true
	case k.version != 0 || v < k.floor:
		return false
	}
	k.learn(v)
	return true
}

func (k *keyState) learn(v uint64) {
	if v >= k.floor {
		k.version, k.floor = v, v+1
	}
}

// holds reports whether a condition holds. It is not known if it depends on a
// version that is not known yet.
func (k *keyState) holds(c Cond, v uint64) (holds, known bool) {
	switch c {
	case CondAbsent:
		return !k.present, true
	case CondVersion:
		if k.present && k.version == 0 && v >= k.floor {
			return false, false
		}
		return k.present && k.version == v, true
	}
	return true, true
}

// refuses: the condition does not hold, and the answer says why.
func (k *keyState) refuses(in *Input, out *Output) bool {
	if out.Absent {
		return !k.present && in.If == CondVersion
	}
	switch in.If {
	case CondAbsent:
		return k.present && k.sawVersion(out.Version)
	case CondVersion:
		if out.Version == in.IfVersion {
			return false
		}
		if !k.present {
			return out.Version == 0
		}
		if out.Version == 0 {
			return k.version != in.IfVersion
		}
		return k.sawVersion(out.Version) && k.version != in.IfVersion
	}
	return false
}

// apply does an unconditional write and says whether the answer fits.
func (k *keyState) apply(in *Input, out *Output, due deadline) bool {
	switch in.Op {
	case OpPut:
		return k.set(in.Val, due, out.Version)
	case OpDelete:
		if !out.Unknown && out.Present != k.present {
			return false
		}
		return k.remove(out.Version)
	case OpIncrement:
		return k.increment(in, out)
	case OpTouch:
		if !out.Unknown && out.Present != k.present {
			return false
		}
		if !k.present {
			return true
		}
		// The version rises, the value stays.
		return k.set(k.val, due, out.Version)
	}
	return false
}

// increment adds to a number, and counts what is absent as 0. The deadline
// stays.
func (k *keyState) increment(in *Input, out *Output) bool {
	if k.present && !k.val.Num {
		return out.NotNumber || out.Unknown
	}
	if out.NotNumber {
		return false
	}
	next := Value{Num: true, N: in.Delta}
	if k.present {
		next.N += k.val.N
	}
	if !out.Unknown && out.Val != next {
		return false
	}
	return k.set(next, deadline{k.from, k.to}, out.Version)
}

// set stores a value under a version higher than any before; 0: not told.
func (k *keyState) set(v Value, due deadline, version uint64) bool {
	if k.version == 0 && k.present {
		// What was there had a version of its own, whatever it was.
		k.floor++
	}
	if version != 0 && version < k.floor {
		return false
	}
	*k = keyState{present: true, val: v, floor: k.floor, from: due.from, to: due.to}
	if version != 0 {
		k.learn(version)
	}
	return true
}

// remove deletes, under a version if one was told.
func (k *keyState) remove(version uint64) bool {
	if version != 0 && version < k.floor {
		return false
	}
	*k = keyState{floor: max(k.floor, version+1)}
	return true
}

// stepBatch does all of a batch or nothing.
func stepBatch(s state, o *Op, step uint64) (bool, state) {
	all := true // conditions hold
	for _, p := range o.In.Parts {
		holds, known := s[p.Key].holds(p.If, p.IfVersion)
		if !known && !o.Out.Unknown && !o.Out.Refused {
			s[p.Key].learn(p.IfVersion)
			holds = true
		}
		all = all && holds
	}
	switch {
	case o.Out.Refused:
		if i := o.Out.Part; i < len(o.In.Parts) {
			p := o.In.Parts[i]
			in := Input{If: p.If, IfVersion: p.IfVersion}
			return s[p.Key].refuses(&in, &o.Out), s
		}
		return false, s
	case !all:
		return o.Out.Unknown, s
	}
	// The version told is that of the last part, those before it have lower ones
	// in a row, but parts that change nothing may have none.
	first := o.Out.Version - min(o.Out.Version, step*uint64(len(o.In.Parts)-1))
	for _, p := range o.In.Parts {
		k := &s[p.Key]
		if o.Out.Version != 0 && o.Out.Version < k.floor {
			return false, s
		}
		if p.Delete {
			k.remove(0)
		} else {
			k.set(p.Val, deadline{}, 0)
		}
		k.floor = max(k.floor, first)
	}
	return true, s
}

// hash makes equal states equal numbers.
func (s state) hash() uint64 {
	h := uint64(14695981039346656037)
	mix := func(v uint64) { h = (h ^ v) * 1099511628211 }
	for i := range s {
		k := &s[i]
		if k.present {
			mix(uint64(i) + 1)
			mix(uint64(k.val.N))
			mix(uint64(k.from))
		}
		mix(k.floor)
		mix(k.version)
	}
	return h
}

// String shows the keys that are there.
func (s state) String() string {
	var b strings.Builder
	for i, k := range s {
		if !k.present {
			continue
		}
		fmt.Fprintf(&b, "%c=%v v%d", 'a'+i, k.val, k.version)
		if k.from != 0 {
			b.WriteString(" timed")
		}
		if k.fuzzy {
			b.WriteString(" or not")
		}
		b.WriteByte(' ')
	}
	if b.Len() == 0 {
		return "empty"
	}
	return strings.TrimSpace(b.String())
}
