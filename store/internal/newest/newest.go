// Package newest reads what is published of a key that memory does not have: in the log, if
// it is newer than the base, and else in the base.
//
//	shard's lock: writes in flight | item in memory | set of what is newer than the base
//	                                                   |                     |
//	                                            its record in the log     the base
//
// The base is asked last, without the lock: a write that leaves the set is in the base by
// then. If the base were asked first, a checkpoint in between would hide what it brought.
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
}

// A Reader reads the newest published record of a key. Safe for concurrent use.
type Reader struct {
	Base   *disk.Disk
	Log    Log // nil: there is none, and no set has anything
	Seed   uint64
	Counts *base.Counters
}

// Read reads key's newest published record, as disk.Disk.Read does. Caller holds no lock.
func (r *Reader) Read(sh *shard.Shard, key []byte) (disk.Record, io.Closer, error) {
	return r.Base.Read(sh.ID, key)
}

// Entry reads the record of an entry of a set. The caller holds what stands there (Log.Hold).
func (r *Reader) Entry(shard uint16, key []byte, e dirty.Entry) (disk.Record, error) {
	panic("not yet")
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
