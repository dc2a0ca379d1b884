package logtest

import (
	"math/rand/v2"
)

const (
	pageSize   = 4096 // of the cache
	sectorSize = 512  // what a disk writes as a whole or not at all
	sectors    = pageSize / sectorSize
)

// A block is the bytes of a page. It is never changed once it stands in a page, so disks
// share it: a copy of a disk costs a few pointers. nil is zeros.
type block [pageSize]byte

// A page of a file:
//
//	cache   what a buffered read sees
//	newer   what was written since, in order; each may be on the platter, or a part of it
//	disk    what is on the platter for sure
//
// A page is dirty while it has newer versions. After a Sync that failed it is clean, and
// cache and disk differ.
type page struct {
	cache, disk *block
	newer       []version
}

// A version is a page as one write left it.
type version struct {
	seq  uint64 // of the write
	data *block
}

// last is what the platter has once everything has reached it. A direct read sees it.
func (p *page) last() *block {
	if n := len(p.newer); n > 0 {
		return p.newer[n-1].data
	}
	return p.disk
}

// durable puts the versions of all writes up to seq on the platter.
func (p *page) durable(seq uint64) {
	for len(p.newer) > 0 && p.newer[0].seq <= seq {
		p.disk = p.newer[0].data
		p.newer = p.newer[1:]
	}
}

// settle puts on the platter what pick says of the versions up to seq, and forgets them:
// pick returns for a sector how many of them have reached it.
func (p *page) settle(seq uint64, pick func(p *page, sector int) int) {
	n := 0
	for n < len(p.newer) && p.newer[n].seq <= seq {
		n++
	}
	if n == 0 {
		return
	}
	at := func(i int) *block {
		if i <= 0 {
			return p.disk
		}
		return p.newer[min(i, n)-1].data
	}
	first, same := at(pick(p, 0)), true
	mixed := new(block)
	copySector(mixed, first, 0)
	for s := 1; s < sectors; s++ {
		b := at(pick(p, s))
		same = same && b == first
		copySector(mixed, b, s)
	}
	if same {
		mixed = first
	}
	p.disk, p.newer = mixed, p.newer[n:]
}

func copySector(to, from *block, s int) {
	if from != nil {
		copy(to[s*sectorSize:(s+1)*sectorSize], from[s*sectorSize:])
	} else {
		clear(to[s*sectorSize : (s+1)*sectorSize])
	}
}

// anySectors picks for each sector alone.
func anySectors(r *rand.Rand) func(*page, int) int {
	return func(p *page, _ int) int { return r.IntN(len(p.newer) + 1) }
}

// An inode is a file without its name.
type inode struct {
	size  int64   // as a process sees it
	sure  int64   // as it is after a power cut, or one of sizes
	sizes []int64 // that it was given since, in order
	pages []page
}

func newInode(size int64) *inode {
	return &inode{size: size, pages: make([]page, (size+pageSize-1)/pageSize)}
}

// clone copies a file. The copies share their blocks.
func (n *inode) clone() *inode {
	c := &inode{size: n.size, sure: n.sure, sizes: n.sizes[:len(n.sizes):len(n.sizes)], pages: make([]page, len(n.pages))}
	for i, p := range n.pages {
		p.newer = p.newer[:len(p.newer):len(p.newer)]
		c.pages[i] = p
	}
	return c
}

// each calls f for each page that a range touches, with the part of the page, and the
// place of that part in the range.
func (n *inode) each(off, length int64, f func(p *page, from, to int, at int64)) {
	for at := int64(0); at < length; {
		i := (off + at) / pageSize
		from := int((off + at) % pageSize)
		to := int(min(pageSize, int64(from)+length-at))
		f(&n.pages[i], from, to, at)
		at += int64(to - from)
	}
}

// write makes a new version of each page that b touches. A buffered write changes what the
// cache has; a direct one what the platter will have, and the cache forgets the page.
func (n *inode) write(b []byte, off int64, seq uint64, direct bool) {
	n.each(off, int64(len(b)), func(p *page, from, to int, at int64) {
		before := p.cache
		if direct {
			before = p.last()
		}
		data := new(block)
		if before != nil && to-from < pageSize {
			*data = *before
		}
		copy(data[from:to], b[at:])
		p.cache = data
		// A new array: the old one may be shared with a copy of the disk.
		p.newer = append(p.newer[:len(p.newer):len(p.newer)], version{seq, data})
	})
}

// read copies what a reader sees.
func (n *inode) read(b []byte, off int64, direct bool) {
	n.each(off, int64(len(b)), func(p *page, from, to int, at int64) {
		data := p.cache
		if direct {
			data = p.last()
		}
		if data == nil {
			clear(b[at : at+int64(to-from)])
		} else {
			copy(b[at:], data[from:to])
		}
	})
}

// long makes the length durable.
func (n *inode) long() { n.sure, n.sizes = n.size, nil }
