package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// A plainCase is writes that are not made durable one by one: what a log costs under
// "off" and "interval", and what a value segment costs, which is synced once.
type plainCase struct {
	name  string
	sizes []int // of the calls that make one group
	flags int
	fresh bool // a new file with its blocks reserved, not one that was written before
	cold  bool // its pages are not in the page cache
	sync  bool // once at the end, and part of the time
}

var plainCases = []plainCase{
	{name: "4 KiB", sizes: []int{4 << 10}},
	{name: "100 B", sizes: []int{100}},
	{name: "1,200 B", sizes: []int{1200}},
	{name: "12 calls of 100 B", sizes: []int{100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100}},
	{name: "16 KiB", sizes: []int{16 << 10}},
	{name: "64 KiB", sizes: []int{64 << 10}},
	{name: "1,200 B over a file that is not in the cache", sizes: []int{1200}, cold: true},
	{name: "4 KiB over a file that is not in the cache", sizes: []int{4 << 10}, cold: true},
	{name: "1 MiB to a reserved file, one fdatasync", sizes: []int{1 << 20}, fresh: true, sync: true},
	{name: "1 MiB O_DIRECT over written blocks, one fdatasync", sizes: []int{1 << 20}, flags: openDirect, sync: true},
	{name: "1 MiB O_DIRECT to a reserved file, one fdatasync", sizes: []int{1 << 20}, flags: openDirect, fresh: true, sync: true},
	{name: "256 KiB O_DIRECT to a reserved file, one fdatasync", sizes: []int{256 << 10}, flags: openDirect, fresh: true, sync: true},
}

// measurePlain: one segment is written from its beginning to its end, or for a slice of
// time, whichever ends first.
func measurePlain(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "one group, not synced by itself", ratio: "µs a group",
		columns: []string{"µs a group", "CPU µs a group", "p99.9 µs", "MB/s"}}
	var cases []turn
	for _, c := range plainCases {
		r := t.row(c.name)
		cases = append(cases, func() error { return b.plainOnce(r, c) })
	}
	t.note("Large writes: the time of the fdatasync at the end is shared by all groups of a segment of %s.", kib(b.segment))
	return t, b.turns(ctx, b.rounds, cases)
}

func (b *bench) plainOnce(r *row, c plainCase) (err error) {
	l, err := way{written: !c.fresh, reserve: c.fresh, flags: c.flags}.create(b.path("plain"), b.segment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.warm(c.cold); err != nil {
		return err
	}
	all, free, err := aligned(64<<10 + c.sizes[0])
	if err != nil {
		return err
	}
	defer free()
	copy(all, noise(len(all)))
	var each []float64
	bytes, began, used := 0, time.Now(), processorTime()
	for at := 0; time.Since(began) < b.slice || c.sync; {
		t := time.Now()
		for _, size := range c.sizes {
			if at+size > b.segment {
				at = -1
				break
			}
			if _, err := l.f.WriteAt(all[:size], int64(at)); err != nil {
				return err
			}
			at, bytes = at+size, bytes+size
		}
		if at < 0 {
			break
		}
		each = append(each, micros(time.Since(t)))
	}
	if c.sync {
		if err := datasync(l.f); err != nil {
			return err
		}
	}
	took, cpu := time.Since(began), processorTime()-used
	r.add("µs a group", micros(took)/float64(len(each)))
	r.add("CPU µs a group", micros(cpu)/float64(len(each)))
	r.add("p99.9 µs", percentile(each, 0.999))
	r.add("MB/s", float64(bytes)/1e6/took.Seconds())
	return nil
}

// warm brings the pages of a file into the page cache, or out of it.
func (l *logFile) warm(cold bool) error {
	if cold {
		return forget(l.f)
	}
	if l.flags&openDirect != 0 && openDirect != 0 {
		return nil
	}
	_, err := os.ReadFile(l.f.Name())
	return err
}
