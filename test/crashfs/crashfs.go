// Package crashfs is a disk in memory whose power can be cut at any call. It knows what was
// synced, as Pebble's vfs.MemFS does, and takes that one's place because most tests of the store
// spent their time there: a Sync of a MemFS copies the whole file, which is a segment of a log as
// often as not, and a cut copies all files twice. Here files are made of pages. A Sync notes which
// pages were written since the last one, and what a cut leaves shares its pages with the disk.
//
// A MemFS may also deadlock: three of its calls take a read lock twice, and CrashClone may come for
// the write lock in between (cockroachdb/pebble#5993).
package crashfs

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Disk is a file system in memory that knows what was synced. It may be used by several
// goroutines. Names are separated by slashes; a relative name begins at the root.
type Disk struct {
	// mu guards the directories. A call that changes one, or cuts the power, holds it alone; a
	// call of a file holds it together with others, and the lock of its node.
	mu   sync.RWMutex
	root *node

	locks sync.Map // the names that are locked
	usage vfs.DiskUsage
}

var _ vfs.FS = (*Disk)(nil)

// New returns an empty disk.
func New() *Disk { return &Disk{root: newDir()} }

// CrashClone returns what the disk would hold if the power went now: everything that was
// synced, and so much of the rest as c says: each name and each page of 4 KiB by chance. The disk
// itself goes on.
func (d *Disk) CrashClone(c vfs.CrashCloneCfg) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{root: d.root.crash(&c)}
}

// find returns the directory of a name, and the name's last part, which is empty for a name that
// ends with a slash and for the root. Caller holds mu.
func (d *Disk) find(name string) (dir *node, last string, err error) {
	rest := strings.TrimLeft(name, "/")
	if rest == "." {
		rest = ""
	}
	dir = d.root
	for {
		part, after, more := strings.Cut(rest, "/")
		if !more {
			return dir, part, nil
		}
		child := dir.names[part]
		switch {
		case child == nil:
			return nil, "", &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		case !child.isDir():
			return nil, "", &os.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		}
		dir, rest = child, strings.TrimLeft(after, "/")
	}
}

// errNoName is of a call that needs the name of a file.
var errNoName = errors.New("crashfs: an empty file name")

// findNamed is find for a name whose last part is not empty.
func (d *Disk) findNamed(name string) (dir *node, last string, err error) {
	if dir, last, err = d.find(name); err == nil && last == "" {
		err = errNoName
	}
	return dir, last, err
}

// Create is vfs.FS's.
func (d *Disk) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.create(name)
}

func (d *Disk) create(name string) (vfs.File, error) {
	dir, last, err := d.findNamed(name)
	if err != nil {
		return nil, err
	}
	n := &node{}
	dir.names[last] = n
	return &file{disk: d, node: n, name: last, read: true, write: true}, nil
}

// Link is vfs.FS's.
func (d *Disk) Link(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, last, err := d.findNamed(from)
	if err != nil {
		return err
	}
	n := dir.names[last]
	if n == nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: os.ErrNotExist}
	}
	if dir, last, err = d.findNamed(to); err != nil {
		return err
	}
	if dir.names[last] != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: os.ErrExist}
	}
	dir.names[last] = n
	return nil
}

// open opens what there is. Caller holds mu.
func (d *Disk) open(name string, write bool) (*file, error) {
	dir, last, err := d.find(name)
	if err != nil {
		return nil, err
	}
	if last == "" {
		return &file{disk: d, node: dir, name: "/"}, nil
	}
	n := dir.names[last]
	if n == nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return &file{disk: d, node: n, name: last, read: true, write: write}, nil
}

// Open is vfs.FS's. What options ask for does nothing in memory.
func (d *Disk) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f, err := d.open(name, false)
	if err != nil {
		return nil, err // not a *file that is nil, in an interface that is not
	}
	return f, nil
}

// OpenReadWrite is vfs.FS's.
func (d *Disk) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.open(name, true)
	if errors.Is(err, os.ErrNotExist) {
		return d.create(name)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenDir is vfs.FS's.
func (d *Disk) OpenDir(name string) (vfs.File, error) { return d.Open(name) }

// Remove is vfs.FS's.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, last, err := d.findNamed(name)
	if err != nil {
		return err
	}
	switch n := dir.names[last]; {
	case n == nil:
		return os.ErrNotExist
	case len(n.names) > 0:
		return syscall.ENOTEMPTY
	}
	delete(dir.names, last)
	return nil
}

// RemoveAll is vfs.FS's.
func (d *Disk) RemoveAll(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, last, err := d.findNamed(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		delete(dir.names, last)
	}
	return err
}

// Rename is vfs.FS's.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rename(from, to)
}

func (d *Disk) rename(from, to string) error {
	dir, last, err := d.findNamed(from)
	if err != nil {
		return err
	}
	n := dir.names[last]
	if n == nil {
		return &os.PathError{Op: "open", Path: from, Err: os.ErrNotExist}
	}
	there, name, err := d.findNamed(to)
	if err != nil {
		return err
	}
	delete(dir.names, last)
	there.names[name] = n
	return nil
}

// ReuseForWrite is vfs.FS's.
func (d *Disk) ReuseForWrite(from, to string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.rename(from, to); err != nil {
		return nil, err
	}
	f, err := d.open(to, true)
	if err != nil {
		return nil, err
	}
	f.read = false
	return f, nil
}

// MkdirAll is vfs.FS's.
func (d *Disk) MkdirAll(name string, _ os.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := d.root
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." {
			continue
		}
		child := dir.names[part]
		if child == nil {
			child = newDir()
			dir.names[part] = child
		}
		if !child.isDir() {
			return &os.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		}
		dir = child
	}
	return nil
}

// Lock is vfs.FS's. A second one of the same disk fails too: a store that is still open is
// another process to the one that takes its place in a test.
func (d *Disk) Lock(name string) (io.Closer, error) {
	if _, locked := d.locks.LoadOrStore(name, nil); locked {
		return nil, syscall.EAGAIN
	}
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		d.locks.Delete(name)
		return nil, err
	}
	return &lock{disk: d, name: name, file: f}, nil
}

type lock struct {
	disk *Disk
	name string
	file vfs.File // nil when it is closed
}

func (l *lock) Close() error {
	if l.file == nil {
		return nil
	}
	l.disk.locks.Delete(l.name)
	err := l.file.Close()
	l.file = nil
	return err
}

// List is vfs.FS's. The order is random.
func (d *Disk) List(name string) ([]string, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	dir, _, err := d.find(strings.TrimRight(name, "/") + "/")
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(dir.names))
	for s := range maps.Keys(dir.names) {
		list = append(list, s)
	}
	return list, nil
}

// Stat is vfs.FS's.
func (d *Disk) Stat(name string) (vfs.FileInfo, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f, err := d.open(name, false)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			p.Op = "stat"
		}
		return nil, err
	}
	return f.stat(), nil
}

// PathBase is vfs.FS's.
func (*Disk) PathBase(p string) string { return path.Base(p) }

// PathJoin is vfs.FS's.
func (*Disk) PathJoin(parts ...string) string { return path.Join(parts...) }

// PathDir is vfs.FS's.
func (*Disk) PathDir(p string) string { return path.Dir(p) }

// TestingSetDiskUsage sets what GetDiskUsage returns. Until then, and with a zero one, it returns
// vfs.ErrUnsupported.
func (d *Disk) TestingSetDiskUsage(u vfs.DiskUsage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.usage = u
}

// GetDiskUsage is vfs.FS's.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.usage == (vfs.DiskUsage{}) {
		return vfs.DiskUsage{}, vfs.ErrUnsupported
	}
	return d.usage, nil
}

// Unwrap is vfs.FS's: there is no other file system below this one.
func (*Disk) Unwrap() vfs.FS { return nil }
