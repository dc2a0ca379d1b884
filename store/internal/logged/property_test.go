package logged

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestSameAsPebble: whatever a write is asked and comes to, its body says how the write
// changes the base, key by key and in its order; and it tells watchers the same.
func TestSameAsPebble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFlight(t)
		want := changeOf(f)
		body := put(f)
		if len(body) == 0 {
			if len(want) != 0 {
				t.Fatalf("no record, and it changes\n%s", strings.Join(want, "\n"))
			}
			return
		}
		w, err := Parse(body)
		if err != nil {
			t.Fatalf("%v\n%s", err, dump(body))
		}
		if got := changeOfBody(&w); !slices.Equal(got, want) {
			t.Fatalf("the body says\n%s\nthe write changes\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if w.Version != f.Version || w.Shard != f.Shard {
			t.Fatalf("a write of version %v in shard %d, want %v in %d", w.Version, w.Shard, f.Version, f.Shard)
		}
		// Kinds and versions are not all in the base: those of deletes and touches are for
		// followers and watchers.
		var events, told []string
		for _, e := range f.Effects {
			if stands(e) {
				told = append(told, event(&e.Effect))
			}
		}
		for e := range w.Effects {
			events = append(events, event(&e))
		}
		if !slices.Equal(events, told) {
			t.Fatalf("the body tells %v, want %v", events, told)
		}
	})
}

// event is what those who follow or watch have to tell apart. An effect that keeps its key
// is none; it may have no version.
func event(e *base.Effect) string {
	if e.Noop {
		return fmt.Sprintf("%v nothing of %q due %d", e.Kind, e.Key, e.Due)
	}
	where := base.Bytes{}
	if e.Bytes != nil {
		where = *e.Bytes
	}
	return fmt.Sprintf("%v %v %q %q %d %d %d in %d, %v", e.Kind, e.Version, e.Key, e.Value, e.Expiry, e.Unlist, e.Due, e.Shard, where)
}

// changeOf returns how a flight changes a base.
func changeOf(f *flight.Flight) []string {
	c := change{shard: f.Shard}
	for _, e := range f.Effects {
		c.effect(&e.Effect)
	}
	if f.Recorded() {
		c.result(f.Version, f.Op.ID.SlotKey(), dedup.ResultOf(&f.Op.ID, f.Result))
	}
	for _, k := range f.Forget {
		c.forget(k)
	}
	return c.list
}

// changeOfBody returns the same of a body.
func changeOfBody(w *Write) []string {
	c := change{shard: w.Shard}
	for e := range w.Effects {
		c.effect(&e)
	}
	if k, r, ok := w.Result(); ok {
		c.result(w.Version, k, r)
	}
	for k := range w.Forget {
		c.forget(k)
	}
	return c.list
}

// A change is what a write changes in a base, in its order: keys and records as the format
// of the base's keys says.
type change struct {
	shard uint16
	list  []string
}

func (c *change) key(kind disk.Kind, rest ...[]byte) []byte {
	return disk.AppendKey(nil, c.shard, kind, slices.Concat(rest...))
}

func (c *change) set(pkey []byte, r disk.Record) {
	b := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
	disk.PutRecord(b, pkey, r)
	c.list = append(c.list, fmt.Sprintf("set %x %x", pkey, b))
}

func (c *change) remove(pkey []byte) { c.list = append(c.list, fmt.Sprintf("delete %x", pkey)) }

func (c *change) effect(e *base.Effect) {
	second := func(s uint64) []byte { return binary.BigEndian.AppendUint64(nil, s) }
	if e.Due != 0 {
		c.remove(c.key(disk.KindExpiry, second(e.Due), e.Key))
	}
	if e.Noop {
		return
	}
	if e.Kind == base.OpDelete {
		c.remove(c.key(disk.KindData, e.Key))
	} else {
		c.set(c.key(disk.KindData, e.Key), disk.Record{Version: e.Version, Value: e.Value, Expiry: e.Expiry})
	}
	listed := uint64(0)
	if e.Expiry != 0 {
		listed = clock.Second(e.Expiry)
		c.set(c.key(disk.KindExpiry, second(listed), e.Key), disk.Record{Version: e.Version})
	}
	if e.Unlist != 0 && e.Unlist != listed && e.Unlist != e.Due {
		c.remove(c.key(disk.KindExpiry, second(e.Unlist), e.Key))
	}
}

func (c *change) result(v layout.Version, k base.SlotKey, r dedup.Result) {
	value := make([]byte, dedup.ValueLen)
	r.Encode(value)
	c.set(c.key(disk.KindDedup, k.Append(nil)), disk.Record{Version: v, Value: value})
}

func (c *change) forget(k base.SlotKey) { c.remove(c.key(disk.KindDedup, k.Append(nil))) }

// now is the server's time in these tests, in microseconds.
const now = 1_700_000_000_000_000

// drawFlight makes a write up, and judges it by a state of its keys that is made up too.
func drawFlight(t *rapid.T) *flight.Flight {
	f := &flight.Flight{Op: drawOp(t), Result: &base.Result{}}
	if f.Op.Kind == base.OpDelete && rapid.IntRange(0, 2).Draw(t, "expirer") == 0 {
		f.Due, f.Op.If, f.Op.ID = rapid.Uint64Range(now/1_000_000-2, now/1_000_000+2).Draw(t, "due"), base.CondNone, base.RequestID{}
	}
	f.Reset(7)
	if f.Op.Kind == base.OpForget {
		f.Forget = rapid.SliceOfN(rapid.Custom(drawSlot), 1, 5).Draw(t, "forget")
	} else {
		for _, e := range f.Effects {
			e.State = drawState(t)
		}
		f.Evaluate(clock.New(func() (time.Time, time.Duration) { return time.UnixMicro(now), 0 }, 0))
		if rapid.IntRange(0, 15).Draw(t, "retry") == 0 {
			f.Repeat()
		}
		for _, e := range f.Effects {
			if e.Puts() && rapid.IntRange(0, 4).Draw(t, "in a table") == 0 {
				e.Value, e.Bytes = []byte{}, &base.Bytes{
					Table: rapid.Uint64Min(1).Draw(t, "table"), Number: rapid.Uint32().Draw(t, "number"),
					Offset: rapid.Uint64Max(1<<62-1).Draw(t, "offset"), Length: rapid.Uint64Range(1, layout.MaxValueLen).Draw(t, "length"),
					Sum: rapid.Uint64().Draw(t, "sum"),
				}
			}
		}
	}
	f.Number(layout.MakeVersion(uint16(rapid.IntRange(1, math.MaxUint16).Draw(t, "epoch")), rapid.Uint64Range(1, 1<<39).Draw(t, "first")))
	// One that was judged elsewhere has no operation.
	if rapid.IntRange(0, 3).Draw(t, "elsewhere") == 0 {
		f.Op, f.Result = nil, nil
	}
	return f
}

func drawOp(t *rapid.T) *base.Op {
	op := &base.Op{
		Shard: uint16(rapid.IntRange(0, layout.MaxShards-1).Draw(t, "shard")),
		Kind:  rapid.SampledFrom([]base.Kind{base.OpPut, base.OpDelete, base.OpIncrement, base.OpTouch, base.OpBatch, base.OpForget}).Draw(t, "kind"),
	}
	if op.Kind == base.OpForget {
		return op
	}
	if rapid.Bool().Draw(t, "has an id") {
		k := drawSlot(t)
		op.ID = base.RequestID{
			Client: k.Client, Slot: k.Slot, Seq: rapid.Uint64Min(1).Draw(t, "seq"), Owner: rapid.Uint32().Draw(t, "owner"),
		}
	}
	if op.Kind == base.OpBatch {
		op.Parts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) base.Part {
			p := base.Part{Key: drawKey(t), Delete: rapid.Bool().Draw(t, "delete")}
			if !p.Delete {
				p.Value, p.TTL = drawValue(t), drawTTL(t)
			}
			p.If, p.IfVersion = drawCond(t, 15)
			return p
		}), 1, 12).Draw(t, "parts")
		return op
	}
	op.Key, op.Delta = drawKey(t), rapid.Int64().Draw(t, "delta")
	op.If, op.IfVersion = drawCond(t, 1)
	switch op.Kind {
	case base.OpPut:
		op.Value, op.TTL = drawValue(t), drawTTL(t)
	case base.OpTouch:
		op.TTL = drawTTL(t)
	}
	return op
}

func drawSlot(t *rapid.T) (k base.SlotKey) {
	copy(k.Client[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "client"))
	k.Slot = rapid.Uint16().Draw(t, "slot")
	return k
}

func drawKey(t *rapid.T) []byte {
	if rapid.IntRange(0, 20).Draw(t, "long key") == 0 {
		return make([]byte, layout.MaxKeyLen)
	}
	return rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "key")
}

func drawValue(t *rapid.T) []byte {
	if rapid.IntRange(0, 20).Draw(t, "large value") == 0 {
		return make([]byte, 1<<17)
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 120).Draw(t, "value")
}

// drawTTL returns none, or one that ends in this second or in one of the next.
func drawTTL(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 3).Draw(t, "ttl")) * 700 * time.Millisecond
}

// drawCond returns a condition once in rarely times and one more: a batch of many parts is
// seldom done if each may be refused.
func drawCond(t *rapid.T, rarely int) (base.Cond, layout.Version) {
	if rapid.IntRange(0, rarely).Draw(t, "without condition") != 0 {
		return base.CondNone, 0
	}
	return base.Cond(rapid.IntRange(0, int(base.NumConds)-1).Draw(t, "condition")), layout.Version(rapid.IntRange(1, 2).Draw(t, "if version"))
}

// drawState returns a state of a key: absent, there, about to expire, or expired.
func drawState(t *rapid.T) flight.KeyState {
	if rapid.Bool().Draw(t, "absent") {
		return flight.KeyState{}
	}
	s := flight.KeyState{Exists: true, Version: layout.Version(rapid.IntRange(1, 2).Draw(t, "version"))}
	s.Value = rapid.SampledFrom([][]byte{nil, []byte("40"), []byte("no number"), []byte("-9223372036854775808")}).Draw(t, "old value")
	if rapid.Bool().Draw(t, "expires") {
		s.Expiry = uint64(now + rapid.IntRange(-3, 3).Draw(t, "expiry")*500_000)
	}
	return s
}
