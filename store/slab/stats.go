package slab

// Stats counts item memory. Bytes unless said otherwise. Free pages of the
// regions are not in use; retired ones are.
type Stats struct {
	InUse   uint64 // pages and spans that classes own
	Live    uint64 // places that hold items, at the size of their class
	Retired uint64 // pages and spans that wait for a lease
	Free    uint64 // in item regions, owned by no class
	Pinned  int    // places pinned
	Classes []ClassStats
}

// ClassStats counts one size class that has or had memory.
type ClassStats struct {
	Class    uint8 `json:"class"`
	Size     int   `json:"size"`     // bytes of a place
	Live     int   `json:"live"`     // places that hold items
	Pages    int   `json:"pages"`    // pages (or spans, live and kept) owned
	Empty    int   `json:"empty"`    // of these, without any item
	Draining int   `json:"draining"` // of these, closed to new items
	Retired  int   `json:"retired"`  // pages or spans that wait for a lease
}

// Stats counts class by class: each class at one instant, not all at the same.
func (s *Slabs) Stats() Stats {
	st := Stats{Retired: uint64(max(0, s.retired.Load())), Free: s.space.freeBytes(), Pinned: int(s.pins.count.Load())}
	for i := 1; i < len(s.classes); i++ {
		c := &s.classes[i]
		cs := c.stats()
		if cs.Pages == 0 && cs.Retired == 0 {
			continue
		}
		unit := PageBytes
		if c.units > 0 {
			unit = c.units * unitBytes
		}
		st.InUse += uint64(cs.Pages * unit)
		st.Live += uint64(cs.Live * cs.Size)
		st.Classes = append(st.Classes, cs)
	}
	return st
}

func (c *class) stats() ClassStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	cs := ClassStats{Class: c.id, Size: c.size, Live: c.live, Retired: c.retired}
	if c.units > 0 {
		cs.Pages, cs.Empty = c.live+len(c.freeSpans), len(c.freeSpans)
	} else {
		cs.Pages, cs.Empty, cs.Draining = c.pages, c.empty.n, c.draining.n+c.closed
	}
	return cs
}
