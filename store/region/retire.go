package region

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions of items go as they came:
//
//	in the view ──Retire──▶ no place leads there, ──a lease, and no client──▶ FreeRetired:
//	                        listed, view without it   has a table with it     deregistered, unmapped
//
// Their part of the place space is not given to another region within the
// incarnation, nor is their id. So a place that a client remembers for too long
// lies in no region, and is not taken for another.

// maxListed bounds the pages of one entry of the reclaim ring: 24 bits.
const maxListed = 1<<24 - 1

// Retire takes a region of items out of the view and lists all of it as retired.
// The caller has ensured that nothing stands there and nothing will. When it
// returns, Bytes and Locate do not find it and the beat line shows both the new
// view version, which is returned, and the reclaim version. The memory is there,
// registered and counted until FreeRetired.
func (t *Table) Retire(id uint32) (viewVersion uint64, err error) {
	t.mu.Lock()
	m := t.take(id)
	if m == nil {
		t.mu.Unlock()
		return 0, fmt.Errorf("region: %d is no region of items in the view", id)
	}
	t.retired[id] = m
	version := t.replaceView(func(old []layout.Region) []layout.Region {
		return slices.DeleteFunc(slices.Clone(old), func(r layout.Region) bool { return r.ID == id })
	})
	t.mu.Unlock()
	for at, left := m.Base, m.Length/layout.PageSize; left > 0; {
		n := min(left, maxListed)
		t.Retired(at, uint32(n))
		at += layout.PlaceOfByte(n * layout.PageSize)
		left -= n
	}
	t.changed()
	return version, nil
}

// Spare reports whether regions of so many bytes together may go and all that
// Limit allows can still be added afterwards: the place space that they leave is
// not used again. Memory that is kept for nothing can be used again; without
// places there would be no more, until the next incarnation.
func (t *Table) Spare(bytes uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	staying := t.inUse - bytes
	for _, m := range t.retired {
		staying -= m.Length
	}
	return t.nextBase+t.cfg.Limit-min(staying, t.cfg.Limit) <= placeSpace
}

// take unmaps the granules of a region of items. The caller holds t.mu.
func (t *Table) take(id uint32) *mapped {
	for _, r := range t.view.Load().Regions {
		if r.ID != id || r.Kind != layout.KindItems {
			continue
		}
		m := t.find(r.Base)
		first := r.Base.Byte() / layout.RegionGranule
		for g := first; g < first+r.Length/layout.RegionGranule; g++ {
			t.blocks[g/blockGranules].Load()[g%blockGranules].Store(nil)
		}
		return m
	}
	return nil
}

// FreeRetired deregisters and frees the memory of a region that was retired, and
// whose time is over. After an error the memory stays, and is counted: a device
// may still read it.
func (t *Table) FreeRetired(id uint32) error {
	t.addMu.Lock() // Close waits for it
	defer t.addMu.Unlock()
	t.mu.Lock()
	m := t.retired[id]
	if m == nil || t.closed {
		t.mu.Unlock()
		return fmt.Errorf("region %d: %w", id, errNotRetired)
	}
	delete(t.retired, id)
	t.mu.Unlock()
	t.waitGuests()
	if err := t.cfg.Memory.Free(id); err != nil {
		return fmt.Errorf("region %d: %w", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inUse -= m.Length
	t.items -= m.Length
	return nil
}

var errNotRetired = errors.New("it does not wait to be freed")

// waitGuests waits for the functions that Look runs on places that their callers
// do not own: they found a region before it was retired, or not at all.
func (t *Table) waitGuests() {
	t.guests.Lock()
	defer t.guests.Unlock()
}

// Look calls f with the n bytes at p, or does not if they are in no region. It is
// Bytes for a caller that does not own the place: the memory stays while f runs,
// which must not keep it. f must not call the table.
func (t *Table) Look(p layout.Place, n int, f func(mem []byte)) bool {
	t.guests.RLock()
	defer t.guests.RUnlock()
	mem := t.Bytes(p, n)
	if mem == nil {
		return false
	}
	f(mem)
	return true
}

// RetiredRegions returns the regions that wait to be freed, in no order.
func (t *Table) RetiredRegions() (list []layout.Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.retired {
		list = append(list, m.Region)
	}
	return list
}
