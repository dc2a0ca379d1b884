package layout

// Growth in the model: mark every header of the old segment, build the new
// ones, publish the directory entries, retire the old. Old slots stay as they
// are. Retired memory becomes something else only after a lease.

// worldMaxDepth keeps the model's index small.
const worldMaxDepth = 4

func (w *world) grow() {
	i := w.r.IntN(len(w.segs))
	old := w.segs[i]
	var fresh []*mseg
	switch {
	case old.step+1 < SegmentSteps:
		fresh = []*mseg{{step: old.step + 1, depth: old.depth, prefix: old.prefix}}
	case old.depth < worldMaxDepth:
		fresh = []*mseg{
			{depth: old.depth + 1, prefix: old.prefix << 1},
			{depth: old.depth + 1, prefix: old.prefix<<1 | 1},
		}
	default:
		return
	}
	if w.nextPage.Byte()+3*worldUnit > worldRegions*RegionGranule && len(w.free) < 3 {
		return // growth waits for memory
	}
	w.tally.growths++
	w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
		for b := range SegmentBuckets(old.step) {
			off := int(old.place.Byte()) + b*BucketSize
			h := BucketHeader(LoadWord(w.mem, off))
			if w.bug != bugNoMark {
				h = h.WithMarked()
			}
			out = append(out, w.hot(wstore{off, 8, uint64(h)})...)
		}
		return out
	}})
	w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
		w.segs = append(w.segs[:i:i], w.segs[i+1:]...)
		w.segs = append(w.segs, fresh...)
		for _, s := range fresh {
			s.place = w.allocIndex()
			out = append(out, w.buildSegment(s, old)...)
		}
		return out
	}})
	if fresh[0].depth > w.dirDepth {
		w.doubleDirectory()
	}
	w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
		for _, s := range fresh {
			for e := range 1 << w.dirDepth {
				if uint32(e)>>(w.dirDepth-s.depth) == s.prefix {
					out = append(out, wstore{int(w.dir.Byte()) + e*wordSize, 8, MakeDirEntry(s.place, s.depth, s.step)})
				}
			}
		}
		return out
	}, after: func() { w.retire(old.place) }})
}

// buildSegment writes a segment's headers and, from the old one, the slots of
// its keys, into memory that may have been anything. In no particular order:
// that a header stands before its slots do must not mislead anyone.
func (w *world) buildSegment(s, old *mseg) (out []wstore) {
	base := int(s.place.Byte())
	words := make([]uint64, SegmentBytes(s.step)/wordSize)
	for b, n := range w.counts(s) {
		words[b*BucketSize/wordSize] = uint64(MakeBucketHeader(s.step, s.depth, b, n, 0, s.prefix))
	}
	for _, k := range w.keys {
		if old == nil || k.hash.Prefix(s.depth) != s.prefix {
			continue
		}
		a, b := k.hash.Mains(SegmentGroups(s.step))
		move := func(from int) int {
			for {
				m := []Main{a, b}[w.r.IntN(2)]
				off := (m.PairBucket()+w.r.IntN(2))*BucketSize + SlotOffset(w.r.IntN(BucketSlots))
				if words[off/wordSize] == 0 {
					words[off/wordSize] = LoadWord(w.mem, from)
					return base + off
				}
			}
		}
		if k.slotOff != 0 {
			k.slotOff, k.seg = move(k.slotOff), s
		}
		// Of slots that say the same, one is enough.
		if k.pebble {
			k.stale = nil
		}
		if len(k.stale) > 0 {
			k.stale = []int{move(k.stale[0])}
		}
	}
	for i, v := range words {
		if off := base + i*wordSize; LoadWord(w.mem, off) != v {
			out = append(out, w.hot(wstore{off, 8, v})...)
		}
	}
	return out
}

// doubleDirectory: a new array, the root word swung to it, the old retired.
func (w *world) doubleDirectory() {
	w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
		fresh := w.allocIndex()
		old, oldDepth := w.dir, w.dirDepth
		w.dir, w.dirDepth = fresh, oldDepth+1
		for e := range DirPageEntries {
			v := uint64(0)
			if e < 1<<w.dirDepth {
				v = LoadWord(w.mem, int(old.Byte())+e/2*wordSize)
			}
			if off := int(fresh.Byte()) + e*wordSize; LoadWord(w.mem, off) != v {
				out = append(out, wstore{off, 8, v})
			}
		}
		w.steps = append([]wstep{{
			stores: func() []wstore {
				return []wstore{{int(w.view.RootPlace(0).Byte()), 8, MakeRoot(fresh, oldDepth+1)}}
			},
			after: func() { w.retire(old) },
		}}, w.steps...)
		return out
	}})
}

// reuse: a lease has passed since some index memory was retired.
func (w *world) reuse() {
	if len(w.waiting) == 0 {
		return
	}
	i := w.r.IntN(len(w.waiting))
	x := w.waiting[i]
	w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
	if w.bug != bugReuseAtOnce {
		w.lease(x.retired)
	}
	w.tally.reuses++
	if w.r.IntN(4) == 0 {
		w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
			// Zeroed by the allocator on the way, and not given out yet.
			for off := int(x.place.Byte()); off < int(x.place.Byte())+worldUnit; off += wordSize {
				if LoadWord(w.mem, off) != 0 {
					out = append(out, wstore{off, 8, 0})
				}
			}
			return out
		}, after: func() { w.free = append(w.free, x.place) }})
		return
	}
	w.free = append(w.free, x.place)
}
