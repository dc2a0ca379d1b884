package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// do runs one write and returns it.
func (n *node) do(w Write) *Write {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Do(ctx, &w); err != nil && w.Err == nil {
		n.t.Fatalf("%v of %q: %v", w.Kind, w.Key, err)
	}
	return &w
}

// TestConditions is the table of what each condition says about a key that is
// there, is not, or has another version, for every operation.
func TestConditions(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	for _, op := range []Kind{OpPut, OpDelete, OpIncrement, OpTouch, OpBatch} {
		for _, there := range []bool{true, false} {
			for cond := CondNone; cond < base.NumConds; cond++ {
				for _, right := range []bool{true, false} {
					if cond != CondVersion && !right {
						continue
					}
					name := fmt.Sprintf("%v/there=%v/if=%v/right=%v", op, there, cond, right)
					key := []byte(name)
					var at layout.Version
					if there {
						at = n.put(1, name, "41")
					}
					w := Write{Op: Op{Shard: 1, Key: key, Kind: op, If: cond, IfVersion: at, Value: []byte("new"), Delta: 1}}
					if !right {
						w.IfVersion = at + 1
					}
					if op == OpBatch {
						w = Write{Op: Op{Shard: 1, Kind: OpBatch, Parts: []Part{
							{Key: []byte(name + ".other"), Value: []byte("x")},
							{Key: key, Value: []byte("new"), If: cond, IfVersion: w.IfVersion},
						}}}
					}
					holds := cond == CondNone || cond == CondAbsent && !there || cond == CondExists && there || cond == CondVersion && there && right
					if op == OpTouch && !there {
						holds = false
					}
					got := n.do(w)
					if (got.Err == nil) != holds || !holds && got.Err != ErrCondition {
						t.Fatalf("%s: %v", name, got.Err)
					}
					if !holds {
						if got.Actual != at {
							t.Errorf("%s: refused at version %#x, the key has %#x", name, got.Actual, at)
						}
						if op == OpBatch && got.Part != 1 {
							t.Errorf("%s: part %d refused", name, got.Part)
						}
						n.wantAbsent(1, name+".other")
						if there {
							n.want(1, name, "41")
						} else {
							n.wantAbsent(1, name)
						}
						continue
					}
					want := map[Kind]string{OpPut: "new", OpBatch: "new", OpTouch: "41", OpIncrement: "42"}[op]
					if op == OpIncrement && !there {
						want = "1"
					}
					if op == OpDelete {
						if got.Existed != there {
							t.Errorf("%s: existed = %v", name, got.Existed)
						}
						n.wantAbsent(1, name)
						continue
					}
					n.want(1, name, want)
					v, err := n.Stat(t.Context(), 1, key)
					if err != nil || v.Version != got.Version {
						t.Errorf("%s: version %#x, said to be %#x (%v)", name, v.Version, got.Version, err)
					}
				}
			}
		}
	}
}

// TestConditionsOutOfPebble judges keys that memory knows nothing of.
func TestConditionsOutOfPebble(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	at := n.put(0, "k", "7")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c := testConfig(fs)
	c.holdFill = make(chan struct{})
	defer close(c.holdFill)
	n = open(t, c)
	n.put(0, "warm", pattern(200, "memory is registered"))
	for _, w := range []Write{
		{Op: Op{Key: []byte("k"), Kind: OpIncrement, Delta: 1}},
		{Op: Op{Key: []byte("k"), If: CondVersion, IfVersion: at}},
		{Op: Op{Key: []byte("k"), Kind: OpDelete}},
		{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), If: CondAbsent}}}},
	} {
		w.NoWait, w.Done = true, func(*Write) {}
		if err := n.Submit(&w); !errors.Is(err, ErrMustAsk) {
			t.Errorf("%v without waiting: %v", w.Kind, err)
		}
	}
	if w := n.do(Write{Op: Op{Key: []byte("k"), If: CondVersion, IfVersion: at + 1}}); w.Err != ErrCondition || w.Actual != at {
		t.Errorf("wrong version: %v, actual %#x, want %#x", w.Err, w.Actual, at)
	}
	if w := n.do(Write{Op: Op{Key: []byte("new"), If: CondExists}}); w.Err != ErrCondition || w.Actual != 0 {
		t.Errorf("absent: %v, actual %#x", w.Err, w.Actual)
	}
	if w := n.do(Write{Op: Op{Key: []byte("k"), Kind: OpIncrement, Delta: 3}}); w.Err != nil || w.Number != 10 {
		t.Errorf("increment: %d, %v", w.Number, w.Err)
	}
	n.want(0, "k", "10")
}

func TestIncrement(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	for _, tc := range []struct {
		value string // "-": absent
		delta int64
		want  int64
		err   error
	}{
		{"-", 5, 5, nil},
		{"-", math.MinInt64, math.MinInt64, nil},
		{"0", 0, 0, nil},
		{"41", 1, 42, nil},
		{"-3", 2, -1, nil},
		{"9223372036854775807", 0, math.MaxInt64, nil},
		{"9223372036854775807", 1, 0, ErrNumberRange},
		{"9223372036854775806", 1, math.MaxInt64, nil},
		{"-9223372036854775808", -1, 0, ErrNumberRange},
		{"-9223372036854775808", math.MaxInt64, -1, nil},
		{"", 1, 0, ErrNotNumber},
		{"x", 1, 0, ErrNotNumber},
		{"+1", 1, 0, ErrNotNumber},
		{"01", 1, 0, ErrNotNumber},
		{"-0", 1, 0, ErrNotNumber},
		{" 1", 1, 0, ErrNotNumber},
		{"1_0", 1, 0, ErrNotNumber},
		{"9223372036854775808", -1, 0, ErrNotNumber},
		{pattern(1000, "7"), 1, 0, ErrNotNumber},
	} {
		key := "n" + tc.value + strconv.FormatInt(tc.delta, 10)
		if tc.value != "-" {
			n.put(2, key, tc.value)
		}
		w := n.do(Write{Op: Op{Shard: 2, Key: []byte(key), Kind: OpIncrement, Delta: tc.delta}})
		if w.Err != tc.err || w.Number != tc.want {
			t.Errorf("%q + %d = %d, %v; want %d, %v", clip(tc.value), tc.delta, w.Number, w.Err, tc.want, tc.err)
		}
		switch {
		case tc.err == nil:
			n.want(2, key, strconv.FormatInt(tc.want, 10))
		default:
			n.want(2, key, tc.value)
		}
	}
}

// TestIncrementsPipelined has many increments of a key in flight at once: each
// is judged on the one before it, not on what is published.
func TestIncrementsPipelined(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	const writes = 500
	done := make(chan *Write, writes)
	for range writes {
		n.submit(&Write{Op: Op{Shard: 3, Key: []byte("counter"), Kind: OpIncrement, Delta: 1}, Done: func(w *Write) { done <- w }})
	}
	for i := range writes {
		if w := <-done; w.Err != nil || w.Number != int64(i+1) {
			t.Fatalf("increment %d said %d, %v", i+1, w.Number, w.Err)
		}
	}
	n.want(3, "counter", strconv.Itoa(writes))
}

// TestRefusalWaits: a condition is refused because of a write that is not
// durable yet. A crash could take that write; so the refusal waits for it.
func TestRefusalWaits(t *testing.T) {
	fs := newStalledFS()
	n := open(t, testConfig(fs))
	n.fill()
	n.put(0, "warm", "v")
	release := fs.stall()
	defer release()
	var order []string
	done := make(chan struct{}, 3)
	submit := func(name string, w Write) {
		w.Key, w.Done = []byte("k"), func(w *Write) {
			order = append(order, fmt.Sprintf("%s %v", name, w.Err))
			done <- struct{}{}
		}
		if err := n.Submit(&w); err != nil {
			t.Fatal(err)
		}
	}
	submit("put", Write{Op: Op{Value: []byte("v")}})
	n.atSync() // so that the refusals are a commit of their own, for which nothing is to be synced
	submit("if absent", Write{Op: Op{If: CondAbsent}})
	submit("delete of version", Write{Op: Op{Kind: OpDelete, If: CondVersion, IfVersion: 1}})
	select {
	case <-done:
		t.Fatalf("told before the put was durable: %s", order)
	case <-time.After(20 * time.Millisecond):
	}
	release()
	for range 3 {
		<-done
	}
	want := fmt.Sprintf("[put <nil> if absent %v delete of version %v]", ErrCondition, ErrCondition)
	if got := fmt.Sprint(order); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	n.want(0, "k", "v")
}

// TestTouchOfEmptyInFlight: a value of no bytes is known, also where it is that
// of a put in flight. The touch is ordered behind it at once: it did wait for the
// put, spinning.
func TestTouchOfEmptyInFlight(t *testing.T) {
	fs := newStalledFS()
	n := open(t, testConfig(fs))
	n.fill()
	n.do(Write{Op: Op{Key: []byte("warm"), Value: []byte("v"), TTL: time.Hour}}) // the clock has its bound
	release := fs.stall()
	defer release()
	done := make(chan *Write, 2)
	ordered := make(chan error)
	go func() {
		tell := func(w *Write) { done <- w }
		err := n.Submit(&Write{Op: Op{Key: []byte("k")}, Done: tell})
		if err == nil {
			err = n.Submit(&Write{Op: Op{Key: []byte("k"), Kind: OpTouch, TTL: time.Hour}, Done: tell})
		}
		ordered <- err
	}()
	select {
	case err := <-ordered:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the touch is not ordered before the put is published")
		release()
		<-ordered
	}
	release()
	for range 2 {
		if w := <-done; w.Err != nil {
			t.Errorf("%v: %v", w.Kind, w.Err)
		}
	}
	n.want(0, "k", "")
}

func TestBatchesRefused(t *testing.T) {
	n := open(t, testConfig(memFS()))
	many := make([]Part, MaxParts+1)
	for i := range many {
		many[i].Key = fmt.Appendf(nil, "%d", i)
	}
	for _, tc := range []struct {
		name string
		w    Write
		want error
	}{
		{"nothing", Write{Op: Op{Kind: OpBatch}}, ErrBatch},
		{"too many", Write{Op: Op{Kind: OpBatch, Parts: many}}, ErrBatch},
		{"a key twice", Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k")}, {Key: []byte("k"), Delete: true}}}}, ErrBatch},
		{"too large", Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), Value: make([]byte, MaxBatchBytes)}}}}, ErrBatch},
		{"a key of its own", Write{Op: Op{Kind: OpBatch, Key: []byte("k"), Parts: many[:1]}}, ErrBatch},
		{"no key", Write{Op: Op{Kind: OpBatch, Parts: []Part{{}}}}, ErrKeyEmpty},
		{"long key", Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: make([]byte, layout.MaxKeyLen+1)}}}}, ErrKeyTooLarge},
		{"no such condition", Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), If: base.NumConds}}}}, ErrUnsupported},
		{"TTL that is past", Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), TTL: -1}}}}, ErrUnsupported},
		{"no such shard", Write{Op: Op{Kind: OpBatch, Shard: 4, Parts: many[:1]}}, ErrShard},
		{"no such operation", Write{Op: Op{Kind: base.OpForget, Key: []byte("k")}}, ErrUnsupported},
	} {
		tc.w.Done = func(*Write) { t.Errorf("%s: done", tc.name) }
		if err := n.Submit(&tc.w); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// TestBatch puts and deletes keys together; each part has a version of its
// own, and all outlive a restart.
func TestBatch(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	n.fill()
	n.put(1, "old", "1")
	n.put(1, "gone", "2")
	w := n.do(Write{Op: Op{Shard: 1, Kind: OpBatch, Parts: []Part{
		{Key: []byte("new"), Value: []byte("a")},
		{Key: []byte("old"), Value: []byte(pattern(200_000, "b")), If: CondExists},
		{Key: []byte("gone"), Delete: true},
		{Key: []byte("never"), Delete: true},
	}}})
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	check := func() {
		t.Helper()
		n.want(1, "new", "a")
		n.want(1, "old", pattern(200_000, "b"))
		n.wantAbsent(1, "gone")
		n.wantAbsent(1, "never")
		a, _ := n.Stat(t.Context(), 1, []byte("new"))
		b, _ := n.Stat(t.Context(), 1, []byte("old"))
		if a.Version != w.Version-3 || b.Version != w.Version-2 {
			t.Errorf("versions %#x, %#x of a batch that ended at %#x", a.Version, b.Version, w.Version)
		}
	}
	check()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fs))
	check()
	n.fill()
	check()
	if next := n.put(1, "next", ""); next <= w.Version {
		t.Errorf("version %#x after %#x", next, w.Version)
	}
}
