package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store"
)

// BenchmarkPuts is durable puts/s (sync: always) of 16 B keys with 100 B values
// with 1, 8 and 64 writers. ratio is to bare Pebble with as many goroutines
// that each commit one key with Sync, on the same disk, in alternating slices
// of the same run; the goal is at least 0.9 at 64.
func BenchmarkPuts(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { puts(b, writers) })
	}
}

func puts(b *testing.B, writers int) {
	ctx := context.Background()
	c := dial(b, startServer(b, store.Always), nil)
	db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: silent{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	value := make([]byte, 100)
	// Enough puts a slice that starting its goroutines does not count.
	perSlice := 50 * writers
	var ours, theirs time.Duration
	var done int
	for b.Loop() {
		theirs += together(b, writers, perSlice, done, func(key []byte) error {
			return db.Set(key, value, pebble.Sync)
		})
		ours += together(b, writers, perSlice, done, func(key []byte) error {
			return c.Put(ctx, key, value)
		})
		done += perSlice
	}
	b.ReportMetric(float64(done)/ours.Seconds(), "puts/s")
	b.ReportMetric(float64(done)/theirs.Seconds(), "pebble/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
}

// together does n operations with so many goroutines and returns the time.
func together(b *testing.B, workers, n, from int, put func(key []byte) error) time.Duration {
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := put(fmt.Appendf(nil, "key:%012d", int64(from)+i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// silent keeps Pebble's log out of the results.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
