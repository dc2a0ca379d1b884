package checkpoint

import (
	"bytes"
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// A Sink takes what a base is to have, in strictly rising keys of Pebble. It keeps no
// slice when it returns.
type Sink interface {
	Set(key, value []byte) error
	Delete(key []byte) error
	DeleteRange(start, end []byte) error
	CutHere() // a table may end before the next key
	Cut()     // it does
}

// Values tells which values stand apart in the base, as it is before the ingest.
type Values interface {
	// Seek returns the first key of kind value from a key on, of any shard; nil: there
	// is none. It is good until the next call. The keys that are asked for rise.
	Seek(key []byte) ([]byte, error)
	// Place says where the value stands that Seek has found last, if it is in a table of
	// values.
	Place() (at base.Bytes, ok bool, err error)
	// HasBytes says whether the base has a value of a table. Behind it nothing was found.
	HasBytes(table uint64, number uint32) (bool, error)
}

// Counts say what a Range has written.
type Counts struct {
	Records int // of the log, that the range was made of
	Sets    int // of them Apart are values that stand apart
	Deletes int // of them Dead are values that stood apart
	Apart   int
	Dead    int
	Lookups int // of values in the base
	Bytes   int64
}

// Write writes the range in the order of Pebble's keys. Deletes are always written,
// whatever the base has, because nobody looks: if the one of a key that the base has were
// left out, the key would come back.
//
// A value from disk.SeparateFrom bytes on is written under its own key. The base has a
// value of kind value exactly where the record of the key notes one, because whatever
// puts a record without a note, or deletes one, deletes the value in the same ingest. It
// is not deleted blindly, which would cost a tombstone for each put of a small value: the
// keys of the values that the base has are walked beside the range, from one hit to the
// next, so a shard without values apart costs one look, and one with a few costs a look
// each. values is nil if nobody can tell: then the delete is always written.
func (r *Range) Write(to Sink, values Values) (Counts, error) {
	w := &writer{r: r, to: to, base: walk{values: values}, counts: Counts{Records: int(r.records)}}
	order := r.order()
	for i := 0; i < len(order); {
		shard := uint16(order[i].head >> 48)
		n := i
		for n < len(order) && uint16(order[n].head>>48) == shard {
			n++
		}
		if i > 0 {
			to.CutHere()
		}
		if shard == disk.StoreShard {
			r.settleDead() // all that the base has was looked at
		}
		if err := w.shard(order[i:n]); err != nil {
			return w.counts, err
		}
		i = n
	}
	w.counts.Lookups = w.base.lookups
	return w.counts, w.tables()
}

// A writer is a Range on its way into a Sink.
type writer struct {
	r      *Range
	to     Sink
	base   walk
	ranges [][2][]byte // of values in tables that are deleted, and were not yet
	counts Counts
	key    []byte
	value  []byte
	live   []base.Bytes // values in tables that records of the range note
}

// shard writes the entries of one shard, and behind them the values that stand apart.
func (w *writer) shard(order []place) error {
	for _, p := range order {
		e := w.r.list.at(p.index)
		key := w.r.keyOf(e)
		err := error(nil)
		switch {
		case e.gone:
			err = w.delete(key)
		case e.inTable:
			b := w.r.bytesOf(e)
			w.live = append(w.live, b)
			w.value = sized(w.value, disk.PlacedSize(e.expiry != 0))
			disk.PutPlaced(w.value, key, e.version, e.expiry, &b)
			err = w.set(key, w.value)
		case apart(e, key):
			w.value = sized(w.value, disk.NotedSize(e.expiry != 0))
			disk.PutNoted(w.value, key, e.version, e.expiry, disk.NoteOf(w.r.valueOf(e)))
			err = w.set(key, w.value)
		default:
			w.put(e, key, e.expiry)
			err = w.set(key, w.value)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range order {
		e := w.r.list.at(p.index)
		key := w.r.keyOf(e)
		if disk.Kind(key[2]) > disk.KindData {
			break
		}
		if err := w.valueOf(e, key); err != nil {
			return err
		}
	}
	return nil
}

// valueOf writes what becomes of the value that stands apart under a user's key.
func (w *writer) valueOf(e *entry, key []byte) error {
	w.key = disk.AppendKey(w.key[:0], binary.BigEndian.Uint16(key), disk.KindValue, key[3:])
	there, err := false, error(nil)
	if e.gone || !apart(e, key) || w.r.marked.Table != 0 {
		if there, err = w.base.has(w.key); err != nil {
			return err
		}
	}
	if there && w.base.values != nil {
		// What the base has is replaced: if that is a place, to the bytes there leads nothing.
		dead, ok, err := w.base.values.Place()
		if err != nil {
			return err
		}
		if ok {
			w.r.dropped = append(w.r.dropped, dead)
		}
	}
	if !e.gone && e.inTable {
		b := w.r.bytesOf(e)
		w.value = sized(w.value, disk.PlaceSize)
		disk.PutPlace(w.value, w.key, e.version, &b)
		w.counts.Apart++
		return w.set(w.key, w.value)
	}
	if !e.gone && apart(e, key) {
		w.put(e, w.key, 0)
		w.counts.Apart++
		return w.set(w.key, w.value)
	}
	if !there {
		return nil
	}
	w.counts.Dead++
	return w.delete(w.key)
}

// put makes the record of an entry under a key, in w.value.
func (w *writer) put(e *entry, key []byte, expiry uint64) {
	w.value = sized(w.value, disk.RecordSize(int(e.value), expiry != 0))
	disk.PutRecord(w.value, key, disk.Record{Version: e.version, Expiry: expiry, Value: w.r.valueOf(e)})
}

func (w *writer) set(key, value []byte) error {
	w.counts.Sets++
	w.counts.Bytes += int64(len(key) + len(value))
	return w.to.Set(key, value)
}

func (w *writer) delete(key []byte) error {
	w.counts.Deletes++
	w.counts.Bytes += int64(len(key))
	return w.to.Delete(key)
}

// apart says whether the value of an entry that is no delete stands apart.
func apart(e *entry, key []byte) bool {
	return !e.inTable && disk.Kind(key[2]) == disk.KindData && e.value >= disk.SeparateFrom
}

// sized returns b with a length of n, or new memory.
func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n, max(n, min(2*n, chunkSize)))
	}
	return b[:n]
}

// A walk goes through the values that stand apart in a base, beside keys that rise. It
// has a reason to be a file of its own: the bound of its cost. Each look goes beyond the
// key that is asked for, to the next value that there is; up to there no key needs a
// look. So there are no more looks than values that the base has in between, and no more
// than keys that are asked for.
type walk struct {
	values  Values
	at      []byte // the first value from the newest look on
	begun   bool
	end     bool // there is none from there on
	lookups int
}

// has says whether the base may have a value under a key.
func (w *walk) has(key []byte) (bool, error) {
	if w.values == nil {
		return true, nil
	}
	if w.begun && !w.end && bytes.Compare(w.at, key) < 0 || !w.begun {
		found, err := w.values.Seek(key)
		if err != nil {
			return false, err
		}
		w.begun, w.end = true, found == nil
		w.at = append(w.at[:0], found...)
		w.lookups++
	}
	return !w.end && bytes.Equal(w.at, key), nil
}
