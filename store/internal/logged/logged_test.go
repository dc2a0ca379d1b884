package logged

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// put writes a flight as the store does. The buffer was used before, so what Put leaves
// alone shows.
func put(f *flight.Flight) []byte {
	b := bytes.Repeat([]byte{0xee}, Size(f))
	if len(b) > 0 {
		Put(b, f)
	}
	return b
}

// effects returns what a body says of its keys.
func effects(t testing.TB, body []byte) (list []base.Effect) {
	t.Helper()
	w, err := Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.Effects {
		list = append(list, e)
	}
	return list
}

// numbered returns a flight of these effects, as one that was judged elsewhere, whose first
// version is next.
func numbered(shard uint16, next layout.Version, effects ...base.Effect) *flight.Flight {
	f := &flight.Flight{Shard: shard}
	noop := len(effects) > 0
	for _, e := range effects {
		e.Shard = shard
		f.Effects = append(f.Effects, &flight.Effect{Effect: e})
		noop = noop && e.Noop
	}
	f.Noop = noop && len(effects) == 1
	f.Number(next)
	return f
}

// TestPutIsSmall: a put has 24 bytes beside its key and its value.
func TestPutIsSmall(t *testing.T) {
	e := base.Effect{Key: make([]byte, 16), Value: make([]byte, 100)}
	if n := Size(numbered(3, 7, e)); n != 16+100+24 {
		t.Errorf("a put of 116 bytes has %d", n)
	}
}

// TestBatchHasGaps: the parts of a batch have versions of their own, also behind parts
// that had no effect.
func TestBatchHasGaps(t *testing.T) {
	effect := func(key string, noop bool) base.Effect {
		e := base.Effect{Key: []byte(key), Value: []byte("v"), Noop: noop}
		if noop {
			e.Kind, e.Value, e.Unlist = base.OpDelete, nil, 5
		}
		return e
	}
	for _, gaps := range []string{"+", "+++", "-+++", "+-++", "+--+-+", "++-", "-+-", "----+"} {
		var parts, want []base.Effect
		for i, c := range gaps {
			e := effect(string(rune('a'+i)), c == '-')
			parts = append(parts, e)
			if c == '+' {
				e.Shard, e.Version = 3, layout.Version(7+i)
				want = append(want, e)
			}
		}
		f := numbered(3, 7, parts...)
		body := put(f)
		if got := effects(t, body); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", gaps, got, want)
		}
		if w, _ := Parse(body); w.Version != f.Version || w.Shard != 3 {
			t.Errorf("%s: a write of version %v in shard %d", gaps, w.Version, w.Shard)
		}
	}
}

// TestExpirer: a delete by the expirer is told from others, and one that came too late
// takes the entry off the list and nothing else.
func TestExpirer(t *testing.T) {
	gone := base.Effect{Kind: base.OpDelete, Key: []byte("k"), Due: 9}
	late := gone
	late.Noop, late.Unlist, late.Expiry = true, 4, 5
	for _, tc := range []struct{ e, want base.Effect }{
		{gone, base.Effect{Shard: 3, Kind: base.OpDelete, Key: []byte("k"), Due: 9, Version: 7}},
		{late, base.Effect{Shard: 3, Kind: base.OpDelete, Key: []byte("k"), Due: 9, Version: 7, Noop: true}},
	} {
		if got := effects(t, put(numbered(3, 7, tc.e))); !reflect.DeepEqual(got, []base.Effect{tc.want}) {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}
}

// TestNothing: a write that changes nothing on the disk has no record.
func TestNothing(t *testing.T) {
	for name, f := range map[string]*flight.Flight{
		"delete of nothing": numbered(3, 7, base.Effect{Kind: base.OpDelete, Noop: true, Key: []byte("k"), Unlist: 5}),
		"retry":             {Op: &base.Op{ID: base.RequestID{Seq: 5}}, Result: &base.Result{}, Again: true, Noop: true, Version: 7},
		"without effects":   {Op: &base.Op{}, Result: &base.Result{}, Noop: true, Version: 7},
	} {
		if n := Size(f); n != 0 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}
