package logged

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The description of a value that stands apart, in the place of the value:
//
//	 0       8     16
//	+-------+-----+-----------+
//	| total | sum | positions |
//	| 64    | 64  | 64 each   |
//	+-------+-----+-----------+
//
//	total      bytes of the value
//	sum        xxh3-64 of the value
//	positions  in the log, of its pieces (piece.go), in their order. They rise
//
// Of a write whose record would be too large only as many values stand apart as it takes:
// the larger ones before the smaller ones (split). If that is not enough, all do that are
// larger than their description, so no record of that write can be smaller: with n keys it
// has at most 64 n bytes, and 8 more for each piece, beside the keys themselves and what
// Size counts for the result and for what is forgotten. A put of 64 MiB in pieces of
// 256 KiB has 2 KiB of positions; the record of a batch of 4 MiB has up to 4.4 MiB. If the
// keys of a batch do not fit, the log refuses the record: such a log is too small for it.
const (
	offTotal     = 0
	offSum       = offTotal + 8
	offPositions = offSum + 8

	// apartFrom is how many bytes a value has at most that never stands apart.
	apartFrom = offPositions + 8
)

// describedLen is the length of the description of a value that has so many pieces.
func describedLen(pieces int) int { return offPositions + 8*pieces }

// describes says whether a description can have a length.
func describes(n uint32) bool { return n >= apartFrom && (n-offPositions)%8 == 0 }

// Apart says whether the record of a write would have more bytes than most: the write then
// goes into the log as pieces (PutPiece) and behind them its record (PutApart), both with
// the same most. A record of the log has at most as many bytes of body as a frame has room
// for beside its head and that of the record.
func Apart(f *flight.Flight, most int) bool { return Size(f) > most }

// SizeApart returns how many bytes PutApart writes.
func SizeApart(f *flight.Flight, most int) int { return size(f, splitOf(f, most)) }

// PutApart writes a write into b as Put does, of exactly SizeApart bytes, with descriptions
// in the place of its values. at has the positions of the pieces, which rise.
//
// It panics as Put does, and if at has not a position for each piece.
func PutApart(b []byte, f *flight.Flight, most int, at []uint64) {
	if n := Pieces(f, most); n != len(at) {
		panic(fmt.Sprintf("store: %d positions of %d pieces", len(at), n))
	}
	encode(b, f, splitOf(f, most), at)
}

// putDescription writes the description of a value.
func putDescription(b, value []byte, at []uint64) {
	le := binary.LittleEndian
	le.PutUint64(b[offTotal:], uint64(len(value)))
	le.PutUint64(b[offSum:], xxh3.Hash(value))
	last := uint64(0)
	for i, p := range at {
		if p <= last {
			panic(fmt.Sprintf("store: a piece at %d behind one at %d", p, last))
		}
		le.PutUint64(b[offPositions+8*i:], p)
		last = p
	}
}

// checkApart verifies the descriptions of the values, which are there.
func (w *Write) checkApart() error {
	if !w.apart {
		return nil
	}
	for e := range w.Effects {
		if !e.Apart {
			continue
		}
		if err := checkDescription(e.Value); err != nil {
			return fmt.Errorf("the value of key %.40q: %w", e.Key, err)
		}
	}
	return nil
}

// checkDescription verifies a description.
func checkDescription(b []byte) error {
	if uint64(len(b)) > 1<<32-1 || !describes(uint32(len(b))) {
		return malformed("a description of %d bytes", len(b))
	}
	le := binary.LittleEndian
	total, n := le.Uint64(b[offTotal:]), uint64(len(b)-offPositions)/8
	if total > layout.MaxValueLen || total < n || total <= apartFrom {
		return malformed("%d bytes in %d pieces, must be more than %d and at most %d", total, n, apartFrom, layout.MaxValueLen)
	}
	last := uint64(0)
	for at := offPositions; at < len(b); at += 8 {
		next := le.Uint64(b[at:])
		if next <= last {
			return malformed("a piece at %d behind one at %d", next, last)
		}
		last = next
	}
	return nil
}

// Length returns how many bytes the value of an effect has: also of one that stands apart,
// for which JoinTo needs so many.
func Length(e *base.Effect) int {
	if e.Bytes != nil {
		return int(e.Bytes.Length)
	}
	if !e.Apart {
		return len(e.Value)
	}
	return int(binary.LittleEndian.Uint64(e.Value[offTotal:]))
}

// Join returns the value of an effect of this write that stands apart. read returns the
// body of the record at a position; it may be good until the next call only. What read
// returns is not trusted: the value is the one that was put, or there is an error.
//
// Errors: ErrNewer, ErrMalformed, and what read returns.
func (w *Write) Join(e base.Effect, read func(at uint64) (body []byte, err error)) ([]byte, error) {
	j, err := w.join(&e, read)
	if err != nil {
		return nil, err
	}
	// The first piece agrees about the total, so its memory is not asked for in vain.
	value := make([]byte, j.total)
	return value, j.into(value)
}

// JoinTo is Join into memory of the caller's, which has exactly Length bytes. After an
// error it has anything.
func (w *Write) JoinTo(value []byte, e base.Effect, read func(at uint64) (body []byte, err error)) error {
	j, err := w.join(&e, read)
	if err != nil {
		return err
	}
	if len(value) != j.total {
		panic(fmt.Sprintf("store: a value of %d bytes in %d", j.total, len(value)))
	}
	return j.into(value)
}

// A joint is a value that is put together.
type joint struct {
	version layout.Version
	about   []byte // the description
	total   int
	count   int
	read    func(at uint64) ([]byte, error)
	first   []byte // the bytes of the first piece
}

// join verifies the description and the first piece.
func (w *Write) join(e *base.Effect, read func(at uint64) ([]byte, error)) (joint, error) {
	if !e.Apart {
		return joint{}, malformed("a value that does not stand apart is to be joined")
	}
	if err := checkDescription(e.Value); err != nil {
		return joint{}, err
	}
	j := joint{version: w.Version, about: e.Value, total: Length(e), count: (len(e.Value) - offPositions) / 8, read: read}
	err := error(nil)
	j.first, err = j.piece(0)
	return j, err
}

// piece reads a piece and verifies that it is the one.
func (j *joint) piece(i int) ([]byte, error) {
	at := binary.LittleEndian.Uint64(j.about[offPositions+8*i:])
	body, err := j.read(at)
	if err != nil {
		return nil, fmt.Errorf("piece %d of %d of a value: %w", i, j.count, err)
	}
	p, err := ParsePiece(body)
	switch {
	case err != nil:
		return nil, err
	case p.Version != j.version || p.Index != i || p.Count != j.count || p.Total != j.total:
		return nil, malformed("piece %d of %d of %d bytes of version %v, expected %d of %d of %d bytes of version %v",
			p.Index, p.Count, p.Total, p.Version, i, j.count, j.total, j.version)
	}
	return p.Bytes, nil
}

// into puts the value into memory that is as large.
func (j *joint) into(value []byte) error {
	n := 0
	for i, part := 0, j.first; ; {
		if len(part) > len(value)-n {
			return malformed("%d pieces have more than the %d bytes of their value", i+1, len(value))
		}
		n += copy(value[n:], part)
		if i++; i == j.count {
			break
		}
		next, err := j.piece(i)
		if err != nil {
			return err
		}
		part = next
	}
	if n != len(value) {
		return malformed("%d pieces have %d bytes of a value of %d", j.count, n, len(value))
	}
	if sum, want := xxh3.Hash(value), binary.LittleEndian.Uint64(j.about[offSum:]); sum != want {
		return malformed("a value whose sum is %016x, expected %016x", sum, want)
	}
	return nil
}
