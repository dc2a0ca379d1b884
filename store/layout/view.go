package layout

import (
	"fmt"
	"slices"
)

// A View is the region table of one incarnation of a store, as the server
// hands it to a client inside the session. It is immutable once made, and then
// safe for concurrent use.
type View struct {
	Incarnation, Seed, Version uint64
	Shards                     uint32
	// RootOffset and ReclaimOffset are byte offsets in region 0.
	RootOffset, ReclaimOffset, ReclaimEntries uint32
	// Regions is in ascending order of Base, without overlap; the first is
	// region 0. IDs may have gaps. Check says whether that holds.
	Regions []Region
}

// Check verifies what Locate and Lookup rely on; a client calls it on every
// view that it receives. The error wraps ErrFormat.
func (v *View) Check() error {
	if err := checkRoot(v.Shards, v.RootOffset, v.ReclaimOffset, v.ReclaimEntries); err != nil {
		return err
	}
	if len(v.Regions) == 0 || v.Regions[0].ID != 0 || v.Regions[0].Kind != KindIndex {
		return fmt.Errorf("%w: the first region of a view must be region 0, of kind index", ErrFormat)
	}
	ring := uint64(v.ReclaimOffset) + uint64(v.ReclaimEntries)*RetiredSize
	if ring > v.Regions[0].Length {
		return fmt.Errorf("%w: reclaim ring ends at %d, region 0 at %d", ErrFormat, ring, v.Regions[0].Length)
	}
	end := uint64(0)
	for i, r := range v.Regions {
		if err := r.check(); err != nil {
			return err
		}
		if r.Base.Byte() < end || i > 0 && r.ID == 0 {
			return fmt.Errorf("%w: region %d at %v overlaps or repeats the one before it", ErrFormat, r.ID, r.Base)
		}
		end = r.End()
	}
	return nil
}

// Locate finds the region that holds n bytes from p on: its index in Regions
// and the byte offset in it. It is false if no region holds all of them.
func (v *View) Locate(p Place, n int) (region int, off uint64, ok bool) {
	// The last region that begins at or before p.
	lo, hi := 0, len(v.Regions)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); v.Regions[mid].Base <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || n < 0 || !v.Regions[lo-1].Contains(p, uint64(n)) {
		return 0, 0, false
	}
	return lo - 1, p.Byte() - v.Regions[lo-1].Base.Byte(), true
}

// holds reports whether n bytes at p are known memory of that kind.
func (v *View) holds(p Place, n int, kind RegionKind) bool {
	i, _, ok := v.Locate(p, n)
	return ok && v.Regions[i].Kind == kind
}

// RootPlace is the place of a shard's root word.
func (v *View) RootPlace(shard uint16) Place {
	return v.Regions[0].Base + PlaceOfByte(RootSlot(v.RootOffset, shard))
}

// BeatPlace is the place of the beat.
func (v *View) BeatPlace() Place { return v.Regions[0].Base + PlaceOfByte(BeatOffset) }

// RetiredPlace is the place of the reclaim ring's entry of a version.
func (v *View) RetiredPlace(version uint64) Place {
	return v.Regions[0].Base + PlaceOfByte(retiredOffset(v.ReclaimOffset, v.ReclaimEntries, version))
}

// Clone is a copy that shares nothing.
func (v *View) Clone() *View {
	c := *v
	c.Regions = slices.Clone(v.Regions)
	return &c
}
