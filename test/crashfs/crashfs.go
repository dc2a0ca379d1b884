// Package crashfs is a disk in memory whose power can be cut at any call: Pebble's
// vfs.MemFS, without the deadlock that it has there.
//
// Three calls of a vfs.MemFS (Link, Lock and ReuseForWrite) take a read lock twice. When
// CrashClone comes for the write lock in between, the second read lock waits behind it and
// CrashClone behind the first, for ever. Pebble has mended it after the version that is
// used here (cockroachdb/pebble#5993). A Disk lets no such call and no CrashClone overlap.
package crashfs

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Disk is a file system in memory that knows what was synced. It may be used by several
// goroutines.
type Disk struct {
	*vfs.MemFS
	turn sync.Mutex // held by CrashClone, and by the calls that take MemFS's read lock twice
}

// New returns an empty disk.
func New() *Disk { return &Disk{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns what the disk would hold if the power went now: everything that was
// synced, and so much of the rest as c says. The disk itself goes on.
func (d *Disk) CrashClone(c vfs.CrashCloneCfg) *Disk {
	d.turn.Lock()
	defer d.turn.Unlock()
	return &Disk{MemFS: d.MemFS.CrashClone(c)}
}

// Link is vfs.FS's.
func (d *Disk) Link(from, to string) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.MemFS.Link(from, to)
}

// Lock is vfs.FS's.
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.MemFS.Lock(name)
}

// ReuseForWrite is vfs.FS's.
func (d *Disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.MemFS.ReuseForWrite(from, to, c)
}
