package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"
)

// A base is Pebble with the options of a store, its log off, changed by Ingest alone.
type base struct {
	db   *pebble.DB
	dir  string
	o    *pebble.Options
	next atomic.Int64 // number of the next table to be written
}

// baseOptions are those of the store's Pebble, but for the log.
func baseOptions() *pebble.Options {
	o := &pebble.Options{
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      quiet{},
		CacheSize:                   64 << 20,
		MemTableSize:                11 << 20,
		MemTableStopWritesThreshold: 2,
		L0StopWritesThreshold:       24,
		MaxOpenFiles:                4096,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		DisableWAL:                  true,
	}
	o.Experimental.DisableIngestAsFlushable = func() bool { return true }
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 1024, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.2}
	}
	return o
}

// quiet keeps Pebble's log out of the output, but not its end.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// openBase opens Pebble in a directory, with options changed by tune, if not nil.
func openBase(dir string, tune func(*pebble.Options)) (*base, error) {
	o := baseOptions()
	if tune != nil {
		tune(o)
	}
	o.EnsureDefaults() // Open does so on a copy, and the tables want the same options
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return &base{db: db, dir: dir, o: o}, nil
}

func (b *base) close() error { return errors.Join(b.db.Close(), os.RemoveAll(b.dir)) }

// A tableWriter writes one table after the other. Each is synced as it is closed.
type tableWriter struct {
	b       *base
	level   int // whose options it has
	every   int // bytes between two hints to the kernel to begin writing; 0: one sync at the end
	pace    *pace
	w       *sstable.Writer
	paths   []string
	pkey    []byte
	value   []byte
	written uint64 // bytes of tables that are closed
}

// tables begins to write tables.
func (b *base) tables() *tableWriter { return &tableWriter{b: b, every: b.o.BytesPerSync} }

// set adds an entry to the table, which begins with it if there is none.
func (t *tableWriter) set(pkey, value []byte) error {
	if t.w == nil {
		path := filepath.Join(t.b.dir, fmt.Sprintf("ingest-%d", t.b.next.Add(1)))
		f, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if t.pace != nil {
			f = pacedFile{f, t.pace}
		}
		if t.every > 0 {
			f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: t.every})
		}
		t.paths = append(t.paths, path)
		t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), t.b.o.MakeWriterOptions(t.level, t.b.db.TableFormat()))
	}
	return t.w.Set(pkey, value)
}

// cut ends the table: it is durable then.
func (t *tableWriter) cut() error {
	if t.w == nil {
		return nil
	}
	w := t.w
	t.w = nil
	if err := w.Close(); err != nil {
		return err
	}
	meta, err := w.Metadata()
	if err == nil {
		t.written += meta.Size
	}
	return err
}

// ingest gives all tables to Pebble at once.
func (t *tableWriter) ingest(ctx context.Context) error {
	if err := t.cut(); err != nil {
		return err
	}
	paths := t.paths
	t.paths = nil
	return t.b.db.Ingest(ctx, paths)
}

// put adds a record in the form that the store's records have in Pebble: key with shard and kind;
// version, checksum, value.
func (t *tableWriter) put(shard uint16, version uint64, key, value []byte) error {
	t.pkey = append(binary.BigEndian.AppendUint16(t.pkey[:0], shard), 1)
	t.pkey = append(t.pkey, key...)
	t.value = append(t.value[:0], 1, 0, 0, 0, 0, 0, 0, 0)
	t.value = binary.LittleEndian.AppendUint64(t.value, version)
	sum := xxh3.HashSeed(t.pkey, xxh3.HashSeed(t.value, xxh3.Hash(value)))
	t.value = append(binary.LittleEndian.AppendUint64(t.value, sum), value...)
	return t.set(t.pkey, t.value)
}

// A pace bounds how many bytes a second pass.
type pace struct {
	rate  float64 // bytes a second; 0: no bound
	began time.Time
	sent  float64
}

// wait waits until n more bytes may pass.
func (p *pace) wait(n int) {
	if p.rate == 0 {
		return
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.sent += float64(n)
	time.Sleep(time.Duration(p.sent/p.rate*1e9) - time.Since(p.began))
}

// A pacedFile waits before each write.
type pacedFile struct {
	vfs.File
	p *pace
}

func (f pacedFile) Write(b []byte) (int, error) {
	f.p.wait(len(b))
	return f.File.Write(b)
}
