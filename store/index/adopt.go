package index

import (
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

// The index of a shard that an earlier life has left is used where it stands: the directory and the segments keep their memory, and so do
// the slots. What the process knew of them besides is made again:
//
//	Adopt      root word, directory, segments and their headers are checked, and their memory is claimed. What does not fit is left out.
//	           Each slot that is not empty is offered to the caller, who keeps it or not.
//	Complete   what was left out gets new, empty segments. By then all shards have claimed their memory.
//
// The process may have ended in the middle of a growth. Until a directory entry names a new segment, the old one is in force although its headers
// are marked, because its shard's lock was held all the while; so marks are taken away. Entries of one segment that do not agree, because
// some of them were swung, are left out, and with them the keys of that segment.
//
// Nothing here makes a reader believe a key: an item that a slot leads to verifies for no reader of this incarnation before it was looked at
// (layout.Reseal).

// An Adopted is an index that is being put together again. Its methods are its goroutine's alone.
type Adopted struct {
	ix     *Index
	lost   []bool        // by entry of the directory
	batch  []layout.Slot // slots of a segment
	refs   []int32       // where they stand in it
	failed bool          // there is no directory
}

// AdoptStats counts what an index was put together of.
type AdoptStats struct {
	Slots   int // kept
	Refused int // slots that the caller did not keep, or that cannot be
	Lost    int // directory entries without a segment
}

// Adopt looks at what an earlier life has left of a shard's index. keep is offered slots, some at a time, and says by their numbers which of
// them it does not keep; these are cleared. The index can be used after Complete. hashOf is that of New.
func Adopt(t *region.Table, r *reclaim.Reclaimer, shard uint16, hashOf func(layout.Slot) (layout.Hash, bool),
	keep func(slots []layout.Slot, refuse func(i int))) (*Adopted, AdoptStats) {
	a := &Adopted{ix: &Index{table: t, mem: t.Index(), reclaim: r, shard: shard, hashOf: hashOf}}
	ix := a.ix
	var st AdoptStats
	root := layout.LoadWord(t.Root(), int(layout.RootSlot(t.Header().RootOffset, shard)))
	place, depth, ok := layout.ParseRoot(root)
	if ok {
		ix.dirMem, ok = ix.mem.Claim(place, layout.DirBytes(depth)/layout.PageSize)
	}
	if a.failed = !ok; a.failed {
		st.Lost++
		return a, st
	}
	ix.depth, ix.dirPlace = depth, place
	ix.dir, a.lost = make([]*segment, 1<<depth), make([]bool, 1<<depth)
	ix.bytes = uint64(len(ix.dirMem))
	for i := 0; i < len(ix.dir); {
		seg, n := a.segment(i)
		if seg == nil {
			a.lost[i] = true
			st.Lost++
			i++
			continue
		}
		for at := i; at < i+n; at++ {
			ix.dir[at] = seg
		}
		i += n
		kept, refused := a.slots(seg, keep)
		st.Slots, st.Refused = st.Slots+kept, st.Refused+refused
		include(ix, seg)
	}
	return a, st
}

// include counts a segment in.
func include(ix *Index, seg *segment) {
	ix.segments++
	ix.slots += seg.capacity()
	ix.bytes += uint64(len(seg.mem))
	ix.keys += seg.keys
}

// segment claims the segment whose first entry is i, and returns how many entries name it; nil if entries or memory do not fit.
func (a *Adopted) segment(i int) (*segment, int) {
	ix := a.ix
	w := layout.LoadWord(ix.dirMem, i*8)
	place, depth, step, ok := layout.ParseDirEntry(w)
	if !ok || depth > ix.depth {
		return nil, 0
	}
	n := 1 << (ix.depth - depth)
	if i%n != 0 {
		return nil, 0
	}
	for at := i + 1; at < i+n; at++ {
		if layout.LoadWord(ix.dirMem, at*8) != w {
			return nil, 0
		}
	}
	mem, ok := ix.mem.Claim(place, layout.SegmentBytes(step)/layout.PageSize)
	if !ok {
		return nil, 0
	}
	return &segment{mem: mem, place: place, prefix: uint32(i / n), depth: depth, step: step, groups: layout.SegmentGroups(step)}, n
}

// slots offers the slots of a segment, clears those that are not kept, and writes its headers. A bucket whose header is another's keeps none.
func (a *Adopted) slots(seg *segment, keep func([]layout.Slot, func(int))) (kept, refused int) {
	ix := a.ix
	a.batch, a.refs = a.batch[:0], a.refs[:0]
	for b := range 3 * seg.groups {
		words := bucketAt(seg.mem, b)
		want := layout.MakeBucketHeader(seg.step, seg.depth, b, 0, ix.shard, seg.prefix)
		fits := layout.SameBucket(layout.BucketHeader(load(&words[0])), want)
		for i := 1; i < len(words); i++ {
			s := layout.Slot(load(&words[i]))
			off := b*layout.BucketSize + i*8
			switch {
			case s == 0:
			case !fits || s.Class() == 0 || s.Class() > layout.NumClasses:
				layout.StoreWord(seg.mem, off, 0)
				refused++
			default:
				a.batch, a.refs = append(a.batch, s), append(a.refs, int32(off))
			}
		}
		if layout.BucketHeader(load(&words[0])) != want {
			layout.StoreWord(seg.mem, b*layout.BucketSize, uint64(want))
		}
	}
	seg.keys = len(a.batch)
	keep(a.batch, func(i int) {
		layout.StoreWord(seg.mem, int(a.refs[i]), 0)
		seg.keys--
		refused++
	})
	return seg.keys, refused
}

// Complete returns the index. It fails with a *region.NoMemoryError.
func (a *Adopted) Complete() (*Index, error) {
	ix := a.ix
	if a.failed {
		fresh, err := New(ix.table, ix.reclaim, ix.shard, ix.hashOf)
		if err == nil {
			fresh.SetFilled()
		}
		return fresh, err
	}
	// No reader of this incarnation has seen another count than 0.
	ix.filled, ix.fills, ix.touched = true, 1, true
	ix.shown.Store(true)
	if err := a.renew(0, 0); err != nil {
		return nil, fmt.Errorf("index: shard %d: %w", ix.shard, err)
	}
	return ix, nil
}

// renew gives new segments to what was lost below a prefix: one where all of it was.
func (a *Adopted) renew(prefix uint32, depth uint8) error {
	ix := a.ix
	n := 1 << (ix.depth - depth)
	lost := a.lost[int(prefix)*n : int(prefix)*n+n]
	switch {
	case !slices.Contains(lost, true):
		return nil
	case slices.Contains(lost, false):
		if err := a.renew(prefix<<1, depth+1); err != nil {
			return err
		}
		return a.renew(prefix<<1|1, depth+1)
	}
	seg, err := ix.newSegment(prefix, depth, 0)
	if err != nil {
		return err
	}
	ix.writeSegment(seg, nil)
	include(ix, seg)
	ix.publishSegment(seg)
	return nil
}

// Fits says whether the slot r may be that of a key with the hash: the key belongs to its segment, and its bucket is one of the key's.
func Fits(r Ref, h layout.Hash) bool {
	four := r.seg.four(h)
	return r.seg.holds(h) && r.Slot().Fingerprint() == h.Fingerprint() && slices.Contains(four[:], int(r.off)/layout.BucketSize)
}

// Line is where the slot's item stands, for a caller that has memory fetched: the slots of a walk are in no order that a processor guesses.
func (r Ref) Line(t *region.Table) []byte { return t.Bytes(r.Slot().Place(), layout.ItemHeaderSize) }
