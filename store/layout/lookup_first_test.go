package layout

import "testing"

// A driver of cheap READs takes one pair where one suffices, and both where not.
func TestPairByPair(t *testing.T) {
	g := newRig(t)
	l := Lookup{PairByPair: true}
	k := g.keys[0]
	g.want(&l, k, Loc{}, ActionAbsent, ReasonNone, 4) // root, page, first pair, both
	if g.reads != 1+1+1+2 {
		t.Errorf("%d READs of an absent key", g.reads)
	}
	g.put(k)
	g.get(&l, k, Loc{}, 1<<20)
	_, loc := l.Found()

	inFirst := func() bool {
		main := k.seg.place + PlaceOfByte(uint64(l.mains[0].PairBucket())*BucketSize)
		return k.slotOff >= int(main.Byte()) && k.slotOff < int(main.Byte())+PairSize
	}
	if inFirst() {
		g.want(&l, k, Loc{}, ActionFound, ReasonNone, 2)
		if g.reads != 2 {
			t.Errorf("%d READs", g.reads)
		}
	} else {
		g.want(&l, k, Loc{}, ActionFound, ReasonNone, 3)
	}
	// A remembered place is still looked at first.
	g.want(&l, k, loc, ActionFound, ReasonNone, 1)

	// Another key's item under the fingerprint in the first pair is no answer, and
	// no reason for one.
	g.delete(k)
	g.world.version++
	g.raw(k, worldCellSize*(g.ncell+2), Item{Version: g.world.version, Key: []byte("another"), Value: []byte("x")}, Live)
	g.want(&l, k, Loc{}, ActionAbsent, ReasonNone, 6) // pair, item, both, item, and the proof
	if l.Counts.Proofs != 1 {
		t.Errorf("absent without a proof: %+v", l.Counts)
	}
}
