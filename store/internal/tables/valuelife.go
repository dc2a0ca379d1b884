package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// What becomes of a table of values: it is sealed, the base takes it, and its file goes when no
// record of the log leads there.

// Used says where the record stands that leads to a value: its file stays as long as that
// record may be read (Forget).
func (v *Values) Used(b *base.Bytes, at uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tables[b.Table]
	if t == nil {
		return
	}
	t.unused--
	t.last = max(t.last, at)
}

// Found says of a record of an earlier life what Used says of one of this life.
//
// Errors: *base.CorruptError if the file is missing.
func (v *Values) Found(b *base.Bytes, at uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tables[b.Table]
	if t == nil {
		return missingValues(v.cfg.FS.PathJoin(v.cfg.Dir, NameOfValues(b.Table)))
	}
	t.last = max(t.last, at)
	return nil
}

// missingValues is the error about a table of values that is not there.
func missingValues(path string) error {
	return &base.CorruptError{File: path, Detail: "missing, and the log leads to values in it"}
}

// A Sealed is a table of values that is whole, and not in the base.
type Sealed struct {
	Number uint64
	Path   string
}

// Seal ends the tables that were begun, and returns those that the base is to take, by their
// numbers. Puts go on meanwhile, into the next table.
func (v *Values) Seal() []Sealed {
	v.sealing.Lock()
	defer v.sealing.Unlock()
	for _, t := range v.ended() {
		v.finish(t)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []Sealed
	for _, t := range v.tables {
		if t.state == valuesWhole {
			list = append(list, Sealed{t.number, t.path})
		}
	}
	slices.SortFunc(list, func(a, b Sealed) int { return compareNumbers(a.Number, b.Number) })
	return list
}

// ended takes all tables that were begun off those to which puts go.
func (v *Values) ended() []*valueTable {
	v.writing.Lock()
	defer v.writing.Unlock()
	list := v.full
	if v.open != nil {
		list = append(list, v.open)
	}
	v.full, v.open = nil, nil
	return list
}

func compareNumbers(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Taken says that the base has tables.
func (v *Values) Taken(list []Sealed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range list {
		if t := v.tables[s.Number]; t != nil && t.state == valuesWhole {
			t.state = valuesTaken
			v.counts[t.number] = int(t.count)
			v.waiting -= t.size
		}
	}
}

// Gone says that values were deleted from the base.
func (v *Values) Gone(list []base.Bytes) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range list {
		if n, known := v.counts[list[i].Table]; known && n > 1 {
			v.counts[list[i].Table] = n - 1
		} else {
			delete(v.counts, list[i].Table)
		}
	}
}

// Count is how many values a table has in the base that it took in this life: those that were put
// there, without those that Gone was told of. known: it is such a table.
func (v *Values) Count(table uint64) (n int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, known = v.counts[table]
	return n, known
}

// Ingestible says whether the values of a table come into the base with it: it is one of this
// life, and was not cut. If not, each has to be copied, unless the base has it.
func (v *Values) Ingestible(table uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tables[table]
	return t != nil && (t.state == valuesWhole || t.state == valuesTaken)
}

// Waiting is how many bytes of values the base does not have, at most.
func (v *Values) Waiting() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waiting
}

// Forget removes the files to which no record of the log from before on leads, if the base has
// what was read there. It has all records before the position place; somebody may read them from
// before on, which is no later. A file that cannot be removed is tried again by the next call.
// kept says that a file stays only because of before: the caller calls again when that is later.
func (v *Values) Forget(before, place uint64) (kept bool) {
	v.mu.Lock()
	var gone []*valueTable
	for _, t := range v.tables {
		if t.state == valuesCut && !t.copied && t.unused == 0 && t.last < place {
			t.copied = true
			v.waiting -= t.size
		}
		if (t.state == valuesTaken || t.state == valuesCut) && t.unused == 0 && t.last < place {
			if t.last < before {
				gone = append(gone, t)
			} else {
				kept = true
			}
		}
	}
	v.mu.Unlock()
	for _, t := range gone {
		if err := v.cfg.FS.Remove(t.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		v.mu.Lock()
		delete(v.tables, t.number)
		v.mu.Unlock()
	}
	return kept
}

// Read reads the bytes of a value, of which the caller knows that the log has its record. They
// are not verified. into has exactly Length bytes.
//
// Errors: *base.CorruptError if they are not there, *ValuesError.
func (v *Values) Read(b *base.Bytes, into []byte) error {
	path := v.cfg.FS.PathJoin(v.cfg.Dir, NameOfValues(b.Table))
	f, err := v.cfg.FS.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missingValues(path)
	}
	if err != nil {
		return &ValuesError{Op: "open", File: path, Err: err}
	}
	n, err := f.ReadAt(into, int64(b.Offset))
	if n == len(into) {
		return f.Close()
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); statErr == nil && info.Size() < int64(b.Offset)+int64(len(into)) {
		return &base.CorruptError{File: path, Detail: fmt.Sprintf("%d bytes, and a value of %d is expected at offset %d", info.Size(), len(into), b.Offset)}
	}
	return &ValuesError{Op: "read", File: path, Err: err}
}

// Close gives up the tables that were begun and not sealed. What was flushed is there.
func (v *Values) Close() {
	v.sealing.Lock()
	defer v.sealing.Unlock()
	for _, t := range v.ended() {
		// What was not flushed belongs to writes that nobody is told of. A disk that hangs is
		// not waited for.
		t.flushing.Lock()
		if t.err == nil {
			t.err = errCut
		}
		t.flushing.Unlock()
		v.cut(t)
	}
}
