package flight

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/layout"
)

// at is the server's time in these tests, in microseconds.
const at = 1_000_000_000

func testClock() *clock.Clock {
	return clock.New(func() (time.Time, time.Duration) { return time.UnixMicro(at), 0 }, 0)
}

func begin(op *base.Op) *Flight {
	f := &Flight{Op: op, Result: &base.Result{}}
	f.Reset(7)
	return f
}

// TestEvaluate goes through what operations come to, by the state of their key.
func TestEvaluate(t *testing.T) {
	there := func(value string) KeyState {
		return KeyState{Exists: true, Version: 5, Value: []byte(value), Expiry: at + 1}
	}
	for _, tc := range []struct {
		name   string
		op     base.Op
		state  KeyState
		err    error
		noop   bool
		result base.Result // without Err
		value  string      // of what is put
		expiry uint64
	}{
		{name: "put", op: base.Op{Value: []byte("v")}, state: there("old"), result: base.Result{Existed: true}, value: "v"},
		{name: "put with a TTL", op: base.Op{Value: []byte("v"), TTL: time.Second}, value: "v", expiry: at + 1_000_000},
		{name: "put if absent, and it is there", op: base.Op{If: base.CondAbsent}, state: there("old"), err: base.ErrCondition, result: base.Result{Existed: true, Actual: 5}},
		{name: "put if absent, and it has expired", op: base.Op{Value: []byte("v"), If: base.CondAbsent}, state: KeyState{Exists: true, Version: 5, Expiry: at}, value: "v"},
		{name: "put if another version", op: base.Op{If: base.CondVersion, IfVersion: 4}, state: there("old"), err: base.ErrCondition, result: base.Result{Existed: true, Actual: 5}},
		{name: "put if there, and it is not", op: base.Op{If: base.CondExists}, err: base.ErrCondition},
		{name: "delete", op: base.Op{Kind: base.OpDelete}, state: there("old"), result: base.Result{Existed: true}},
		{name: "delete of nothing", op: base.Op{Kind: base.OpDelete}, noop: true},
		{name: "touch", op: base.Op{Kind: base.OpTouch, TTL: time.Second}, state: there("old"), result: base.Result{Existed: true}, value: "old", expiry: at + 1_000_000},
		{name: "touch of nothing", op: base.Op{Kind: base.OpTouch}, err: base.ErrCondition},
		{name: "increment", op: base.Op{Kind: base.OpIncrement, Delta: 2}, state: there("40"), result: base.Result{Existed: true, Number: 42}, value: "42", expiry: at + 1},
		{name: "increment of nothing", op: base.Op{Kind: base.OpIncrement, Delta: -2}, result: base.Result{Number: -2}, value: "-2"},
		{name: "increment of a text", op: base.Op{Kind: base.OpIncrement, Delta: 2}, state: there("x"), err: base.ErrNotNumber, result: base.Result{Existed: true, Actual: 5}},
		{name: "increment of 07", op: base.Op{Kind: base.OpIncrement, Delta: 2}, state: there("07"), err: base.ErrNotNumber, result: base.Result{Existed: true, Actual: 5}},
		{name: "increment beyond the range", op: base.Op{Kind: base.OpIncrement, Delta: 1}, state: there(strconv.Itoa(math.MaxInt64)), err: base.ErrNumberRange, result: base.Result{Existed: true, Actual: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.op.Key = []byte("k")
			asked := tc.op
			f := begin(&tc.op)
			for range 2 { // a flight may be judged any number of times
				e := f.Effects[0]
				e.State = tc.state
				f.Evaluate(testClock())
				if !errors.Is(f.Result.Err, tc.err) || f.Noop != (tc.noop || tc.err != nil) || e.Noop != f.Noop {
					t.Fatalf("error %v, without effect %v", f.Result.Err, f.Noop)
				}
				got := *f.Result
				if got.Err = nil; got != tc.result {
					t.Errorf("result %+v, want %+v", got, tc.result)
				}
				if e.Puts() && (string(e.Value) != tc.value || e.Expiry != tc.expiry) {
					t.Errorf("puts %q until %d, want %q until %d", e.Value, e.Expiry, tc.value, tc.expiry)
				}
				if !reflect.DeepEqual(tc.op, asked) {
					t.Errorf("what was asked for has changed: %+v", tc.op)
				}
				f.Reset(7)
			}
		})
	}
}

// TestDue: the expirer's delete takes away what has expired, and nothing newer.
func TestDue(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state KeyState
		noop  bool
	}{
		{"expired", KeyState{Exists: true, Version: 5, Expiry: at}, false},
		{"alive", KeyState{Exists: true, Version: 5, Expiry: at + 1}, true},
		{"lasts by now", KeyState{Exists: true, Version: 5}, true},
		{"gone", KeyState{}, true},
	} {
		f := &Flight{Op: &base.Op{Kind: base.OpDelete, Key: []byte("k")}, Result: &base.Result{}, Due: clock.Second(at)}
		f.Reset(7)
		f.Effects[0].State = tc.state
		if f.Evaluate(testClock()); f.Noop != tc.noop || f.Result.Err != nil {
			t.Errorf("%s: without effect %v, %v", tc.name, f.Noop, f.Result.Err)
		}
	}
}

// TestBatch: all parts or none, each with a version of its own.
func TestBatch(t *testing.T) {
	op := base.Op{Shard: 3, Kind: base.OpBatch, Parts: []base.Part{
		{Key: []byte("a"), Value: []byte("1"), TTL: time.Second},
		{Key: []byte("b"), Delete: true, Value: []byte("of no use")},
		{Key: []byte("c"), Value: []byte("3"), If: base.CondAbsent},
	}}
	f := begin(&op)
	f.Evaluate(testClock())
	if f.Noop || f.Result.Err != nil || !f.Effects[1].Noop || f.Effects[2].Noop {
		t.Fatalf("%+v", f)
	}
	if next := f.Number(10); next != 13 || f.Versions() != 3 || f.Version != 12 || f.Result.Version != 12 || f.Effects[0].Version != 10 {
		t.Errorf("numbered %v to %v, next %v", f.Effects[0].Version, f.Version, next)
	}
	for i, e := range f.Effects {
		if e.Shard != 3 || !bytes.Equal(e.Key, op.Parts[i].Key) || e.Hash != layout.HashKey(7, e.Key) || e.Removes() && e.Value != nil {
			t.Errorf("part %d: %+v", i, e)
		}
	}
	f.Reset(7)
	f.Effects[2].State = KeyState{Exists: true, Version: 9}
	f.Evaluate(testClock())
	if want := (base.Result{Err: base.ErrCondition, Existed: true, Actual: 9, Part: 2}); !f.Noop || *f.Result != want || !f.Effects[0].Noop {
		t.Errorf("refused: %+v", f.Result)
	}
	if next := f.Number(10); next != 11 || f.Version != 10 {
		t.Errorf("a refusal takes versions up to %v", next)
	}
}

// TestNumberInGroup: a write takes as many numbers as versions, and its versions are its shard's.
func TestNumberInGroup(t *testing.T) {
	op := base.Op{Shard: 3, Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Delete: true}, {Key: []byte("c"), Value: []byte("3")}}}
	f := begin(&op)
	f.Evaluate(testClock())
	if next := f.NumberInGroup(10); next != 13 || f.Version != layout.NumberedVersion(12, 3) || f.Result.Version != f.Version || f.Effects[0].Version != layout.NumberedVersion(10, 3) {
		t.Errorf("numbered up to %v, the first key %v, next %d", f.Version, f.Effects[0].Version, next)
	}
	f.Noop = true
	if next := f.NumberInGroup(20); next != 21 || f.Version != layout.NumberedVersion(20, 3) {
		t.Errorf("without effect: %v, next %d", f.Version, next)
	}
}
