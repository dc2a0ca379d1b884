package logged

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A pieced is a write whose values stand apart, as a log has it.
type pieced struct {
	body   []byte
	pieces map[uint64][]byte // by position
	at     []uint64
}

// read is what Join asks.
func (p *pieced) read(at uint64) ([]byte, error) {
	if b, ok := p.pieces[at]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("nothing at %d: %w", at, errGone)
}

var errGone = errors.New("gone")

// pieces writes a flight as the store does whose record may have so many bytes.
func pieces(f *flight.Flight, most int) *pieced {
	p := &pieced{pieces: map[uint64][]byte{}}
	for i := range Pieces(f, most) {
		b := bytes.Repeat([]byte{0xee}, PieceSize(f, i, most))
		PutPiece(b, f, i, most)
		at := uint64(1000 + 7*i)
		p.at, p.pieces[at] = append(p.at, at), b
	}
	p.body = bytes.Repeat([]byte{0xee}, SizeApart(f, most))
	PutApart(p.body, f, most, p.at)
	return p
}

// joined returns what a body says of its keys, with the values that stand apart.
func (p *pieced) joined() (list []base.Effect, err error) {
	w, err := Parse(p.body)
	if err != nil {
		return nil, err
	}
	for e := range w.Effects {
		if e.Apart {
			value := make([]byte, Length(&e))
			if err := w.JoinTo(value, e, p.read); err != nil {
				return nil, err
			}
			if e.Value, err = w.Join(e, p.read); err != nil {
				return nil, err
			}
			if !bytes.Equal(value, e.Value) {
				return nil, errors.New("Join and JoinTo do not agree")
			}
			e.Apart = false
		}
		list = append(list, e)
	}
	return list, nil
}

// TestPiecesAreTheValue: whatever a write is, its pieces and its record say the same as one
// record would, no piece is larger than allowed, nor is the record if the keys leave room.
func TestPiecesAreTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFlight(t)
		if Size(f) == 0 {
			return
		}
		most := rapid.IntRange(pieceHead+1, pieceHead+50).Draw(t, "most")
		if rapid.Bool().Draw(t, "larger") {
			most = rapid.IntRange(pieceHead+50, 3000).Draw(t, "most of a larger frame")
		}
		p := pieces(f, most)
		for at, b := range p.pieces {
			got, err := ParsePiece(b)
			if err != nil || len(b) > most || !IsPiece(b) || got.Version != f.Version {
				t.Fatalf("the piece at %d: %d bytes, at most %d, version %v: %v", at, len(b), most, got.Version, err)
			}
			if again := encodePiece(&got); !bytes.Equal(again, b) {
				t.Fatalf("the piece at %d is\n%swhen it is put again, and was\n%s", at, dump(again), dump(b))
			}
		}
		var want, told []string
		whole := pieced{body: put(f)}
		list, err := whole.joined()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			want = append(want, event(&e))
		}
		if list, err = p.joined(); err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			told = append(told, event(&e))
		}
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Fatalf("with pieces:\n%s\nwithout:\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
		w, err := Parse(p.body)
		if err != nil {
			t.Fatal(err)
		}
		// If it is not small enough, it is as small as it can be.
		least := Size(f)
		for _, e := range list {
			n := (len(e.Value) + most - pieceHead - 1) / (most - pieceHead)
			least -= max(0, len(e.Value)-16-8*n)
		}
		if len(p.body) > max(most, least) {
			t.Fatalf("a record of %d bytes, at most %d, and %d with all values apart", len(p.body), most, least)
		}
		if len(p.at) > 0 && !Apart(f, most) {
			t.Fatalf("%d pieces of a write of %d bytes, of which %d are allowed", len(p.at), Size(f), most)
		}
		if !bytes.Equal(putWrite(&w), p.body) {
			t.Fatalf("not the same when it is put again:\n%s", dump(p.body))
		}
	})
}

// encodePiece makes the body of a parsed piece.
func encodePiece(p *Piece) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(p.Version)<<8|2)
	b = le.AppendUint32(le.AppendUint32(b, uint32(p.Index)), uint32(p.Count))
	return append(le.AppendUint64(b, uint64(p.Total)), p.Bytes...)
}

// putWrite puts a parsed write again. A value that stands apart is put as its description,
// and the flag is set by hand: what it is a description of need not be there.
func putWrite(w *Write) []byte {
	b := put(again(w))
	at := w.heads()
	for e := range w.Effects {
		h := parseHead(b[at:])
		if e.Apart {
			b[at] |= flagApart
		}
		at += effectLen + h.words
	}
	return b
}

// TestWhenApart: a write stands apart if its record is larger than allowed, by one byte.
func TestWhenApart(t *testing.T) {
	f := numbered(3, 7, base.Effect{Key: []byte("key"), Value: make([]byte, 1000)}, base.Effect{Key: []byte("a"), Value: make([]byte, apartFrom)})
	if n := Size(f); Apart(f, n) || !Apart(f, n-1) {
		t.Errorf("a record of %d bytes: apart %v, with one less allowed %v", n, Apart(f, n), Apart(f, n-1))
	}
	room := 1000 + pieceHead
	for most, want := range map[int]int{room: 1, room - 1: 2, room + 100: 0, 500 + pieceHead: 2, 499 + pieceHead: 3} {
		if got := Pieces(f, most); got != want {
			t.Errorf("%d pieces of at most %d bytes, want %d", got, most, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Apart(f, 100); Pieces(f, 500); SizeApart(f, 500); PieceSize(f, 0, 500) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFewStandApart: of a batch that is a little too large the largest value stands apart,
// and of one whose values are all alike as many as it takes.
func TestFewStandApart(t *testing.T) {
	alike := many(1000)
	for i := range alike {
		alike[i].Value = make([]byte, 1000)
	}
	f := numbered(3, 7, alike...)
	if n := Pieces(f, Size(f)-2000); n != 3 {
		t.Errorf("%d values of 1000 bytes stand apart, want 3", n)
	}
	alike[700].Value = make([]byte, 50_000)
	f = numbered(3, 7, alike...)
	if n := Pieces(f, Size(f)-2000); n != 1 {
		t.Errorf("%d pieces, want the largest value alone", n)
	}
}

// TestLargestValue: the largest value in the smallest frames that a log has.
func TestLargestValue(t *testing.T) {
	const most = 64<<10 - 100
	value := make([]byte, layout.MaxValueLen)
	for i := 0; i < len(value); i += 4093 {
		value[i] = byte(i)
	}
	p := pieces(numbered(3, 7, base.Effect{Key: make([]byte, layout.MaxKeyLen), Value: value}), most)
	if list, err := p.joined(); err != nil || !bytes.Equal(list[0].Value, value) || len(p.body) > most {
		t.Errorf("%v, with a record of %d bytes", err, len(p.body))
	}
}

// TestJoinRefuses: pieces that are not those of the value are refused, and a description
// that contradicts itself.
func TestJoinRefuses(t *testing.T) {
	le := binary.LittleEndian
	value := bytes.Repeat([]byte("0123456789"), 10)
	one := func(v layout.Version) *flight.Flight {
		return numbered(3, v, base.Effect{Key: []byte("key"), Value: bytes.Clone(value)})
	}
	const most = pieceHead + 40 // three pieces, the last of 20 bytes
	about := headLen + effectLen + 3
	first, second, third := uint64(1000), uint64(1007), uint64(1014)
	for name, tc := range map[string]struct {
		edit func(p *pieced)
		want error
		says string
	}{
		"a piece that is gone":         {func(p *pieced) { delete(p.pieces, second) }, errGone, "piece 1 of 3"},
		"the first one gone":           {func(p *pieced) { delete(p.pieces, first) }, errGone, "piece 0 of 3"},
		"of another write":             {func(p *pieced) { p.pieces[second] = pieces(one(8), most).pieces[second] }, ErrMalformed, "version 0.8, expected"},
		"all of another write":         {func(p *pieced) { maps.Copy(p.pieces, pieces(one(8), most).pieces) }, ErrMalformed, "version 0.8, expected"},
		"another one of the value":     {func(p *pieced) { p.pieces[second] = p.pieces[first] }, ErrMalformed, "piece 0 of 3"},
		"of fewer":                     {func(p *pieced) { le.PutUint32(p.pieces[second][offCount:], 2) }, ErrMalformed, "piece 1 of 2"},
		"of a shorter value":           {func(p *pieced) { le.PutUint64(p.pieces[second][offPieceTotal:], 99) }, ErrMalformed, "of 99 bytes"},
		"all of a longer value":        {func(p *pieced) { p.total(101) }, ErrMalformed, "3 pieces have 100 bytes of a value of 101"},
		"all of a shorter value":       {func(p *pieced) { p.total(99) }, ErrMalformed, "3 pieces have more than the 99"},
		"another byte":                 {func(p *pieced) { p.pieces[third][pieceHead] ^= 1 }, ErrMalformed, "whose sum is"},
		"another sum":                  {func(p *pieced) { p.body[about+offSum] ^= 1 }, ErrMalformed, "whose sum is"},
		"no piece":                     {func(p *pieced) { p.pieces[first] = p.body }, ErrNewer, "a piece of format 1"},
		"the description cut":          {func(p *pieced) { p.cut(8) }, ErrMalformed, "expected 0 of 2"},
		"no position":                  {func(p *pieced) { p.cut(24) }, ErrMalformed, "description of its value has 16 bytes"},
		"half a position":              {func(p *pieced) { p.cut(4) }, ErrMalformed, "description of its value has 36 bytes"},
		"a total beyond all":           {func(p *pieced) { le.PutUint64(p.body[about:], layout.MaxValueLen+1) }, ErrMalformed, "in 3 pieces, must be"},
		"a total of nothing":           {func(p *pieced) { le.PutUint64(p.body[about:], apartFrom) }, ErrMalformed, "24 bytes in 3 pieces, must be"},
		"positions that fall":          {func(p *pieced) { p.body[about+offPositions+8]--; p.body[about+offPositions+8] -= 20 }, ErrMalformed, "a piece at 986 behind one at 1000"},
		"a position twice":             {func(p *pieced) { copy(p.body[about+offPositions+8:], p.body[about+offPositions:][:8]) }, ErrMalformed, "a piece at 1000 behind one at 1000"},
		"a position before all":        {func(p *pieced) { clear(p.body[about+offPositions:][:8]) }, ErrMalformed, "a piece at 0 behind one at 0"},
		"a delete of a value apart":    {func(p *pieced) { p.body[headLen] |= byte(base.OpDelete) }, ErrMalformed, "puts nothing"},
		"a description that is short":  {func(p *pieced) { p.cut(36) }, ErrMalformed, "description of its value has 4 bytes"},
		"nothing in place of a value":  {func(p *pieced) { p.cut(40) }, ErrMalformed, "description of its value has 0 bytes"},
		"a piece that has no bytes":    {func(p *pieced) { p.pieces[second] = p.pieces[second][:pieceHead] }, ErrMalformed, "has nothing of a value"},
		"a piece of one, with a rest":  {func(p *pieced) { le.PutUint32(p.pieces[first][offCount:], 1) }, ErrMalformed, "is all there is"},
		"a piece of more than a value": {func(p *pieced) { le.PutUint64(p.pieces[first][offPieceTotal:], 41) }, ErrMalformed, "one of 3, of a value of 41"},
		"a piece of a value too large": {func(p *pieced) { le.PutUint64(p.pieces[first][offPieceTotal:], layout.MaxValueLen+1) }, ErrMalformed, "at most 67108864"},
		"a piece behind the last":      {func(p *pieced) { le.PutUint32(p.pieces[first][offIndex:], 3) }, ErrMalformed, "piece 3 of 3"},
		"a piece of no version":        {func(p *pieced) { clear(p.pieces[first][1:8]) }, ErrMalformed, "without a version"},
	} {
		p := pieces(one(7), most)
		tc.edit(p)
		_, err := p.joined()
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q and %q", name, err, tc.says, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is no line", name, err)
		}
	}
	w, err := Parse(put(one(7)))
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.Effects {
		if _, err := w.Join(e, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("a value that stands in its record is joined: %v", err)
		}
	}
}

// total gives all pieces, and the description, another total.
func (p *pieced) total(n uint64) {
	for _, b := range p.pieces {
		binary.LittleEndian.PutUint64(b[offPieceTotal:], n)
	}
	binary.LittleEndian.PutUint64(p.body[headLen+effectLen+3:], n)
}

// cut takes bytes off the description, which ends the body.
func (p *pieced) cut(n int) {
	p.body = p.body[:len(p.body)-n]
	at := p.body[headLen+offValueLen:]
	binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)-uint32(n))
}

// TestPutApartPanics: pieces and positions that nobody could join are not put.
func TestPutApartPanics(t *testing.T) {
	f := numbered(3, 7, base.Effect{Key: []byte("key"), Value: make([]byte, 100)})
	const most = pieceHead + 40
	for name, do := range map[string]func(){
		"a position too few":       func() { PutApart(make([]byte, SizeApart(f, most)), f, most, []uint64{1, 2}) },
		"a position too many":      func() { PutApart(make([]byte, SizeApart(f, most)), f, most, []uint64{1, 2, 3, 4}) },
		"positions that fall":      func() { PutApart(make([]byte, SizeApart(f, most)), f, most, []uint64{1, 3, 2}) },
		"a byte too few":           func() { PutApart(make([]byte, SizeApart(f, most)-1), f, most, []uint64{1, 2, 3}) },
		"a piece in one byte less": func() { PutPiece(make([]byte, most-1), f, 0, most) },
		"a piece behind the last":  func() { PieceSize(f, 3, most) },
		"a frame of heads":         func() { Pieces(f, pieceHead) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
}

// FuzzParsePiece: any bytes are taken as a piece or refused, and what is taken has one
// encoding and no more memory than there are bytes.
func FuzzParsePiece(f *testing.F) {
	p := pieces(numbered(3, 7, base.Effect{Key: []byte("key"), Value: make([]byte, 100)}), pieceHead+40)
	for _, b := range p.pieces {
		f.Add(b)
		f.Add(b[:pieceHead])
	}
	f.Add([]byte{})
	f.Add(append([]byte{pieceFormat}, bytes.Repeat([]byte{0xff}, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		keep := bytes.Clone(b)
		got, err := ParsePiece(b)
		if !bytes.Equal(b, keep) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if !errors.Is(err, ErrNewer) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is of no type", err)
			}
			return
		}
		if !IsPiece(b) || !bytes.Equal(encodePiece(&got), b) {
			t.Fatalf("not the same when it is put again:\n%s", dump(b))
		}
		if got.Total > layout.MaxValueLen || got.Count > got.Total || got.Index >= got.Count {
			t.Fatalf("%+v", got)
		}
	})
}

// FuzzJoin: a value that stands apart under any description, of any pieces, is joined or
// refused, and what is joined has the length and the sum that the description says.
func FuzzJoin(f *testing.F) {
	value := bytes.Repeat([]byte("0123456789"), 10)
	p := pieces(numbered(3, 7, base.Effect{Key: []byte("key"), Value: value}), pieceHead+40)
	first, second, third := p.pieces[1000], p.pieces[1007], p.pieces[1014]
	f.Add(p.body, first, second, third)
	f.Add(p.body, second, first, third)
	f.Add(p.body[:len(p.body)-8], first, second, third)
	f.Fuzz(func(t *testing.T, body, first, second, third []byte) {
		p := pieced{body: body, pieces: map[uint64][]byte{1000: first, 1007: second, 1014: third}}
		w, err := Parse(body)
		if err != nil {
			return
		}
		for e := range w.Effects {
			if !e.Apart {
				continue
			}
			value, err := w.Join(e, p.read)
			if err != nil {
				if !errors.Is(err, ErrNewer) && !errors.Is(err, ErrMalformed) && !errors.Is(err, errGone) {
					t.Fatalf("%v is of no type", err)
				}
				continue
			}
			if len(value) != Length(&e) || uint64(len(value)) != binary.LittleEndian.Uint64(e.Value) {
				t.Fatalf("a value of %d bytes, expected %d", len(value), Length(&e))
			}
			sum := make([]byte, apartFrom)
			putDescription(sum, value, []uint64{1})
			if !bytes.Equal(sum[offSum:offPositions], e.Value[offSum:offPositions]) {
				t.Fatal("a value of another sum")
			}
		}
	})
}
