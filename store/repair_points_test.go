//go:build points

package store

import "testing"

// TestRepairLosesToPut puts a key while its damaged item is being repaired, between the
// repair's read and its step in the order.
func TestRepairLosesToPut(t *testing.T) {
	for _, del := range []bool{false, true} {
		t.Run(deleteIf(del).String(), func(t *testing.T) {
			c := testConfig(memFS())
			c.noKeeper = true
			n := open(t, c)
			n.fill()
			n.put(1, "k", "old value")
			slot := n.damage(1, "k", 30)
			hook(t, func(point string, _ ...uint64) {
				if point != "repair.read" {
					return
				}
				if del {
					n.del(1, "k")
				} else {
					n.put(1, "k", "new value")
				}
			})
			n.scrub.ForTests().Repair(n.shard(1), slot)
			r := n.reader()
			_, got, ok, ask := r.get(1, "k")
			if !ask && (ok == del || ok && got != "new value") {
				t.Errorf("one-sided %q (%v) after a newer write (delete %v)", got, ok, del)
			}
			if got, ok := n.get(1, "k"); ok == del || ok && got != "new value" {
				t.Errorf("by SEND %q (%v) after a newer write (delete %v)", got, ok, del)
			}
		})
	}
}
