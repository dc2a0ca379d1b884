package tables

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// Tables of values. The bytes of a large value are written once, at the time of the put, as a
// block of a table that the base takes later by the ingest of a checkpoint:
//
//	Put     bytes ──► NNNNNN.values (open) ──► a record of the log says where they stand
//	Flush   the bytes are durable; then the record is written
//	Seal    the open table gets its index and its end: it is whole
//	Tables.Take, Commit          the base has a link of it
//	Forget  no record of the log leads to the file any more: it goes
//
// Who reads a record of the log finds the bytes by their offset (Read), also in a table that is
// open, or was cut short by a crash or a full disk. A checkpoint reads the values of such a
// table, and brings them into the base as keys of its own.
//
// A key of the bytes is the caller's prefix, the table's number and that of the value, both big
// endian, and a byte: 0 for the bytes, 1 for a mark without a value, which ends their block. So
// numbers rise in the order of the puts, tables never overlap, and an ingest puts each at the
// lowest level of the base.
//
//   - Bytes are durable before their record is written, in every policy. If not, a crash would
//     leave a record whose value does not verify, which looks like damage.
//   - A table that has met an error is never written again: it is cut. What had been flushed is
//     there; for the rest Flush fails.
//   - A full disk is met by Put, which fails, and not by Flush, when the record has its place:
//     room for the file is set aside, or else Put flushes.

// ValuesConfig is where tables of values stand.
type ValuesConfig struct {
	FS      vfs.FS          // the file system of the base
	Options *pebble.Options // what the base was opened with; nil: nothing is written
	Format  sstable.TableFormat
	Dir     string // on the same file system; made if it is missing, unless nothing is written
	Prefix  []byte // of all keys
	Next    uint64 // the least number of a new table; 0: 1
	Limit   int64  // bytes of values with which a table is finished; 0: 64 MiB
}

const defaultLimit = 64 << 20

// Values are the tables of values of a store. Safe for concurrent use.
type Values struct {
	cfg    ValuesConfig
	format sstable.WriterOptions

	writing sync.Mutex    // held by Put, taken before mu
	open    *valueTable   // the one that is written; nil: the next Put begins one. Under writing
	full    []*valueTable // those that are to be finished, by Seal: that takes syncs. Under writing

	sealing sync.Mutex // one Seal at a time, taken before writing

	mu      sync.Mutex
	next    uint64
	tables  map[uint64]*valueTable // whose files are there
	counts  map[uint64]int         // of values that the base has of tables of this life
	waiting int64                  // bytes of tables that the base has not taken
}

// A valueTable is one table. Its writer is used under Values.writing, all else under mu.
type valueTable struct {
	number uint64
	path   string
	state  valueState
	copied bool   // of one that was cut: the base has all its values
	size   int64  // bytes of values
	count  uint32 // values
	unused int    // values whose record has no position yet
	last   uint64 // where the newest record of a value stands in the log

	w   *sstable.Writer // nil: not open
	out *valueWriter

	flushing sync.Mutex // taken behind Values.writing, before Values.mu
	durable  int64      // bytes of the file. Under flushing, as what follows
	err      error      // what is not durable is lost
}

// all is more than any file has.
const all = math.MaxInt64

type valueState uint8

const (
	valuesOpen  valueState = iota
	valuesWhole            // it can be ingested
	valuesTaken            // the base has it
	valuesCut              // it has no end: its values are copied into the base
)

var valuesName = regexp.MustCompile(`^(\d{6,20})\.values$`)

// NameOfValues returns the name of the file of a table of values.
func NameOfValues(number uint64) string { return fmt.Sprintf("%06d.values", number) }

// OpenValues finds what tables of values an earlier life has left: all of them count as cut.
func OpenValues(cfg ValuesConfig) (*Values, error) {
	if cfg.Limit <= 0 {
		cfg.Limit = defaultLimit
	}
	v := &Values{cfg: cfg, next: max(1, cfg.Next), tables: map[uint64]*valueTable{}, counts: map[uint64]int{}}
	if cfg.Options != nil {
		if err := cfg.FS.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, &ValuesError{Op: "make", File: cfg.Dir, Err: err}
		}
		o := cfg.Options.Clone()
		o.EnsureDefaults()
		// Rows, not columns: the value then stands in its block as it is, so its offset is known.
		v.format = o.MakeWriterOptions(6, sstable.TableFormatPebblev2)
		v.format.Compression = block.NoCompression
		v.format.FilterPolicy = nil
		v.format.BlockSize, v.format.BlockSizeThreshold = valueBlock, 90
	}
	names, err := cfg.FS.List(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) && cfg.Options == nil {
		return v, nil
	}
	if err != nil {
		return nil, &ValuesError{Op: "list", File: cfg.Dir, Err: err}
	}
	for _, name := range names {
		m := valuesName.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil || n == 0 || NameOfValues(n) != name || n+1 == 0 {
			continue // none of ours
		}
		path := cfg.FS.PathJoin(cfg.Dir, name)
		info, err := cfg.FS.Stat(path)
		if err != nil {
			return nil, &ValuesError{Op: "look at", File: path, Err: err}
		}
		v.tables[n] = &valueTable{number: n, path: path, state: valuesCut, size: info.Size()}
		v.waiting += info.Size()
		v.next = max(v.next, n+1)
	}
	return v, nil
}

// valueBlock is how large a block becomes before the next key begins another: less than any
// value has, and more than a mark.
const valueBlock = 256

// ValueKey appends the key under which a value stands in the base.
func ValueKey(dst, prefix []byte, table uint64, number uint32) []byte {
	dst = append(dst, prefix...)
	dst = binary.BigEndian.AppendUint64(dst, table)
	dst = binary.BigEndian.AppendUint32(dst, number)
	return append(dst, 0)
}

// First is the number of the first table of this life, or of one after it: older ones were
// there when it began.
func (v *Values) First() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.next
}

// Put writes a value, and returns where it will stand. The caller says by Used where the record
// stands that leads there, and writes that record when Flush has returned. value is the caller's
// again.
//
// Errors: *ValuesError. The value is not there then, and the next Put begins another table.
func (v *Values) Put(value []byte, sum uint64) (*base.Bytes, error) {
	v.writing.Lock()
	defer v.writing.Unlock()
	t, size := v.open, int64(len(value))
	if t != nil && t.out.file.Room() > 0 && t.out.size+size > t.out.file.Room()-valuesEnd {
		v.full, v.open, t = append(v.full, t), nil, nil
	}
	if t == nil {
		var err error
		if t, err = v.begin(max(size, v.cfg.Limit) + 2*valuesEnd); err != nil {
			return nil, err
		}
	}
	at, err := t.put(v.cfg.Prefix, value)
	if err == nil && t.out.file.Room() == 0 {
		err = t.flush(all)
	}
	if err != nil {
		v.open = nil
		v.cut(t)
		return nil, &ValuesError{Op: "write", File: t.path, Err: err}
	}
	b := &base.Bytes{Table: t.number, Number: t.count, Offset: uint64(at), Length: uint64(len(value)), Sum: sum}
	v.mu.Lock()
	t.count++
	t.unused++
	t.size += int64(len(value))
	v.waiting += int64(len(value))
	full := t.size >= v.cfg.Limit
	v.mu.Unlock()
	if full {
		v.full, v.open = append(v.full, t), nil
	}
	return b, nil
}

// valuesEnd is more than a table has beside its values, its index and its end included.
const valuesEnd = 512 << 10

// Flush returns when a value is durable that Put has returned, with all before it. Many may
// wait at a time: one writes for all.
//
// Errors: *ValuesError: the value is lost.
func (v *Values) Flush(b *base.Bytes) error {
	v.mu.Lock()
	t := v.tables[b.Table]
	v.mu.Unlock()
	if t == nil {
		return missingValues(NameOfValues(b.Table))
	}
	if err := t.flush(int64(b.Offset + b.Length)); err != nil {
		return &ValuesError{Op: "write", File: t.path, Err: err}
	}
	return nil
}

// flush makes durable what stands in the file, unless so many bytes are.
func (t *valueTable) flush(bytes int64) (err error) {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	if t.durable < bytes && t.err == nil {
		t.durable, t.err = t.out.file.Flush()
		if t.err != nil {
			t.durable = 0
		}
	}
	if t.durable >= bytes || bytes == all {
		return t.err
	}
	return cmp.Or(t.err, errLost)
}

// errLost: bytes are not in the file that Put has put there.
var errLost = errors.New("a value is not in its table: report it")

// begin begins a table, for which so many bytes are set aside. Its name is durable, because a record that leads to it will be.
func (v *Values) begin(size int64) (*valueTable, error) {
	v.mu.Lock()
	n := v.next
	v.next++
	v.mu.Unlock()
	t := &valueTable{number: n, path: v.cfg.FS.PathJoin(v.cfg.Dir, NameOfValues(n))}
	file, err := createAppend(v.cfg.FS, t.path, size)
	if err == nil {
		err = syncNames(v.cfg.FS, v.cfg.Dir)
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil {
		_ = v.cfg.FS.Remove(t.path) // if it stays, it is one that nothing leads to
		return nil, &ValuesError{Op: "create", File: t.path, Err: err}
	}
	t.out = &valueWriter{file: file}
	t.w = sstable.NewWriter(t.out, v.format)
	v.mu.Lock()
	v.tables[n] = t
	v.mu.Unlock()
	v.open = t
	return t, nil
}

// syncNames makes the names in a directory durable.
func syncNames(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// put puts a value as a block, and returns its offset.
func (t *valueTable) put(prefix, value []byte) (at int64, err error) {
	key := ValueKey(make([]byte, 0, 64), prefix, t.number, t.count)
	t.out.expect(value)
	if err := t.w.Set(key, value); err != nil {
		return 0, err
	}
	key[len(key)-1] = 1
	if err := t.w.Set(key, nil); err != nil {
		return 0, err
	}
	if at = t.out.found; at < 0 {
		return 0, errors.New("the block of a value is not where it was expected: report it")
	}
	return at, nil
}

// finish ends a table to which nothing is put any more. It is whole then; or cut, if that fails.
func (v *Values) finish(t *valueTable) {
	t.flushing.Lock()
	if t.err == nil {
		_, t.err = t.out.file.Flush()
	}
	err := t.err
	if err == nil {
		t.durable = all // whatever becomes of the end
		err = t.w.Close()
	}
	t.flushing.Unlock()
	if err != nil {
		v.cut(t)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	t.state, t.w = valuesWhole, nil
}

// cut gives a table up behind an error. What was put before it is made durable, if that
// can be: records may lead there.
func (v *Values) cut(t *valueTable) {
	t.flushing.Lock()
	if t.durable < all && t.err == nil {
		if _, t.err = t.out.file.Flush(); t.err == nil {
			t.durable = all
		}
	}
	// Nothing more is written; Close ends what Pebble's writer has begun.
	t.out.cut()
	_ = t.w.Close()
	t.flushing.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	t.state, t.w = valuesCut, nil
}
