package log_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
)

// The benchmarks write to the file system of TMPDIR: on tmpfs they say what the code costs,
// on a disk what the log costs.

// benched opens a log in a directory, starts a life, and waits until the files for the next
// segments are made: they are written whole, which is no part of what is measured.
func benched(b *testing.B, path string, s log.Sync) *log.Log {
	b.Helper()
	d, err := log.OpenDir(path)
	if err != nil {
		b.Fatal(err)
	}
	l, err := log.Open(log.Config{Dir: d, Store: [16]byte{1}, Create: true, Sync: s})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Replay(nil); err != nil {
		b.Fatal(err)
	}
	if err := l.Start(l.Found().Epoch + 1); err != nil {
		b.Fatal(err)
	}
	for before, same := -1, 0; same < 10; time.Sleep(20 * time.Millisecond) {
		if free := l.Stats().Free; free == before && free > 0 {
			same++
		} else {
			before, same = free, 0
		}
	}
	return l
}

// processor is what the process has used of the processors so far, with the kernel's part.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// callers runs do in so many goroutines until it was called b.N times, and reports the
// processor time of a call.
func callers(b *testing.B, n int, do func() error) {
	var left atomic.Int64
	var all sync.WaitGroup
	left.Store(int64(b.N))
	b.ResetTimer()
	before := processor(b)
	for range n {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processor(b)-before)/1e3/float64(b.N), "cpu-us/op")
}

// released appends records of 100 B as one frame and gives back room behind itself.
func released(l *log.Log, records int) func() error {
	body := make([]byte, 100)
	rs := make([]log.Record, records)
	for i := range rs {
		rs[i] = log.Record{Kind: log.Write, Stream: 1, Body: body}
	}
	var calls atomic.Int64
	return func() error {
		at, err := l.Append(rs...)
		if err == nil && calls.Add(1)%1000 == 0 {
			l.Release(1, at)
		}
		return err
	}
}

// BenchmarkAppend is a frame with one record of 100 B, by several callers. Each waits for
// its own turn; two of them are the pair that alternates.
func BenchmarkAppend(b *testing.B) {
	for _, s := range []log.Sync{log.Always, log.Off} {
		for _, n := range []int{1, 2, 50} {
			b.Run(fmt.Sprintf("%v/callers=%d", s, n), func(b *testing.B) {
				l := benched(b, b.TempDir(), s)
				callers(b, n, released(l, 1))
				stop(b, l)
			})
		}
	}
}

// BenchmarkFrame is a frame with 25 records, as 50 callers of a store fill two by turns.
func BenchmarkFrame(b *testing.B) {
	for _, s := range []log.Sync{log.Always, log.Off} {
		for _, n := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/writers=%d", s, n), func(b *testing.B) {
				l := benched(b, b.TempDir(), s)
				callers(b, n, released(l, 25))
				stop(b, l)
			})
		}
	}
}

// BenchmarkFloor is what the log cannot go below: a block written past the page cache into
// a file that was written before, by one goroutine and by two at once. What BenchmarkAppend
// takes beyond it is the log.
func BenchmarkFloor(b *testing.B) {
	const size, block = 64 << 20, 4096
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("always/callers=%d", n), func(b *testing.B) {
			d, err := log.OpenDir(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			f, err := d.Create("floor", size, true, log.Access{Write: true, Direct: true})
			if errors.Is(err, log.ErrNoDirect) {
				b.Skip(err)
			} else if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			// Memory of the kernel begins at a page, as direct access asks for.
			page, err := syscall.Mmap(-1, 0, block, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				b.Fatal(err)
			}
			defer syscall.Munmap(page)
			var next atomic.Int64
			callers(b, n, func() error {
				_, err := f.WriteAt(page, next.Add(1)%(size/block)*block)
				return err
			})
		})
	}
}

// stop closes the log.
func stop(b *testing.B, l *log.Log) {
	b.Helper()
	if err := l.Close(true); err != nil {
		b.Error(err)
	}
}

// BenchmarkReplay is what a record costs a start, in frames of one record and of many.
func BenchmarkReplay(b *testing.B) {
	const records = 400_000
	for _, each := range []int{1, 25} {
		b.Run(fmt.Sprintf("records=%d", each), func(b *testing.B) {
			path := b.TempDir()
			l := benched(b, path, log.Off)
			rs := make([]log.Record, each)
			for i := range rs {
				rs[i] = log.Record{Kind: log.Write, Stream: 1, Body: make([]byte, 100)}
			}
			for range records / each {
				if _, err := l.Append(rs...); err != nil {
					b.Fatal(err)
				}
			}
			stop(b, l)
			d, err := log.OpenDir(path)
			if err != nil {
				b.Fatal(err)
			}
			before, runs := processor(b), 0
			for b.Loop() {
				l, err := log.Open(log.Config{Dir: d, Store: [16]byte{1}, ReadOnly: true})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				if err := l.Replay(func(*log.Record) error { n++; return nil }); err != nil || n != records {
					b.Fatalf("%d records, %v", n, err)
				}
				if err := l.Close(false); err != nil {
					b.Fatal(err)
				}
				runs++
			}
			all := float64(runs) * records
			b.ReportMetric(float64(processor(b)-before)/all, "cpu-ns/record")
			b.ReportMetric(float64(b.Elapsed())/all, "ns/record")
		})
	}
}
