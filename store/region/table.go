package region

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// placeSpace is the size of the place space in bytes: 40 bits of 8.
	placeSpace = 8 << 40
	// A granule is found by two steps: 2^13 blocks of 2^10 granules of 1 MiB.
	// Blocks appear as the space is used, so a small store pays for one.
	blockGranules = 1 << 10
	numBlocks     = placeSpace / layout.RegionGranule / blockGranules
)

// Table holds the regions of one store.
//
// Bytes, Locate, View, ViewVersion and Root may be called from any goroutine and take no
// lock; Add and the index memory (indexmem.go) lock; Close must be the last call.
//
// Registering a region takes seconds on a device when the region is large. Registration and
// its end happen under addMu alone. No call that reads, beats or finds room in the regions
// that there are takes or waits for addMu.
//
// Lock order: addMu, then IndexMemory.mu, then mu; beatMu is a leaf.
type Table struct {
	cfg  Config
	hdr0 layout.RegionHeader // of region 0
	root []byte              // memory of region 0
	// cells is where the cells begin in it, bytes.
	cells int

	// blocks maps granule -> region. It is written under mu, each pointer once and only
	// after the block that it points to is complete; it is read without a lock.
	blocks [numBlocks]atomic.Pointer[granuleBlock]
	view   atomic.Pointer[layout.View] // replaced whole under mu

	addMu sync.Mutex // one region is added at a time; Close waits for it

	nextID atomic.Uint32 // of the next region; only rises, under addMu

	mu       sync.Mutex // guards what follows, and is held to replace view
	inUse    uint64     // bytes of all regions
	items    uint64     // of them, of items regions
	nextBase uint64     // byte position of the next region; only rises
	closed   bool
	retired  map[uint32]*mapped // out of the view, not freed yet (retire.go)

	guests sync.RWMutex // held by Look; a leaf

	index IndexMemory

	beatMu sync.Mutex // guards the beat line of region 0 (beat.go)
	beat   layout.Beat
}

type granuleBlock [blockGranules]atomic.Pointer[mapped]

// mapped is a region with its memory. Immutable once published.
type mapped struct {
	layout.Region
	mem []byte
}

// NewTable makes a table with its root region: header page with the beat line,
// root table, reclaim ring, cells, and index memory in what remains.
func NewTable(cfg Config) (*Table, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Table{cfg: cfg, retired: make(map[uint32]*mapped)}
	var fixed uint64
	t.hdr0, fixed = cfg.rootHeader()
	t.cells = int(t.hdr0.ReclaimOffset) + layout.ReclaimRingSize(cfg.ReclaimEntries)
	t.view.Store(&layout.View{
		Incarnation: cfg.Incarnation, Seed: cfg.Seed, Shards: uint32(cfg.Shards),
		RootOffset: t.hdr0.RootOffset, ReclaimOffset: t.hdr0.ReclaimOffset, ReclaimEntries: t.hdr0.ReclaimEntries,
	})
	if len(cfg.Left) > 0 {
		if err := t.adopt(fixed); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.changed()
		return t, nil
	}
	r, mem, err := t.AddAtLeast(layout.KindIndex, fixed)
	if err != nil {
		return nil, fmt.Errorf("region: the root region: %w", err)
	}
	t.index.init(t, r, mem, int(fixed/layout.PageSize))
	return t, nil
}

// rootHeader is what the header of region 0 says of the region itself, and how many bytes of it are no index memory.
func (c Config) rootHeader() (h layout.RegionHeader, fixed uint64) {
	reclaim := layout.PageSize + layout.RootTableSize(c.Shards)
	h = layout.RegionHeader{RootOffset: layout.PageSize, ReclaimOffset: uint32(reclaim), ReclaimEntries: uint32(c.ReclaimEntries)}
	return h, uint64(reclaim + layout.ReclaimRingSize(c.ReclaimEntries) + layout.CellsSize(c.Cells))
}

// Add makes one more region of the configured size for its kind, or of what
// the limit still allows when that is less. The memory is zeroed but for the
// header page. It fails with a *NoMemoryError.
func (t *Table) Add(kind layout.RegionKind) (layout.Region, []byte, error) {
	return t.AddAtLeast(kind, layout.PageSize)
}

// AddAtLeast is Add for a caller that needs room for need bytes after the
// header page in one piece: the region is larger than configured if it must.
//
// It waits until the memory is registered.
func (t *Table) AddAtLeast(kind layout.RegionKind, need uint64) (layout.Region, []byte, error) {
	r, mem, err := t.add(kind, need)
	if err == nil {
		t.changed()
	}
	return r, mem, err
}

// add registers a region and publishes it. Only addMu is held while the memory is
// registered.
func (t *Table) add(kind layout.RegionKind, need uint64) (layout.Region, []byte, error) {
	t.addMu.Lock()
	defer t.addMu.Unlock()
	size, err := t.CanAdd(kind, need)
	if err != nil {
		return layout.Region{}, nil, err
	}
	id := t.nextID.Load()
	mem, err := t.cfg.Memory.Alloc(id, kind, int(size))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		return layout.Region{}, nil, t.refuse(kind, size, err)
	}
	t.nextID.Store(id + 1)
	if uint64(len(mem)) != size || !wordAligned(mem) {
		panic(fmt.Sprintf("region: Memory.Alloc returned %d bytes (8-aligned: %v) for %d asked", len(mem), wordAligned(mem), size))
	}
	m := &mapped{Region: layout.Region{ID: id, Kind: kind, Base: layout.PlaceOfByte(t.nextBase), Length: size}, mem: mem}
	t.publish(m)
	return m.Region, mem, nil
}

// CanAdd returns the size that AddAtLeast would make a region of, or the
// *NoMemoryError with which it would fail before it asks for memory.
func (t *Table) CanAdd(kind layout.RegionKind, need uint64) (size uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := roundUp(need+layout.PageSize, layout.RegionGranule)
	size = max(t.sizeOf(kind), least)
	left := t.left(kind)
	if size > left {
		size = max(least, left/layout.RegionGranule*layout.RegionGranule)
	}
	switch {
	case t.closed:
		return 0, t.refuse(kind, size, ErrClosed)
	case size > left:
		return 0, t.refuse(kind, size, nil)
	case t.nextBase+size > placeSpace || len(t.view.Load().Regions) >= maxRegions:
		return 0, t.refuse(kind, size, errPlaceSpace)
	}
	return size, nil
}

// left is how many bytes more of a kind there may be. The caller holds t.mu.
func (t *Table) left(kind layout.RegionKind) uint64 {
	mine, most := t.items, t.cfg.ItemsLimit
	if kind == layout.KindIndex {
		mine, most = t.inUse-t.items, t.cfg.IndexLimit
	}
	return min(t.cfg.Limit-min(t.inUse, t.cfg.Limit), most-min(mine, most))
}

// refuse says why there is no region of size bytes. The caller holds t.mu.
func (t *Table) refuse(kind layout.RegionKind, size uint64, cause error) error {
	return &NoMemoryError{Kind: kind, Want: size, InUse: t.inUse, Limit: t.cfg.Limit, Cause: cause}
}

// publish writes the header page, maps the granules and replaces the view, in this order, so
// that a region is complete before any reader can learn of it. The caller holds t.mu.
func (t *Table) publish(m *mapped) {
	h := t.hdr0
	h.Incarnation, h.Seed, h.Shards, h.Region = t.cfg.Incarnation, t.cfg.Seed, uint32(t.cfg.Shards), m.Region
	if m.ID == 0 {
		t.hdr0, t.root = h, m.mem
	}
	layout.PutRegionHeader(m.mem, h)
	first := t.nextBase / layout.RegionGranule
	for g := first; g < first+m.Length/layout.RegionGranule; g++ {
		slot := &t.blocks[g/blockGranules]
		b := slot.Load()
		if b == nil {
			b = new(granuleBlock)
			slot.Store(b)
		}
		b[g%blockGranules].Store(m)
	}
	t.nextBase += m.Length
	t.inUse += m.Length
	if m.Kind == layout.KindItems {
		t.items += m.Length
	}

	t.replaceView(func(old []layout.Region) []layout.Region {
		return append(append(make([]layout.Region, 0, len(old)+1), old...), m.Region)
	})
}

func (t *Table) sizeOf(kind layout.RegionKind) uint64 {
	if kind == layout.KindIndex {
		return t.cfg.IndexRegionSize
	}
	return t.cfg.RegionSize
}

// find returns the region that holds p, or nil.
func (t *Table) find(p layout.Place) *mapped {
	g := p.Byte() / layout.RegionGranule
	if g/blockGranules >= numBlocks {
		return nil
	}
	b := t.blocks[g/blockGranules].Load()
	if b == nil {
		return nil
	}
	return b[g%blockGranules].Load()
}

// Bytes returns the n bytes at p: a view of the registered memory, cut to n in length and
// capacity. It is nil when p is in no region or the n bytes would leave it. It takes no
// lock; the caller obeys the rules of which code may write there.
func (t *Table) Bytes(p layout.Place, n int) []byte {
	m := t.find(p)
	if m == nil || n < 0 {
		return nil
	}
	off := p.Byte() - m.Base.Byte()
	if uint64(n) > m.Length-off {
		return nil
	}
	end := off + uint64(n)
	return m.mem[off:end:end]
}

// Locate returns the region that holds p and p's byte offset in it. It takes no lock.
func (t *Table) Locate(p layout.Place) (r layout.Region, off uint64, ok bool) {
	m := t.find(p)
	if m == nil {
		return layout.Region{}, 0, false
	}
	return m.Region, p.Byte() - m.Base.Byte(), true
}

// View returns the region table as clients are given it. It is a snapshot: the caller must
// not change it, and the table never does.
func (t *Table) View() layout.View { return *t.view.Load() }

// ViewVersion is the number of the newest view; it rises with every region and
// stands in the beat line by the time Add returns.
func (t *Table) ViewVersion() uint64 { return t.view.Load().Version }

// Root returns the memory of region 0. Its header page and beat line are
// written by this package only; a root word of shard s stands at
// Header().RootOffset + 8*s and is written by that shard's index.
func (t *Table) Root() []byte { return t.root }

// Cell returns where cell i stands: its place, and its byte offset in Root. It is written by layout.StoreCell alone. i is less than
// Config.Cells.
func (t *Table) Cell(i int) (p layout.Place, off int) {
	if i < 0 || i >= t.cfg.Cells {
		panic(fmt.Sprintf("region: cell %d of %d", i, t.cfg.Cells))
	}
	off = t.cells + i*layout.CellSize
	return t.view.Load().Regions[0].Base + layout.PlaceOfByte(uint64(off)), off
}

// Header returns the header of region 0.
func (t *Table) Header() layout.RegionHeader { return t.hdr0 }

// Incarnation returns Config.Incarnation.
func (t *Table) Incarnation() uint64 { return t.cfg.Incarnation }

// Seed returns the seed of the key hash.
func (t *Table) Seed() uint64 { return t.cfg.Seed }

// Limit is the most bytes that all regions together may take.
func (t *Table) Limit() uint64 { return t.cfg.Limit }

// InUse is the bytes of all regions.
func (t *Table) InUse() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inUse
}

// Index returns the allocator of index memory, shared by all shards.
func (t *Table) Index() *IndexMemory { return &t.index }

// replaceView publishes a view with the regions that change makes of the old
// ones, which it must leave as they are, because a view is immutable. By the
// time it returns the new version stands in the beat line. The caller holds
// t.mu.
func (t *Table) replaceView(change func(old []layout.Region) []layout.Region) uint64 {
	v := *t.view.Load()
	v.Version++
	v.Regions = change(v.Regions)
	t.view.Store(&v)
	t.storeViewVersion(v.Version)
	return v.Version
}

// Bump raises the view version although the regions are the same: what clients
// fetch together with the table, or how they reach a region, has changed. They
// come for it when they see the beat, or by their next Ping. It returns the
// version.
func (t *Table) Bump() uint64 {
	defer t.changed() // after mu
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replaceView(func(old []layout.Region) []layout.Region { return old })
}

// changed tells the listener of Config.OnView that there is a newer view.
func (t *Table) changed() {
	if t.cfg.OnView != nil {
		t.cfg.OnView()
	}
}
