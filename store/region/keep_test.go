package region

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestCheckLeft: regions that were left are picked by their headers; one that cannot be right is passed over, and all are refused if the root region
// is, or if they do not fit each other or the configuration.
func TestCheckLeft(t *testing.T) {
	cfg := Config{Memory: new(HeapMemory), Incarnation: 7, Seed: 9, Shards: 4, RegionSize: 2 * mib, IndexRegionSize: mib, Limit: 16 * mib, ReclaimEntries: 8}
	want, _ := cfg.rootHeader()
	want.Incarnation, want.Seed, want.Shards = 7, 9, 4
	make1 := func(id uint32, kind layout.RegionKind, base, length uint64, change func(*layout.RegionHeader)) []byte {
		h := want
		h.Region = layout.Region{ID: id, Kind: kind, Base: layout.PlaceOfByte(base), Length: length}
		if change != nil {
			change(&h)
		}
		mem := make([]byte, length)
		layout.PutRegionHeader(mem, h)
		return mem
	}
	whole := map[uint32][]byte{
		0: make1(0, layout.KindIndex, 0, mib, nil),
		1: make1(1, layout.KindItems, mib, 2*mib, nil),
		3: make1(3, layout.KindItems, 5*mib, 2*mib, nil), // region 2 was given back
	}
	header := func(f func(*layout.RegionHeader)) func(map[uint32][]byte) {
		return func(m map[uint32][]byte) { m[3] = make1(3, layout.KindItems, 5*mib, 2*mib, f) }
	}
	for name, c := range map[string]struct {
		change func(left map[uint32][]byte)
		ids    []uint32
		err    string // "": none
	}{
		"whole":               {func(map[uint32][]byte) {}, []uint32{0, 1, 3}, ""},
		"damaged":             {func(m map[uint32][]byte) { m[1] = make([]byte, 2*mib) }, []uint32{0, 3}, ""},
		"short":               {func(m map[uint32][]byte) { m[1] = m[1][:50] }, []uint32{0, 3}, ""},
		"empty":               {func(m map[uint32][]byte) { m[1] = nil }, []uint32{0, 3}, ""},
		"another id":          {func(m map[uint32][]byte) { m[4] = m[3]; delete(m, 3) }, []uint32{0, 1}, ""},
		"another length":      {func(m map[uint32][]byte) { m[3] = m[3][:mib] }, []uint32{0, 1}, ""},
		"another incarnation": {header(func(h *layout.RegionHeader) { h.Incarnation = 8 }), []uint32{0, 1}, ""},
		"another seed":        {header(func(h *layout.RegionHeader) { h.Seed = 8 }), []uint32{0, 1}, ""},
		"an id from nowhere": {func(m map[uint32][]byte) {
			m[1<<31] = make1(1<<31, layout.KindItems, 9*mib, 2*mib, nil)
		}, []uint32{0, 1, 3}, ""},
		"over each other": {func(m map[uint32][]byte) { m[2] = make1(2, layout.KindItems, 2*mib, 2*mib, nil) }, nil, "lie over each other"},
		"other shards":    {header(func(h *layout.RegionHeader) { h.Shards = 5 }), nil, "5 shards"},
		"another ring":    {header(func(h *layout.RegionHeader) { h.ReclaimEntries = 9 }), nil, "laid out"},
		"another root":    {header(func(h *layout.RegionHeader) { h.ReclaimOffset += layout.PageSize }), nil, "laid out"},
		"places used up":  {header(func(h *layout.RegionHeader) { h.Base = layout.PlaceOfByte(placeSpace - 3*mib) }), nil, "no places"},
		"too much":        {func(m map[uint32][]byte) { m[12] = make1(12, layout.KindItems, 12*mib, 14*mib, nil) }, nil, "memory limit"},
		"root missing":    {func(m map[uint32][]byte) { delete(m, 0) }, nil, "missing"},
		"root damaged":    {func(m map[uint32][]byte) { m[0][80] ^= 1 }, nil, "root region"},
		"root of another": {func(m map[uint32][]byte) {
			m[0] = make1(0, layout.KindIndex, 0, mib, func(h *layout.RegionHeader) { h.Incarnation = 8 })
		}, nil, "root region"},
		"root elsewhere": {func(m map[uint32][]byte) { m[0] = make1(0, layout.KindIndex, 8*mib, mib, nil) }, nil, "missing"},
		"nothing":        {func(m map[uint32][]byte) { clear(m) }, nil, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			left := maps.Clone(whole)
			left[0] = slices.Clone(left[0])
			c.change(left)
			list, err := cfg.CheckLeft(left, func(inc uint64) bool { return inc == 7 })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			var ids []uint32
			for _, r := range list {
				ids = append(ids, r.ID)
			}
			if err != nil || !slices.Equal(ids, c.ids) {
				t.Errorf("regions %v, %v; want %v", ids, err, c.ids)
			}
		})
	}
}

// TestTakeAt: units are taken if they are free, at and across word boundaries, whatever lies beside them.
func TestTakeAt(t *testing.T) {
	for _, start := range []int{0, 1, 63, 64, 65, 127, 130} {
		for _, n := range []int{1, 2, 63, 64, 65, 66} {
			e := NewExtents(200)
			if start > 0 && !e.TakeAt(start-1, 1) || start+n < 200 && !e.TakeAt(start+n, 1) {
				t.Fatalf("no unit beside %d+%d", start, n)
			}
			if !e.TakeAt(start, n) {
				t.Errorf("%d units at %d are free, and were not taken", n, start)
			}
			for i := start; i < start+n; i++ {
				if e.IsFree(i) || e.TakeAt(i, 1) {
					t.Errorf("unit %d of %d+%d was taken twice", i, start, n)
				}
			}
		}
	}
	e := NewExtents(200)
	if e.TakeAt(150, 51) || e.TakeAt(-1, 2) || e.TakeAt(3, 0) || e.TakeAt(1<<40, 1) || e.Free() != 200 {
		t.Error("units that are not there were taken")
	}
}
