// Package entry is an entry of a replicated group's log: what a leader proposes, and what every
// replica applies. An entry says what its writes came to, and not what was asked, so a replica
// needs no clock, no chance and no look at a key to apply it.
//
//	leader    ordered writes --Encoder--> entry --engine--> all replicas
//	replica   entry --Parse--> Turn.Take: does it count? --> its writes, each a body of package logged
//
// # Reigns, and which entries count
//
// A leader first proposes a marker. The index of the marker is the name of its reign, and all that
// the leader orders from then on names it. An entry of writes counts if its reign is the newest
// marker's, and its first number follows the last number that counted (Turn). Every other one is
// void, on all replicas alike, because each of them has applied the same entries before it:
//
//   - An entry that a deposed leader has proposed, and that came behind the next leader's marker,
//     is void. If it counted, writes would take effect that were judged on a state without those
//     in front of them.
//   - An entry whose predecessor was lost is void, because the numbers have a gap. If it
//     counted, an increment could be applied without the one that it was judged behind.
//   - A check counts wherever it stands, because it changes nothing.
//   - An entry that came twice is void the second time, because its numbers were taken.
//
// These are rules R2 and R3 of the replication; model/reign.pml has them, and shows what each
// of them is for by going without it.
//
// There is no I/O here, no lock and no clock.
package entry

import "github.com/rdmakv/rdmakv/store/layout"

// A Turn is where a group stands behind the entries that were applied: which reign it is, and
// which number comes next. It is the same on all replicas, and part of each snapshot. The zero
// Turn is that of a group that never had a leader, and has no write.
type Turn struct {
	Reign uint64 // index of the newest marker
	Next  uint64 // number of the next write that counts; 0 means 1
}

// Take takes an entry at an index, and says whether it counts (R3). What does not count
// changes nothing.
func (t *Turn) Take(index uint64, e *Entry) bool {
	switch {
	case e.Kind == Marker:
		t.Reign = index
		t.Next = max(1, t.Next)
		return true
	case e.Kind == Check:
		return true
	case t.Reign == 0 || e.Reign != t.Reign || e.First != max(1, t.Next):
		return false
	}
	t.Next = e.First + e.Numbers
	return true
}

// Newest is the newest version that a shard may have at this turn; 0: there was no write. It
// may be that of another shard's write or of a refusal, and bounds all that were given out.
func (t *Turn) Newest(shard uint16) layout.Version {
	if t.Next <= 1 {
		return 0
	}
	return layout.NumberedVersion(t.Next-1, shard)
}
