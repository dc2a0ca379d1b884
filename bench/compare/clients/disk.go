package clients

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Appends is the floor of a durable write: a record is appended to a file, and
// fdatasync called, by one thread.
func Appends(dir string, record int, d time.Duration) (s report.Sample, err error) {
	f, err := os.Create(filepath.Join(dir, "appends"))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	b := make([]byte, record)
	return sample(d, func() error {
		if _, err := f.Write(b); err != nil {
			return err
		}
		return datasync(f)
	})
}

// overwriteBytes is the size of the file that Overwrites goes through.
const overwriteBytes = 256 << 20

// Overwrites is the disk's sequential rate: one thread goes through a file that was written
// before, block by block, past the page cache. With each, a write returns when its block is
// durable; else one fdatasync at the end, whose time counts, makes all of them so, as dd does with
// oflag=direct and conv=fdatasync. block divides 256 MiB and is a multiple of 4 KiB.
func Overwrites(dir string, block int, each bool, d time.Duration) (s report.Sample, err error) {
	f, err := directFile(dir, "overwrites", each)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	b, err := aligned(block)
	if err != nil {
		return s, err
	}
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	for off := 0; off < overwriteBytes; off += block {
		if _, err := f.WriteAt(b, int64(off)); err != nil {
			return s, err
		}
	}
	if err := datasync(f); err != nil {
		return s, err
	}
	next := int64(0)
	s, err = sample(d, func() error {
		_, err := f.WriteAt(b, next)
		next = (next + int64(block)) % overwriteBytes
		return err
	})
	if err != nil || each {
		return s, err
	}
	begun := time.Now()
	err = datasync(f)
	s.Seconds += time.Since(begun).Seconds()
	s.Rate = float64(s.Ops) / s.Seconds
	return s, err
}

// A Commit measures bare Pebble: callers that each set one key after the other, of
// those there are any, in a process without a network.
type Commit struct {
	Callers  int
	Value    int // bytes
	Keys     uint64
	Sync     bool
	Duration time.Duration
}

// Commits measures Pebble in a new directory below dir.
func Commits(dir string, c Commit) (s report.Sample, err error) {
	dir, err = os.MkdirTemp(dir, "pebble-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	opts := pebble.NoSync
	if c.Sync {
		opts = pebble.Sync
	}
	value := make([]byte, c.Value)
	var next atomic.Uint64
	put := func(key []byte) error {
		return db.Set(fmt.Appendf(key[:0], "key:%012d", scatter(next.Add(1))%c.Keys), value, opts)
	}
	return together(c.Callers, c.Duration, put)
}

// scatter makes numbers that look random out of those that are counted up (the finalizer of
// SplitMix64). Keys in their order would cost Pebble half of what those of a store's clients do:
// each goes where the one before has gone.
func scatter(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// together lets callers put at the same time.
func together(callers int, d time.Duration, put func(key []byte) error) (report.Sample, error) {
	samples, errs := make([]report.Sample, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			key := make([]byte, 0, 32)
			samples[i], errs[i] = sample(d, func() error { return put(key) })
		})
	}
	wg.Wait()
	var all report.Sample
	var p50, p99 []float64
	for _, s := range samples {
		all.Ops += s.Ops
		all.Rate += s.Rate
		all.Seconds = max(all.Seconds, s.Seconds)
		all.Max = max(all.Max, s.Max)
		p50, p99 = append(p50, s.P50), append(p99, s.P99)
	}
	// Callers are alike: the middle one's percentiles stand for all.
	all.P50, all.P99 = report.Summarize(p50).Median, report.Summarize(p99).Median
	return all, errors.Join(errs...)
}

// silent keeps Pebble's log out of the output, but not its end.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Copies is the floor of a read from memory: values of so many bytes are copied
// from random places of 64 MiB. Batches are timed, so there are no percentiles;
// P50 is of the mean of batches.
func Copies(size int, d time.Duration) (report.Sample, error) {
	const room, batch = 64 << 20, 256
	from, to := make([]byte, room), make([]byte, size)
	for i := range from {
		from[i] = byte(i) // so that all pages are there
	}
	at, slots := uint64(1), uint64(room/size)
	s, err := sample(d, func() error {
		for range batch {
			at = at*6364136223846793005 + 1442695040888963407
			off := int(at>>33%slots) * size
			copy(to, from[off:off+size])
		}
		return nil
	})
	s.Ops *= batch
	s.Rate *= batch
	for _, v := range []*float64{&s.P50, &s.P90, &s.P99, &s.P999, &s.Max} {
		*v /= batch
	}
	return s, err
}
