package region

import "testing"

// TestSizesFor: the sizes follow from the limit. They are powers of two of whole huge
// pages, there is room for a region of each kind, and there are never many regions.
func TestSizesFor(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct{ limit, items, index uint64 }{
		{1 * mib, 2 * mib, 2 * mib}, // a store of less is refused or gets what its index leaves
		{8 * mib, 2 * mib, 2 * mib},
		{16 * mib, 2 * mib, 2 * mib},
		{64 * mib, 8 * mib, 2 * mib},
		{100 * mib, 8 * mib, 2 * mib},
		{512 * mib, 64 * mib, 8 * mib},
		{1 * gib, 128 * mib, 16 * mib}, // the default
		{4 * gib, 512 * mib, 64 * mib},
		{16 * gib, gib, 128 * mib},
		{64 * gib, gib, 128 * mib},
		{65 * gib, 2 * gib, 128 * mib},
		{4096 * gib, 64 * gib, 128 * mib},
	} {
		if items, index := SizesFor(c.limit); items != c.items || index != c.index {
			t.Errorf("%d MiB: %d and %d MiB, want %d and %d", c.limit/mib, items/mib, index/mib, c.items/mib, c.index/mib)
		}
	}
	for limit := uint64(8 * mib); limit <= 4096*gib; limit += limit/7/mib*mib + mib {
		items, index := SizesFor(limit)
		if items&(items-1) != 0 || index&(index-1) != 0 || items+index > limit || limit/items > maxChosen {
			t.Errorf("%d: %d and %d", limit, items, index)
		}
	}
}
