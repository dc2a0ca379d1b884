package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
)

// A checkpointCase is one way from segments to an ingested checkpoint.
type checkpointCase struct {
	name     string
	load     logLoad
	segments int // of one checkpoint
	tables   int
	profile  *block.CompressionProfile
	sortAll  bool
}

func checkpointCases() []checkpointCase {
	small, hot, large := logLoad{100, 10_000_000}, logLoad{100, 100_000}, logLoad{1 << 10, 1_000_000}
	return []checkpointCase{
		{"100 B, 10 M keys, 1 segment", small, 1, 8, sstable.SnappyCompression, false},
		{"the same, all sorted, no table of hashes", small, 1, 8, sstable.SnappyCompression, true},
		{"the same, no compression", small, 1, 8, sstable.NoCompression, false},
		{"100 B, 10 M keys, 2 segments", small, 2, 8, sstable.SnappyCompression, false},
		{"100 B, 10 M keys, 4 segments", small, 4, 8, sstable.SnappyCompression, false},
		{"100 B, 100 k keys, 1 segment", hot, 1, 8, sstable.SnappyCompression, false},
		{"100 B, 100 k keys, 4 segments", hot, 4, 8, sstable.SnappyCompression, false},
		{"1 KiB, 1 M keys, 1 segment", large, 1, 8, sstable.SnappyCompression, false},
		{"1 KiB, 1 M keys, 4 segments", large, 4, 8, sstable.SnappyCompression, false},
	}
}

// measureCheckpoint: what a checkpoint takes of a processor, step by step.
func measureCheckpoint(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "checkpoint", ratio: "CPU µs a record", columns: []string{"records", "written", "CPU µs a record",
		"parse", "newest and sort", "tables", "ingest", "ms", "log MB", "table MB", "core at 100 k records/s"}}
	var cases []turn
	for _, c := range checkpointCases() {
		r := t.row(c.name)
		cases = append(cases, func() error { return b.checkpointOnce(ctx, r, c) })
	}
	t.note("From segments in memory to the end of Ingest; parse to ingest in µs of processor time a record of the log. Values do not compress.")
	return t, b.turns(ctx, min(b.rounds, 2), cases)
}

func (b *bench) checkpointOnce(ctx context.Context, r *row, c checkpointCase) (err error) {
	var segments [][]byte
	for range c.segments {
		segment, _, free, err := b.logSegment(c.load)
		if err != nil {
			return err
		}
		defer free()
		segments = append(segments, segment)
	}
	db, err := openBase(b.path("checkpoint"), func(o *pebble.Options) {
		o.DisableAutomaticCompactions = true
		for i := range o.Levels {
			o.Levels[i].Compression = func() *block.CompressionProfile { return c.profile }
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	began := time.Now()
	var steps []time.Duration
	used := processorTime()
	step := func() { now := processorTime(); steps = append(steps, now-used); used = now }

	var records []record
	for _, segment := range segments {
		if err := eachRecord(segment, true, func(r *record) { records = append(records, *r) }); err != nil {
			return err
		}
	}
	step()
	sorted := byTable
	if c.sortAll {
		sorted = bySort
	}
	newest := sorted(records)
	step()
	w := db.tables()
	for i, e := range newest {
		if i%(len(newest)/c.tables+1) == 0 {
			if err := w.cut(); err != nil {
				return err
			}
		}
		r := &records[e.at]
		if err := w.put(r.shard, r.version, r.key, r.value); err != nil {
			return err
		}
	}
	if err := w.cut(); err != nil {
		return err
	}
	step()
	if err := w.ingest(ctx); err != nil {
		return err
	}
	step()
	if m := db.db.Metrics(); m.MemTable.Count != 1 || m.Flush.Count != 0 {
		return fmt.Errorf("an ingest made %d memtables and %d flushes", m.MemTable.Count, m.Flush.Count)
	}
	r.add("ms", micros(time.Since(began))/1e3)
	total := 0.0
	for i, name := range []string{"parse", "newest and sort", "tables", "ingest"} {
		each := micros(steps[i]) / float64(len(records))
		r.add(name, each)
		total += each
	}
	r.add("records", float64(len(records)))
	r.add("written", float64(len(newest)))
	r.add("CPU µs a record", total)
	r.add("log MB", float64(len(segments)*b.segment)/1e6)
	r.add("table MB", float64(w.written)/1e6)
	r.add("core at 100 k records/s", total*100_000/1e6)
	return nil
}
