package logtest

import (
	"fmt"
	"io/fs"
)

// Contents returns the bytes of a file on the platter: what stands there for sure. It also
// works on a dead disk.
func (d *Disk) Contents(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	b := make([]byte, n.size)
	n.each(0, n.size, func(p *page, from, to int, at int64) {
		if p.disk != nil {
			copy(b[at:], p.disk[from:to])
		}
	})
	return b, nil
}

// Put makes a file with these bytes, or replaces it: what a hostile hand, or another
// program, leaves. It is durable at once.
func (d *Disk) Put(name string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := newInode(int64(len(b)))
	n.long()
	n.each(0, n.size, func(p *page, from, to int, at int64) {
		data := new(block)
		copy(data[from:to], b[at:])
		p.disk, p.cache = data, data
	})
	d.names[name], d.stable[name] = n, n
}

// Lose takes a file away for good, as if its directory had lost it.
func (d *Disk) Lose(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, name)
	delete(d.stable, name)
}

// Flip changes the bits of mask in one byte of a file, on the platter and in the cache. A
// file on which writes are pending cannot rot: Crash or Clone a disk that is at rest.
func (d *Disk) Flip(name string, off int64, mask byte) error {
	return d.rot(name, off, 1, func(b []byte) { b[0] ^= mask })
}

// RotSector makes the sector at an offset unlike what it was, in every byte.
func (d *Disk) RotSector(name string, off int64) error {
	return d.rot(name, off/sectorSize*sectorSize, sectorSize, func(b []byte) {
		for i := range b {
			b[i] ^= byte(i)*167 | 1
		}
	})
}

// ZeroSector makes the sector at an offset zeros, as a drive that has given it up does.
func (d *Disk) ZeroSector(name string, off int64) error {
	return d.rot(name, off/sectorSize*sectorSize, sectorSize, func(b []byte) { clear(b) })
}

// rot changes bytes within one page.
func (d *Disk) rot(name string, off, length int64, change func([]byte)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[name]
	switch {
	case n == nil:
		return &fs.PathError{Op: "rot", Path: name, Err: fs.ErrNotExist}
	case off < 0 || off >= n.size:
		return &fs.PathError{Op: "rot", Path: name, Err: fmt.Errorf("offset %d of %d bytes", off, n.size)}
	}
	length = min(length, n.size-off)
	p := &n.pages[off/pageSize]
	if len(p.newer) > 0 {
		return &fs.PathError{Op: "rot", Path: name, Err: fmt.Errorf("a write is pending at offset %d", off)}
	}
	data := new(block)
	if p.disk != nil {
		*data = *p.disk
	}
	change(data[off%pageSize:][:length])
	p.disk, p.cache = data, data
	return nil
}
