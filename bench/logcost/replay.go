package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// A logLoad is what the records of a segment are.
type logLoad struct {
	value int
	keys  int // records are of random ones of so many
}

// segment makes a segment of records, in memory for direct I/O. The caller frees it.
func (b *bench) logSegment(l logLoad) (segment []byte, records int, free func(), err error) {
	segment, free, err = aligned(b.segment)
	if err != nil {
		return nil, 0, nil, err
	}
	values := noise(1 << 20)
	var key [16]byte
	id, of := 0, -1
	records = fillSegment(segment, func(i int) (uint16, uint64, []byte, []byte) {
		if i != of { // a record that had no room is asked for again
			id, of = b.rnd.IntN(l.keys), i
		}
		shard := keyOf(key[:], id)
		return shard % shardCount, uint64(i + 1), key[:], valueAt(values, i, l.value)
	})
	return segment, records, free, nil
}

// shardCount is the default of a store.
const shardCount = 32

// keyOf writes the 16 bytes of a key's name, which look random, and returns bits for its shard.
func keyOf(key []byte, id int) uint16 {
	h := mix(uint64(id))
	for i := range 16 {
		key[i] = "0123456789abcdef"[h>>(60-4*i)&15]
	}
	return uint16(h * 0x9e3779b97f4a7c15 >> 48)
}

// mix spreads ids over 64 bits; no two give the same.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// replayCase is one step of a start, from a file of one segment.
type replayCase struct {
	name string
	run  func(f *replayFile) error
}

// A replayFile is a segment on the disk, and in memory for the steps that begin there.
type replayFile struct {
	path    string
	segment []byte
	scratch []byte // as large
	records []record
	newest  []uint32
	slab    []byte // room for what is linked
}

var replayCases = []replayCase{
	{"read, page cache, 1 MiB a call", func(f *replayFile) error { return f.read(0, 1<<20) }},
	{"read, O_DIRECT, 1 MiB a call", func(f *replayFile) error { return f.read(openDirect, 1<<20) }},
	{"read, O_DIRECT, two goroutines", func(f *replayFile) error { return f.readByTwo() }},
	{"parse, sums of groups", func(f *replayFile) error { return eachRecord(f.segment, false, func(*record) {}) }},
	{"parse, sums of groups and records", func(f *replayFile) error { return eachRecord(f.segment, true, func(*record) {}) }},
	{"newest of each key, by table", func(f *replayFile) error {
		t := newTable(len(f.records))
		for i := range f.records {
			t.add(f.records, i, f.records[i].hash())
		}
		f.newest = t.list()
		return nil
	}},
	{"newest of each key, by a Go map", func(f *replayFile) error {
		m := make(map[string]int32, len(f.records))
		for i := range f.records {
			m[string(f.records[i].key)] = int32(i)
		}
		return nil
	}},
	{"newest of each key, all sorted", func(f *replayFile) error { bySort(f.records); return nil }},
	{"newest of each key, by table, then sorted", func(f *replayFile) error { byTable(f.records); return nil }},
	{"newest copied to random places", func(f *replayFile) error { f.copyOut(); return nil }},
}

// measureReplay: what a start does with a segment before the store can serve.
func measureReplay(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "step, over one segment", columns: []string{"ms a segment", "ns a record", "MB/s"}}
	var cases []turn
	for _, l := range []logLoad{{100, 1_000_000}, {1 << 10, 1_000_000}} {
		f, free, err := b.replayFile(l)
		if err != nil {
			return nil, err
		}
		defer free()
		t.note("Values of %s: %d records in %s, %d of them the newest of their key.", kib(l.value), len(f.records), kib(b.segment), len(f.newest))
		for _, c := range replayCases {
			r := t.row(fmt.Sprintf("%s values: %s", kib(l.value), c.name))
			cases = append(cases, func() error {
				began := time.Now()
				if err := c.run(f); err != nil {
					return err
				}
				took := time.Since(began)
				r.add("ms a segment", micros(took)/1e3)
				r.add("ns a record", micros(took)*1e3/float64(len(f.records)))
				r.add("MB/s", float64(b.segment)/1e6/took.Seconds())
				return nil
			})
		}
	}
	return t, b.turns(ctx, b.rounds, cases)
}

// replayFile writes a segment to a file, and lists its records.
func (b *bench) replayFile(l logLoad) (*replayFile, func(), error) {
	segment, records, freeSegment, err := b.logSegment(l)
	if err != nil {
		return nil, nil, err
	}
	scratch, freeScratch, err := aligned(b.segment)
	if err != nil {
		freeSegment()
		return nil, nil, err
	}
	f := &replayFile{path: b.path("segment"), segment: segment, scratch: scratch, slab: make([]byte, 2*b.segment)}
	free := func() { freeSegment(); freeScratch(); _ = os.Remove(f.path) }
	f.records = make([]record, 0, records)
	err = errors.Join(writeSynced(f.path, segment),
		eachRecord(segment, true, func(r *record) { f.records = append(f.records, *r) }))
	if err == nil && len(f.records) != records {
		err = fmt.Errorf("%d records were written and %d read", records, len(f.records))
	}
	if err == nil {
		err = f.read(0, 1<<20) // the page cache has it from here on
	}
	if err == nil && !slices.Equal(f.scratch, segment) {
		err = fmt.Errorf("%s has other bytes than were written", f.path)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	t := newTable(records)
	for i := range f.records {
		t.add(f.records, i, f.records[i].hash())
	}
	f.newest = t.list()
	return f, free, nil
}

// writeSynced writes a new file, durably.
func writeSynced(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// read reads the file into scratch, so many bytes a call.
func (f *replayFile) read(flags, chunk int) error { return f.readPart(flags, chunk, 0, len(f.scratch)) }

func (f *replayFile) readPart(flags, chunk, from, to int) error {
	file, err := os.OpenFile(f.path, os.O_RDONLY|flags, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for at := from; at < to; at += chunk {
		if _, err := file.ReadAt(f.scratch[at:min(at+chunk, to)], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// readByTwo reads each half by a goroutine of its own.
func (f *replayFile) readByTwo() error {
	half := len(f.scratch) / 2
	first := make(chan error, 1)
	go func() { first <- f.readPart(openDirect, 1<<20, 0, half) }()
	err := f.readPart(openDirect, 1<<20, half, len(f.scratch))
	return errors.Join(err, <-first)
}

// copyOut copies the newest records to places that lie anywhere, as items of a slab do, and
// writes the word by which they would be found.
func (f *replayFile) copyOut() {
	size := recordHead + 16 + len(f.records[0].value)
	places := uint64(len(f.slab) / size)
	for _, i := range f.newest {
		r := &f.records[i]
		to := f.slab[mix(uint64(i))%places*uint64(size):][:size]
		binary.LittleEndian.PutUint64(to, r.version)
		copy(to[8:], r.key)
		copy(to[24:], r.value)
	}
}
