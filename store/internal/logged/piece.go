package logged

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A frame of the log has a bound, and a value may be larger. The record of a write that
// would be larger than its caller allows (Apart) has a description in the place of each
// value (apart.go), and the values stand in pieces, records of their own:
//
//	... | piece | piece | piece | the write | ...
//
// They stand directly before the record of the write, in its order: nothing but facts
// stands in between. Whoever reads the log from its beginning therefore needs the pieces of
// one write at a time. A crash may leave pieces whose write never comes; they are nothing.
//
// The body of a piece:
//
//	 0        1         8       12      16      24
//	+--------+---------+-------+-------+-------+-------+
//	| format | version | index | count | total | bytes |
//	| 8: 2   | 56      | 32    | 32    | 64    |       |
//	+--------+---------+-------+-------+-------+-------+
//
//	version  of the write, as in its record
//	index    of the piece among those of its value, from 0
//	count    how many pieces the value has
//	total    bytes of the whole value
//
// All pieces of a value but the last are as large as the caller allows. A reader does not
// rely on that: it compares their sum with total.
const (
	// pieceFormat stands in front, where the record of a write has Format.
	pieceFormat = 2

	offPieceFormat = 0 // one word with the version
	offIndex       = offPieceFormat + 8
	offCount       = offIndex + 4
	offPieceTotal  = offCount + 4
	pieceHead      = offPieceTotal + 8
)

// A split says which values of a write stand apart: those that are larger than from, in the
// order of the effects, until so many bytes are saved as are needed. Its effects are asked
// for in their order, each once. The zero split is that of a write in one record.
type split struct {
	most int // bytes of a record, and of a piece
	from int
	need int // bytes that are still to be saved
}

// splitOf returns the split of a write whose record may have at most so many bytes. from
// is the largest half, quarter, eighth of that with which the record is small enough, so
// that few values stand apart.
func splitOf(f *flight.Flight, most int) split {
	if most <= pieceHead {
		panic(fmt.Sprintf("store: pieces of at most %d bytes", most))
	}
	whole := split{most: most, from: most / 2, need: Size(f) - most}
	for {
		s := whole
		for _, e := range f.Effects {
			s.pieces(e)
		}
		if s.need <= 0 || whole.from == 0 {
			return whole
		}
		whole.from /= 2
	}
}

// pieces returns in how many pieces the value of the next effect stands; 0: it stands in
// the record.
func (s *split) pieces(e *flight.Effect) int {
	if s.need <= 0 || !e.Puts() || inTable(e) || len(e.Value) <= max(s.from, apartFrom) {
		return 0
	}
	room := s.most - pieceHead
	n := (len(e.Value) + room - 1) / room
	saved := len(e.Value) - describedLen(n)
	if saved <= 0 {
		return 0
	}
	s.need -= saved
	return n
}

// valueLen returns how many bytes stand in the place of the value of the next effect.
func (s *split) valueLen(e *flight.Effect) int {
	if n := s.pieces(e); n > 0 {
		return describedLen(n)
	}
	if inTable(e) {
		return bytesLen
	}
	return len(valueOf(e))
}

// Pieces returns how many pieces the values of a write have whose record may have at most
// so many bytes; 0: it goes in one record, or no value of it can stand apart. Their order
// is that of the effects.
func Pieces(f *flight.Flight, most int) int {
	n, s := 0, splitOf(f, most)
	for _, e := range f.Effects {
		n += s.pieces(e)
	}
	return n
}

// A part is a piece of the value of an effect.
type part struct {
	value        []byte
	index, count int
	room         int // bytes of each piece but the last
}

// partOf returns the piece of a write with a number.
func partOf(f *flight.Flight, number, most int) part {
	i, s := number, splitOf(f, most)
	for _, e := range f.Effects {
		n := s.pieces(e)
		if i < n {
			return part{e.Value, i, n, most - pieceHead}
		}
		i -= n
	}
	panic(fmt.Sprintf("store: piece %d of a write of %d", number, number-i))
}

// bytes returns what stands in the piece.
func (p *part) bytes() []byte {
	return p.value[p.index*p.room : min((p.index+1)*p.room, len(p.value))]
}

// PieceSize returns how many bytes PutPiece writes for a piece: at most as many as the
// record of a write may have.
func PieceSize(f *flight.Flight, i, most int) int {
	p := partOf(f, i, most)
	return pieceHead + len(p.bytes())
}

// PutPiece writes a piece into b, of exactly PieceSize bytes. The pieces of a write come in
// their order, in frames before that of its record, which says where they stand; several
// may stand in one frame. No other write comes in between.
func PutPiece(b []byte, f *flight.Flight, i, most int) {
	p := partOf(f, i, most)
	bytes := p.bytes()
	if len(b) != pieceHead+len(bytes) {
		panic(fmt.Sprintf("store: a piece of %d bytes in %d", pieceHead+len(bytes), len(b)))
	}
	le := binary.LittleEndian
	le.PutUint64(b[offPieceFormat:], uint64(f.Version)<<formatBits|pieceFormat)
	le.PutUint32(b[offIndex:], uint32(p.index))
	le.PutUint32(b[offCount:], uint32(p.count))
	le.PutUint64(b[offPieceTotal:], uint64(len(p.value)))
	copy(b[pieceHead:], bytes)
}

// A Piece is a parsed piece. Bytes aliases the body.
type Piece struct {
	Version layout.Version // of the write that the piece belongs to
	Index   int            // among the pieces of its value
	Count   int
	Total   int // bytes of the whole value; at most layout.MaxValueLen
	Bytes   []byte
}

// IsPiece says whether a body is a piece, and is for ParsePiece instead of Parse.
func IsPiece(body []byte) bool { return len(body) > 0 && body[offPieceFormat] == pieceFormat }

// ParsePiece reads the body of a piece. It takes any bytes.
//
// Errors: ErrNewer, ErrMalformed.
func ParsePiece(body []byte) (Piece, error) {
	le := binary.LittleEndian
	if len(body) > 0 && body[offPieceFormat] != pieceFormat {
		return Piece{}, fmt.Errorf("a piece of format %d, expected %d: %w", body[offPieceFormat], pieceFormat, ErrNewer)
	}
	if len(body) <= pieceHead {
		return Piece{}, malformed("a piece of %d bytes has nothing of a value", len(body))
	}
	index, count := le.Uint32(body[offIndex:]), le.Uint32(body[offCount:])
	total, here := le.Uint64(body[offPieceTotal:]), uint64(len(body)-pieceHead)
	version := layout.Version(le.Uint64(body[offPieceFormat:]) >> formatBits)
	switch {
	case version == 0:
		return Piece{}, malformed("a piece without a version")
	case total > layout.MaxValueLen:
		return Piece{}, malformed("a piece of a value of %d bytes, at most %d", total, layout.MaxValueLen)
	case index >= count:
		return Piece{}, malformed("piece %d of %d", index, count)
	case uint64(count)-1+here > total:
		// Each of the others has at least one byte, so count is bounded by total.
		return Piece{}, malformed("a piece of %d bytes, one of %d, of a value of %d", here, count, total)
	case count == 1 && here != total:
		return Piece{}, malformed("a piece of %d bytes is all there is of a value of %d", here, total)
	}
	return Piece{Version: version, Index: int(index), Count: int(count), Total: int(total), Bytes: body[pieceHead:]}, nil
}
