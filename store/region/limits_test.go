package region

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Each kind of region has a bound of its own, and both have one together.
func TestKindLimits(t *testing.T) {
	const mib = 1 << 20
	tab, err := NewTable(Config{Memory: new(HeapMemory), Incarnation: 1, Shards: 1, RegionSize: 2 * mib, IndexRegionSize: mib,
		Limit: 16 * mib, ItemsLimit: 11 * mib, IndexLimit: 4 * mib})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(kind layout.RegionKind) (bytes uint64) {
		for {
			r, _, err := tab.Add(kind)
			if errors.Is(err, ErrNoMemory) {
				return bytes
			}
			if err != nil {
				t.Fatal(err)
			}
			bytes += r.Length
		}
	}
	if got := fill(layout.KindItems); got != 11*mib {
		t.Errorf("%d bytes of items, the limit is 11 MiB", got)
	}
	if got := fill(layout.KindIndex); got != 3*mib { // and the root region
		t.Errorf("%d bytes of index, the limit is 4 MiB", got+mib)
	}
	if tab.InUse() != 15*mib {
		t.Errorf("%d bytes in all", tab.InUse())
	}
	if _, err := tab.CanAdd(layout.KindItems, 1); !errors.Is(err, ErrNoMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
}
