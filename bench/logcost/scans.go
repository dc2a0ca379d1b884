package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A scanCase is a store whose keys are listed without their values.
type scanCase struct {
	name string
	tune func(*pebble.Options)
	// prepare brings an empty store into the state that is measured.
	prepare func(ctx context.Context, s *scanStore) error
}

var scanCases = []scanCase{
	{"flushed from a memtable, as today", nil, func(ctx context.Context, s *scanStore) error { return s.flushAll() }},
	{"ingested", nil, func(ctx context.Context, s *scanStore) error { return s.ingestPart(ctx, 0) }},
	{"a quarter ingested again, compacted", nil, func(ctx context.Context, s *scanStore) error { return s.overwrite(ctx, 1) }},
	{"a random quarter at a time, 2 times, compacted each time", nil, func(ctx context.Context, s *scanStore) error { return s.overwrite(ctx, 2) }},
	{"the same, 8 times", nil, func(ctx context.Context, s *scanStore) error { return s.overwrite(ctx, 8) }},
	{"the same, 8 times, MaxBlobReferenceDepth 1", seldomCarried, func(ctx context.Context, s *scanStore) error { return s.overwrite(ctx, 8) }},
	{"keys and values under two keys of Pebble, ingested", nil, func(ctx context.Context, s *scanStore) error { s.two = true; return s.ingestPart(ctx, 0) }},
}

// seldomCarried has compactions write values anew where two inputs refer to values apart. A
// compaction that does not write them anew leaves those that lie inline where they are. Pebble refuses 0.
func seldomCarried(o *pebble.Options) {
	policy := o.Experimental.ValueSeparationPolicy()
	policy.MaxBlobReferenceDepth = 1
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return policy }
}

// measureScans: scans of keys over values that lie inline, as an ingest leaves them, and apart.
func measureScans(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "keys alone, listed", ratio: "keys/s, cold",
		columns: []string{"keys/s, cold", "keys/s, again", "MB read, cold", "bytes a key", "MB in tables", "MB apart"}}
	var cases []turn
	for _, size := range []int{100, 1 << 10, 16 << 10, 64 << 10} {
		var base *row
		for _, c := range scanCases {
			s, err := b.scanStore(ctx, size, c)
			if err != nil {
				return nil, fmt.Errorf("values of %s, %s: %w", kib(size), c.name, err)
			}
			defer os.RemoveAll(s.dir)
			r := t.row(fmt.Sprintf("%s values, %s", kib(size), c.name))
			if base == nil {
				base = r
			}
			r.base = base
			cases = append(cases, func() error { return s.scans(ctx, r) })
		}
	}
	t.note("%s of values each, of at most 200,000 keys; a cold scan begins with nothing in the page cache and in Pebble's; another follows it. "+
		"Ratios are to the first line of the same size.", kib(b.scanBytes))
	return t, b.turns(ctx, min(b.rounds, 3), cases)
}

// A scanStore is closed between its scans.
type scanStore struct {
	dir    string
	size   int
	keys   int
	two    bool // the value stands under a key of its own
	values []byte
	db     *base // while it is prepared
}

func (b *bench) scanStore(ctx context.Context, size int, c scanCase) (*scanStore, error) {
	s := &scanStore{dir: b.path("scans"), size: size, keys: min(b.scanBytes/size, 200_000), values: noise(4 << 20)}
	var err error
	if s.db, err = openBase(s.dir, c.tune); err != nil {
		return nil, err
	}
	err = errors.Join(c.prepare(ctx, s), s.db.db.Close())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// overwrite ingests all keys, then some times a quarter of them, other ones each time, and compacts each time.
func (s *scanStore) overwrite(ctx context.Context, times int) error {
	err := s.ingestPart(ctx, 0)
	for i := 0; i < times && err == nil; i++ {
		if err = s.ingestPart(ctx, i+1); err == nil {
			err = s.db.db.Compact(ctx, []byte{0}, []byte{0xff}, true)
		}
	}
	return err
}

// ingestPart ingests all keys (0), or the quarter of them that has a number, as tables of about 16 MiB.
func (s *scanStore) ingestPart(ctx context.Context, part int) error {
	w := s.db.tables()
	for _, value := range []bool{false, true} {
		if value && !s.two {
			break
		}
		n := 0
		for id := range s.keys {
			if part > 0 && mix(uint64(part*s.keys+id))%4 != 0 {
				continue
			}
			if n++; n%max((16<<20)/s.size, 1) == 0 {
				if err := w.cut(); err != nil {
					return err
				}
			}
			if err := s.entry(id, value, w.set); err != nil {
				return err
			}
		}
		if err := w.cut(); err != nil {
			return err
		}
	}
	return w.ingest(ctx)
}

// flushAll writes all keys as the store does today: through memtables.
func (s *scanStore) flushAll() error {
	for id := range s.keys {
		err := s.entry(id, false, func(pkey, value []byte) error { return s.db.db.Set(pkey, value, pebble.NoSync) })
		if err != nil {
			return err
		}
	}
	return s.db.db.Flush()
}

// entry hands out the entry of a key: with its value; where that has a key of its own, the key with
// its length, or the value.
func (s *scanStore) entry(id int, value bool, set func(pkey, value []byte) error) error {
	v := valueAt(s.values, id, s.size)
	pkey := fmt.Appendf([]byte{0, 0, 1}, "%016x", id)
	record := binary.LittleEndian.AppendUint64(make([]byte, 16, 32+s.size), uint64(id))
	switch {
	case value:
		pkey[2] = 5
		record = append(record, v...)
	case s.two:
		record = binary.LittleEndian.AppendUint64(record, uint64(s.size))
	default:
		record = append(record, v...)
	}
	return set(pkey, record)
}

// scans lists the keys twice, first with nothing in any cache.
func (s *scanStore) scans(ctx context.Context, r *row) error {
	if err := s.chill(); err != nil {
		return err
	}
	db, err := openBase(s.dir, func(o *pebble.Options) { o.DisableAutomaticCompactions = true })
	if err != nil {
		return err
	}
	for _, column := range []string{"keys/s, cold", "keys/s, again"} {
		began := time.Now()
		keys, bytes, err := s.list(ctx, db.db)
		if err != nil || keys != s.keys {
			return errors.Join(err, fmt.Errorf("%d keys of %d were listed", keys, s.keys), db.db.Close())
		}
		r.add(column, float64(keys)/time.Since(began).Seconds())
		if column == "keys/s, cold" {
			r.add("MB read, cold", float64(bytes)/1e6)
			r.add("bytes a key", float64(bytes)/float64(keys))
		}
	}
	m := db.db.Metrics()
	tables := m.Total()
	r.add("MB in tables", float64(tables.TablesSize)/1e6)
	r.add("MB apart", float64(m.BlobFiles.LiveSize)/1e6)
	return db.db.Close()
}

// chill drops the files of the store from the page cache.
func (s *scanStore) chill() error {
	paths, err := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, path := range paths {
		f, openErr := os.OpenFile(path, os.O_RDWR, 0)
		if openErr != nil {
			return openErr
		}
		err = errors.Join(err, forget(f), f.Close())
	}
	return err
}

// list steps over all keys, looking at no value, as a scan of keys does.
func (s *scanStore) list(ctx context.Context, db *pebble.DB) (keys int, bytes uint64, err error) {
	it, err := db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{0, 0, 1}, UpperBound: []byte{0, 0, 2}})
	if err != nil {
		return 0, 0, err
	}
	total := 0
	for ok := it.First(); ok; ok = it.Next() {
		lazy := it.LazyValue()
		total += lazy.Len()
		keys++
	}
	if !s.two && total < s.size*keys {
		err = fmt.Errorf("values of %d bytes are listed, %d were stored", total/max(keys, 1), s.size)
	}
	bytes = it.Stats().InternalStats.BlockBytes
	return keys, bytes, errors.Join(err, it.Error(), it.Close())
}
