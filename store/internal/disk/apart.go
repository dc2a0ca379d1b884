package disk

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// What stands in a base that checkpoints make, beside the records of format.go. A
// program that does not know it refuses the flag as one of a newer version.
//
// A value from SeparateFrom bytes on stands under a key of its own, of kind value, with
// the user's key behind the kind. Kind value is the last of a shard, so a scan of keys
// meets no value. In place of the value, the record under kind data has a note of it:
//
//	 0                       16/24      24/32      32/40      40/48
//	+-----------------------+----------+----------+----------+
//	| head, with flag 2     | checksum | length   | sum      |
//	| as of any record      | 64       | 64       | 64       |
//	+-----------------------+----------+----------+----------+
//
// The sum is xxh3-64 of the value. The record under kind value is a plain one without
// expiry, which has the version of the write that it comes from: a record that notes a
// value is good only with a value of its own version. Records with values of any length
// are read as well: an upgraded store has them.

// KindValue is the kind of the values that stand apart from their records.
const KindValue Kind = 5

const (
	flagApart = 1 << 1

	offNoteLength = 0
	offNoteSum    = offNoteLength + 8
	noteLen       = offNoteSum + 8
)

// A Note is what a record says of its value, which stands apart.
//
// With a table it stands there, under its number (bytes.go).
type Note struct {
	Length uint64
	Sum    uint64
	Table  uint64 // 0: it stands under kind value
	Number uint32
}

// NoteOf returns the note of a value.
func NoteOf(value []byte) Note { return Note{Length: uint64(len(value)), Sum: xxh3.Hash(value)} }

// NotedSize returns the length of a record whose value stands apart.
func NotedSize(expiry bool) int { return RecordSize(noteLen, expiry) }

// PutNoted writes a record whose value stands apart into b, which must have exactly
// NotedSize bytes. pkey is the Pebble key it will stand under, of kind data.
func PutNoted(b, pkey []byte, v layout.Version, expiry uint64, n Note) {
	var value [noteLen]byte
	binary.LittleEndian.PutUint64(value[offNoteLength:], n.Length)
	binary.LittleEndian.PutUint64(value[offNoteSum:], n.Sum)
	PutRecord(b, pkey, Record{Version: v, Expiry: expiry, Value: value[:]})
	at := len(b) - noteLen - 8
	b[offFlags] |= flagApart
	binary.LittleEndian.PutUint64(b[at:], recordSum(pkey, b[:at], b[at+8:]))
}

// ParseNoted verifies b, which stood under pkey, and returns what it holds: a record
// with its value, or, if apart, one without and the note of its value. The error text is
// a detail for a CorruptError.
func ParseNoted(b, pkey []byte) (r Record, n Note, apart bool, err error) {
	if len(b) <= offFlags || b[offFlags]&flagApart == 0 {
		r, err = ParseRecord(b, pkey)
		return r, Note{}, false, err
	}
	expires := b[offFlags]&flagExpiry != 0
	switch {
	case b[offFormat] != recordFormat:
		return Record{}, Note{}, false, fmt.Errorf("record format %d, expected %d", b[offFormat], recordFormat)
	case len(b) != NotedSize(expires) && (len(b) != PlacedSize(expires) || b[offFlags]&flagPlaced == 0):
		return Record{}, Note{}, false, fmt.Errorf("a record of %d bytes whose value stands apart, expected %d", len(b), NotedSize(expires))
	}
	at := len(b) - noteLen - 8
	if b[offFlags]&flagPlaced != 0 {
		at -= placeLen
	}
	if at < RecordHeader-8 {
		return Record{}, Note{}, false, fmt.Errorf("a record of %d bytes whose value stands in a table, expected %d", len(b), PlacedSize(expires))
	}
	if got, want := recordSum(pkey, b[:at], b[at+8:]), binary.LittleEndian.Uint64(b[at:]); got != want {
		return Record{}, Note{}, false, fmt.Errorf("checksum %016x, expected %016x", got, want)
	}
	if rest := b[offFlags] &^ (flagExpiry | flagApart | flagPlaced); rest != 0 {
		return Record{}, Note{}, false, fmt.Errorf("unknown record flags %#x: written by a newer version", b[offFlags])
	}
	r.Version = layout.Version(binary.LittleEndian.Uint64(b[offVersion:]))
	if expires {
		r.Expiry = binary.LittleEndian.Uint64(b[offExpiry:])
	}
	n.Length = binary.LittleEndian.Uint64(b[at+8+offNoteLength:])
	n.Sum = binary.LittleEndian.Uint64(b[at+8+offNoteSum:])
	if b[offFlags]&flagPlaced != 0 {
		if err := n.placed(b[at+8+noteLen:]); err != nil {
			return Record{}, Note{}, false, err
		}
	}
	if n.Length > layout.MaxValueLen {
		return Record{}, Note{}, false, fmt.Errorf("it notes a value of %d bytes, at most %d can be", n.Length, layout.MaxValueLen)
	}
	return r, n, true, nil
}

// Matches says whether a record under kind value is the value that a note is of, which
// stands in a record of this version. If not, one of both is from before a write of the
// key, and the reader looks again; under one snapshot it is damage.
func (n Note) Matches(v layout.Version, value Record) error {
	switch {
	case value.Version != v:
		return fmt.Errorf("the value is of version %v, the record of %v", value.Version, v)
	case uint64(len(value.Value)) != n.Length:
		return fmt.Errorf("a value of %d bytes, expected %d", len(value.Value), n.Length)
	case xxh3.Hash(value.Value) != n.Sum:
		return fmt.Errorf("the sum of the value does not hold")
	}
	return nil
}

// AppendExpiryKey appends the Pebble key of a key that is listed under a second.
func AppendExpiryKey(dst []byte, shard uint16, second uint64, key []byte) []byte {
	return appendExpiryKey(dst, shard, second, key)
}

// ParseExpiryKey splits the part of such a key behind the kind.
func ParseExpiryKey(b []byte) (second uint64, key []byte, ok bool) { return parseExpiryKey(b) }

// A ValueWalk finds the keys of the values that stand apart in a base, at the moment at
// which it was made. It is used by one goroutine, and closed.
type ValueWalk struct {
	it  *pebble.Iterator
	key []byte
}

// NewValueWalk begins a walk.
func NewValueWalk(db pebble.Reader) (*ValueWalk, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	return &ValueWalk{it: it}, nil
}

// Seek returns the first key of kind value from a key of that kind on, of any shard;
// nil: there is none. It is good until the next call. Shards without values cost a seek
// each, because the records of the next shard stand in between.
func (w *ValueWalk) Seek(key []byte) (_ []byte, err error) {
	defer guard(&err)
	for there := w.it.SeekGE(key); there; there = w.it.SeekGE(w.key) {
		shard, kind, _, ok := ParseKey(w.it.Key())
		switch {
		case !ok:
			return nil, errors.New("a key in the base is shorter than its head")
		case kind == KindValue:
			return w.it.Key(), nil
		case kind == KindBytes && shard == StoreShard:
			return nil, nil // what stands there is no value of a key
		case kind > KindValue:
			return nil, errors.New("a key in the base has a kind of a newer version")
		}
		w.key = AppendKey(w.key[:0], shard, KindValue, nil)
	}
	return nil, w.it.Error()
}

// Close ends the walk.
func (w *ValueWalk) Close() error { return w.it.Close() }
