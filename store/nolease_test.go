package store

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestNoLease: without a lease nothing that was retired is used again, however
// much time goes by: the segments that an index outgrew keep their marks, and
// memory of items keeps its class. Growth goes on all the same.
func TestNoLease(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("no lease %v", off), func(t *testing.T) {
			c := testConfig(memFS())
			c.Shards, c.NoLease, c.Sync = 1, off, Off
			n := open(t, c)
			n.fill()
			keys := 20_000
			if underRace { // each put is a hundred times slower
				keys = 5_000
			}
			var peak uint64
			for i := range keys {
				n.put(0, fmt.Sprintf("key-%05d", i), "v")
				if i%500 == 0 {
					n.lease()
					peak = max(peak, n.Stats().RetiredBytes)
				}
			}
			for i := range keys { // all of one class are gone
				n.del(0, fmt.Sprintf("key-%05d", i))
			}
			n.lease()
			st := n.Stats()
			if st.Slotless != 0 {
				t.Errorf("%d keys were left without a slot", st.Slotless)
			}
			if off != (st.RetiredBytes > 0) {
				t.Errorf("%d bytes are retired a lease after everything was deleted", st.RetiredBytes)
			}
			if off && st.RetiredBytes < peak {
				t.Errorf("%d bytes are retired, there were %d", st.RetiredBytes, peak)
			}
			// Listed are pages of items that change class.
			if off != (n.ReclaimVersion() == 0) {
				t.Errorf("reclaim version %d after all items were deleted", n.ReclaimVersion())
			}
			n.put(0, "after", pattern(layout.PageSize, "x"))
			n.want(0, "after", pattern(layout.PageSize, "x"))
		})
	}
}
