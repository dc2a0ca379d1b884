package layout

// A get may say that the key is absent only with a proof. If the key was there
// during the whole get, then one slot of its segment was its own during the
// whole get (items never move between slots of a segment) and showed its
// fingerprint. So absent is proved, for some instant of the get, when
//
//   - the headers fit and are unmarked: it was the key's segment, and its slots
//     were in force;
//   - no key there is without slot;
//   - every slot either did not show the fingerprint, or was another key's at
//     some instant of the get.
//
// The last is not shown by an item with another key: between the sample of the
// slot and that of the item the key may have moved on, and its former place may
// have been given to the other key. It is shown by
//
//	the item:         key k', version x
//	the slot again:   the same word, under a header that is still unmarked
//	the item again:   version x, verified
//
// Version x stood at the place from the first sample to the last, because a
// version does not come back; in between the slot pointed there; and it was
// still the slot in force, because growth marks the headers before it changes
// anything. So at that instant the slot was the slot of k'.

// noneFound: no candidate was the key's item.
func (l *Lookup) noneFound() Action {
	switch {
	case l.pebble:
		return l.ask(ReasonPebble)
	case l.marked:
		return l.retired()
	case l.unsure:
		return l.again(false)
	case l.slotless:
		return l.ask(ReasonSlotless)
	case l.ncand == 0:
		return l.end(ActionAbsent)
	}
	return l.pairs(phaseProofPairs)
}

// gotProofPairs: the buckets again.
func (l *Lookup) gotProofPairs() Action {
	fit, marked, slotless := l.headers()
	switch {
	case !fit:
		return l.misfit()
	case marked:
		return l.retired()
	case slotless:
		return l.ask(ReasonSlotless)
	}
	for i := range l.ncand {
		c := &l.cands[i]
		if Slot(getWord(l.Reads[c.pair].Buf, int(c.off))) != c.slot {
			return l.again(false)
		}
	}
	return l.items(phaseProofItems)
}

// gotProofItems: the items again.
func (l *Lookup) gotProofItems() Action {
	for i := range l.ncand {
		r, c := &l.Reads[i], &l.cands[i]
		err := l.item.parse(r.Buf, l.view.Incarnation, r.Place, allSumBits)
		if err != nil || l.item.State != Live || l.item.Version != c.version || l.item.sum != c.sum {
			return l.again(false)
		}
	}
	l.Counts.Proofs++
	return l.end(ActionAbsent)
}
