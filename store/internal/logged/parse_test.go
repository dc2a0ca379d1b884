package logged

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// withResult gives a flight a request, as its client would have sent it.
func withResult(f *flight.Flight) *flight.Flight {
	f.Op = &base.Op{ID: base.RequestID{Client: [16]byte{1, 2, 3}, Slot: 4, Seq: 5, Owner: 6}}
	f.Result = &base.Result{Version: f.Version}
	return f
}

// good returns bodies of many kinds.
func good() [][]byte {
	p := base.Effect{Key: []byte("key"), Value: []byte("value")}
	d := base.Effect{Kind: base.OpDelete, Key: []byte("other"), Unlist: 9}
	none := base.Effect{Kind: base.OpDelete, Key: []byte("none"), Noop: true}
	all := p
	all.Kind, all.Expiry, all.Unlist = base.OpTouch, 17_000_000, 9
	expired := base.Effect{Kind: base.OpDelete, Key: []byte("key"), Due: 9}
	late := expired
	late.Noop = true
	forgets := numbered(3, 7)
	forgets.Noop, forgets.Forget = true, []base.SlotKey{{Slot: 1}, {Slot: 2}, {Client: [16]byte{9}}}
	refused := withResult(numbered(3, 7, none))
	refused.Result.Err, refused.Result.Actual, refused.Result.Existed = base.ErrCondition, 5, true
	number := withResult(numbered(3, 7, base.Effect{Kind: base.OpIncrement, Key: []byte("n"), Value: []byte("-5")}))
	number.Result.Number = -5
	var list [][]byte
	for _, f := range []*flight.Flight{
		numbered(3, 7, p), withResult(numbered(3, 7, p)), numbered(4095, layout.MaxVersion-1, all), numbered(3, 7, expired), numbered(3, 7, late), forgets,
		refused, number, numbered(3, 7, p, d, all), withResult(numbered(3, 7, none, p, none, none, d, all, none)),
	} {
		list = append(list, put(f))
	}
	large := p
	large.Value, large.Expiry = bytes.Repeat([]byte("value"), 20), 17_000_000
	return append(list, pieces(withResult(numbered(3, 7, large, d, large)), pieceHead+40).body)
}

// TestHostile: a body that no store has written is refused with an error that says what is
// wrong with it.
func TestHostile(t *testing.T) {
	le := binary.LittleEndian
	p := base.Effect{Key: []byte("key"), Value: []byte("value")}
	d := base.Effect{Kind: base.OpDelete, Key: []byte("key"), Unlist: 9}
	late := base.Effect{Kind: base.OpDelete, Key: []byte("key"), Due: 9, Noop: true}
	one := func(e base.Effect) *flight.Flight { return numbered(3, 7, e) }
	gap := numbered(3, 7, p, base.Effect{Kind: base.OpDelete, Key: []byte("none"), Noop: true}, p)
	const head = headLen // of the first effect, without a result
	for name, tc := range map[string]struct {
		f    *flight.Flight
		edit func(b []byte) []byte
		want error
		says string
	}{
		"nothing":                   {one(p), func(b []byte) []byte { return nil }, ErrMalformed, "0 bytes is shorter"},
		"half a head":               {one(p), func(b []byte) []byte { return b[:headLen-1] }, ErrMalformed, "shorter than its head"},
		"another format":            {one(p), func(b []byte) []byte { b[offFormat] = 3; return b[:5] }, ErrNewer, "format 3, expected 1"},
		"flags":                     {one(p), func(b []byte) []byte { b[offFlags] = 1; return b }, ErrNewer, "flags 0x1"},
		"words beyond the result":   {one(p), func(b []byte) []byte { b[offWords] = 1 << resultWords; return b }, ErrNewer, "words 0x10"},
		"a shard too many":          {one(p), func(b []byte) []byte { le.PutUint16(b[offShard:], layout.MaxShards); return b }, ErrMalformed, "shard 4096"},
		"no version":                {one(p), func(b []byte) []byte { le.PutUint64(b[offFormat:], Format); return b }, ErrMalformed, "without a version"},
		"more keys than a batch":    {one(p), func(b []byte) []byte { le.PutUint16(b[offEffects:], base.MaxParts+1); return b }, ErrMalformed, "4097 keys"},
		"no key and no result":      {one(p), func(b []byte) []byte { le.PutUint16(b[offEffects:], 0); return b }, ErrMalformed, "changes nothing"},
		"a key too many":            {one(d), func(b []byte) []byte { le.PutUint16(b[offEffects:], 2); return b }, ErrMalformed, "key 1 of 2 is not there"},
		"slots that are not there":  {one(p), func(b []byte) []byte { le.PutUint16(b[offForgets:], 9); return b }, ErrMalformed, "whose parts have"},
		"slots beyond all":          {one(p), func(b []byte) []byte { le.PutUint16(b[offForgets:], 1<<16-1); return b }, ErrMalformed, "whose parts have"},
		"a byte too many":           {one(p), func(b []byte) []byte { return append(b, 0) }, ErrMalformed, "33 bytes whose parts have 32"},
		"a byte too few":            {one(p), func(b []byte) []byte { return b[:len(b)-1] }, ErrMalformed, "31 bytes whose parts have 32"},
		"half a head of a key":      {one(p), func(b []byte) []byte { return b[:head+effectLen-1] }, ErrMalformed, "key 0 of 1 is not there"},
		"half a word":               {one(d), func(b []byte) []byte { return b[:head+effectLen+7] }, ErrMalformed, "words are not there"},
		"no byte of a word":         {one(d), func(b []byte) []byte { return b[:head+effectLen] }, ErrMalformed, "words are not there"},
		"a piece":                   {one(p), func(b []byte) []byte { b[offFormat] = pieceFormat; return b }, ErrMalformed, "a piece of a value"},
		"a value apart":             {one(p), func(b []byte) []byte { b[head] |= flagApart; return b }, ErrMalformed, "the description of its value has 5 bytes"},
		"a place of 5 bytes":        {one(p), func(b []byte) []byte { b[head+offEffectMore] = 1; return b }, ErrMalformed, "5 bytes say where its value stands"},
		"a reserved byte":           {one(p), func(b []byte) []byte { b[head+offEffectMore] = 2; return b }, ErrNewer, "0x2 where nothing is known"},
		"an empty key":              {one(p), func(b []byte) []byte { le.PutUint16(b[head+offKeyLen:], 0); return b }, ErrMalformed, "key of 0 bytes"},
		"a key too long":            {one(p), func(b []byte) []byte { le.PutUint16(b[head+offKeyLen:], layout.MaxKeyLen+1); return b }, ErrMalformed, "key of 4097 bytes"},
		"a key beyond the end":      {one(p), func(b []byte) []byte { le.PutUint16(b[head+offKeyLen:], 9); return b }, ErrMalformed, "whose parts have 38"},
		"a value beyond the end":    {one(p), func(b []byte) []byte { le.PutUint32(b[head+offValueLen:], 1<<32-1); return b }, ErrMalformed, "whose parts have 4294967322"},
		"a delete with a value":     {one(p), func(b []byte) []byte { b[head] |= byte(base.OpDelete); return b }, ErrMalformed, "puts nothing, with a value of 5"},
		"no change with a value":    {one(late), func(b []byte) []byte { b[head+offKeyLen]--; b[head+offValueLen]++; return b }, ErrMalformed, "puts nothing, with a value of 1"},
		"no put, with a value":      {one(late), func(b []byte) []byte { b[head] &^= kindMask; b[head+offKeyLen]--; b[head+offValueLen]++; return b }, ErrMalformed, "puts nothing, with a value of 1"},
		"no change with more words": {one(late), func(b []byte) []byte { b[head] |= flagUnlist; return append(b, make([]byte, 8)...) }, ErrMalformed, "changes nothing, with flags 0x35"},
		"no change, nothing due":    {one(d), func(b []byte) []byte { b[head] |= flagKeeps; return b }, ErrMalformed, "changes nothing, with flags 0x15"},
		"a word that is zero":       {one(d), func(b []byte) []byte { clear(b[head+effectLen:][:8]); return b }, ErrMalformed, "word that is zero"},
		"the next version, named":   {one(d), func(b []byte) []byte { b[head] ^= flagUnlist | flagVersion; b[head+effectLen] = 7; return b }, ErrMalformed, "its version is named"},
		"a version beyond":          {one(d), func(b []byte) []byte { b[head] ^= flagUnlist | flagVersion; b[head+effectLen] = 8; return b }, ErrMalformed, "version 0.8 behind 0.0 in a write of 0.7"},
		"a version before all":      {numbered(3, 1, p, p), func(b []byte) []byte { b[offFormat+1] = 1; return b }, ErrMalformed, "has version 0.0"},
		"a version from below zero": {numbered(3, 1, p, p, p), func(b []byte) []byte { b[offFormat+1] = 1; return b }, ErrMalformed, "in a write of 0.1"},
		"versions that fall":        {gap, func(b []byte) []byte { b[head+effectLen], b[head+effectLen+8+effectLen] = 9, 8; return b }, ErrMalformed, "version 0.8 behind 0.9"},
		"a version twice":           {gap, func(b []byte) []byte { b[head+effectLen+8+effectLen] = 7; return b }, ErrMalformed, "version 0.7 behind 0.7"},
		"a result of nothing":       {withResult(one(p)), func(b []byte) []byte { b[offWords] = 1 << 3; return b }, ErrMalformed, "result of no request"},
		"an outcome of nothing":     {withResult(one(p)), func(b []byte) []byte { b[head+8] = 77; return b }, ErrNewer, "result of another kind"},
		"a result with other flags": {withResult(one(p)), func(b []byte) []byte { b[head+9] = 2; return b }, ErrNewer, "result of another kind"},
		"a zero in the result":      {withResult(one(p)), func(b []byte) []byte { clear(b[head:][:8]); return b }, ErrMalformed, "word of the result that is zero"},
		"a result alone, cut":       {withResult(one(late)), func(b []byte) []byte { le.PutUint16(b[offEffects:], 0); return b[:headLen+4] }, ErrMalformed, "whose parts have"},
	} {
		b := tc.edit(put(tc.f))
		_, err := Parse(b)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q and %q", name, err, tc.says, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is no line", name, err)
		}
	}
}

// TestEachByteCounts: a body that was cut is refused, and one with a changed byte is
// refused or is another write.
func TestEachByteCounts(t *testing.T) {
	for i, b := range good() {
		for n := range b {
			if _, err := Parse(b[:n]); err == nil {
				t.Errorf("body %d is taken when %d of its %d bytes are there", i, n, len(b))
			}
			for bit := range 8 {
				other := bytes.Clone(b)
				other[n] ^= 1 << bit
				if w, err := Parse(other); err == nil && !bytes.Equal(putWrite(&w), other) {
					t.Errorf("body %d with bit %d of byte %d: not the same when it is put again", i, bit, n)
				}
			}
		}
	}
}

// TestPutPanics: a flight that no reader could read is not put.
func TestPutPanics(t *testing.T) {
	p := base.Effect{Key: []byte("key"), Value: []byte("value")}
	for name, spoil := range map[string]func(f *flight.Flight) (size int){
		"one byte too few":      func(f *flight.Flight) int { return Size(f) - 1 },
		"one byte too many":     func(f *flight.Flight) int { return Size(f) + 1 },
		"another shard":         func(f *flight.Flight) int { f.Effects[1].Shard++; return Size(f) },
		"a version beyond":      func(f *flight.Flight) int { f.Effects[1].Version++; return Size(f) },
		"a version twice":       func(f *flight.Flight) int { f.Effects[1].Version--; return Size(f) },
		"no version":            func(f *flight.Flight) int { f.Effects[0].Version = 0; return Size(f) },
		"a kind of no effect":   func(f *flight.Flight) int { f.Effects[1].Kind, f.Effects[1].Value = base.OpBatch, nil; return Size(f) },
		"too many to forget":    func(f *flight.Flight) int { f.Forget = make([]base.SlotKey, maxForgets+1); return Size(f) },
		"more keys than parts":  func(f *flight.Flight) int { *f = *numbered(3, 7, many(base.MaxParts+1)...); return Size(f) },
		"a key that is too big": func(f *flight.Flight) int { f.Effects[0].Key = make([]byte, layout.MaxKeyLen+1); return Size(f) },
		"an empty key":          func(f *flight.Flight) int { f.Effects[0].Key = nil; return Size(f) },
	} {
		t.Run(name, func(t *testing.T) {
			f := numbered(3, 7, p, p)
			b := make([]byte, spoil(f))
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			Put(b, f)
		})
	}
}

// many returns effects of so many keys.
func many(n int) []base.Effect {
	list := make([]base.Effect, n)
	for i := range list {
		list[i] = base.Effect{Key: binary.BigEndian.AppendUint32(nil, uint32(i))}
	}
	return list
}

// TestLargest: a batch of as many keys as there may be, and one as large as a frame of the
// log may be.
func TestLargest(t *testing.T) {
	if got := effects(t, put(numbered(3, 7, many(base.MaxParts)...))); len(got) != base.MaxParts {
		t.Errorf("%d effects", len(got))
	}
	e := base.Effect{Key: make([]byte, layout.MaxKeyLen), Value: bytes.Repeat([]byte("v"), 8<<20)}
	if got := effects(t, put(numbered(3, 7, e))); !bytes.Equal(got[0].Value, e.Value) || len(got[0].Key) != len(e.Key) {
		t.Errorf("a value of %d bytes", len(got[0].Value))
	}
}

// TestNothingIsAppended: whoever appends to a key or a value does not write over what
// stands behind it.
func TestNothingIsAppended(t *testing.T) {
	for i, b := range good() {
		keep := bytes.Clone(b)
		for _, e := range effects(t, b) {
			_, _ = append(e.Key, 0xff), append(e.Value, 0xff)
		}
		if !bytes.Equal(b, keep) {
			t.Errorf("body %d was changed", i)
		}
	}
}

// again makes the flight of a parsed write, so that it can be put again.
func again(w *Write) *flight.Flight {
	f := &flight.Flight{Shard: w.Shard, Version: w.Version}
	for e := range w.Effects {
		f.Effects = append(f.Effects, &flight.Effect{Effect: e})
	}
	if k, r, ok := w.Result(); ok {
		le := binary.LittleEndian
		var b [dedup.ValueLen]byte
		r.Encode(b[:])
		f.Op = &base.Op{ID: base.RequestID{Client: k.Client, Slot: k.Slot, Seq: le.Uint64(b[:]), Owner: le.Uint32(b[28:])}}
		f.Result = &base.Result{
			Version: w.Version, Actual: layout.Version(le.Uint64(b[8:])), Number: int64(le.Uint64(b[16:])),
			Err: outcomes[b[24]], Existed: b[25] != 0, Part: int(le.Uint16(b[26:])),
		}
	}
	for k := range w.Forget {
		f.Forget = append(f.Forget, k)
	}
	return f
}

// FuzzParseWrite: any bytes are taken or refused, without a panic, and what is taken has one
// encoding.
func FuzzParseWrite(f *testing.F) {
	for _, b := range good() {
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Add(append([]byte{Format}, bytes.Repeat([]byte{0xff}, 64)...))
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range good() {
		other := bytes.Clone(b)
		for range 3 {
			other[rng.IntN(len(other))] = byte(rng.Uint32())
		}
		f.Add(other)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		keep := bytes.Clone(b)
		w, err := Parse(b)
		if !bytes.Equal(b, keep) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if !errors.Is(err, ErrNewer) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is of no type", err)
			}
			return
		}
		if got := putWrite(&w); !bytes.Equal(got, b) {
			t.Fatalf("not the same when it is put again:\n%s\n%s", dump(b), dump(got))
		}
	})
}
