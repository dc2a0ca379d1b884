package journal

import (
	"errors"
	"syscall"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/log"
)

// Large values do not go through the log: their bytes are written once, into a table of values
// (package tables), and the record of the write says where they stand.
//
//   - They are durable before the frame of the record is written, in every policy (flushBytes).
//     If not, a crash could leave a record whose value is lost.
//   - They are written in the order of the log, by those who append, so what a crash leaves
//     without a record stands behind all that has one (package checkpoint).
//   - On a full disk a value goes through the log as a small one does: room was set aside for it
//     there. A put that was let in is never refused afterwards.

// BytesFrom is the length from which a value goes into a table of values. A smaller one costs
// less in the log: a write of its own to the disk takes longer than its second copy.
const BytesFrom = 64 << 10

// putBytes writes the large values of a write, if it has any. Called by one goroutine.
func (j *Journal) putBytes(f *flight.Flight) error {
	if j.c.Values == nil || f.Noop {
		return nil
	}
	for _, e := range f.Effects {
		if !e.Puts() || len(e.Value) < j.bytesFrom() {
			continue
		}
		at, err := j.c.Values.Put(e.Value, xxh3.Hash(e.Value))
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return nil
		}
		if err != nil {
			return err
		}
		e.Bytes = at
	}
	return nil
}

// bytesFrom is BytesFrom, or what a test has set.
func (j *Journal) bytesFrom() int {
	if j.c.BytesFrom != 0 {
		return j.c.BytesFrom
	}
	return BytesFrom
}

// flushBytes returns when the values of a write that stand in tables are durable.
func (j *Journal) flushBytes(f *flight.Flight) error {
	for _, e := range f.Effects {
		if e.Bytes != nil {
			if err := j.c.Values.Flush(e.Bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// usedBytes says where the record of a write stands that leads to values in tables.
func (j *Journal) usedBytes(f *flight.Flight) {
	for _, e := range f.Effects {
		if e.Bytes != nil {
			j.c.Values.Used(e.Bytes, uint64(f.At))
		}
	}
}

// foundBytes notes the values in tables to which a record of an earlier life leads.
func (j *Journal) foundBytes(w *logged.Write, at log.Position) error {
	for e := range w.Effects {
		b := e.Bytes
		if b == nil {
			continue
		}
		if j.c.Values == nil {
			return errors.New("it leads to a table of values, and there is none")
		}
		if err := j.c.Values.Found(b, uint64(at)); err != nil {
			return err
		}
		j.Led = append(j.Led, *b)
	}
	return nil
}
