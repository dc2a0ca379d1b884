package logtest

import (
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/log"
)

// A file is an open file of a Disk.
type file struct {
	d      *Disk
	name   string // under which it was opened
	node   *inode
	access log.Access
	closed atomic.Bool
}

// handle opens a file. The caller holds d.mu.
func (d *Disk) handle(name string, n *inode, a log.Access) *file {
	d.handles++
	return &file{d: d, name: name, node: n, access: a}
}

// check refuses what an open file of the system would refuse.
func (f *file) check(op Op, p []byte, off int64) error {
	refuse := func(format string, args ...any) error {
		return &fs.PathError{Op: op.String(), Path: f.name, Err: fmt.Errorf(format, args...)}
	}
	b := int64(f.d.opt.Block)
	switch {
	case f.closed.Load():
		return refuse("%w", fs.ErrClosed)
	case op != OpRead && !f.access.Write:
		return refuse("opened for reading alone")
	case off < 0:
		return refuse("offset %d", off)
	case f.access.Direct && p != nil && (off%b != 0 || int64(len(p))%b != 0):
		return refuse("%d bytes at %d are no whole blocks of %d", len(p), off, b)
	case f.access.Direct && len(p) > 0 && address(p)%uintptr(b) != 0:
		return refuse("a buffer that does not begin at a multiple of %d", b)
	}
	return nil
}

// ReadAt reads what the cache has, or with direct access what the platter has.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check(OpRead, p, off); err != nil {
		return 0, err
	}
	if _, err := f.d.begin(Call{Op: OpRead, Name: f.name, Off: off, Len: len(p), Direct: f.access.Direct}); err != nil {
		return 0, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n := max(0, min(int64(len(p)), f.node.size-off))
	f.node.read(p[:n], off, f.access.Direct)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// WriteAt writes into the cache, or with direct access to the platter. A direct write is
// on its way from here until it returns: when the power goes in between, or it fails, each
// sector of it is there or not.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check(OpWrite, p, off); err != nil {
		return 0, err
	}
	d, direct := f.d, f.access.Direct
	d.mu.Lock()
	if end := off + int64(len(p)); end > f.node.size {
		d.mu.Unlock()
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fmt.Errorf("up to %d in a file of %d bytes: it would grow", end, f.node.size)}
	}
	d.mu.Unlock()
	seq, wrote := uint64(0), p
	// What is submitted before the call is held, or fails, is what it leaves behind.
	fault, err := d.begin(Call{Op: OpWrite, Name: f.name, Off: off, Len: len(p), Direct: direct}, func(fault Fault) {
		if fault.Short > 0 {
			wrote = p[:min(fault.Short, len(p))]
		}
		if fault.Short == 0 && fault.Err != nil && !direct {
			wrote = nil // the cache has taken nothing
		}
		d.seq++
		seq = d.seq
		f.node.write(wrote, off, seq, direct)
		if direct {
			d.flying[seq] = flight{f.node, off, int64(len(wrote))}
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return 0, ErrCrashed
	}
	if direct && seq != 0 {
		delete(d.flying, seq)
		f.node.each(off, int64(len(wrote)), func(p *page, _, _ int, _ int64) {
			switch {
			case err != nil && fault.Short == 0:
				p.settle(seq, anySectors(d.rand))
				p.cache = p.last()
			case !d.opt.DriveCache:
				p.durable(seq)
			}
		})
		if err == nil && !d.opt.DriveCache {
			f.node.long()
		}
	}
	if err != nil && fault.Short > 0 {
		return len(wrote), err
	}
	if err != nil {
		return 0, err
	}
	d.bytes += int64(len(p))
	return len(p), nil
}

// Sync puts on the platter what was written before it began.
func (f *file) Sync() error {
	if err := f.check(OpSync, nil, 0); err != nil {
		return err
	}
	d, seq := f.d, uint64(0)
	fault, err := d.begin(Call{Op: OpSync, Name: f.name}, func(Fault) { seq = d.seq })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return ErrCrashed
	}
	if err != nil {
		if fault.Lost {
			for i := range f.node.pages {
				f.node.pages[i].settle(seq, anySectors(d.rand))
			}
		}
		return err
	}
	for i := range f.node.pages {
		p := &f.node.pages[i]
		// A direct write on its way is no page of the cache: a Sync does not wait for it.
		for len(p.newer) > 0 && p.newer[0].seq <= seq {
			if _, flying := d.flying[p.newer[0].seq]; flying {
				break
			}
			p.durable(p.newer[0].seq)
		}
	}
	f.node.long()
	return nil
}

// Truncate makes the file shorter.
func (f *file) Truncate(size int64) error {
	if err := f.check(OpTruncate, nil, size); err != nil {
		return err
	}
	_, err := f.d.begin(Call{Op: OpTruncate, Name: f.name, Len: int(size)})
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err != nil && !f.d.cutShort(err) {
		return err
	}
	if size > f.node.size {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fmt.Errorf("%d bytes are more than the file has", size)}
	}
	f.node.size = size
	f.node.sizes = append(f.node.sizes[:len(f.node.sizes):len(f.node.sizes)], size)
	return err
}

// Size is the length that a process sees.
func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.dead {
		return 0, ErrCrashed
	}
	return f.node.size, nil
}

// Block is what direct access must be aligned to.
func (f *file) Block() int { return f.d.opt.Block }

// Close closes the file. It is no call that can fail, and also works after a crash.
func (f *file) Close() error {
	if f.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.d.mu.Lock()
	f.d.handles--
	f.d.mu.Unlock()
	return nil
}
