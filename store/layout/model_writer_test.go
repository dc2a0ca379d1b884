package layout

import "slices"

// The writer of the model. Each operation is a list of steps in the order of
// the design; tickWriter makes one store at a time.

// tickWriter makes the writer's next store, or begins its next operation.
func (w *world) tickWriter() {
	for len(w.stores) == 0 {
		if w.after != nil {
			w.after()
			w.after = nil
			if w.rest > w.clock || len(w.steps) == 0 {
				return
			}
		}
		if len(w.steps) == 0 {
			if w.r.IntN(3) == 0 {
				return // idle for a moment: SENDs are answered
			}
			w.operation()
			if len(w.steps) == 0 {
				return
			}
		}
		s := w.steps[0]
		w.steps = w.steps[1:]
		w.after = s.after
		if s.stores != nil {
			w.stores = s.stores()
		}
		if len(w.stores) == 0 && w.after == nil && len(w.steps) == 0 {
			return
		}
	}
	// Any store of the step may be the next one that becomes visible.
	i := w.r.IntN(len(w.stores))
	w.store(w.stores[i])
	w.stores[i] = w.stores[len(w.stores)-1]
	w.stores = w.stores[:len(w.stores)-1]
	if len(w.stores) == 0 && w.after != nil {
		w.after()
		w.after = nil
	}
}

// busy: an operation is under way.
func (w *world) busy() bool { return len(w.steps) > 0 || len(w.stores) > 0 || w.after != nil }

func (w *world) operation() {
	w.tally.ops++
	k := w.keys[w.r.IntN(len(w.keys))]
	switch x := w.r.IntN(100); {
	case x < w.growth:
		w.grow()
	case x < 2*w.growth:
		w.reuse()
	case !w.filled && x < 50:
		w.fill(k)
	case x < 60:
		w.put(k)
	case x < 77:
		w.delete(k)
	case x < 83:
		w.evict(k)
	case x < 90:
		w.promote(k)
	case x < 97:
		w.putSlotless(k)
	case x < 99:
		w.dropStale(k)
	default:
		w.dropSlot(k)
	}
}

// pause makes the writer rest.
func (w *world) pause() { w.rest = w.clock + 300 }

func (w *world) begin(k *mkey, absent bool) int {
	k.newest++
	k.absent = append(k.absent, absent)
	return k.newest
}

// write: pending; kill; swing; live. Used by put, fill and promotion.
func (w *world) write(k *mkey, n int, done func()) {
	cell, ok := w.takeCell()
	if !ok {
		panic("model: no free cell; callers check")
	}
	w.version++
	version, old, oldVersion := w.version, k.cell, k.version
	if former, _ := LoadState(w.mem[w.cellOff(cell):]); w.bug == bugVersionTwice && former != 0 {
		version = former
	}
	it := w.item(k, n, version)
	off, place := w.cellOff(cell), w.cellPlace(cell)
	w.steps = append(w.steps, wstep{stores: func() []wstore {
		return w.capture(off, worldCellSize, wordSize, func(m []byte) { WriteItem(m, w.view.Incarnation, place, it, Pending) })
	}})
	var dead wstep
	if old >= 0 {
		dead = w.setState(old, oldVersion, Dead)
	}
	k.leaveSlot()
	if k.slotOff == 0 {
		k.slotOff, k.seg = w.emptySlot(k), w.segmentOf(k.hash)
	}
	class, _ := ClassFor(worldCellSize)
	swing := word(k.slotOff, uint64(MakeSlot(k.hash.Fingerprint(), class, place)))
	live := w.setState(cell, version, Live)
	live.after = func() { k.effective = max(k.effective, n) }
	order := []wstep{dead, swing, live}
	switch w.bug {
	case bugKillLast:
		order = []wstep{swing, live, dead}
	case bugLiveFirst:
		order = []wstep{dead, live, swing}
	}
	w.steps = append(w.steps, order...)
	w.steps = append(w.steps, wstep{after: func() {
		if old >= 0 {
			w.cells[old] = false
		}
		k.cell, k.version, k.pebble, k.counted = cell, version, false, false
		done()
	}})
}

// leaveSlot leaves the key's Pebble-only slot where it is: it cannot be told
// which keys it stands for, so no write takes it over.
func (k *mkey) leaveSlot() {
	if k.pebble && k.slotOff != 0 {
		k.stale = append(k.stale, k.slotOff)
		k.slotOff = 0
	}
	k.pebble = false
}

func (w *world) setState(cell int, v Version, s State) wstep {
	return wstep{stores: func() []wstore {
		return w.capture(w.cellOff(cell), wordSize, wordSize, func(m []byte) { SetState(m, v, s) })
	}}
}

func (w *world) hasCell() bool {
	for _, used := range w.cells {
		if !used {
			return true
		}
	}
	return false
}

func (w *world) put(k *mkey) {
	if !w.hasCell() {
		return
	}
	n := w.begin(k, false)
	w.write(k, n, func() { k.acked = n })
}

func (w *world) delete(k *mkey) {
	if !k.present() {
		return
	}
	n := w.begin(k, true)
	if k.cell < 0 {
		k.effective = n // no item to kill: readers ask, and SENDs wait
		k.leaveSlot()
	}
	w.leave(k, 0, func() { k.acked = n })
}

// leave: kill, then the slot becomes what it is to be.
func (w *world) leave(k *mkey, slot Slot, done func()) {
	old := k.cell
	var steps []wstep
	if old >= 0 {
		dead := w.setState(old, k.version, Dead)
		dead.after = func() { k.effective = k.newest }
		steps = append(steps, dead)
	}
	if k.slotOff != 0 {
		steps = append(steps, word(k.slotOff, uint64(slot)))
	}
	if w.bug == bugSlotBeforeDeath {
		slices.Reverse(steps)
	}
	w.steps = append(w.steps, steps...)
	w.steps = append(w.steps, wstep{after: func() {
		if old >= 0 {
			w.cells[old] = false
		}
		k.cell, k.pebble, k.counted = -1, false, false
		if slot == 0 {
			k.slotOff, k.seg = 0, nil
		}
		done()
	}})
}

// evict: the key stays in Pebble only.
func (w *world) evict(k *mkey) {
	if k.cell < 0 {
		return
	}
	w.leave(k, PebbleSlot(k.hash), func() { k.pebble = true })
	if len(k.stale) == 0 || len(k.stale) < 3 && w.r.IntN(2) == 0 {
		return
	}
	// Two slots say the same: one goes, a lease later.
	w.steps = append(w.steps, wstep{after: func() { w.lease(w.clock) }}, wstep{stores: func() []wstore {
		s := wstore{k.slotOff, 8, 0}
		k.slotOff = k.stale[len(k.stale)-1]
		k.stale = k.stale[:len(k.stale)-1]
		return []wstore{s}
	}})
}

// dropStale: a Pebble-only slot that no key needs any more goes like one that a
// key does need: counted, and a lease later.
func (w *world) dropStale(k *mkey) {
	if len(k.stale) == 0 {
		return
	}
	s := w.raise(k)
	s.after = func() { w.leaseUnless(bugDropAtOnce) }
	w.steps = append(w.steps, s, wstep{stores: func() []wstore {
		s := wstore{k.stale[0], 8, 0}
		k.stale = k.stale[1:]
		return []wstore{s}
	}})
}

func (w *world) promote(k *mkey) {
	if k.pebble && w.hasCell() {
		w.write(k, k.newest, func() {})
	}
}

// putSlotless: a write that finds no slot. The count is raised before the
// acknowledgement; it stays when the key gets a slot later.
func (w *world) putSlotless(k *mkey) {
	if k.slotOff != 0 {
		return
	}
	n := w.begin(k, false)
	k.effective = n // from here on any answer is by SEND, which waits
	if last := len(k.stale) - 1; last >= 0 {
		// There is a slot that says as much.
		k.slotOff, k.seg, k.stale, k.pebble = k.stale[last], w.segmentOf(k.hash), k.stale[:last], true
		w.steps = append(w.steps, wstep{after: func() { k.acked = n }})
		return
	}
	s := w.raise(k)
	s.after = func() { k.counted, k.acked = true, n }
	if w.bug == bugAckBeforeCount {
		w.steps = append(w.steps, wstep{after: func() { k.acked = n }}, wstep{after: w.pause})
	}
	w.steps = append(w.steps, s)
}

func (w *world) raise(k *mkey) wstep {
	return wstep{stores: func() []wstore {
		seg := w.segmentOf(k.hash)
		a, b := k.hash.Mains(SegmentGroups(seg.step))
		m := []Main{a, b}[w.r.IntN(2)]
		off := int(seg.place.Byte()) + m.MainBucket()*BucketSize
		h := BucketHeader(LoadWord(w.mem, off))
		return []wstore{{off, 8, uint64(h.WithSlotless(uint8(min(int(h.Slotless())+1, SlotlessMany))))}}
	}}
}

// dropSlot: a key that is there loses its slot. The count is raised, and then
// a lease passes before the slot goes: a reader may have the old header beside
// the new slot.
func (w *world) dropSlot(k *mkey) {
	if k.slotOff == 0 {
		return
	}
	s := w.raise(k)
	s.after = func() { w.leaseUnless(bugDropAtOnce) }
	w.steps = append(w.steps, s)
	w.leave(k, 0, func() { k.counted = true })
}

// fill: after a start, a key that only Pebble has gets its slot; when all have
// one, a lease passes and the counts become true.
func (w *world) fill(k *mkey) {
	if w.filled {
		return
	}
	if k.present() && k.slotOff == 0 && !k.counted {
		if w.hasCell() {
			w.write(k, k.newest, func() {})
		}
		return
	}
	for _, k := range w.keys {
		if k.present() && k.slotOff == 0 && !k.counted {
			return
		}
	}
	w.filled = true
	w.steps = append(w.steps, wstep{after: func() { w.leaseUnless(bugShownAtOnce) }})
	w.steps = append(w.steps, wstep{stores: func() (out []wstore) {
		for _, seg := range w.segs {
			for b, n := range w.counts(seg) {
				off := int(seg.place.Byte()) + b*BucketSize
				h := BucketHeader(LoadWord(w.mem, off))
				out = append(out, w.hot(wstore{off, 8, uint64(h.WithSlotless(n))})...)
			}
		}
		return out
	}})
}

// counts is the count of keys without slot of every bucket of a segment.
func (w *world) counts(seg *mseg) []uint8 {
	c := make([]uint8, SegmentBuckets(seg.step))
	for i := range c {
		if !w.filled {
			c[i] = SlotlessMany
		}
	}
	for _, k := range w.keys {
		if k.counted && w.filled && k.hash.Prefix(seg.depth) == seg.prefix {
			a, _ := k.hash.Mains(SegmentGroups(seg.step))
			c[a.MainBucket()]++
		}
	}
	return c
}

// hot passes a store on if some reader may see the word; the others are made at
// once, because no reader can tell when they were made.
func (w *world) hot(s wstore) []wstore {
	if w.clock == 0 { // the world is being built
		return []wstore{s}
	}
	for _, seg := range w.segs {
		in := s.off - int(seg.place.Byte())
		if in < 0 || in >= SegmentBytes(seg.step) {
			continue
		}
		for _, k := range w.keys {
			a, b := k.hash.Mains(SegmentGroups(seg.step))
			for _, m := range []Main{a, b} {
				if d := in - m.PairBucket()*BucketSize; d >= 0 && d < PairSize {
					return []wstore{s}
				}
			}
		}
		w.store(s)
		return nil
	}
	return []wstore{s}
}
