package index

import (
	"github.com/rdmakv/rdmakv/store/layout"
)

// directory is a directory that is being made: its memory and its mirror.
type directory struct {
	depth uint8
	place layout.Place
	mem   []byte
	dir   []*segment
}

// newDirectory allocates a directory of 2^depth entries in units of 4 KiB. No
// reader knows of it yet.
func (ix *Index) newDirectory(depth uint8) (*directory, error) {
	p, mem, err := ix.mem.Alloc(layout.DirBytes(depth) / layout.PageSize)
	if err != nil {
		return nil, err
	}
	return &directory{depth: depth, place: p, mem: mem, dir: make([]*segment, 1<<depth)}, nil
}

// fillDirectory copies the current directory into a deeper one and puts the
// fresh segments in place of those that they replace.
func (ix *Index) fillDirectory(d *directory, fresh []*segment) {
	for i := range d.dir {
		d.dir[i] = ix.dir[i>>(d.depth-ix.depth)]
	}
	for _, s := range fresh {
		first, n := s.span(d.depth)
		for i := first; i < first+n; i++ {
			d.dir[i] = s
		}
	}
}

// publishDirectory writes the whole directory and swings the shard's root word
// to it: one store. The one before it, if any, rests for a lease; it leads to
// segments that are true or marked, and stays as it is.
func (ix *Index) publishDirectory(d *directory) {
	for off := 0; off < len(d.mem); off += 8 {
		var w uint64 // entries that do not exist never parse
		if i := off / 8; i < len(d.dir) {
			w = entryOf(d.dir[i])
		}
		ix.store(d.mem, off, w, "index.newdir")
	}
	root := layout.RootSlot(ix.table.Header().RootOffset, ix.shard)
	ix.store(ix.table.Root(), int(root), layout.MakeRoot(d.place, d.depth), "index.root")
	if ix.dirMem != nil {
		ix.bytes -= uint64(len(ix.dirMem))
		ix.retire(ix.dirPlace, ix.dirMem)
	}
	ix.bytes += uint64(len(d.mem))
	ix.dir, ix.depth, ix.dirPlace, ix.dirMem = d.dir, d.depth, d.place, d.mem
}

// publishSegment swings the directory entries of a segment to it, one store
// each. A reader in between finds the old segment, marked, and asks again.
func (ix *Index) publishSegment(s *segment) {
	first, n := s.span(ix.depth)
	w := entryOf(s)
	for i := first; i < first+n; i++ {
		ix.dir[i] = s
		ix.store(ix.dirMem, i*8, w, "index.entry")
	}
}

// span is the run of entries that name the segment in a directory of depth d.
func (seg *segment) span(d uint8) (first, n int) {
	shift := d - seg.depth
	return int(seg.prefix) << shift, 1 << shift
}

func entryOf(seg *segment) uint64 { return layout.MakeDirEntry(seg.place, seg.depth, seg.step) }
