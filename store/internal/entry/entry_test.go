package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
)

// write is a write of these keys, judged elsewhere; one that begins with '-' is without effect.
func write(shard uint16, keys ...string) *flight.Flight {
	f := &flight.Flight{Shard: shard, Noop: true}
	for _, k := range keys {
		e := &flight.Effect{Effect: base.Effect{Shard: shard, Key: []byte(k), Value: []byte("value of " + k)}}
		if k[0] == '-' {
			e.Kind, e.Value, e.Noop = base.OpDelete, nil, true
		}
		f.Noop = f.Noop && e.Noop
		f.Effects = append(f.Effects, e)
	}
	return f
}

// numbered numbers writes, and returns the number behind them.
func numbered(first uint64, writes []*flight.Flight) uint64 {
	for _, f := range writes {
		first = f.NumberInGroup(first)
	}
	return first
}

// encoded is an entry of writes.
func encoded(reign, first uint64, writes ...*flight.Flight) []byte {
	return AppendWrites(nil, reign, first, numbered(first, writes), writes)
}

// TestSaysWhatWasWritten: an entry has the writes that it was made of, refusals apart.
func TestSaysWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var writes []*flight.Flight
		var want []string
		for i := range rapid.IntRange(1, 6).Draw(t, "writes") {
			keys := rapid.SliceOfNDistinct(rapid.StringMatching(`-?[a-z]{1,9}`), 1, 4, rapid.ID).Draw(t, fmt.Sprint("keys ", i))
			writes = append(writes, write(uint16(rapid.IntRange(0, layout.MaxShards-1).Draw(t, "shard")), keys...))
		}
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		b := encoded(9, first, writes...)
		next := first
		for _, f := range writes {
			for _, x := range f.Effects {
				if !x.Noop {
					want = append(want, fmt.Sprintf("%d %v %s %s", f.Shard, x.Version, x.Key, x.Value))
				}
			}
			next += uint64(f.Versions())
			if f.Noop {
				next -= uint64(f.Versions()) - 1
			}
		}
		e, err := Parse(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range e.Writes {
			for x := range e.Writes[i].Effects {
				got = append(got, fmt.Sprintf("%d %v %s %s", x.Shard, x.Version, x.Key, x.Value))
			}
		}
		if e.Kind != Writes || e.Reign != 9 || e.First != first || e.First+e.Numbers != next || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("%+v\n%s\nwant numbers up to %d\n%s", e, strings.Join(got, "\n"), next, strings.Join(want, "\n"))
		}
	})
}

// TestMarker: a marker says whose it is.
func TestMarker(t *testing.T) {
	e, err := Parse(AppendMarker(nil, 7, 3), nil)
	if err != nil || e.Kind != Marker || e.Life != 7 || e.Term != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestCheck: a check says its id, and changes no turn, wherever it stands.
func TestCheck(t *testing.T) {
	e, err := Parse(AppendCheck(nil, 7), nil)
	if err != nil || e.Kind != Check || e.ID != 7 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, turn := range []Turn{{}, {Reign: 4, Next: 9}} {
		if was := turn; !turn.Take(12, &e) || turn != was {
			t.Errorf("behind %+v a check counts not, or leaves %+v", was, turn)
		}
	}
}

// TestHostile: what no program writes is refused, and says what it is.
func TestHostile(t *testing.T) {
	le := binary.LittleEndian
	two := encoded(9, 5, write(3, "a"), write(4, "b", "c"))
	second := writesHead + sizeLen + int(padded(le.Uint64(two[writesHead:])))
	for _, tc := range []struct {
		name string
		b    []byte
		do   func(b []byte) []byte
		want error
		says string
	}{
		{"nothing", nil, nil, ErrMalformed, "0 bytes"},
		{"another format", two, func(b []byte) []byte { b[0] = 2; return b }, ErrNewer, "format 2"},
		{"another kind", two, func(b []byte) []byte { b[offKind] = 4; return b }, ErrNewer, "kind 4"},
		{"flags", two, func(b []byte) []byte { b[offZero] = 1; return b }, ErrNewer, "flags"},
		{"half a head", two, func(b []byte) []byte { return b[:headLen-1] }, ErrMalformed, "no head"},
		{"no first", two, func(b []byte) []byte { return b[:writesHead-1] }, ErrMalformed, "writes in"},
		{"no reign", two, func(b []byte) []byte { le.PutUint64(b[offReign:], 0); return b }, ErrMalformed, "no reign"},
		{"no numbers", two, func(b []byte) []byte { le.PutUint64(b[offNumbers:], 0); return b }, ErrMalformed, "0 numbers"},
		{"many numbers", two, func(b []byte) []byte { le.PutUint64(b[offNumbers:], MostNumbers+1); return b }, ErrMalformed, "numbers"},
		{"number 0", two, func(b []byte) []byte { le.PutUint64(b[offFirst:], 0); return b }, ErrMalformed, "from 0 on"},
		{"beyond the last number", two, func(b []byte) []byte { le.PutUint64(b[offFirst:], layout.MaxNumber-1); return b }, ErrMalformed, "numbers from"},
		{"writes of other numbers", two, func(b []byte) []byte { le.PutUint64(b[offFirst:], 6); return b }, ErrMalformed, "is next"},
		{"more writes than numbers", two, func(b []byte) []byte { le.PutUint32(b[offCount:], 1<<30); return b }, ErrMalformed, "writes with"},
		{"a write less than it says", two, func(b []byte) []byte { le.PutUint32(b[offCount:], 3); return b }, ErrMalformed, "not there"},
		{"a write more than it says", two, func(b []byte) []byte { le.PutUint32(b[offCount:], 1); return b }, ErrMalformed, "behind the last"},
		{"too few numbers", two, func(b []byte) []byte { le.PutUint64(b[offNumbers:], 2); return b }, ErrMalformed, "is next"},
		{"a size without end", two, func(b []byte) []byte { le.PutUint64(b[writesHead:], 1<<63); return b }, ErrMalformed, "are left"},
		{"a size that overflows when it is padded", two, func(b []byte) []byte { le.PutUint64(b[writesHead:], 1<<64-1); return b }, ErrMalformed, "are left"},
		{"a body cut off", two, func(b []byte) []byte { return b[:len(b)-8] }, ErrMalformed, "are left"},
		{"something between the writes", two, func(b []byte) []byte { b[second-1] = 1; return b }, ErrMalformed, "followed by 0x1"},
		{"a write that is none", two, func(b []byte) []byte { b[second+sizeLen] = 99; return b }, logged.ErrNewer, "write 1 of 2"},
		{"the same write twice", two, func(b []byte) []byte {
			le.PutUint32(b[offCount:], 3)
			return append(b, b[second:]...)
		}, ErrMalformed, "is next"},
		{"a marker of no life", AppendMarker(nil, 7, 3), func(b []byte) []byte { le.PutUint64(b[offLife:], 0); return b }, ErrMalformed, "life 0"},
		{"a marker in no term", AppendMarker(nil, 7, 3), func(b []byte) []byte { le.PutUint64(b[offTerm:], 0); return b }, ErrMalformed, "term 0"},
		{"a marker with writes", AppendMarker(nil, 7, 3), func(b []byte) []byte { b[offCount] = 1; return b }, ErrMalformed, "1 writes"},
		{"a marker in a reign", AppendMarker(nil, 7, 3), func(b []byte) []byte { b[offReign] = 1; return b }, ErrMalformed, "reign 1"},
		{"a check without an id", AppendCheck(nil, 7), func(b []byte) []byte { le.PutUint64(b[offID:], 0); return b }, ErrMalformed, "without an id"},
		{"a check with writes", AppendCheck(nil, 7), func(b []byte) []byte { b[offCount] = 1; return b }, ErrMalformed, "1 writes"},
		{"a check in a reign", AppendCheck(nil, 7), func(b []byte) []byte { b[offReign] = 1; return b }, ErrMalformed, "reign 1"},
		{"a check and more", AppendCheck(nil, 7), func(b []byte) []byte { return append(b, 0) }, ErrMalformed, "check of"},
		{"half a check", AppendCheck(nil, 7), func(b []byte) []byte { return b[:checkLen-1] }, ErrMalformed, "check of"},
		{"a marker and more", AppendMarker(nil, 7, 3), func(b []byte) []byte { return append(b, 0) }, ErrMalformed, "marker of"},
	} {
		b := bytes.Clone(tc.b)
		if tc.do != nil {
			b = tc.do(b)
		}
		if _, err := Parse(b, nil); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
}

// TestVersionsAreOfTheGroup: a key has a version of its shard, with a number that is its write's or
// stands before it, behind all writes in front.
func TestVersionsAreOfTheGroup(t *testing.T) {
	for name, spoil := range map[string]func(f, g *flight.Flight){
		"a version of another shard": func(f, _ *flight.Flight) { f.Version++; f.Effects[1].Version++ },
		"a key of another shard's":   func(f, _ *flight.Flight) { f.Effects[0].Version++ },
		"the number of a write in front": func(f, _ *flight.Flight) {
			f.Effects[0].Version = layout.NumberedVersion(5, f.Shard)
		},
		"a key twice": func(f, _ *flight.Flight) { f.Effects[1].Key = f.Effects[0].Key },
		"a write behind its place": func(_, g *flight.Flight) {
			g.Version = layout.NumberedVersion(7, g.Shard)
			g.Effects[0].Version = g.Version
		},
	} {
		writes := []*flight.Flight{write(3, "a"), write(3, "b", "c"), write(3, "d")}
		next := numbered(5, writes)
		if _, err := Parse(AppendWrites(nil, 9, 5, next, writes), nil); err != nil {
			t.Fatal(err)
		}
		spoil(writes[1], writes[2])
		if _, err := Parse(AppendWrites(nil, 9, 5, next, writes), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCost: no write takes more than was counted.
func TestCost(t *testing.T) {
	for _, f := range []*flight.Flight{write(1, "k"), write(1, "a", "b", "c"), write(1, "-a", "b")} {
		f.Charge = 0
		for _, x := range f.Effects {
			x.Expiry, x.Unlist, x.Due = 1, 2, 3
			f.Charge += int64(len(x.Key) + len(x.Value))
		}
		if got := int64(len(encoded(9, 5, f)) - writesHead); got > Cost(f) {
			t.Errorf("%d keys take %d bytes, counted as %d", len(f.Effects), got, Cost(f))
		}
	}
}

// TestTurn: which entries count.
func TestTurn(t *testing.T) {
	marker := &Entry{Kind: Marker}
	writes := func(reign, first, numbers uint64) *Entry {
		return &Entry{Kind: Writes, Reign: reign, First: first, Numbers: numbers}
	}
	var turn Turn
	for i, step := range []struct {
		index  uint64
		e      *Entry
		counts bool
		why    string
	}{
		{1, writes(0, 1, 1), false, "there is no reign"},
		{2, marker, true, ""},
		{3, writes(2, 1, 4), true, "the first of the reign"},
		{4, writes(2, 6, 1), false, "the numbers have a gap"},
		{5, writes(2, 5, 1), true, "the one that was expected"},
		{6, writes(2, 5, 1), false, "it came twice"},
		{7, marker, true, ""},
		{8, writes(2, 6, 1), false, "it is of an earlier reign"},
		{9, writes(8, 6, 1), false, "it is of no reign"},
		{10, writes(7, 5, 1), false, "its numbers were taken"},
		{11, writes(7, 6, 1), true, "numbers go on over reigns"},
	} {
		before := turn
		if got := turn.Take(step.index, step.e); got != step.counts {
			t.Errorf("step %d counts %v: %s", i, got, step.why)
		} else if !got && turn != before {
			t.Errorf("step %d is void and has changed the turn: %s", i, step.why)
		}
	}
	if want := (Turn{Reign: 7, Next: 7}); turn != want {
		t.Errorf("%+v, want %+v", turn, want)
	}
	if v := turn.Newest(3); v != layout.NumberedVersion(6, 3) {
		t.Errorf("the newest version is %v", v)
	}
	if v := new(Turn).Newest(3); v != 0 {
		t.Errorf("the newest version of an empty group is %v", v)
	}
}

// FuzzParse: any bytes are an entry or an error, and an entry is what was parsed.
func FuzzParse(f *testing.F) {
	f.Add(AppendMarker(nil, 7, 3))
	f.Add(encoded(9, 5, write(3, "a"), write(4, "b", "-c", "d")))
	f.Add(encoded(9, 5, write(3, "-a")))
	f.Add(AppendCheck(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b, nil)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) && !errors.Is(err, logged.ErrMalformed) && !errors.Is(err, logged.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		var last layout.Version
		for i := range e.Writes {
			w := &e.Writes[i]
			if n := w.Version.Number(); n < e.First || n >= e.First+e.Numbers || w.Version.NumberedShard() != w.Shard || n <= last.Number() {
				t.Fatalf("write %d has version %v behind %v, of %d numbers from %d on", i, w.Version, last, e.Numbers, e.First)
			}
			last = w.Version
		}
	})
}
