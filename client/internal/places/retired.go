package places

import (
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A Retired is what a client knows about retired pages: places that it must
// not believe any more although its lease is good, because the page behind them
// is about to hold other things. The checksum of an item does not
// protect from that: a hostile value can be made to look like a live item at
// that very place.
//
// The log ends at a version; entries older than floor have been forgotten, so
// a place remembered before floor counts as retired. Places are compared when
// they are used, not when the log grows: nothing walks the location cache.
//
// A Retired is immutable; Extend makes a new one. The grants of a lease point to it.
type Retired struct {
	Version uint64           // the newest retirement known
	floor   uint64           // the log is complete for versions above floor
	entries []layout.Retired // versions floor+1 … Version, in order
}

// maxRetired bounds a log: 1,024 entries of 24 bytes.
const maxRetired = 1024

// NewRetired begins a log for a client that remembers no places yet.
func NewRetired(version uint64) *Retired {
	return &Retired{Version: version, floor: version}
}

// Has reports whether any of the n bytes at p was retired after version
// since, when the place was known to be good.
func (r *Retired) Has(p layout.Place, n uint32, since uint64) bool {
	if since >= r.Version {
		return false
	}
	if since < r.floor {
		return true // too long ago to tell
	}
	lo, hi := p.Byte(), p.Byte()+uint64(n)
	for _, e := range r.entries[since-r.floor:] {
		from := e.Place.Byte()
		if lo < from+uint64(e.Pages)*layout.PageSize && from < hi {
			return true
		}
	}
	return false
}

// Extend returns a log that knows the given entries too, which must follow
// r.Version without a gap.
func (r *Retired) Extend(entries []layout.Retired) *Retired {
	all := slices.Concat(r.entries, entries)
	floor := r.floor
	if cut := len(all) - maxRetired; cut > 0 {
		all, floor = all[cut:], floor+uint64(cut)
	}
	return &Retired{Version: r.Version + uint64(len(entries)), floor: floor, entries: all}
}

// Forget returns a log that ends at version and knows nothing from before: every
// place remembered so far counts as retired.
func (r *Retired) Forget(version uint64) *Retired {
	return &Retired{Version: version, floor: version}
}

// RingSpan says how many entries of the reclaim ring to READ to come from
// version have to version want: so many up to the end of the ring, so many from
// its beginning. It is false if the client lags so far that the ring may not hold
// them all, or that reading them costs more than forgetting.
func RingSpan(have, want uint64, entries uint32) (first, second int, ok bool) {
	n := want - have
	// Some slack: the server may write on while we READ.
	if n > maxRetired/2 || n > uint64(entries)/2 {
		return 0, 0, false
	}
	start := (have + 1) % uint64(entries)
	first = int(min(n, uint64(entries)-start))
	return first, int(n) - first, true
}

// ParseRing reads n ring entries that must carry versions from on. A torn or
// overwritten entry makes it false: then everything is dropped.
func ParseRing(dst []layout.Retired, b []byte, from uint64, n int) ([]layout.Retired, bool) {
	for i := range n {
		e, err := layout.ParseRetired(b[i*layout.RetiredSize:])
		if err != nil || e.Version != from+uint64(i) {
			return dst, false
		}
		dst = append(dst, e)
	}
	return dst, true
}
