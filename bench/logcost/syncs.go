package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// A way is one in which a log may write so that what is written is durable.
type way struct {
	name    string
	flags   int
	written bool // the file's bytes were written before, and are written over
	reserve bool // the file has its blocks, never written
	sync    bool // by a call after each write
}

var ways = []way{
	{name: "append, fdatasync", sync: true},
	{name: "fallocated, fdatasync", reserve: true, sync: true},
	{name: "prewritten, fdatasync", written: true, sync: true},
	{name: "prewritten, O_DIRECT and O_DSYNC", flags: openDirect | openSync, written: true},
	{name: "fallocated, O_DIRECT and O_DSYNC", flags: openDirect | openSync, reserve: true},
}

// lanes are how many goroutines write at a time, each to a file of its own.
var lanes = []int{1, 2}

// A logFile is written in one way from its beginning to its end, and again.
type logFile struct {
	way
	f    *os.File
	size int
	at   int
}

// create makes a file for a way.
func (w way) create(path string, size int) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	l := &logFile{way: w, f: f, size: size}
	switch {
	case w.written:
		err = prewrite(f, size)
	case w.reserve:
		err = reserve(f, size)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		l.f, err = os.OpenFile(path, os.O_RDWR|w.flags, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return l, nil
}

// prewrite fills a file with bytes that are not zero, so that no layer below may
// leave them out.
func prewrite(f *os.File, size int) error {
	b := noise(1 << 20)
	for at := 0; at < size; at += len(b) {
		if _, err := f.WriteAt(b[:min(len(b), size-at)], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// noise returns bytes that do not compress.
func noise(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// valueAt returns size bytes of a larger slice of noise, other ones for each id: what stands in one block of a
// table has nothing in common.
func valueAt(noise []byte, id, size int) []byte {
	from := id * 104729 % (len(noise) - size + 1)
	return noise[from : from+size]
}

// write writes one group durably. Files that were prewritten begin again at their
// end; done reports that one of the other kinds is full: what comes behind its
// end, or over what it has, would be of another kind.
func (l *logFile) write(b []byte) (done bool, err error) {
	if l.at+len(b) > l.size {
		if !l.written {
			return true, nil
		}
		l.at = 0
	}
	if _, err := l.f.WriteAt(b, int64(l.at)); err != nil {
		return false, err
	}
	l.at += len(b)
	if l.sync {
		return false, datasync(l.f)
	}
	return false, nil
}

func (l *logFile) close() error { return errors.Join(l.f.Close(), os.Remove(l.f.Name())) }

// writes lets each file be written by a goroutine of its own for a time, and returns
// how long each write took, in microseconds, and the processor time of all.
func writes(files []*logFile, size int, d time.Duration) (each []float64, cpu time.Duration, err error) {
	var wg sync.WaitGroup
	all, errs := make([][]float64, len(files)), make([]error, len(files))
	began, used := time.Now(), processorTime()
	for i, l := range files {
		wg.Go(func() {
			b, free, err := aligned(size)
			if err != nil {
				errs[i] = err
				return
			}
			defer free()
			copy(b, noise(size))
			for full := false; !full && errs[i] == nil && time.Since(began) < d; {
				b[0]++ // no layer below may see that nothing changes
				t := time.Now()
				if full, errs[i] = l.write(b); !full {
					all[i] = append(all[i], micros(time.Since(t)))
				}
			}
		})
	}
	wg.Wait()
	cpu = processorTime() - used
	for _, a := range all {
		each = append(each, a...)
	}
	return each, cpu, errors.Join(errs...)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// sum adds up.
func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// measureSyncs: durable writes of 4 KiB to 1 MiB, each way, one and two at a time.
func measureSyncs(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "one durable write", ratio: "p50 µs",
		columns: []string{"p50 µs", "p99 µs", "writes/s", "MB/s", "CPU µs"}}
	var cases []turn
	for _, size := range []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		var base *row
		for _, n := range lanes {
			for _, w := range ways {
				r := t.row(fmt.Sprintf("%s, %s, %d at a time", kib(size), w.name, n))
				if base == nil {
					base = r
				}
				r.base = base
				cases = append(cases, func() error { return b.syncsOnce(r, w, size, n) })
			}
		}
	}
	t.note("Ratios are to one append and fdatasync of the same size. The p50 is of one write, so two at a time have twice as many.")
	return t, b.turns(ctx, b.rounds, cases)
}

func (b *bench) syncsOnce(r *row, w way, size, n int) (err error) {
	files := make([]*logFile, 0, n)
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.close())
		}
	}()
	for range n {
		f, err := w.create(b.path("syncs"), max(b.segment/4, 8*size))
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	began := time.Now()
	each, cpu, err := writes(files, size, b.slice)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	rate := float64(len(each)) / took
	r.add("p50 µs", percentile(each, 0.5))
	r.add("p99 µs", percentile(each, 0.99))
	r.add("writes/s", rate)
	r.add("MB/s", rate*float64(size)/1e6)
	r.add("CPU µs", micros(cpu)/float64(max(len(each), 1)))
	return nil
}

// kib names a size.
func kib(size int) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", size>>20)
	case size >= 1<<10 && size%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d B", size)
}
