package crashfs

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pageSize is how much of a file is kept or lost together when the power is cut.
const pageSize = 4096

// A page is shared by the node it was written to, by what is synced of that node, and by the
// disks that cuts of the power left. It is written only while its node alone has it. A nil page
// has only zeros, as the files of a log have before they are used.
type page [pageSize]byte

var zeros page

// A content is what a file holds. What its last page has beyond size is zero.
type content struct {
	size  int
	pages []*page
}

// grow makes the content at least size bytes long, with zeros.
func (c *content) grow(size int) {
	c.size = max(c.size, size)
	if n := (c.size + pageSize - 1) / pageSize; n > len(c.pages) {
		c.pages = append(c.pages, make([]*page, n-len(c.pages))...)
	}
}

// A node is a file or a directory. The lock of the disk guards the names of a directory, mu what
// a file holds.
type node struct {
	names  map[string]*node // of a directory; nil: it is a file
	synced map[string]*node // those that were there at the directory's last Sync

	mu      sync.Mutex
	data    content
	durable content      // as it was at the last Sync of the file
	dirty   map[int]bool // pages of data that were written since, and that no other content has
	changed time.Time
}

func newDir() *node { return &node{names: make(map[string]*node)} }

func (n *node) isDir() bool { return n.names != nil }

// crash returns what is left of a node after a cut of the power. A file with two names becomes two
// files, of which each keeps other pages that were not synced. Caller holds the lock of the disk
// alone.
func (n *node) crash(c *vfs.CrashCloneCfg) *node {
	lucky := func() bool { return c.UnsyncedDataPercent > 0 && c.RNG.IntN(100) < c.UnsyncedDataPercent }
	of := &node{}
	if !n.isDir() {
		n.crashFile(of, lucky)
		return of
	}
	names := maps.Clone(n.synced)
	if names == nil {
		names = make(map[string]*node)
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		if lucky() {
			names[name] = n.names[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		names[name] = names[name].crash(c)
	}
	of.names, of.synced = names, maps.Clone(names)
	return of
}

func (n *node) crashFile(of *node, lucky func() bool) {
	of.changed = n.changed
	of.data = content{size: n.durable.size, pages: slices.Clone(n.durable.pages)}
	for i, p := range n.data.pages {
		if !lucky() {
			continue
		}
		of.data.grow(min((i+1)*pageSize, n.data.size))
		if n.dirty[i] && p != nil { // else the next write would change it
			p = new(*p)
		}
		of.data.pages[i] = p
	}
	of.durable = content{size: of.data.size, pages: slices.Clone(of.data.pages)}
}

// sync makes durable what was written since the last one.
func (n *node) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.durable.grow(n.data.size)
	for i := range n.dirty {
		n.durable.pages[i] = n.data.pages[i]
	}
	clear(n.dirty)
}

func (n *node) readAt(p []byte, at int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := 0
	for end := min(len(p), n.data.size-at); done < end; {
		from := n.data.pages[(at+done)/pageSize]
		if from == nil {
			from = &zeros
		}
		done += copy(p[done:end], from[(at+done)%pageSize:])
	}
	return done
}

func (n *node) writeAt(p []byte, at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = time.Now()
	if n.dirty == nil {
		n.dirty = make(map[int]bool)
	}
	n.data.grow(at + len(p))
	for len(p) > 0 {
		i, in := at/pageSize, at%pageSize
		part := p[:min(len(p), pageSize-in)]
		at, p = at+len(part), p[len(part):]
		to := n.data.pages[i]
		switch {
		case to == nil && bytes.Equal(part, zeros[:len(part)]):
			n.dirty[i] = true // durable may have another page, if it has grown behind a hole
			continue
		case to == nil:
			to = new(page)
		case !n.dirty[i]:
			to = new(*to)
		}
		copy(to[in:], part)
		n.data.pages[i], n.dirty[i] = to, true
	}
}

// A file is an open file or directory. As with a file of the operating system, calls that move
// its position are not made at the same time.
type file struct {
	disk        *Disk
	node        *node // nil when it is closed, so that a call of a closed file panics
	name        string
	pos         int
	read, write bool
}

var _ vfs.File = (*file)(nil)

// These are the errors of calls that the way in which a file was opened does not allow.
var (
	errNotReadable = errors.New("crashfs: this file was not opened to be read")
	errNotWritable = errors.New("crashfs: this file was not opened to be written")
)

func (f *file) Close() error {
	if f.node == nil {
		panic("crashfs: a file is closed twice")
	}
	f.node = nil
	return nil
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.at(p, f.pos)
	f.pos += n
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *file) ReadAt(p []byte, at int64) (int, error) { return f.at(p, int(at)) }

func (f *file) at(p []byte, at int) (int, error) {
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	if !f.read || f.node.isDir() {
		return 0, errNotReadable
	}
	n := f.node.readAt(p, at)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, int64(f.pos))
	f.pos += n
	return n, err
}

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	if !f.write || f.node.isDir() {
		return 0, errNotWritable
	}
	f.node.writeAt(p, int(at))
	return len(p), nil
}

func (f *file) Sync() error {
	if f.node.isDir() {
		f.disk.mu.Lock()
		defer f.disk.mu.Unlock()
		f.node.synced = maps.Clone(f.node.names)
		return nil
	}
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	f.node.sync()
	return nil
}

func (f *file) SyncData() error { return f.Sync() }

// SyncTo promises nothing, and syncs nothing: a caller that relies on it is found out.
func (f *file) SyncTo(int64) (full bool, err error) { return false, nil }

func (f *file) Prefetch(int64, int64) error    { return nil }
func (f *file) Preallocate(int64, int64) error { return nil }
func (f *file) Fd() uintptr                    { return vfs.InvalidFd }

func (f *file) Stat() (vfs.FileInfo, error) {
	f.disk.mu.RLock()
	defer f.disk.mu.RUnlock()
	return f.stat(), nil
}

func (f *file) stat() vfs.FileInfo {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return info{f.name, int64(f.node.data.size), f.node.changed, f.node.isDir()}
}

// info is what Stat says of a file.
type info struct {
	name    string
	size    int64
	changed time.Time
	dir     bool
}

func (i info) Name() string           { return i.name }
func (i info) Size() int64            { return i.size }
func (i info) ModTime() time.Time     { return i.changed }
func (i info) IsDir() bool            { return i.dir }
func (i info) Sys() any               { return nil }
func (i info) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

func (i info) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o755
	}
	return 0o755
}
