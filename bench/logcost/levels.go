package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A levelCase is a store that checkpoints go to, one after the other.
type levelCase struct {
	keys   int
	shards int
	tables int // of a checkpoint, with bounds that are the same each time
	wait   int // sublevels of L0 at which the next checkpoint waits; 0: it does not
}

func (c levelCase) String() string {
	wait := "does not wait"
	if c.wait > 0 {
		wait = fmt.Sprintf("waits at %d sublevels", c.wait)
	}
	tables := "1 table"
	if c.tables > 1 {
		tables = fmt.Sprintf("%d tables", c.tables)
	}
	return fmt.Sprintf("%s keys, shards: %d; %s, %s", digits(float64(c.keys)), c.shards, tables, wait)
}

// levelCases are for one number of keys.
func levelCases(keys int) []levelCase {
	return []levelCase{
		{keys, 256, 1, 0},
		{keys, 256, 1, 8},
		{keys, 1, 1, 8},
		{keys, 32, 8, 8},
		{keys, 32, 32, 8},
		{keys, 256, 256, 8},
	}
}

// measureLevels: checkpoints of random keys, all over a store, as one table or as several with disjoint bounds.
func measureLevels(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "checkpoints, one upon the other", columns: []string{
		"sublevels, most", "sublevels, mean", "read amp, mean", "write amp", "compaction CPU µs a record",
		"ms a checkpoint", "of these ingest", "of these waiting", "get µs, mean", "settled after s", "tables"}}
	var cases []turn
	for i, keys := range b.keys {
		for _, c := range levelCases(keys) {
			if c.shards == 1 && i > 0 {
				continue // one shard is there to show that shards make no difference: once will do
			}
			r := t.row(c.String())
			cases = append(cases, func() error { return b.levelsOnce(ctx, r, c) })
		}
	}
	t.note("%d checkpoints of %s records with values of 100 B, random keys, newest of each, as fast as they can be written; "+
		"all keys were ingested once before. Gets are of random keys, between two checkpoints. One round.", b.checkpoints, digits(float64(b.batch)))
	return t, b.turns(ctx, 1, cases)
}

// A ladder is a store during a case of levels.
type ladder struct {
	*base
	c      levelCase
	values []byte    // bytes that do not compress
	seen   []float64 // sublevels behind each ingest
	amp    []float64
	gets   []float64
	ingest time.Duration
	waited time.Duration
}

func (b *bench) levelsOnce(ctx context.Context, r *row, c levelCase) (err error) {
	begun := time.Now()
	runtime.LockOSThread() // the time of this thread is what the tables cost, the rest is compaction
	defer runtime.UnlockOSThread()
	db, err := openBase(b.path("levels"), nil)
	if err != nil {
		return err
	}
	l := &ladder{base: db, c: c, values: noise(1 << 20)}
	defer func() { err = errors.Join(err, l.close()) }()
	all := make([]int, c.keys)
	for i := range all {
		all[i] = i
	}
	if err := l.checkpoint(ctx, all); err != nil {
		return err
	}
	before := l.db.Metrics().Total()
	l.seen, l.amp, l.ingest, l.waited = nil, nil, 0, 0
	began, used, ours := time.Now(), processorTime(), threadTime()
	records := 0
	var reading time.Duration
	for range b.checkpoints {
		if err := ctx.Err(); err != nil {
			return err
		}
		ids := b.randomIDs(c.keys)
		records += len(ids)
		if err := l.checkpoint(ctx, ids); err != nil {
			return err
		}
		took, err := l.read(b)
		if err != nil {
			return err
		}
		reading += took
	}
	took := time.Since(began) - reading
	settled, err := l.settle(ctx)
	if err != nil {
		return err
	}
	compacted := (processorTime() - used) - (threadTime() - ours)
	after := l.db.Metrics().Total()
	r.add("sublevels, most", slices.Max(l.seen))
	r.add("sublevels, mean", sum(l.seen)/float64(len(l.seen)))
	r.add("read amp, mean", sum(l.amp)/float64(len(l.amp)))
	wrote := after.TableBytesIngested + after.TableBytesCompacted - before.TableBytesIngested - before.TableBytesCompacted
	r.add("write amp", float64(wrote)/float64(after.TableBytesIngested-before.TableBytesIngested))
	r.add("compaction CPU µs a record", micros(compacted)/float64(records))
	each := float64(b.checkpoints)
	r.add("ms a checkpoint", micros(took)/1e3/each)
	r.add("of these ingest", micros(l.ingest)/1e3/each)
	r.add("of these waiting", micros(l.waited)/1e3/each)
	r.add("get µs, mean", sum(l.gets)/float64(len(l.gets)))
	r.add("settled after s", settled.Seconds())
	r.add("tables", float64(after.TablesCount))
	fmt.Fprintf(b.log, "levels: %v took %.1f s\n", c, time.Since(begun).Seconds())
	return nil
}

// randomIDs draws the keys of a checkpoint, each once, in order.
func (b *bench) randomIDs(keys int) []int {
	ids := make([]int, b.batch)
	for i := range ids {
		ids[i] = b.rnd.IntN(keys)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// keyAt returns shard and name of a key of which the ids are in the order of Pebble's keys: shards are spans
// of ids, and names are as far apart as hashes are.
func (l *ladder) keyAt(name []byte, id int) (shard uint16) {
	const space uint64 = 1 << 63
	step := space / uint64(l.c.keys)
	h := uint64(id)*step + mix(uint64(id))%step
	for i := range 16 {
		name[i] = "0123456789abcdef"[h>>(60-4*i)&15]
	}
	return uint16(id * l.c.shards / l.c.keys)
}

// checkpoint writes and ingests the records of sorted ids.
func (l *ladder) checkpoint(ctx context.Context, ids []int) error {
	began := time.Now()
	for l.c.wait > 0 && int(l.db.Metrics().Levels[0].Sublevels) >= l.c.wait {
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	l.waited += time.Since(began)
	w := l.tables()
	table := 0
	var name [16]byte
	for _, id := range ids {
		if of := id * l.c.tables / l.c.keys; of != table {
			table = of
			if err := w.cut(); err != nil {
				return err
			}
		}
		if err := w.put(l.keyAt(name[:], id), uint64(id), name[:], valueAt(l.values, id, 100)); err != nil {
			return err
		}
	}
	if err := w.cut(); err != nil {
		return err
	}
	began = time.Now()
	if err := w.ingest(ctx); err != nil {
		return err
	}
	l.ingest += time.Since(began)
	m := l.db.Metrics()
	l.seen = append(l.seen, float64(m.Levels[0].Sublevels))
	l.amp = append(l.amp, float64(m.ReadAmp()))
	return nil
}

// read gets some random keys, and returns how long that took.
func (l *ladder) read(b *bench) (time.Duration, error) {
	const gets = 500
	var name [16]byte
	pkey := make([]byte, 19)
	began := time.Now()
	for range gets {
		shard := l.keyAt(name[:], b.rnd.IntN(l.c.keys))
		pkey = append(append(pkey[:0], byte(shard>>8), byte(shard), 1), name[:]...)
		_, closer, err := l.db.Get(pkey)
		if err != nil {
			return 0, fmt.Errorf("a key that was ingested: %w", err)
		}
		if err := closer.Close(); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	l.gets = append(l.gets, micros(took)/gets)
	return took, nil
}

// settle waits until Pebble has nothing more to compact.
func (l *ladder) settle(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	for quiet := 0; quiet < 20; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if quiet++; busy(l.db.Metrics()) {
			quiet = 0
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began), nil
}

func busy(m *pebble.Metrics) bool { return m.Compact.NumInProgress > 0 }
