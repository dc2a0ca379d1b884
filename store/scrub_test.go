package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/layout"
)

// placeOf returns where a key's item stands.
func (n *node) placeOf(shard int, key string) layout.Slot {
	n.t.Helper()
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	ref, ok := sh.Find(n.hash(key), []byte(key))
	if !ok {
		n.t.Fatalf("%s has no slot", key)
	}
	return ref.Slot()
}

// damage flips a bit of a key's item, off bytes into it.
func (n *node) damage(shard int, key string, off int) layout.Slot {
	n.t.Helper()
	slot := n.placeOf(shard, key)
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	mem := n.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	layout.StoreWord(mem, off&^7, layout.LoadWord(mem, off&^7)^1<<(off%8*8))
	return slot
}

// scrubAll makes whole passes with a lease behind each.
func (n *node) scrubAll(passes int) {
	for range passes {
		n.scrub.ForTests().Age()
		for done := n.Stats().ScrubPasses + 1; n.Stats().ScrubPasses < done; {
			n.scrub.ForTests().Some()
		}
		n.lease()
	}
}

// slotsInUse counts the slots of a shard that lead to memory.
func (n *node) slotsInUse(shard int) (slots int) {
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	sh.Index.All(func(index.Ref) bool { slots++; return true })
	return slots
}

// TestScrub damages every byte of items, one at a time: state, version,
// lengths, checksum, key and value. Every get is right at once; the scrubber
// finds the damage, and then the key is answered one-sidedly again, out of
// another place.
func TestScrub(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	for i := range 40 {
		n.put(i%4, fmt.Sprintf("key-%d", i), pattern(60, fmt.Sprint(i)))
	}
	r := n.reader()
	size := layout.ItemSize(len("key-1"), 60, false)
	step := 1
	if testing.Short() || underRace {
		step = 5
	}
	flips := 0
	for off := 0; off < size-7; off += step {
		before := n.Stats()
		old := n.damage(1, "key-1", off)
		n.want(1, "key-1", pattern(60, "1"))
		if _, got, found, ask := r.get(1, "key-1"); found && got != pattern(60, "1") || !found && !ask {
			t.Fatalf("byte %d: a reader believes %q, %v", off, clip(got), found)
		}
		n.scrubAll(2) // the second, a lease later, believes that a state is no passing one
		after := n.Stats()
		if after.Repaired == before.Repaired && after.Orphans == before.Orphans {
			if off < 2*8 || off > size-8 {
				// A bit of the state that makes no other state, or padding.
				n.damage(1, "key-1", off)
				continue
			}
			t.Fatalf("byte %d of %v: the damage was not found: %+v", off, old, after)
		}
		flips++
		r.want(1, "key-1", pattern(60, "1"))
		if n.placeOf(1, "key-1") == old {
			t.Fatalf("byte %d: repaired in its old place", off)
		}
		if got := n.slotsInUse(1); got != 10 {
			t.Fatalf("byte %d: %d slots for 10 keys", off, got)
		}
	}
	if st := n.Stats(); flips < size/step/2 || st.Repaired == 0 || st.Keys != 40 {
		t.Errorf("%d flips of %d bytes; %+v", flips, size, st)
	}
}

// TestScrubLarge: chunks are verified too.
func TestScrubLarge(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	big := pattern(3*layout.ChunkSize, "big")
	n.put(2, "big", big)
	r := n.reader()
	n.damage(2, "big", 2*layout.ChunkSize)
	n.want(2, "big", big)
	n.scrubAll(1)
	r.want(2, "big", big)
	if st := n.Stats(); st.Repaired != 1 {
		t.Errorf("%+v", st)
	}
}

// TestRepairGivesWay: a write that is ordered while the repair reads wins, be
// it a put or a delete, and whether it is published before or after.
func TestRepairGivesWay(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		c := testConfig(memFS())
		c.noKeeper = true
		n := open(t, c)
		n.fill()
		n.put(1, "k", "old value")
		slot := n.damage(1, "k", 30)
		sh := n.shard(1)
		done := make(chan struct{})
		del := rng.IntN(2) == 0
		go func() {
			defer close(done)
			for range rng.IntN(3) {
				n.scrub.ForTests().Some()
			}
			if del {
				n.del(1, "k")
			} else {
				n.put(1, "k", "new value")
			}
		}()
		n.scrub.ForTests().Repair(sh, slot)
		<-done
		for range 2 {
			if del {
				n.wantAbsent(1, "k")
			} else {
				n.want(1, "k", "new value")
			}
			r := n.reader()
			if _, got, found, ask := r.get(1, "k"); !ask && (found == del || found && got != "new value") {
				t.Fatalf("seed %d: one-sided %q, found %v, after del %v", seed, got, found, del)
			}
			n.scrubAll(2) // what was left over goes
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamageReports: a client's word makes the server look, and nothing else.
func TestDamageReports(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	n.put(1, "good", "value")
	n.put(1, "bad", pattern(50, "v"))
	old := n.placeOf(1, "good")
	n.Damaged(1, []byte("good"), old.Place(), 1)
	n.Damaged(1, []byte("never was"), 12345, 1)
	n.Damaged(77, []byte("no such shard"), 1, 1)
	n.damage(1, "bad", 30)
	n.Damaged(1, []byte("bad"), old.Place(), 1)
	n.scrub.ForTests().LookInto()
	if n.placeOf(1, "good") != old {
		t.Error("a good item was moved because a client said so")
	}
	n.reader().want(1, "bad", pattern(50, "v"))
	if st := n.Stats(); st.DamageReports != 3 || st.ReportsFalse != 2 || st.Repaired != 1 {
		t.Errorf("%+v", st)
	}
	for range 2 * residents.ReportsQueued {
		n.Damaged(1, []byte("good"), 0, 0)
	}
	if st := n.Stats(); st.ReportsDropped != residents.ReportsQueued {
		t.Errorf("%d reports dropped", st.ReportsDropped)
	}
}

// TestScrubRuns: the background pass works by itself.
func TestScrubRuns(t *testing.T) {
	c := testConfig(memFS())
	c.ScrubRate = 64 << 20
	n := open(t, c)
	n.fill()
	n.put(1, "k", pattern(500, "v"))
	n.damage(1, "k", 100)
	waitFor(t, "repair", func() bool { return n.Stats().Repaired > 0 })
	n.reader().want(1, "k", pattern(500, "v"))
}

// TestScrubCountsIndex: a pass over an index without items costs what it looks
// at, and never looks at much of it under the lock at a time. Else an idle store
// would scrub nothing, as fast as it can.
func TestScrubCountsIndex(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	for _, del := range []bool{false, true} {
		for first := range 5 {
			w := Write{Op: Op{Kind: OpBatch}}
			for i := range MaxParts {
				w.Parts = append(w.Parts, Part{Key: fmt.Append(nil, "key-", first, "-", i), Delete: del})
			}
			if err := n.Do(context.Background(), &w); err != nil {
				t.Fatal(err)
			}
		}
	}
	slots := 0
	for _, sh := range n.shards {
		sh.Mu.Lock()
		slots += sh.Index.Stats().Slots
		sh.Mu.Unlock()
	}
	sum, calls := 0, 0
	for n.Stats().ScrubPasses == 0 {
		bytes := n.scrub.ForTests().Some()
		if bytes > residents.ScrubStep {
			t.Fatalf("%d bytes of an empty index at a time", bytes)
		}
		sum, calls = sum+bytes, calls+1
	}
	if sum < slots*residents.SlotBytes {
		t.Errorf("a pass over %d slots counts %d bytes, in %d calls", slots, sum, calls)
	}
}
