package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// A neighbour does something to the disk while groups are written beside it. run goes on until ctx
// ends, and counts the bytes that it moved.
type neighbour struct {
	name string
	run  func(ctx context.Context, p *pace, in *inputs) (bytes int, err error)
	rate float64 // MB/s; 0: as fast as it can
}

// inputs are what neighbours read and write: made once, so that their making is not measured.
type inputs struct {
	segment string // a file that reads go to
	scratch []byte // for direct I/O
	sorted  []record
	bases   map[string]*base // by name of the tuning
}

// computes takes processors and leaves the disk alone: what it does to the writer, the others
// do by their processor time, and not by the disk.
func computes(goroutines int) func(context.Context, *pace, *inputs) (int, error) {
	return func(ctx context.Context, _ *pace, in *inputs) (int, error) {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for sum := uint64(0); ctx.Err() == nil; {
					sum = xxh3.HashSeed(in.scratch[:64<<10], sum)
				}
			})
		}
		wg.Wait()
		return 0, nil
	}
}

// reads reads segments back, so many bytes a call.
func reads(chunk int) func(context.Context, *pace, *inputs) (int, error) {
	return func(ctx context.Context, p *pace, in *inputs) (n int, err error) {
		f, err := os.OpenFile(in.segment, os.O_RDONLY|openDirect, 0)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		for at := int64(0); ctx.Err() == nil; at += int64(chunk) {
			if at+int64(chunk) > info.Size() {
				at = 0
			}
			p.wait(chunk)
			if _, err := f.ReadAt(in.scratch[:chunk], at); err != nil {
				return n, err
			}
			n += chunk
		}
		return n, nil
	}
}

// makes prewrites segments, as a log that has none to use again does.
func makes(chunk int) func(context.Context, *pace, *inputs) (int, error) {
	return func(ctx context.Context, p *pace, in *inputs) (n int, err error) {
		path := in.segment + ".new"
		defer os.Remove(path)
		for ctx.Err() == nil {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|openDirect, 0o666)
			if err != nil {
				return n, err
			}
			for at := 0; at+chunk <= len(in.scratch) && ctx.Err() == nil && err == nil; at += chunk {
				p.wait(chunk)
				_, err = f.WriteAt(in.scratch[:chunk], int64(at))
				n += chunk
			}
			if err := errors.Join(err, datasync(f), f.Close()); err != nil {
				return n, err
			}
		}
		return n, nil
	}
}

// checkpoints writes tables of the sorted records, and ingests them, again and again.
func checkpoints(tuning string, every int) func(context.Context, *pace, *inputs) (int, error) {
	return func(ctx context.Context, p *pace, in *inputs) (n int, err error) {
		b := in.bases[tuning]
		for ctx.Err() == nil {
			w := b.tables()
			w.every, w.pace = every, p
			for i := range in.sorted {
				r := &in.sorted[i]
				if i%tableRecords == 0 {
					if err := w.cut(); err != nil {
						return n, err
					}
					if ctx.Err() != nil {
						break
					}
				}
				if err := w.put(r.shard, r.version, r.key, r.value); err != nil {
					return n, err
				}
			}
			if err := w.ingest(context.WithoutCancel(ctx)); err != nil {
				return n, err
			}
			n += int(w.written)
		}
		return n, nil
	}
}

// tableRecords is how many records go into one table: about 8 MiB of small ones.
const tableRecords = 1 << 16

const pebbleEvery = 512 << 10 // Pebble's default of BytesPerSync

var neighbours = []neighbour{
	{"alone", func(ctx context.Context, _ *pace, _ *inputs) (int, error) { <-ctx.Done(); return 0, nil }, 0},
	{"one goroutine that computes", computes(1), 0},
	{"two goroutines that compute", computes(2), 0},
	{"segments read, 1 MiB a call, full rate", reads(1 << 20), 0},
	{"segments read, 1 MiB a call, 200 MB/s", reads(1 << 20), 200},
	{"segments read, 1 MiB a call, 50 MB/s", reads(1 << 20), 50},
	{"segments read, 128 KiB a call, full rate", reads(128 << 10), 0},
	{"segments read, 128 KiB a call, 200 MB/s", reads(128 << 10), 200},
	{"segments made, 1 MiB a call, full rate", makes(1 << 20), 0},
	{"segments made, 128 KiB a call, 50 MB/s", makes(128 << 10), 50},
	{"tables, sync at the end, full rate", checkpoints("no compaction", 0), 0},
	{"tables, sync every 512 KiB, full rate", checkpoints("no compaction", pebbleEvery), 0},
	{"tables, sync every 128 KiB, full rate", checkpoints("no compaction", pebbleEvery/4), 0},
	{"tables, sync at the end, 50 MB/s", checkpoints("no compaction", 0), 50},
	{"tables, sync every 512 KiB, 50 MB/s", checkpoints("no compaction", pebbleEvery), 50},
	{"tables, sync every 512 KiB, 20 MB/s", checkpoints("no compaction", pebbleEvery), 20},
	{"tables, sync every 512 KiB, full rate, compactions too", checkpoints("compaction", pebbleEvery), 0},
	{"tables, sync every 512 KiB, 20 MB/s, compactions too", checkpoints("compaction", pebbleEvery), 20},
}

// measureBeside: groups of 4 KiB are written one after the other, durably, beside neighbours.
func measureBeside(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "durable write of 4 KiB, beside", ratio: "p99.9 µs", least: "p99.9 µs",
		columns: []string{"p50 µs", "p99 µs", "p99.9 µs", "max ms", "writes/s", "neighbour MB/s"}}
	in, closeAll, err := b.inputs()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	log, err := ways[3].create(b.path("log"), b.segment/4)
	if err != nil {
		return nil, err
	}
	defer log.close()
	var cases []turn
	for _, n := range neighbours {
		r := t.row(n.name)
		cases = append(cases, func() error { return b.besideOnce(ctx, r, n, log, in) })
	}
	t.note("Groups are lost to other load of the machine as well, so the least p99.9 of all rounds is told beside the median.")
	t.note("The writer is one goroutine that writes with O_DIRECT and O_DSYNC over prewritten blocks, one group after the other.")
	return t, b.turns(ctx, b.rounds, cases)
}

func (b *bench) inputs() (in *inputs, closeAll func(), err error) {
	segment, _, free, err := b.logSegment(logLoad{100, 1_000_000})
	if err != nil {
		return nil, nil, err
	}
	in = &inputs{segment: b.path("segment"), scratch: segment, bases: map[string]*base{}}
	closeAll = func() {
		free()
		for _, base := range in.bases {
			_ = base.close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	if err := writeSynced(in.segment, segment); err != nil {
		return nil, nil, err
	}
	var all []record
	if err := eachRecord(segment, true, func(r *record) {
		c := *r
		c.key, c.value = append([]byte(nil), r.key...), append([]byte(nil), r.value...)
		all = append(all, c)
	}); err != nil {
		return nil, nil, err
	}
	for _, e := range bySort(all) {
		in.sorted = append(in.sorted, all[e.at])
	}
	for _, tuning := range []string{"compaction", "no compaction"} {
		base, err := openBase(b.path("base"), func(o *pebble.Options) { o.DisableAutomaticCompactions = tuning == "no compaction" })
		if err != nil {
			return nil, nil, err
		}
		in.bases[tuning] = base
	}
	return in, closeAll, nil
}

// besideOnce writes for a time while the neighbour is at work.
func (b *bench) besideOnce(ctx context.Context, r *row, n neighbour, log *logFile, in *inputs) error {
	type moved struct {
		bytes int
		err   error
	}
	ended := make(chan moved, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	go func() {
		bytes, err := n.run(ctx, &pace{rate: n.rate * 1e6}, in)
		ended <- moved{bytes, err}
	}()
	each, _, err := writes([]*logFile{log}, 4<<10, b.beside)
	wrote := time.Since(began).Seconds()
	stop()
	m := <-ended
	if err := errors.Join(err, m.err); err != nil {
		return err
	}
	r.add("neighbour MB/s", float64(m.bytes)/1e6/time.Since(began).Seconds())
	r.add("writes/s", float64(len(each))/wrote)
	r.add("p50 µs", percentile(each, 0.5))
	r.add("p99 µs", percentile(each, 0.99))
	r.add("p99.9 µs", percentile(each, 0.999))
	r.add("max ms", percentile(each, 1)/1e3)
	return nil
}
