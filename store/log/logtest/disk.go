package logtest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/rdmakv/rdmakv/store/log"
)

// Options are what kind of disk it is. The zero value is one with direct access to blocks
// of 4 KiB, and room without end.
type Options struct {
	Seed     uint64 // of what a failing call leaves behind
	Block    int    // what direct access must be aligned to; 4096
	NoDirect bool   // direct access is refused
	// DriveCache: the drive says that a direct write is durable when it has it in its
	// own memory. Only Sync makes it so.
	DriveCache bool
	// Capacity bounds the bytes of all files; 0: there is room without end.
	Capacity int64
}

// ErrCrashed is what every call returns from the crash on.
var ErrCrashed = errors.New("logtest: the power is gone")

// A Disk is a directory of files in memory. It implements log.Dir.
type Disk struct {
	opt Options

	mu      sync.Mutex
	names   map[string]*inode // as a process sees them
	stable  map[string]*inode // as they are after a power cut, without what is pending
	pending []change          // since the last Sync, in their order
	seq     uint64            // of the newest write
	flying  map[uint64]flight // direct writes that have not returned, by seq
	handles int
	rand    *rand.Rand // of what failing calls leave behind

	faults
}

// A change of the names is durable when the directory has been synced.
type change struct {
	from, to string // "" where nothing was, or nothing is
	node     *inode
}

// A flight is a direct write on its way.
type flight struct {
	node   *inode
	off, n int64
}

// New returns an empty disk.
func New(o Options) *Disk {
	if o.Block == 0 {
		o.Block = pageSize
	}
	d := &Disk{opt: o, names: map[string]*inode{}, stable: map[string]*inode{}, flying: map[uint64]flight{}}
	d.rand = rand.New(rand.NewPCG(o.Seed, 1))
	d.gone = make(chan struct{})
	return d
}

// List returns the names that a process sees.
func (d *Disk) List() ([]string, error) {
	if _, err := d.begin(Call{Op: OpList}); err != nil {
		return nil, err
	}
	return d.Names(), nil
}

// Names returns the names of all files, sorted, also after a crash.
func (d *Disk) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names))
}

// Create makes a file of zeros. Its length is durable after its first Sync or direct
// write; before, it may be empty after a power cut.
func (d *Disk) Create(name string, size int64, prewritten bool, a log.Access) (log.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, fmt.Errorf("logtest: a file of %d bytes", size)
	}
	_, err := d.begin(Call{Op: OpCreate, Name: name, Len: int(size), Direct: a.Direct})
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && !d.cutShort(err):
		return nil, err
	case d.names[name] != nil:
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	case a.Direct && d.opt.NoDirect:
		return nil, log.ErrNoDirect
	case d.opt.Capacity > 0 && d.used()+size > d.opt.Capacity:
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	n := newInode(size)
	n.sizes = append(n.sizes, size)
	d.names[name] = n
	d.pending = append(d.pending, change{"", name, n})
	if err != nil {
		return nil, err
	}
	return d.handle(name, n, a), nil
}

// Open opens a file that exists.
func (d *Disk) Open(name string, a log.Access) (log.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, err := d.begin(Call{Op: OpOpen, Name: name, Direct: a.Direct}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if a.Direct && d.opt.NoDirect {
		return nil, log.ErrNoDirect
	}
	return d.handle(name, n, a), nil
}

// Rename gives a file another name.
func (d *Disk) Rename(from, to string) error {
	if err := errors.Join(checkName(from), checkName(to)); err != nil {
		return err
	}
	_, err := d.begin(Call{Op: OpRename, Name: from, To: to})
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[from]
	switch {
	case err != nil && !d.cutShort(err):
		return err
	case n == nil:
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	case d.names[to] != nil:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	delete(d.names, from)
	d.names[to] = n
	d.pending = append(d.pending, change{from, to, n})
	return err
}

// Remove takes a file away. Who has it open can go on with it.
func (d *Disk) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	_, err := d.begin(Call{Op: OpRemove, Name: name})
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	switch {
	case err != nil && !d.cutShort(err):
		return err
	case n == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(d.names, name)
	d.pending = append(d.pending, change{name, "", n})
	return err
}

// Sync makes the names durable. A Sync that fails leaves some of them pending for ever.
func (d *Disk) Sync() error {
	d.mu.Lock()
	upTo := len(d.pending)
	d.mu.Unlock()
	f, err := d.begin(Call{Op: OpSyncDir})
	d.mu.Lock()
	defer d.mu.Unlock()
	upTo = min(upTo, len(d.pending))
	if err != nil {
		if f.Lost && !d.dead {
			// What the journal could not write is forgotten: some changes are durable,
			// and no later Sync writes the others.
			for _, c := range d.pending[:upTo] {
				if d.rand.IntN(2) == 0 {
					c.apply(d.stable)
				}
			}
			d.pending = slices.Clone(d.pending[upTo:])
		}
		return err
	}
	for _, c := range d.pending[:upTo] {
		c.apply(d.stable)
	}
	d.pending = slices.Clone(d.pending[upTo:])
	return nil
}

// apply makes a change in a directory. It also works where the change before it is
// missing: a file may get its second name and never have had its first.
func (c change) apply(names map[string]*inode) {
	if c.from != "" && names[c.from] == c.node {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

// used is how many bytes the files have. The caller holds d.mu.
func (d *Disk) used() (n int64) {
	for _, f := range d.names {
		n += f.size
	}
	return n
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("logtest: %q is no name of a file", name)
	}
	return nil
}

var _ log.Dir = (*Disk)(nil)
