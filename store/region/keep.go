package region

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A Keeper is a Memory whose regions outlive the process: the next process of the node finds them again.
// What it finds is bytes that anybody may have damaged.
type Keeper interface {
	Memory
	// Record returns RecordBytes bytes of memory that outlives the process as well, and that nobody reads from
	// elsewhere: what the life before has left there, or zeros. It is the same slice at each call.
	Record() []byte
	// Left returns the regions that the life before has left, by id. They are not registered. Nobody else has them.
	Left() map[uint32][]byte
	// Adopt is Alloc with a region of Left: it is registered with the bytes that it has, which may move. Called
	// once for each, before any Alloc.
	Adopt(id uint32, kind layout.RegionKind) ([]byte, error)
	// Forget gives back what is in Left still.
	Forget() error
	// Leave says that the store is being closed: a region that is freed from here on stays for the next life.
	Leave()
}

// RecordBytes is the length of Keeper.Record.
const RecordBytes = 4096

// A LeftRegion is a region that an earlier life has left.
type LeftRegion struct {
	layout.Region
	Mem []byte // before Adopt
}

// CheckLeft picks from what was left the regions of an incarnation that accept knows, and checks that they fit each other and
// a table of this configuration: nothing in them is believed yet but their headers. They come back in the order of their
// bases, the root region first. An error says why none of them can be used.
func (c Config) CheckLeft(left map[uint32][]byte, accept func(incarnation uint64) bool) ([]LeftRegion, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	want, fixed := c.rootHeader()
	var list []LeftRegion
	total, items := uint64(0), uint64(0)
	for id, mem := range left {
		h, err := layout.ParseRegionHeader(mem)
		switch {
		case err != nil && id == 0:
			return nil, fmt.Errorf("its root region: %w", err)
		case err != nil:
			continue // what leads there leads nowhere
		case h.ID != id || uint64(h.ID) > h.Base.Byte()/layout.RegionGranule || h.Length != uint64(len(mem)) || !accept(h.Incarnation) || h.Seed != c.Seed ||
			h.Base.Byte()%layout.RegionGranule != 0 || h.Length%layout.RegionGranule != 0 || h.Base.Byte()+h.Length > placeSpace:
			if id == 0 {
				return nil, fmt.Errorf("its root region is not that of the life before")
			}
			continue
		case h.Shards != uint32(c.Shards):
			return nil, fmt.Errorf("it has %d shards, this node %d", h.Shards, c.Shards)
		case h.RootOffset != want.RootOffset || h.ReclaimOffset != want.ReclaimOffset || h.ReclaimEntries != want.ReclaimEntries,
			id == 0 && h.Length < fixed:
			return nil, fmt.Errorf("its root region is laid out in another way")
		}
		list = append(list, LeftRegion{h.Region, mem})
		total += h.Length
		if h.Kind == layout.KindItems {
			items += h.Length
		}
	}
	slices.SortFunc(list, func(a, b LeftRegion) int { return cmp.Compare(a.ID, b.ID) })
	switch {
	case len(list) == 0 || list[0].ID != 0 || list[0].Kind != layout.KindIndex || list[0].Base != 0:
		return nil, fmt.Errorf("its root region is missing")
	case total > c.Limit || items > c.ItemsLimit || total-items > c.IndexLimit:
		return nil, fmt.Errorf("it has %d bytes, of them %d of items, and the memory limit allows %d and %d", total, items, c.Limit, c.ItemsLimit)
	case len(list) >= maxRegions:
		return nil, fmt.Errorf("it has %d regions", len(list))
	}
	if last := list[len(list)-1]; c.Limit-total > placeSpace-(last.Base.Byte()+last.Length) {
		return nil, fmt.Errorf("its regions leave no places for all that the memory limit still allows")
	}
	for i := 1; i < len(list); i++ {
		// Ids and bases rise together, because both are given out once.
		if before := list[i-1]; list[i].Base.Byte() < before.Base.Byte()+before.Length {
			return nil, fmt.Errorf("its regions %d and %d lie over each other", before.ID, list[i].ID)
		}
	}
	return list, nil
}

// adopt puts the regions of Config.Left into a table that has none. A region that the Keeper cannot register is an error, because
// places in it could not be told from places of a region that comes later.
func (t *Table) adopt(fixed uint64) error {
	for _, r := range t.cfg.Left {
		mem, err := t.cfg.Memory.(Keeper).Adopt(r.ID, r.Kind)
		if err != nil {
			return fmt.Errorf("region: adopting region %d of %d bytes: %w", r.ID, r.Length, err)
		}
		if uint64(len(mem)) != r.Length || !wordAligned(mem) {
			panic(fmt.Sprintf("region: Keeper.Adopt returned %d bytes (8-aligned: %v) for %d", len(mem), wordAligned(mem), r.Length))
		}
		if r.ID == 0 {
			// The ring and the cells of the life before are nothing to readers of this one; its beat is another's.
			for off := layout.BeatOffset; off < int(fixed); off += 8 {
				if root := int(t.hdr0.RootOffset); off < layout.PageSize || off >= root+layout.RootTableSize(t.cfg.Shards) {
					layout.StoreWord(mem, off, 0)
				}
			}
		}
		t.mu.Lock()
		t.nextBase = r.Base.Byte()
		t.nextID.Store(r.ID + 1)
		t.publish(&mapped{Region: r.Region, mem: mem})
		t.mu.Unlock()
		switch {
		case r.ID == 0:
			t.index.init(t, r.Region, mem, int(fixed/layout.PageSize))
		case r.Kind == layout.KindIndex:
			t.index.append(r.Region, mem, 1)
		}
	}
	return nil
}

// Claim takes pages of index memory that an earlier life has written, if p leads to index memory and all of them are free. It is for an index
// that is put together again.
func (m *IndexMemory) Claim(p layout.Place, pages int) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.regions {
		r := &m.regions[i]
		if p < r.base || p.Byte()-r.base.Byte() >= uint64(len(r.mem)) {
			continue
		}
		off, n := int(p.Byte()-r.base.Byte()), pages*layout.PageSize
		if off%layout.PageSize != 0 || pages <= 0 || n > len(r.mem)-off || !r.ext.TakeAt(off/layout.PageSize, pages) {
			return nil, false
		}
		m.inUse += uint64(n)
		return r.mem[off : off+n : off+n], true
	}
	return nil, false
}
