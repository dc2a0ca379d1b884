package store

import (
	"fmt"
	"testing"
)

// TestDropUnderRead: the words of one READ come in any order. A reader fetches
// a bucket's header, then a put without memory takes the key's item away, then
// the reader fetches the slots. The key existed all the time, so the reader must
// not call it absent.
func TestDropUnderRead(t *testing.T) {
	c := testConfig(memFS())
	c.RegionSize, c.Memory.(*heapMemory).limit = 1<<20, 2<<20
	n := open(t, c)
	n.fill()
	r := n.reader()
	n.put(0, "k", "small")
	r.want(0, "k", "small")
	clear(r.loc)
	dropped := false
	r.mid = func() {
		if !dropped {
			dropped = true
			n.put(0, "k", pattern(2<<20, "large"))
		}
	}
	r.wantAsk(0, "k")
	r.mid = nil
	r.wantAsk(0, "k")
	n.want(0, "k", pattern(2<<20, "large"))

	if st := n.Stats(); st.Keys != 0 || st.PebbleOnly != 1 || st.ItemLive != 0 {
		t.Errorf("%d items, %d bytes, %d slots without one", st.Keys, st.ItemLive, st.PebbleOnly)
	}
	n.lease()
	r.wantAsk(0, "k")

	// It gets a slot again when a put finds memory, also one that stood in
	// the way of clearing.
	n.put(0, "k", "small again")
	r.want(0, "k", "small again")
	n.put(0, "k", pattern(2<<20, "large"))
	n.put(0, "k", "small at last")
	n.lease()
	r.want(0, "k", "small at last")
	n.put(0, "k", pattern(2<<20, "large"))
	n.del(0, "k")
	n.lease()
	n.wantAbsent(0, "k")
	// The slot outlasts its key until the sweeper has been there, which goes round
	// in the background of this test. It finds one slot, or two that say the same if
	// it came before the lease that clears one of them.
	var st Stats
	waitFor(t, "the sweep of the stale slot", func() bool { st = n.Stats(); return st.SlotsSwept > 0 && st.PebbleOnly == 0 })
	if st.SlotsSwept > 2 {
		t.Errorf("%d slots were swept", st.SlotsSwept)
	}
	if st.Keys != 0 || st.ItemLive != 0 || st.Slotless != 0 {
		t.Errorf("%d items, %d bytes, %d counted at the end", st.Keys, st.ItemLive, st.Slotless)
	}
}

// TestDropDuringGrowth: a key loses its slot, and before the slot is cleared
// its segment grows. Growth counts anew, and finds that the key has a slot.
func TestDropDuringGrowth(t *testing.T) {
	c := testConfig(memFS())
	c.RegionSize, c.Memory.(*heapMemory).limit = 1<<20, 2<<20
	n := open(t, c)
	n.fill()
	r := n.reader()
	for round := range 3 {
		key := fmt.Sprintf("dropped-%d", round)
		n.put(0, key, "small")
		n.put(0, key, pattern(2<<20, "large"))
		segments, before := 0, n.Stats().IndexBytes
		for i := 0; n.Stats().IndexBytes == before; i++ {
			n.put(0, fmt.Sprintf("filler-%d-%d", round, i), "v")
			if segments++; segments > 5000 {
				t.Fatal("the index does not grow")
			}
		}
		for range 4 {
			r.wantAsk(0, key)
			n.lease()
		}
		n.want(0, key, pattern(2<<20, "large"))
	}
}
