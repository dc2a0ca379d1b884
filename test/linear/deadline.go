package linear

import "math"

// A deadline is when what was written expires: not before from and not after to.
type deadline struct{ from, to int64 }

// deadline is the one that a write sets, none if it has no TTL. The server takes
// its time between the call and the return; if no return is known, it may be at
// any time.
func (sl Slack) deadline(o *Op) deadline {
	live := float64(o.In.TTL)
	if live == 0 {
		return deadline{}
	}
	d := deadline{
		from: max(1, o.Begin+int64(live*(1-sl.Rate))-int64(sl.Early)),
		to:   o.End + int64(live*(1+sl.Rate)) + int64(sl.Late) + o.Out.Ahead,
	}
	if o.Out.Unknown || sl.Forget {
		d.to = math.MaxInt64
	}
	if sl.Forget {
		d.from = 1
	}
	return d
}

// expire removes the key if its deadline has come by the time of o: certainly,
// or possibly and o says that it is gone.
func (k *keyState) expire(o *Op, gone bool) {
	if !k.present || k.fuzzy || k.from == 0 {
		return
	}
	if o.Begin > k.to || gone && o.End >= k.from {
		k.remove(0)
	}
}

// saidAbsent reports whether the answer of o says that the key was not there.
func (k *keyState) saidAbsent(o *Op) bool {
	in, out := &o.In, &o.Out
	switch {
	case out.Unknown:
		return false
	case out.Refused:
		return out.Absent
	case in.Op == OpPut:
		return in.If == CondAbsent
	case in.Op == OpIncrement:
		return !out.NotNumber && out.Val.N == in.Delta && (!k.val.Num || k.val.N != 0)
	}
	return !out.Present // gets, peeks, deletes, touches
}

// blur: whether an operation took effect depends on when the deadline came.
func (k *keyState) blur() {
	*k = keyState{present: true, fuzzy: true, floor: k.floor, from: 1, to: math.MaxInt64}
}

// sharpen prepares a fuzzy key for a write, and reports whether the write then
// has to be done; otherwise it leaves the key as fuzzy as it was.
func (k *keyState) sharpen(in *Input, out *Output) bool {
	switch {
	case out.Unknown, out.Refused, out.NotNumber, in.Op == OpTouch:
		return in.Op == OpPut && in.If == CondNone || in.Op == OpDelete && in.If == CondNone
	case in.Op == OpIncrement:
		*k = keyState{present: true, val: Value{Num: true, N: out.Val.N - in.Delta}, floor: k.floor, from: 1, to: math.MaxInt64}
	case in.Op == OpDelete:
		*k = keyState{present: out.Present, version: in.IfVersion, floor: k.floor}
	case in.If == CondAbsent:
		*k = keyState{floor: k.floor}
	case in.If == CondVersion:
		*k = keyState{present: true, version: in.IfVersion, floor: k.floor}
	}
	return true
}
