// Package newest reads what is published of a key that memory does not have: in the log, if
// it is newer than the base, and else in the base.
//
//	shard's lock: writes in flight | item in memory | set of what is newer than the base
//	                                                   |                     |
//	                                            its record in the log     the base
//
// # The rules, and what happens without them
//
//   - The base is asked last, without the lock: a write that leaves the set is in the base by
//     then. If the base were asked first, a checkpoint in between would take a key out of the
//     set, and the reader would tell what the base had before.
//   - The log is held under the same hold of the lock as the look at the set. A write that is
//     in the set then keeps the base's position below its record. If the hold came later, the
//     checkpoint could end in between and its segment be freed: a good record would read as
//     damage.
//   - A record of the log counts only if shard, key and version are those of the entry. If
//     a position were believed by itself, the value of another key could be told.
//
// All that is found like this is published: the set has nothing else, and a checkpoint brings
// nothing else into the base. So whoever reads here does not have to wait for writes in flight
// because of what is shown.
package newest

import (
	"io"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Log is what is read of the log.
type Log interface {
	// Hold keeps what the base does not have from being freed, until release is called. It is
	// called under a shard's lock, and waits for nothing. It does not fail while a write
	// of that shard is newer than the base.
	Hold() (release func(), err error)
	// ReadAt reads the record at a position, in memory of its own.
	ReadAt(at log.Position) (log.Record, error)
	// Near returns a ReadAt for a reader whose next record mostly stands a little behind the
	// last one. What it returns is good until it is called again; it is not safe for
	// concurrent use.
	Near() func(at log.Position) (log.Record, error)
}

// Bytes are the tables of values, to which records of the log lead.
type Bytes interface {
	// Read reads the bytes of a value, which are not verified. They are there as long as the
	// record is held.
	Read(b *base.Bytes, into []byte) error
}

// A Reader reads the newest published record of a key. That of a cache is never asked, because
// memory is all that a cache has. Safe for concurrent use.
type Reader struct {
	Base   *disk.Disk
	Log    Log
	Bytes  Bytes // the tables of values
	Seed   uint64
	Counts *base.Counters
}

// Read reads key's newest published record, as disk.Disk.Read does: the record is good until
// closer is closed. Caller holds no lock.
//
// Errors: ErrNotFound, *CorruptError, ErrClosed, ErrFatal, what the disk said.
func (r *Reader) Read(sh *shard.Shard, key []byte) (disk.Record, io.Closer, error) {
	return r.read(sh, key, true)
}

// read is Read, which may leave a value out that has to be looked for.
func (r *Reader) read(sh *shard.Shard, key []byte, value bool) (rec disk.Record, closer io.Closer, err error) {
	h := r.HashOf(key)
	sh.Mu.Lock()
	e, dirty := sh.Dirty.Find(h, key)
	switch {
	case !dirty:
		sh.Mu.Unlock()
		return r.Base.Read(sh.ID, key)
	case e.Gone:
		sh.Mu.Unlock()
		return disk.Record{}, nil, base.ErrNotFound
	}
	release, err := r.Log.Hold()
	sh.Mu.Unlock()
	if err != nil {
		return disk.Record{}, nil, r.counted(fault(sh.ID, key, e.At, err))
	}
	defer release()
	if rec, err = r.entry(sh.ID, key, e, value); err != nil {
		return disk.Record{}, nil, err
	}
	r.Counts.FromLog.Add(1)
	return rec, ownMemory{}, nil
}

// ownMemory is the closer of a record that stands in memory of its own.
type ownMemory struct{}

// Close does nothing: the memory goes with the record.
func (ownMemory) Close() error { return nil }

// Entry reads the record of an entry of a set, in memory of its own. The caller holds what
// stands there (Log.Hold). Errors as Read; one that is deleted is not found.
func (r *Reader) Entry(shard uint16, key []byte, e dirty.Entry) (disk.Record, error) {
	return r.entry(shard, key, e, true)
}

// entry is Entry, which may leave the value out.
func (r *Reader) entry(shard uint16, key []byte, e dirty.Entry, value bool) (rec disk.Record, err error) {
	one := Entries{Reader: r}
	f, _, err := one.Look(shard, key, e)
	rec = disk.Record{Version: f.Version, Expiry: f.Expiry}
	if err == nil && value {
		rec.Value, _, err = one.Value(&f)
	}
	if err != nil {
		return disk.Record{}, r.counted(err)
	}
	return rec, nil
}

// A Moment is all that was published at one moment: what the base has, and what is newer.
type Moment struct {
	Base  disk.Snapshot
	Views []dirty.View // by shard; of a key that both have, the view's entry counts
	// Release lets go of what the log keeps for the entries of the views. The snapshot is
	// closed by itself.
	Release func()
}

// HashOf is the hash of a key.
func (r *Reader) HashOf(key []byte) layout.Hash { return layout.HashKey(r.Seed, key) }
