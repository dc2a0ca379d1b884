package disk

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Values in tables of values. The bytes stand as they are, under keys of their own, which are
// the only ones of kind bytes:
//
//	 0        2      3       11       15
//	+--------+------+-------+--------+------+
//	| 0xffff | kind | table | number | part |
//	| 16 BE  | 8: 6 | 64 BE | 32 BE  | 8    |      part 0: the bytes; 1: nothing, it ends their block
//	+--------+------+-------+--------+------+
//
// The record of the user's key, under kind data, notes the value as apart.go says, with flag 4,
// and behind the sum where it stands:
//
//	+------------------------------+----------+----------+----------+----------+
//	| head, with flags 2 and 4     | checksum | length   | sum      | place    |
//	| as of any record             | 64       | 64       | 64       | 64 + 64  |
//	+------------------------------+----------+----------+----------+----------+
//
//	place  the table and the number
//
// Under kind value, where a value would stand that is apart, there is a plain record of the same
// version whose value is the place, and the length behind it. It is shorter than any value that stands apart. Who replaces
// or deletes the key finds there, without a look at the record, which bytes nobody refers to
// any more: so at one moment the base has bytes that no record notes only of writes that are
// behind its position in the log, and those that the valuesMark lists.

// KindBytes is the kind of values in tables of values.
const KindBytes Kind = 6

const (
	flagPlaced = 1 << 2

	offPlaceTable  = 0
	offPlaceNumber = offPlaceTable + 8
	placeLen       = offPlaceNumber + 8
)

// BytesPrefix is what the keys of all values in tables begin with.
func BytesPrefix() []byte { return AppendKey(nil, StoreShard, KindBytes, nil) }

// AppendBytesKey appends the Pebble key of a value in a table.
func AppendBytesKey(dst []byte, table uint64, number uint32) []byte {
	return tables.ValueKey(dst, BytesPrefix(), table, number)
}

// parseBytesKey splits such a key, or that of a mark.
func parseBytesKey(pkey []byte) (table uint64, number uint32, ok bool) {
	if len(pkey) != keyPrefixLen+13 {
		return 0, 0, false
	}
	b := pkey[keyPrefixLen:]
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), true
}

// PlacedSize returns the length of a record whose value stands in a table.
func PlacedSize(expiry bool) int { return RecordSize(noteLen+placeLen, expiry) }

// PutPlaced writes a record whose value stands in a table into b, which must have exactly
// PlacedSize bytes. pkey is the Pebble key it will stand under, of kind data.
func PutPlaced(b, pkey []byte, v layout.Version, expiry uint64, at *base.Bytes) {
	var value [noteLen + placeLen]byte
	le := binary.LittleEndian
	le.PutUint64(value[offNoteLength:], at.Length)
	le.PutUint64(value[offNoteSum:], at.Sum)
	putPlace(value[noteLen:], at.Table, at.Number)
	PutRecord(b, pkey, Record{Version: v, Expiry: expiry, Value: value[:]})
	end := len(b) - len(value) - 8
	b[offFlags] |= flagApart | flagPlaced
	le.PutUint64(b[end:], recordSum(pkey, b[:end], b[end+8:]))
}

// PlaceSize is the length of the record under kind value of a value in a table.
const PlaceSize = RecordHeader + deadLen

// deadLen is the length of a place with the length of the value.
const deadLen = placeLen + 8

// PutPlace writes that record into b, which must have exactly PlaceSize bytes.
func PutPlace(b, pkey []byte, v layout.Version, at *base.Bytes) {
	var value [deadLen]byte
	putDead(value[:], at)
	PutRecord(b, pkey, Record{Version: v, Value: value[:]})
}

// putDead writes a place and the length of the value.
func putDead(b []byte, at *base.Bytes) {
	putPlace(b, at.Table, at.Number)
	binary.LittleEndian.PutUint64(b[placeLen:], at.Length)
}

// parseDead reads a place and the length of the value.
func parseDead(b []byte) (at base.Bytes, err error) {
	at.Table, at.Number, err = parsePlace(b)
	at.Length = binary.LittleEndian.Uint64(b[placeLen:])
	if err == nil && at.Length > layout.MaxValueLen {
		err = fmt.Errorf("it notes a value of %d bytes, at most %d can be", at.Length, layout.MaxValueLen)
	}
	return at, err
}

func putPlace(b []byte, table uint64, number uint32) {
	binary.LittleEndian.PutUint64(b[offPlaceTable:], table)
	binary.LittleEndian.PutUint64(b[offPlaceNumber:], uint64(number))
}

// parsePlace reads a place.
func parsePlace(b []byte) (table uint64, number uint32, err error) {
	table = binary.LittleEndian.Uint64(b[offPlaceTable:])
	n := binary.LittleEndian.Uint64(b[offPlaceNumber:])
	if table == 0 || n >= 1<<32 {
		return 0, 0, fmt.Errorf("it notes value %d of table %d, which cannot be", n, table)
	}
	return table, uint32(n), nil
}

// placed reads the place of a note.
func (n *Note) placed(b []byte) (err error) {
	n.Table, n.Number, err = parsePlace(b)
	return err
}

// key makes the key under which a value stands out of that of its record, in the same memory
// if that has room.
func (n *Note) key(pkey []byte) []byte {
	if n.Table != 0 {
		return AppendBytesKey(pkey[:0], n.Table, n.Number)
	}
	pkey[keyPrefixLen-1] = byte(KindValue)
	return pkey
}

// value is what stands under that key, as a record of the version that notes it.
func (n *Note) value(b, pkey []byte, v layout.Version) (Record, error) {
	if n.Table != 0 {
		return Record{Version: v, Value: b}, nil
	}
	return ParseRecord(b, pkey)
}

// Place says at which value of a table the walk stands, which Seek has found; ok: it stands
// at the place of one, and not at a value.
func (w *ValueWalk) Place() (at base.Bytes, ok bool, err error) {
	defer guard(&err)
	lazy := w.it.LazyValue()
	if lazy.Len() != PlaceSize {
		return base.Bytes{}, false, nil
	}
	b, err := w.it.ValueAndErr()
	if err != nil {
		return base.Bytes{}, false, err
	}
	rec, err := ParseRecord(b, w.it.Key())
	if err == nil && len(rec.Value) == deadLen {
		at, err = parseDead(rec.Value)
		return at, err == nil, err
	}
	return base.Bytes{}, false, errors.Join(err, errNoPlace)
}

var errNoPlace = errors.New("a record under kind value is neither a value nor a place")

// HasBytes says whether the base has a value of a table, at the moment of the walk. Behind it
// the walk stands elsewhere: what Seek has found last is to be looked for again.
func (w *ValueWalk) HasBytes(table uint64, number uint32) (_ bool, err error) {
	defer guard(&err)
	w.key = AppendBytesKey(w.key[:0], table, number)
	if !w.it.SeekGE(w.key) {
		return false, w.it.Error()
	}
	return string(w.it.Key()) == string(w.key), nil
}

// A ValuesMark is what the base says of tables of values, under the name "values" of the store's
// kind meta. It is written by the ingest of a checkpoint, like the position.
//
//	 0       8        16
//	+-------+--------+-----------------+
//	| table | number | dead            |
//	| 64    | 64     | (64+64+64) each |
//	+-------+--------+-----------------+
type ValuesMark struct {
	// Table and Number are the newest value that a record before the base's position leads
	// to. Of what is behind it the base may have some, which came with the table: each is of a
	// record behind the position, or of none.
	Table  uint64
	Number uint32
	// Dead are values in the base to which no record leads any more. A later checkpoint deletes
	// them: the next one, or that which finds all values of their table dead.
	Dead []base.Bytes // tables, numbers and lengths
}

// ValuesMarkKey is the key of Pebble under which the mark stands.
func ValuesMarkKey() []byte { return metaKey(metaValues) }

// Encode returns the value of the record.
func (m *ValuesMark) Encode() []byte {
	b := make([]byte, placeLen+deadLen*len(m.Dead))
	putPlace(b, m.Table, m.Number)
	for i := range m.Dead {
		putDead(b[placeLen+deadLen*i:], &m.Dead[i])
	}
	return b
}

// ParseValuesMark verifies the value of the record; nil: there is none.
func ParseValuesMark(b []byte) (m ValuesMark, err error) {
	if b == nil {
		return m, nil
	}
	if len(b) < placeLen || (len(b)-placeLen)%deadLen != 0 {
		return m, &base.CorruptError{Shard: StoreShard, Key: []byte(metaValues), Detail: fmt.Sprintf("%d bytes", len(b))}
	}
	m.Table, m.Number, err = parsePlace(b)
	for at := placeLen; at < len(b) && err == nil; at += deadLen {
		var dead base.Bytes
		dead, err = parseDead(b[at:])
		m.Dead = append(m.Dead, dead)
	}
	if err != nil {
		return m, &base.CorruptError{Shard: StoreShard, Key: []byte(metaValues), Detail: err.Error()}
	}
	return m, nil
}

// ValuesMark returns the mark of the base.
func (b *Base) ValuesMark() (ValuesMark, error) {
	raw, err := getMeta(b.d.db, metaValues)
	if err != nil {
		return ValuesMark{}, err
	}
	return ParseValuesMark(raw)
}

// lists says whether the mark speaks of a value: as one that is to be deleted, or as one behind
// those to which records before the base's position lead.
func (m *ValuesMark) lists(table uint64, number uint32) bool {
	if table > m.Table || table == m.Table && number > m.Number {
		return true
	}
	for i := range m.Dead {
		if m.Dead[i].Table == table && m.Dead[i].Number == number {
			return true
		}
	}
	return false
}
