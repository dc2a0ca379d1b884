package slab

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
)

// pins counts the holders of places that must stay as they are for a while:
// values that a client is reading by a place the server gave it. There are
// few, so they are a map and not a field of every place.
type pins struct {
	count atomic.Int64 // places in m: while it is 0, Free takes no lock
	mu    sync.Mutex
	m     map[layout.Place]pin
}

type pin struct {
	holders int
	class   uint8 // of the deferred Free; 0: not freed yet
}

// Pin keeps the place p, which is allocated, from being used again until Unpin:
// a Free in between takes effect at the last Unpin. The caller ensures that no
// Free of p runs at the same time as Pin (it holds the lock under which the
// slot still leads to p). Pins nest.
func (s *Slabs) Pin(p layout.Place) {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	v, ok := s.pins.m[p]
	if !ok {
		s.pins.count.Add(1)
	}
	v.holders++
	s.pins.m[p] = v
}

// Unpin ends one Pin of p, and frees the place if Free was called meanwhile.
// Unpinning a place that is not pinned panics.
func (s *Slabs) Unpin(p layout.Place) {
	if classID := s.pins.unpin(p); classID != 0 {
		s.free(p, classID)
	}
}

// unpin returns the class of a Free that is now due, or 0.
func (ps *pins) unpin(p layout.Place) uint8 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	v, ok := ps.m[p]
	if !ok {
		panic(fmt.Sprintf("slab: Unpin of place %d, which is not pinned", p))
	}
	if v.holders--; v.holders > 0 {
		ps.m[p] = v
		return 0
	}
	delete(ps.m, p)
	ps.count.Add(-1)
	return v.class
}

// deferFree notes a Free of a pinned place. It returns false if the place is not pinned.
func (ps *pins) deferFree(p layout.Place, classID uint8) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	v, ok := ps.m[p]
	if !ok {
		return false
	}
	if v.class != 0 {
		panic(fmt.Sprintf("slab: pinned place %d freed twice", p))
	}
	v.class = classID
	ps.m[p] = v
	return true
}
