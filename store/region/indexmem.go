package region

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// IndexMemory hands out index memory in pages of 4 KiB: segments and
// directories of all shards. An extent is either in use, retired (waiting for
// the reclaimer), or free. It is safe for concurrent use.
type IndexMemory struct {
	t      *Table
	growth Growth
	// patience in nanoseconds: how long Alloc waits for a region to be added.
	patience atomic.Int64

	mu      sync.Mutex
	regions []indexRegion // in order of base
	inUse   uint64        // bytes
	retired uint64        // bytes
}

// servingPatience is how long growth of an index may wait for registered memory
// while the store serves: the writers of a shard, and gets that ask the server,
// wait with it. A region of the usual size takes a device a few milliseconds.
// If a region takes longer, growth does not wait for it, and new keys do
// without a slot meanwhile.
const servingPatience = 100 * time.Millisecond

// Serve says that from now on callers of Alloc make others wait.
func (m *IndexMemory) Serve() { m.patience.Store(int64(servingPatience)) }

type indexRegion struct {
	base layout.Place
	mem  []byte
	ext  *Extents
}

// init takes over the root region, whose first skip pages are spoken for.
func (m *IndexMemory) init(t *Table, r layout.Region, mem []byte, skip int) {
	m.t = t
	m.patience.Store(int64(Forever))
	m.append(r, mem, skip)
}

func (m *IndexMemory) append(r layout.Region, mem []byte, skip int) {
	e := NewExtents(len(mem) / layout.PageSize)
	if got, ok := e.Take(skip, 1); !ok || got != 0 {
		panic(fmt.Sprintf("region: %d header pages do not fit region %d of %d bytes", skip, r.ID, len(mem)))
	}
	m.regions = append(m.regions, indexRegion{base: r.Base, mem: mem, ext: e})
}

// Alloc returns pages pages in one piece, with their memory. They hold what
// earlier use left there: the caller writes every word, by atomic stores,
// because a late reader may still look. It fails with a *NoMemoryError; one
// that matches ErrGrowing says that memory is on its way.
func (m *IndexMemory) Alloc(pages int) (layout.Place, []byte, error) {
	need := uint64(pages) * layout.PageSize
	for {
		p, mem, ok, seen := m.find(pages)
		if ok {
			return p, mem, nil
		}
		if err := m.grow(need, seen); err != nil {
			return 0, nil, err
		}
	}
}

// grow ensures that there is a region which the caller has not seen, and waits
// for that as long as m is patient. nil means: look again.
func (m *IndexMemory) grow(need uint64, seen int) error {
	_, err := m.t.CanAdd(layout.KindIndex, need)
	// In this order: the region that took what the limit allowed is on its way,
	// or it has been appended.
	if err != nil && !m.growth.Running() {
		if m.count() > seen {
			return nil
		}
		return err
	}
	err = m.growth.Run(time.Duration(m.patience.Load()), func() error { return m.add(need, seen) })
	if err == ErrGrowing {
		m.t.mu.Lock()
		defer m.t.mu.Unlock()
		return m.t.refuse(layout.KindIndex, need, err)
	}
	return err
}

func (m *IndexMemory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.regions)
}

// find takes pages from the regions that there are; it saw that many of them.
func (m *IndexMemory) find(pages int) (p layout.Place, mem []byte, ok bool, seen int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.regions {
		if p, mem, ok := m.take(&m.regions[i], pages); ok {
			return p, mem, true, 0
		}
	}
	return 0, nil, false, len(m.regions)
}

// add makes a region with room for need bytes, unless there is one by now that
// the caller has not seen.
func (m *IndexMemory) add(need uint64, seen int) error {
	if m.count() > seen {
		return nil
	}
	r, mem, err := m.t.AddAtLeast(layout.KindIndex, need)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.append(r, mem, 1)
	return nil
}

// take takes pages from one region. mu is held.
func (m *IndexMemory) take(r *indexRegion, pages int) (layout.Place, []byte, bool) {
	start, ok := r.ext.Take(pages, 1)
	if !ok {
		return 0, nil, false
	}
	n := pages * layout.PageSize
	off := start * layout.PageSize
	m.inUse += uint64(n)
	return layout.PlaceOfByte(r.base.Byte() + uint64(off)), r.mem[off : off+n : off+n], true
}

// Retired counts pages as waiting. They stay taken until Free.
func (m *IndexMemory) Retired(pages int) {
	m.mu.Lock()
	m.inUse -= uint64(pages) * layout.PageSize
	m.retired += uint64(pages) * layout.PageSize
	m.mu.Unlock()
}

// FreeRetired gives back pages that were counted Retired: their lease is over.
func (m *IndexMemory) FreeRetired(p layout.Place, pages int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retired -= uint64(pages) * layout.PageSize
	m.release(p, pages)
}

// Free gives back pages that no reader can have heard of.
func (m *IndexMemory) Free(p layout.Place, pages int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inUse -= uint64(pages) * layout.PageSize
	m.release(p, pages)
}

// release gives pages back to their region. mu is held.
func (m *IndexMemory) release(p layout.Place, pages int) {
	for i := range m.regions {
		r := &m.regions[i]
		if off := p.Byte() - r.base.Byte(); p >= r.base && off < uint64(len(r.mem)) {
			r.ext.Release(int(off/layout.PageSize), pages)
			return
		}
	}
	panic(fmt.Sprintf("region: place %d is no index memory", p))
}

// IndexStats counts index memory in bytes.
type IndexStats struct {
	InUse   uint64 // segments and directories that readers are led to
	Retired uint64 // waiting for a lease
	Free    uint64 // registered, and free
}

// Stats counts at one instant.
func (m *IndexMemory) Stats() IndexStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := IndexStats{InUse: m.inUse, Retired: m.retired}
	for i := range m.regions {
		s.Free += uint64(m.regions[i].ext.Free()) * layout.PageSize
	}
	return s
}

// Used returns the bytes in use and the bytes retired: what growth asks before
// each step, so it does not walk the regions.
func (m *IndexMemory) Used() (inUse, retired uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inUse, m.retired
}
