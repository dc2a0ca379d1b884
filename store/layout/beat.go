package layout

// The beat, 64 bytes at offset 128 of region 0:
//
//	 0 │ counter           raised by one with every beat
//	 8 │ incarnation
//	16 │ server time       microseconds since 1970
//	24 │ view version      of the region table
//	32 │ reclaim version   of the newest entry in the reclaim ring
//	40 │ reserved, zero
//
// There is no checksum: each word is believed alone, and a READ that mixes two
// beats harms nothing. A lease runs from the post of the READ that saw counter
// n, once a later READ saw a higher one; whatever was retired before that post
// is in the reclaim version of both, because that word is raised at the
// retirement and not at the next beat.
const (
	// BeatOffset is where the beat begins in region 0; BeatSize is its length.
	BeatOffset = 128
	BeatSize   = 64

	offBeatCounter     = BeatOffset
	offBeatIncarnation = offBeatCounter + wordSize
	offBeatTime        = offBeatIncarnation + wordSize
	offBeatView        = offBeatTime + wordSize
	offBeatReclaim     = offBeatView + wordSize
)

// A Beat is what a server rewrites while it may serve.
type Beat struct {
	Counter        uint64 // 0: has not beaten yet
	Incarnation    uint64
	TimeMicros     uint64 // server time, microseconds since 1970
	ViewVersion    uint64
	ReclaimVersion uint64
}

// StoreBeat writes a beat into mem, the memory of region 0. The counter comes
// last, so that a reader that sees the new counter in a later READ sees
// versions at least as new. The version words never go back, whatever b says: a
// retirement may have raised one since b was made. One goroutine beats;
// StoreReclaimVersion and StoreViewVersion may run beside it.
func StoreBeat(mem []byte, b Beat) {
	StoreWord(mem, offBeatIncarnation, b.Incarnation)
	StoreWord(mem, offBeatTime, b.TimeMicros)
	raiseWord(mem, offBeatView, b.ViewVersion)
	raiseWord(mem, offBeatReclaim, b.ReclaimVersion)
	StoreWord(mem, offBeatCounter, b.Counter)
}

// StoreReclaimVersion raises the reclaim version in region 0 at once. The
// entry in the ring (PutRetired) must have been written before.
func StoreReclaimVersion(mem []byte, v uint64) { raiseWord(mem, offBeatReclaim, v) }

// StoreViewVersion raises the view version in region 0 at once.
func StoreViewVersion(mem []byte, v uint64) { raiseWord(mem, offBeatView, v) }

// ParseBeat reads the BeatSize bytes at BeatOffset of region 0 (b begins with
// them). It fails with ErrShort, or with ErrIncarnation if another incarnation
// wrote them, or none did yet. Of a beat that parses, a Counter of 0 is higher
// than nothing and so gives no lease.
func ParseBeat(b []byte, incarnation uint64) (Beat, error) {
	if len(b) < BeatSize {
		return Beat{}, ErrShort
	}
	beat := Beat{
		Counter:        getWord(b, offBeatCounter-BeatOffset),
		Incarnation:    getWord(b, offBeatIncarnation-BeatOffset),
		TimeMicros:     getWord(b, offBeatTime-BeatOffset),
		ViewVersion:    getWord(b, offBeatView-BeatOffset),
		ReclaimVersion: getWord(b, offBeatReclaim-BeatOffset),
	}
	if beat.Incarnation != incarnation {
		return Beat{}, ErrIncarnation
	}
	return beat, nil
}
