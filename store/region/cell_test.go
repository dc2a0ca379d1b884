package region

import (
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestCells: cells stand behind the reclaim ring, apart from it, from each other and from index memory, and a client's view has their places.
func TestCells(t *testing.T) {
	tab := newTestTable(t, func(c *Config) { c.Cells, c.IndexRegionSize = layout.MaxCells, 4*mib })
	h := tab.Header()
	ring := uint64(h.ReclaimOffset) + uint64(layout.ReclaimRingSize(int(h.ReclaimEntries)))
	taken := map[int]bool{}
	v := tab.View()
	for i := range layout.MaxCells {
		p, off := tab.Cell(i)
		if uint64(off) < ring || off%layout.CellSize != 0 || taken[off] {
			t.Fatalf("cell %d at %d; the ring ends at %d", i, off, ring)
		}
		taken[off] = true
		if region, at, ok := v.Locate(p, layout.CellRead); !ok || region != 0 || at != uint64(off) {
			t.Fatalf("cell %d at %v: region %d, offset %d, %v", i, p, region, at, ok)
		}
		layout.StoreCell(tab.Root(), off, layout.Cell{Word: 1, Config: 2, Ready: 3})
	}
	// All index memory that there is: none of it is a cell's.
	for {
		p, _, err := tab.Index().Alloc(1)
		if err != nil {
			break
		}
		if p.Byte() < layout.PlaceOfByte(4*mib).Byte() && taken[int(p.Byte())] {
			t.Fatalf("index memory at %d, where a cell is", p.Byte())
		}
	}
	if _, off := tab.Cell(0); layout.LoadWord(tab.Root(), off) != 1 {
		t.Error("a cell was overwritten")
	}
	none := newTestTable(t, nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a table without cells has one")
			}
		}()
		none.Cell(0)
	}()
	for _, n := range []int{-1, layout.MaxCells + 1} {
		if _, err := NewTable(Config{Memory: new(HeapMemory), Incarnation: 1, Shards: 1, Cells: n}); err == nil || !strings.Contains(err.Error(), "Cells") {
			t.Errorf("%d cells: %v", n, err)
		}
	}
}
