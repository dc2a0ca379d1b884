package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// span is when an operation of a table was called and returned.
func at(call, ret int64, in Input, out Output) *Op {
	return &Op{Call: call, Return: ret, Begin: call * 1000, End: ret * 1000, In: in, Out: out}
}

func put(n int64) Input           { return Input{Op: OpPut, Val: Value{N: n}} }
func putNumber(n int64) Input     { return Input{Op: OpPut, Val: Value{Num: true, N: n}} }
func get() Input                  { return Input{Op: OpGet} }
func getKey(k int) Input          { return Input{Op: OpGet, Key: k} }
func incr(d int64) Input          { return Input{Op: OpIncrement, Delta: d} }
func del() Input                  { return Input{Op: OpDelete} }
func is(n int64, v uint64) Output { return Output{Present: true, Val: Value{N: n}, Version: v} }
func number(n int64) Output       { return Output{Present: true, Val: Value{Num: true, N: n}} }
func version(v uint64) Output     { return Output{Version: v} }
func both(a, b int64) Input {
	return Input{Op: OpBatch, Parts: []Part{{Key: 0, Val: Value{N: a}}, {Key: 1, Val: Value{N: b}}}}
}

var (
	none    = Output{}
	unknown = Output{Unknown: true}
	was     = Output{Present: true}
)

// TestHistories: small histories by hand, right and wrong ones, each wrong one a
// violation that a store of this kind could commit.
func TestHistories(t *testing.T) {
	ifVersion := func(n int64, v uint64) Input {
		return Input{Op: OpPut, Val: Value{N: n}, If: CondVersion, IfVersion: v}
	}
	ifAbsent := Input{Op: OpPut, Val: Value{N: 9}, If: CondAbsent}
	timed := Input{Op: OpPut, Val: Value{N: 1}, TTL: 10_000}
	for _, c := range []struct {
		name string
		good bool
		ops  []*Op
	}{
		{"in order", true, []*Op{at(1, 2, put(1), version(5)), at(3, 4, get(), is(1, 5)), at(5, 6, del(), was), at(7, 8, get(), none)}},
		{"stale read", false, []*Op{at(1, 2, put(1), none), at(3, 4, put(2), none), at(5, 6, get(), is(1, 0))}},
		{"new, then old", false, []*Op{at(1, 2, put(1), none), at(3, 9, put(2), none), at(4, 5, get(), is(2, 0)), at(6, 7, get(), is(1, 0))}},
		{"old, then new", true, []*Op{at(1, 2, put(1), none), at(3, 9, put(2), none), at(4, 5, get(), is(1, 0)), at(6, 7, get(), is(2, 0))}},
		{"from nowhere", false, []*Op{at(1, 2, put(1), none), at(3, 4, get(), is(7, 0))}},
		{"lost update", false, []*Op{at(1, 2, put(1), none), at(3, 4, get(), none)}},
		{"false miss", false, []*Op{at(1, 2, put(1), none), at(3, 6, put(2), none), at(4, 5, get(), none)}},
		{"version used twice", false, []*Op{at(1, 2, put(1), version(5)), at(3, 4, put(2), version(5))}},
		{"version goes back", false, []*Op{at(1, 2, put(1), version(5)), at(3, 4, del(), was), at(5, 6, put(2), version(4))}},
		{"version changes by itself", false, []*Op{at(1, 2, put(1), version(5)), at(3, 4, get(), is(1, 6))}},
		{"resurrected delete", false, []*Op{at(1, 2, put(1), none), at(3, 4, del(), was), at(5, 6, get(), none), at(7, 8, get(), is(1, 0))}},
		{"delete of nothing says it was there", false, []*Op{at(1, 2, del(), was)}},

		{"unknown put, seen", true, []*Op{at(1, Infinity, put(1), unknown), at(3, 4, get(), none), at(5, 6, get(), is(1, 3))}},
		{"unknown put, seen, gone", false, []*Op{at(1, Infinity, put(1), unknown), at(3, 4, get(), is(1, 3)), at(5, 6, get(), none)}},
		{"unknown put, twice", false, []*Op{at(1, Infinity, put(1), unknown), at(3, 4, get(), is(1, 3)), at(5, 6, put(2), none), at(7, 8, get(), is(1, 3))}},
		{"unknown put, two versions", false, []*Op{at(1, Infinity, put(1), unknown), at(3, 4, get(), is(1, 3)), at(5, 6, get(), is(1, 4))}},

		{"increments", true, []*Op{at(1, 2, incr(5), number(5)), at(3, 4, incr(7), number(12)), at(5, 6, get(), number(12))}},
		{"double increment", false, []*Op{at(1, 2, incr(5), number(5)), at(3, 4, get(), number(10))}},
		{"lost increment", false, []*Op{at(1, 4, incr(5), number(5)), at(2, 3, incr(7), number(7))}},
		{"unknown increment, once", true, []*Op{at(1, Infinity, incr(5), unknown), at(3, 4, incr(7), number(12))}},
		{"unknown increment, twice", false, []*Op{at(1, Infinity, incr(5), unknown), at(3, 4, incr(7), number(17))}},
		{"increment of a record", true, []*Op{at(1, 2, put(1), none), at(3, 4, incr(7), Output{NotNumber: true}), at(5, 6, get(), is(1, 0))}},
		{"increment of a number refused", false, []*Op{at(1, 2, putNumber(1), none), at(3, 4, incr(7), Output{NotNumber: true})}},

		{"put if version", true, []*Op{at(1, 2, put(1), version(5)), at(3, 4, ifVersion(2, 5), version(6)), at(5, 6, ifVersion(3, 5), Output{Refused: true, Version: 6})}},
		{"two winners", false, []*Op{at(1, 2, put(1), version(5)), at(3, 6, ifVersion(2, 5), version(6)), at(4, 7, ifVersion(3, 5), version(7))}},
		{"refused though it holds", false, []*Op{at(1, 2, put(1), version(5)), at(3, 4, ifVersion(2, 5), Output{Refused: true, Version: 5})}},
		{"refusal names a wrong version", false, []*Op{at(1, 2, put(1), version(5)), at(3, 4, ifVersion(2, 4), Output{Refused: true, Version: 3})}},
		{"put if absent of what is there", false, []*Op{at(1, 2, put(1), none), at(3, 4, ifAbsent, none)}},
		{"refusal of what is published later", true, []*Op{at(1, 6, put(1), version(5)), at(2, 3, ifAbsent, Output{Refused: true, Version: 5}), at(4, 5, get(), is(1, 5))}},
		{"refusal before the value is seen", false, []*Op{at(1, 6, put(1), version(5)), at(2, 3, ifAbsent, Output{Refused: true, Version: 5}), at(4, 5, get(), none)}},

		{"batch", true, []*Op{at(1, 4, both(1, 2), none), at(2, 3, getKey(1), none), at(5, 6, getKey(0), is(1, 0)), at(7, 8, getKey(1), is(2, 0))}},
		{"split batch", false, []*Op{at(1, 6, both(1, 2), none), at(2, 3, getKey(0), is(1, 0)), at(4, 5, getKey(1), none)}},
		{"half of an unknown batch", false, []*Op{at(1, Infinity, both(1, 2), unknown), at(2, 3, getKey(0), is(1, 0)), at(4, 5, getKey(1), none)}},
		{"batch refused for nothing", false, []*Op{at(1, 2, both(1, 2), Output{Refused: true})}},

		{"expires", true, []*Op{at(1, 2, timed, none), at(5, 6, get(), is(1, 0)), at(11, 12, get(), none), at(20, 21, get(), none)}},
		{"expires too early", false, []*Op{at(1, 2, timed, none), at(5, 6, get(), none)}},
		{"expires too late", false, []*Op{at(1, 2, timed, none), at(20, 21, get(), is(1, 0))}},
		{"comes back", false, []*Op{at(1, 2, timed, none), at(10, 12, get(), none), at(13, 14, get(), is(1, 0))}},
		{"put if absent once it expired", true, []*Op{at(1, 2, timed, none), at(15, 16, ifAbsent, none), at(17, 18, get(), is(9, 0))}},
		{"touch in time", true, []*Op{at(1, 2, timed, none), at(5, 6, Input{Op: OpTouch, TTL: 100_000}, was), at(30, 31, get(), is(1, 0))}},
		{"increment keeps the deadline", false, []*Op{at(1, 2, Input{Op: OpPut, Val: Value{Num: true}, TTL: 10_000}, none), at(3, 4, incr(3), number(3)), at(30, 31, get(), number(3))}},
		{"unknown touch, either way", true, []*Op{at(1, 2, timed, none), at(3, Infinity, Input{Op: OpTouch, TTL: 100_000}, unknown), at(30, 31, get(), is(1, 0)), at(32, 33, get(), none)}},
	} {
		o := &Object{ID: 1, Keys: 2, Ops: c.ops}
		want := porcupine.Illegal
		if c.good {
			want = porcupine.Ok
		}
		if res := o.Check(Slack{Rate: 0.01, Late: 2 * time.Microsecond}, time.Minute); res.Verdict != want {
			t.Errorf("%s: %v, want %v", c.name, res.Verdict, want)
			for _, op := range c.ops {
				t.Logf("    %d-%d %v", op.Call, op.Return, op)
			}
		}
	}
}

// TestCheckerOutOfTime: a verdict that takes too long is not a good one.
func TestCheckerOutOfTime(t *testing.T) {
	o := &Object{ID: 1, Keys: 1}
	for i := range int64(24) { // all at once: more orders than can be tried
		o.Ops = append(o.Ops, at(1, 100, incr(1<<i), number(1<<40+i)))
	}
	o.Ops = append(o.Ops, at(101, 102, get(), number(0)))
	for i := range int64(24) {
		o.Ops = append(o.Ops, at(1, Infinity, incr(1<<i+3), unknown))
	}
	c := &Checker{Name: "slow", Limit: 50 * time.Millisecond}
	c.Add(o)
	sum, failures := c.Close()
	if sum.Failures != 1 || sum.Undecided != 1 || len(failures) != 1 {
		t.Errorf("%+v, %q", sum, failures)
	}
}

// TestValues: a value is parsed to what it was, and not when a byte differs.
func TestValues(t *testing.T) {
	for _, v := range []Value{{N: 1}, {N: 1 << 40}, {Num: true}, {Num: true, N: -5}} {
		for _, size := range []int{0, 9, 10, 17, 100, 1001} {
			b := v.Bytes(size)
			if got, err := Parse(b); err != nil || got != v {
				t.Errorf("%v in %d bytes: %v, %v", v, len(b), got, err)
			}
			if v.Num {
				continue
			}
			if got, err := ParseFirst(b[:minRecord]); err != nil || got != v {
				t.Errorf("%v: the beginning says %v, %v", v, got, err)
			}
			for i := range b {
				b[i] ^= 4
				if got, err := Parse(b); err == nil && got == v {
					t.Fatalf("%v: byte %d of %d is wrong, and nobody noticed", v, i, len(b))
				}
				b[i] ^= 4
			}
		}
	}
	// Half of one record and half of another.
	a, b := Value{N: 1}.Bytes(64), Value{N: 2}.Bytes(64)
	if _, err := Parse(append(a[:32], b[32:]...)); err == nil {
		t.Error("a mixture of two records was taken for one")
	}
}
