package layout

// This file is the way through the index: root word, directory page, the two bucket pairs,
// the candidates. The first two come from the Dir and are READ when it does not know them
// or when a header shows that it is out of date.

func (l *Lookup) stepIndex() Action {
	switch l.phase {
	case phaseRoot:
		return l.gotRoot(getWord(l.Reads[0].Buf, 0))
	case phasePage:
		return l.gotPage(l.Reads[0].Buf)
	case phaseRefresh:
		// The page is good only if the root still is the one it was READ
		// through.
		if word := getWord(l.Reads[0].Buf, 0); word != l.root.word {
			return l.gotRoot(word)
		}
		l.rootRead = true
		return l.gotPage(l.Reads[1].Buf)
	case phaseFirstPair:
		return l.gotFirstPair()
	case phaseFirstCands:
		return l.gotFirstCandidates()
	case phasePairs:
		return l.gotPairs()
	case phaseCands:
		return l.gotCandidates()
	case phaseProofPairs:
		return l.gotProofPairs()
	case phaseProofItems:
		return l.gotProofItems()
	}
	panic("layout: Lookup.Step before Start")
}

// index begins the way, with what the Dir knows.
func (l *Lookup) index() Action {
	if int(l.shard) >= len(l.dir.shards) {
		return l.ask(ReasonUnknownRegion) // the view is not the one of this key's map
	}
	l.hash = HashKey(l.view.Seed, l.key)
	l.fp = l.hash.Fingerprint()
	l.root = l.dir.root(l.shard)
	if l.root == nil {
		return l.readRoot()
	}
	return l.page()
}

func (l *Lookup) readRoot() Action {
	l.phase = phaseRoot
	l.begin()
	return l.read(l.view.RootPlace(l.shard), wordSize)
}

func (l *Lookup) gotRoot(word uint64) Action {
	root, ok := l.dir.setRoot(l.shard, word)
	if !ok {
		return l.misfit()
	}
	l.root, l.rootRead = root, true
	return l.page()
}

// page takes the directory entry from the Dir, or READs its page: under a root
// word that this get has READ.
func (l *Lookup) page() Action {
	i, entry := l.root.pageOf(l.hash)
	if p := l.root.pages[i].Load(); p != nil {
		l.fresh = false
		return l.entry(p[entry])
	}
	if !l.rootRead {
		// Where the remembered root leads may be anything by now, a directory of
		// another shard too, with an entry whose memory is just becoming a
		// segment of this one.
		return l.refresh(i)
	}
	l.phase = phasePage
	l.begin()
	place := l.root.pagePlace(i)
	if !l.view.holds(place, PageSize, KindIndex) {
		return l.unknown()
	}
	return l.read(place, PageSize)
}

func (l *Lookup) gotPage(b []byte) Action {
	i, entry := l.root.pageOf(l.hash)
	l.dir.setPage(l.shard, l.root, i, b)
	// The entry comes from these very bytes: the cache may have been emptied
	// or overtaken by another get.
	l.fresh = l.rootRead
	return l.entry(getWord(b, entry*wordSize))
}

// entry is the segment by the directory.
func (l *Lookup) entry(word uint64) Action {
	var ok bool
	l.segment, l.depth, l.step, ok = ParseDirEntry(word)
	if !ok {
		return l.misfit()
	}
	a, b := l.hash.Mains(SegmentGroups(l.step))
	l.mains = [2]Main{a, b}
	if l.PairByPair && l.round == 0 {
		return l.firstPair()
	}
	return l.pairs(phasePairs)
}

// pairs READs both bucket pairs, in one batch.
func (l *Lookup) pairs(ph phase) Action {
	l.phase = ph
	l.begin()
	for _, m := range l.mains {
		place := l.segment + PlaceOfByte(uint64(m.PairBucket())*BucketSize)
		if !l.view.holds(place, PairSize, KindIndex) {
			return l.unknown()
		}
		l.read(place, PairSize)
	}
	return ActionRead
}

// unknown: a place in no region of the view. A directory that is out of date
// may say so too, so that is looked at first.
func (l *Lookup) unknown() Action {
	if l.refreshed {
		return l.ask(ReasonUnknownRegion)
	}
	return l.misfit()
}

// misfit begins again with a fresh directory, because the one in use was wrong.
func (l *Lookup) misfit() Action {
	l.Counts.Misfit++
	return l.again(true)
}

// retired: the segment is. Begin again with a fresh directory.
func (l *Lookup) retired() Action {
	l.Counts.Marked++
	return l.again(true)
}

// again begins the next round, with a fresh root word and directory page if
// refresh is set; after the last it asks.
func (l *Lookup) again(refresh bool) Action {
	l.round++
	l.Counts.Rounds++
	if l.round >= MaxRounds {
		return l.ask(ReasonRetries)
	}
	if !refresh {
		return l.pairs(phasePairs)
	}
	l.refreshed = true
	if l.root == nil {
		return l.readRoot()
	}
	i, _ := l.root.pageOf(l.hash)
	return l.refresh(i)
}

// refresh READs the root word and page i of the directory. Usually the root is
// what it was and only the entry has changed: both at once, and the page again if
// the root turns out to be new.
func (l *Lookup) refresh(i int) Action {
	place := l.root.pagePlace(i)
	if !l.view.holds(place, PageSize, KindIndex) {
		return l.readRoot()
	}
	l.phase = phaseRefresh
	l.begin()
	l.read(l.view.RootPlace(l.shard), wordSize)
	return l.read(place, PageSize)
}

// headers looks at the headers of the pairs that were READ, two each. The depth must be the
// directory's as well: depth and step of a key's segment only grow, so the
// three together are of that one segment, and not of a later one that was
// being built in its memory while the READ was under way.
func (l *Lookup) headers() (fit, marked, slotless bool) {
	fit = true
	for i := range l.Reads { // one for each pair
		m := l.mains[i]
		for j := range 2 {
			h := BucketHeader(getWord(l.Reads[i].Buf, j*BucketSize))
			if h.Depth() != l.depth || !h.Fits(l.shard, l.hash, m.PairBucket()+j, l.step) {
				fit = false
			}
			marked = marked || h.Marked()
			slotless = slotless || h.Slotless() != 0
		}
	}
	return fit, marked, slotless
}

// gotPairs collects the candidates.
//
// A marked segment is being copied, or was retired long ago and the directory that this
// client remembers is old. In the first case its slots still are in force, and the get goes
// on with them: growth stops no reader. In the second they may lead into pages that have
// changed class since, where bytes chosen by an attacker can look like this key's item (the
// reclaim ring makes a client drop remembered places in such pages, not remembered ways to
// them). The directory tells the cases apart, if it was READ by this very get.
func (l *Lookup) gotPairs() Action {
	var fit bool
	fit, l.marked, l.slotless = l.headers()
	if !fit {
		return l.misfit()
	}
	if l.marked && !l.fresh {
		return l.retired()
	}
	if !l.collect() {
		return l.ask(ReasonCandidates)
	}
	if l.ncand == 0 {
		return l.noneFound()
	}
	return l.items(phaseCands)
}

// collect notes the slots with the key's fingerprint in the pairs that were READ.
// It is false if there are more of them than candidates may be.
func (l *Lookup) collect() bool {
	l.pebble, l.unsure, l.ncand = false, false, 0
	for i := range l.Reads {
		for off := wordSize; off < PairSize; off += wordSize {
			s := Slot(getWord(l.Reads[i].Buf, off))
			if off == BucketSize || s.Empty() || s.Fingerprint() != l.fp {
				continue
			}
			switch class := s.Class(); {
			case class == ClassPebble:
				l.pebble = true
			case class > NumClasses:
				l.unsure = true
			case l.ncand == MaxCandidates:
				return false
			default:
				l.cands[l.ncand] = candidate{slot: s, pair: uint8(i), off: uint8(off)}
				l.ncand++
			}
		}
	}
	return true
}

// items READs all candidates, in one batch.
func (l *Lookup) items(ph phase) Action {
	l.phase = ph
	l.begin()
	for i := range l.ncand {
		s := l.cands[i].slot
		n := l.readLen(ClassSize(s.Class()))
		if !l.view.holds(s.Place(), n, KindItems) {
			return l.ask(ReasonUnknownRegion)
		}
		l.read(s.Place(), n)
	}
	return ActionRead
}

// gotCandidates accepts the key's item, if it is one of them: it vouches for
// itself, whatever else the buckets show.
func (l *Lookup) gotCandidates() Action {
	for i := range l.ncand {
		r, c := &l.Reads[i], &l.cands[i]
		switch l.judge(r.Buf, r.Place) {
		case verdictMine:
			return l.found(r.Place)
		case verdictOther:
			c.version, c.sum = l.item.Version, l.item.sum
		case verdictShort:
			if int(r.Len) < ClassSize(c.slot.Class()) {
				return l.ask(ReasonTooLarge)
			}
			l.unsure = true
		case verdictUnsure:
			l.unsure = true
		}
	}
	return l.noneFound()
}

// This file is the way by the first bucket pair alone (Lookup.PairByPair). It can
// find the key and nothing else: an item vouches for itself, whatever the other
// pair shows. If it finds nothing, nothing that it saw is used, and the get goes
// on as if it began here: it reads both pairs in one batch, and only such a batch
// proves a key absent.

// firstPair READs the pair of the key's first main bucket.
func (l *Lookup) firstPair() Action {
	l.phase = phaseFirstPair
	l.begin()
	place := l.segment + PlaceOfByte(uint64(l.mains[0].PairBucket())*BucketSize)
	if !l.view.holds(place, PairSize, KindIndex) {
		return l.unknown()
	}
	return l.read(place, PairSize)
}

// gotFirstPair follows the slots with the key's fingerprint, under the rules of
// gotPairs for the headers above them.
func (l *Lookup) gotFirstPair() Action {
	fit, marked, _ := l.headers()
	switch {
	case !fit:
		return l.misfit()
	case marked && !l.fresh:
		return l.retired()
	case !l.collect() || l.ncand == 0:
		return l.pairs(phasePairs)
	}
	return l.items(phaseFirstCands)
}

func (l *Lookup) gotFirstCandidates() Action {
	for i := range l.Reads {
		if r := &l.Reads[i]; l.judge(r.Buf, r.Place) == verdictMine {
			return l.found(r.Place)
		}
	}
	return l.pairs(phasePairs)
}
