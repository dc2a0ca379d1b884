package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A record and its value are two keys of Pebble if the value stands apart (apart.go), so
// whoever reads both has to read them of one moment:
//
//	Disk.Read       get, get; an ingest may come in between, so a value that is not the
//	                noted one is looked for again, at last under a snapshot
//	Records.Whole   two iterators of the same moment
//
// At one moment the base has a value exactly where a record notes one, because an ingest
// brings both or neither. If not, the base is damaged, and the reader says so.

// readTries is how often Read looks at a base that changes before it takes a snapshot.
// One ingest between the two gets is rare, two are hardly seen.
const readTries = 2

// Read reads key's record from Pebble as it is now, published or not, with its value
// wherever that stands. The record is good until closer is closed. Errors: ErrNotFound,
// *CorruptError, what the disk said.
func (d *Disk) Read(shard uint16, key []byte) (Record, io.Closer, error) {
	for range readTries {
		rec, closer, torn, err := read(d.db, shard, key)
		switch {
		case err == nil:
			return rec, closer, nil
		case !torn:
			return Record{}, nil, d.Fault(shard, key, err)
		}
	}
	snap := d.db.NewSnapshot()
	rec, closer, _, err := read(snap, shard, key)
	if err != nil {
		_ = snap.Close() // it fails if it is closed already
		return Record{}, nil, d.Fault(shard, key, err)
	}
	return rec, closers{closer, snap}, nil
}

// closers closes the first, and then the second.
type closers [2]io.Closer

func (c closers) Close() error { return errors.Join(c[0].Close(), c[1].Close()) }

// read reads a record and its value. torn: the two do not belong together, which is
// damage if db is of one moment; err says in which way. Damage of either is a
// *CorruptError, all else is as Pebble says it.
func read(db pebble.Reader, shard uint16, key []byte) (rec Record, closer io.Closer, torn bool, err error) {
	pkey := AppendKey(make([]byte, 0, 128), shard, KindData, key)
	b, closer, err := dbGet(db, pkey)
	if err != nil {
		return Record{}, nil, false, err
	}
	rec, note, apart, err := ParseNoted(b, pkey)
	if err == nil && !apart {
		return rec, closer, false, nil
	}
	if closeErr := closer.Close(); closeErr != nil {
		return Record{}, nil, false, closeErr
	}
	if err != nil {
		return Record{}, nil, false, damagedRecord(shard, key, err)
	}
	pkey = note.key(pkey)
	b, closer, err = dbGet(db, pkey)
	if errors.Is(err, pebble.ErrNotFound) {
		return Record{}, nil, true, damagedRecord(shard, key, errNoValue)
	}
	if err != nil {
		return Record{}, nil, false, err
	}
	value, err := note.value(b, pkey, rec.Version)
	if err != nil {
		err = fmt.Errorf("its value, which stands apart: %w", err)
	} else if err = note.Matches(rec.Version, value); err != nil {
		torn = note.Table == 0
	}
	if err != nil {
		_ = closer.Close() // what is wrong with the value counts
		return Record{}, nil, torn, damagedRecord(shard, key, err)
	}
	rec.Value = value.Value
	return rec, closer, false, nil
}

// errNoValue: a record notes a value, and there is none.
var errNoValue = errors.New("its value, which stands apart, is missing")

// damagedRecord says what is wrong with the record of a key.
func damagedRecord(shard uint16, key []byte, err error) *base.CorruptError {
	return &base.CorruptError{Shard: shard, Key: bytes.Clone(key), Detail: err.Error()}
}

// values finds the values of records at the moment of a walk over them. It is made when
// the first is asked for.
type values struct {
	iter *pebble.Iterator
	key  []byte
}

// Noted returns the version and the expiry of the record at which the walk stands, and
// the note of its value, if the value stands apart and the record verifies. It reads no
// value, and never waits for more than the walk itself did.
func (r Records) Noted() (rec Record, note Note, ok bool) {
	lazy := r.iter.LazyValue()
	if n := lazy.Len(); n != NotedSize(false) && n != NotedSize(true) && n != PlacedSize(false) && n != PlacedSize(true) {
		return Record{}, Note{}, false
	}
	b, err := r.Value()
	if err != nil {
		return Record{}, Note{}, false
	}
	rec, note, ok, err = ParseNoted(b, r.Key())
	return rec, note, ok && err == nil
}

// Size returns the length that the record has with its value, and whether the value lies
// apart from the key, so that to read it may wait for the disk.
func (r Records) Size() (n int, apart bool) {
	if rec, note, ok := r.Noted(); ok {
		return RecordSize(int(note.Length), rec.Expiry != 0), true
	}
	lazy := r.iter.LazyValue()
	return lazy.Len(), lazy.Len() >= SeparateFrom
}

// Whole returns the record at which the walk stands, under kind data, with its value
// wherever that stands. It is good until the walk moves, or Whole is called again.
// damage: the record or its value is damaged, and the walk can go on. err: what the disk
// said.
func (r Records) Whole() (rec Record, damage *base.CorruptError, err error) {
	b, err := r.Value()
	if err != nil {
		return Record{}, nil, err
	}
	shard, _, key, ok := ParseKey(r.Key())
	if !ok {
		return Record{}, &base.CorruptError{Detail: fmt.Sprintf("impossible key %x", r.Key())}, nil
	}
	rec, note, apart, fault := ParseNoted(b, r.Key())
	if fault == nil && apart {
		rec.Value, fault, err = r.valueOf(shard, key, rec.Version, note)
	}
	switch {
	case err != nil:
		return Record{}, nil, err
	case fault != nil:
		return Record{}, damagedRecord(shard, key, fault), nil
	}
	return rec, nil, nil
}

// valueOf finds the value that a record notes, at the moment of the walk.
func (r Records) valueOf(shard uint16, key []byte, v layout.Version, note Note) (value []byte, fault, err error) {
	w := r.values
	w.key = note.key(AppendKey(w.key[:0], shard, KindData, key))
	there, err := r.seekValue(w.key)
	if err != nil {
		return nil, nil, err
	}
	if !there {
		return nil, errNoValue, nil
	}
	b, err := Records{iter: w.iter}.Value()
	if err != nil {
		return nil, nil, err
	}
	rec, fault := note.value(b, w.key, v)
	if fault != nil {
		return nil, fmt.Errorf("its value, which stands apart: %w", fault), nil
	}
	if fault := note.Matches(v, rec); fault != nil {
		return nil, fault, nil
	}
	return rec.Value, nil, nil
}

// seekValue goes to the value under a key, and says whether there is one.
func (r Records) seekValue(pkey []byte) (there bool, err error) {
	defer guard(&err)
	if r.values.iter == nil {
		if r.values.iter, err = r.iter.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{}}); err != nil {
			return false, err
		}
	}
	it := r.values.iter
	if !it.SeekGE(pkey) {
		return false, it.Error()
	}
	return bytes.Equal(it.Key(), pkey), nil
}

// Unplaced returns the record at which the walk stands, of kind data or value, as a base has it that has no tables of values: one under kind data notes its value, but not where in a table
// it stands, and one under kind value has the value. Every other record is returned as it is. It is good until the walk moves, or Unplaced is called again. The error is a text for what is
// damaged, or what the disk said.
func (r Records) Unplaced() ([]byte, error) {
	b, err := r.Value()
	if err != nil {
		return nil, err
	}
	_, kind, _, ok := ParseKey(r.Key())
	switch {
	case ok && kind == KindData:
		rec, note, apart, err := ParseNoted(b, r.Key())
		if err != nil || !apart || note.Table == 0 {
			return b, err
		}
		out := make([]byte, NotedSize(rec.Expiry != 0))
		PutNoted(out, r.Key(), rec.Version, rec.Expiry, note)
		return out, nil
	case ok && kind == KindValue && len(b) == PlaceSize:
		rec, err := ParseRecord(b, r.Key())
		if err != nil || len(rec.Value) != deadLen {
			return b, err
		}
		at, err := parseDead(rec.Value)
		if err != nil {
			return nil, err
		}
		return r.placedValue(rec.Version, &at)
	}
	return b, nil
}

// placedValue is the record under kind value of a value that stands in a table, with the value.
func (r Records) placedValue(v layout.Version, at *base.Bytes) ([]byte, error) {
	w := r.values
	w.key = AppendBytesKey(w.key[:0], at.Table, at.Number)
	there, err := r.seekValue(w.key)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, errNoValue
	}
	value, err := Records{iter: w.iter}.Value()
	if err != nil {
		return nil, err
	}
	if uint64(len(value)) != at.Length {
		return nil, fmt.Errorf("a value of %d bytes, expected %d", len(value), at.Length)
	}
	out := make([]byte, RecordSize(len(value), false))
	PutRecord(out, r.Key(), Record{Version: v, Value: value})
	return out, nil
}
