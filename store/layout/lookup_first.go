package layout

// The way by the first bucket pair alone (Lookup.PairByPair). It can find the
// key and nothing else: an item vouches for itself, whatever the other pair
// shows. If it finds nothing, nothing of what it saw is used, and the get goes on
// as if it began here: both pairs in one batch, by which alone a key is absent.

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
