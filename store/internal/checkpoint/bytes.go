package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Values in tables of values (package tables). A record of the log leads to one, and so does the
// record of its key in the base. The bytes come into the base with their table, by the same
// ingest as the records, or by one before; or they are copied, if the table was cut:
//
//	log    | put k v1 | put m v2 | put k v3 |          values    N: v1 v2 v3
//	           dead                                    one ingest: records of k and m, table N, and
//	                                                   the mark, which lists v1
//	a later ingest: v1 is deleted
//
// Each value is accounted for, so nobody searches for those to which nothing leads any more:
//
//   - A record of the range that another supersedes: its value is dropped (Range.drop).
//   - A record of the base that the range replaces or deletes: under kind value stands where its
//     value is, beside which the range is written anyway (writer.valueOf).
//   - A write that was never in the log, because of a crash: its value stands behind all those to
//     which records of its life lead, because values are written in the order of the log. What older
//     tables have behind the mark, and no record of the log leads to, is deleted by the first
//     checkpoint of the next life (Config.Orphans).
//
// What came with a table cannot be deleted by the same ingest, because it would overlap. So the
// mark lists it, which is part of the same ingest, and a later one deletes it (settleDead).

// Bytes are the tables of values; *tables.Values are.
type Bytes interface {
	// Seal ends the table that is written, and returns those that the base has not taken.
	Seal() []tables.Sealed
	// Ingestible says whether the values of a table come into the base with it.
	Ingestible(table uint64) bool
	// Count is how many values a table still has that the base has taken in this life, those that
	// Gone was told of left out; known: it is such a table.
	Count(table uint64) (n int, known bool)
	// Read reads the bytes of a value.
	Read(b *base.Bytes, into []byte) error
}

// bytesShare is how many times the bytes of a range those of its values in tables may have.
const bytesShare = 8

// atLen is the length of where a value stands, in the memory of a range.
const atLen = 5 * 8

// refer is set for a value that stands in a table.
func (r *Range) refer(v layout.Version, expiry uint64, b *base.Bytes) {
	var at [atLen]byte
	le := binary.LittleEndian
	for i, n := range [...]uint64{b.Table, uint64(b.Number), b.Offset, b.Length, b.Sum} {
		le.PutUint64(at[8*i:], n)
	}
	r.set(v, expiry, at[:])
	r.find(0).inTable = true
	r.bytes += int64(b.Length)
	if b.Table > r.mark.Table || b.Table == r.mark.Table && b.Number > r.mark.Number {
		r.mark.Table, r.mark.Number = b.Table, b.Number
	}
}

// bytesOf is where the value of an entry stands.
func (r *Range) bytesOf(e *entry) base.Bytes {
	at, le := r.valueOf(e), binary.LittleEndian
	return base.Bytes{
		Table: le.Uint64(at), Number: uint32(le.Uint64(at[8:])), Offset: le.Uint64(at[16:]), Length: le.Uint64(at[24:]), Sum: le.Uint64(at[32:]),
	}
}

// drop notes that nothing leads to the value of an entry any more, if that stands in a table.
func (r *Range) drop(e *entry) {
	if e.inTable {
		r.dropped = append(r.dropped, r.bytesOf(e))
		e.inTable = false
	}
}

// from says what of tables of values there is when the range is written, and makes the mark.
func (r *Range) from(c *Config, taken []tables.Sealed) {
	r.source, r.taken, r.marked = c.Bytes, taken, c.Mark
	if r.mark.Table == 0 || compareBytes(markOf(&c.Mark), markOf(&r.mark)) > 0 {
		r.mark.Table, r.mark.Number = c.Mark.Table, c.Mark.Number
	}
	r.first = math.MaxUint64
	if len(taken) > 0 {
		r.first = taken[0].Number
	}
	r.deadBytes = c.DeadBytes
	r.dropped = append(r.dropped, c.Mark.Dead...)
	if r.mark.Table != 0 {
		r.key = append(r.key[:0], disk.ValuesMarkKey()...)
		r.set(0, 0, nil) // settleDead says what
	}
	if c.Orphans {
		r.orphans = orphans(markOf(&r.marked), c.Led, c.Older)
	}
}

// orphans are the keys behind the mark, up to those of this life, but for those of values to which the log leads.
// All of them, and not those alone that are behind what the log leads to: of lives that were
// killed before their first checkpoint each has left some between the values of the others.
func orphans(mark base.Bytes, led []base.Bytes, older uint64) (ranges [][2][]byte) {
	led = slices.Clone(led)
	slices.SortFunc(led, compareBytes)
	last := mark
	for _, b := range led {
		next := b.Table == last.Table && b.Number == last.Number+1 // there is nothing in between
		if compareBytes(b, last) > 0 && !next && b.Table < older {
			ranges = append(ranges, [2][]byte{behind(last), disk.AppendBytesKey(nil, b.Table, b.Number)})
		}
		if compareBytes(b, last) > 0 {
			last = b
		}
	}
	if last.Table < older {
		ranges = append(ranges, [2][]byte{behind(last), disk.AppendBytesKey(nil, older, 0)})
	}
	return ranges
}

// markOf is the newest value of a mark.
func markOf(m *disk.ValuesMark) base.Bytes { return base.Bytes{Table: m.Table, Number: m.Number} }

// behind is the first key behind a value and the mark that ends its block.
func behind(b base.Bytes) []byte {
	key := disk.AppendBytesKey(nil, b.Table, b.Number)
	key[len(key)-1] = 2
	return key
}

// settleDead says of all dead values which are deleted now, and makes the mark of the others:
//
//   - Those of a table that comes in with the range wait for the next.
//   - Those of a table that has none but dead ones go: Pebble drops its file unread.
//   - Those of a table with live ones wait until all of it is dead, up to deadBytes. If they were
//     deleted at once, Pebble would write the live ones again, and most of those would be dead
//     soon after. If they waited without a bound, they would fill the disk.
func (r *Range) settleDead() {
	if r.mark.Table == 0 || r.source == nil {
		return
	}
	slices.SortFunc(r.dropped, compareBytes)
	var waiting [][]base.Bytes // by table
	left := int64(0)
	for i := 0; i < len(r.dropped); {
		n, bytes := i, int64(0)
		for n < len(r.dropped) && r.dropped[n].Table == r.dropped[i].Table {
			bytes += int64(r.dropped[n].Length)
			n++
		}
		list := r.dropped[i:n]
		count, known := r.source.Count(list[0].Table)
		switch {
		case list[0].Table >= r.first:
			// One of a table that was cut was never copied, so the base has nothing of it.
			if r.source.Ingestible(list[0].Table) {
				r.mark.Dead = append(r.mark.Dead, list...)
			}
		case known && len(list) < count:
			waiting = append(waiting, list)
			left += bytes
		default:
			r.gone = append(r.gone, list...)
		}
		i = n
	}
	// The tables that have most of them go first: least is written again for each that goes.
	slices.SortStableFunc(waiting, func(a, b []base.Bytes) int { return cmp.Compare(lengthOf(b), lengthOf(a)) })
	for _, list := range waiting {
		if left > r.deadBytes {
			left -= lengthOf(list)
			r.gone = append(r.gone, list...)
		} else {
			r.mark.Dead = append(r.mark.Dead, list...)
		}
	}
	r.key = append(r.key[:0], disk.ValuesMarkKey()...)
	r.set(0, 0, r.mark.Encode())
}

// lengthOf is how many bytes values have.
func lengthOf(list []base.Bytes) (n int64) {
	for i := range list {
		n += int64(list[i].Length)
	}
	return n
}

// tables writes what becomes of values in tables: what is deleted and what is copied, in the one
// order of their keys, which are the last of all. A range that came before copies whose keys are
// in front of it would stand in a table that overlaps the next one.
func (w *writer) tables() error {
	if len(w.r.gone) == 0 && len(w.r.orphans) == 0 && len(w.live) == 0 {
		return nil
	}
	w.to.Cut()
	w.ranges = rangesOf(w.r.gone)
	if len(w.r.orphans) > 0 {
		w.ranges = append(w.ranges, w.r.orphans...)
		slices.SortFunc(w.ranges, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	}
	if err := w.copies(); err != nil {
		return err
	}
	return w.deleteBefore(nil)
}

// rangesOf are the keys of values that the base has, and to which nothing leads. Neighbours go
// as one: if a whole table goes, Pebble drops the file unread.
func rangesOf(gone []base.Bytes) (ranges [][2][]byte) {
	slices.SortFunc(gone, compareBytes)
	for i := 0; i < len(gone); {
		n := i + 1
		for n < len(gone) && gone[n].Table == gone[i].Table && gone[n].Number <= gone[n-1].Number+1 {
			n++
		}
		ranges = append(ranges, [2][]byte{disk.AppendBytesKey(nil, gone[i].Table, gone[i].Number), behind(gone[n-1])})
		i = n
	}
	return ranges
}

// deleteBefore deletes the ranges that begin before a key; nil: all that are left.
func (w *writer) deleteBefore(key []byte) error {
	for len(w.ranges) > 0 && (key == nil || bytes.Compare(w.ranges[0][0], key) < 0) {
		if err := w.to.DeleteRange(w.ranges[0][0], w.ranges[0][1]); err != nil {
			return err
		}
		w.ranges = w.ranges[1:]
	}
	return nil
}

// compareBytes orders values in tables by their keys.
func compareBytes(a, b base.Bytes) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Number, b.Number))
}

// copies brings those values into the base that do not come with their table, because it was
// cut, and that it does not have.
func (w *writer) copies() error {
	if w.r.source == nil {
		if len(w.live) > 0 {
			return fmt.Errorf("%w: values stand in tables, and nobody is given who reads them", ErrRecord)
		}
		return nil
	}
	slices.SortFunc(w.live, compareBytes)
	sealed := w.r.taken
	for i := range w.live {
		b := &w.live[i]
		if w.r.source.Ingestible(b.Table) {
			continue
		}
		key := disk.AppendBytesKey(nil, b.Table, b.Number)
		if err := w.deleteBefore(key); err != nil {
			return err
		}
		for len(sealed) > 0 && sealed[0].Number < b.Table {
			w.to.Cut() // it would overlap that table
			sealed = sealed[1:]
		}
		if w.base.values != nil {
			there, err := w.base.values.HasBytes(b.Table, b.Number)
			if err != nil {
				return err
			}
			if there {
				continue
			}
		}
		value := make([]byte, b.Length)
		if err := w.r.source.Read(b, value); err != nil {
			return err
		}
		if sum := xxh3.Hash(value); sum != b.Sum {
			return &base.CorruptError{File: tables.NameOfValues(b.Table), Detail: fmt.Sprintf(
				"the value of %d bytes at offset %d has sum %016x, expected %016x", b.Length, b.Offset, sum, b.Sum)}
		}
		if err := w.set(key, value); err != nil {
			return err
		}
	}
	return nil
}
