package clients

import (
	"errors"
	"os"
	"path/filepath"
	"time"

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
