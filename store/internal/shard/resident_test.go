package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// write writes an item into free memory, pending.
func (r *rig) write(key, value string, v layout.Version) (place layout.Place, class uint8, mem []byte) {
	it := layout.Item{Version: v, Key: []byte(key), Value: []byte(value)}
	place, class = r.alloc(layout.ItemSize(len(key), len(value), false))
	mem = r.mem.Table.Bytes(place, layout.ClassSize(class))
	r.mem.WritePending(mem, place, it)
	return place, class, mem
}

// TestEvict: an item goes only as it was when it was chosen, and its key is on the disk
// from then on.
func TestEvict(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	v := r.victim("k")
	flying := r.order(put("k", "w"))
	if r.Evict(v) {
		t.Error("evicted under a write in flight")
	}
	r.publish(flying)
	if r.Evict(v) {
		t.Error("a victim that is another item by now was evicted")
	}
	v = r.victim("k")
	r.Mu.Lock()
	pin := r.Pin(v.Place)
	r.Mu.Unlock()
	if r.Evict(v) {
		t.Error("evicted under a reader that was given the place")
	}
	r.Unpin(pin, v.Place, v.Version)
	if !r.Evict(v) {
		t.Error("not evicted")
	}
	r.want("k", "", InPebble)
	if ix, items := r.Counts(); items != 0 || ix.Pebble != 1 || r.mem.Counts.Evicted.Load() != 1 {
		t.Errorf("%d items, %d slots of keys in Pebble, %d evicted", items, ix.Pebble, r.mem.Counts.Evicted.Load())
	}
}

// TestPin: an item that is killed while a reader has its place stays as it is, Held,
// until the last reader lets it go.
func TestPin(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	slot := r.slot("k")
	version := r.next - 1
	r.Mu.Lock()
	first, second := r.Pin(slot.Place()), r.Pin(slot.Place())
	r.Mu.Unlock()
	r.do(put("k", "w"))
	for i, want := range []layout.State{layout.Held, layout.Held, layout.Dead} {
		if s := r.state(slot); s != want {
			t.Errorf("with %d readers less: state %d, want %d", i, s, want)
		}
		switch i {
		case 0:
			r.Unpin(first, slot.Place(), version)
		case 1:
			r.Unpin(second, slot.Place(), version)
		}
	}
	if len(r.held) != 0 {
		t.Errorf("%d places are held", len(r.held))
	}
	r.want("k", "w", InMemory)
}

// TestPromotion: what was read from the disk comes in, unless a write was ordered since
// or somebody was faster.
func TestPromotion(t *testing.T) {
	for _, c := range []struct {
		name      string
		meanwhile func(r *rig)
		comes     bool
		value     string
	}{
		{"nothing", func(*rig) {}, true, "v"},
		{"a write", func(r *rig) { r.do(put("k", "w")) }, false, "w"},
		{"a delete", func(r *rig) { r.do(del("k")) }, false, ""},
		{"another key", func(r *rig) { r.do(put("l", "w")) }, true, "v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			version := r.do(put("k", "v")).Version
			r.evict("k")
			r.Mu.Lock()
			p := r.BeginPromotion(r.hash("k"), []byte("k"))
			r.Mu.Unlock()
			if p == nil {
				t.Fatal("not to be promoted")
			}
			c.meanwhile(r)
			place, class, mem := r.write("k", "v", version)
			r.Mu.Lock()
			comes := r.LinkPromoted(p, version, place, class, mem)
			if !comes {
				layout.SetState(mem, version, layout.Dead)
			}
			r.Mu.Unlock()
			r.EndPromotion(p)
			if comes != c.comes || len(r.probes) != 0 {
				t.Errorf("comes %v, %d probes left", comes, len(r.probes))
			}
			if value, where := r.locate("k"); value != c.value || c.value != "" && where != InMemory {
				t.Errorf("%q at %d; want %q", value, where, c.value)
			}
		})
	}
}

// TestPromotionIsBounded: a read brings nothing back beside a write in flight, beside too
// many others, without a disk, or without leases.
func TestPromotionIsBounded(t *testing.T) {
	begin := func(r *rig, key string) bool {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return r.BeginPromotion(r.hash(key), []byte(key)) != nil
	}
	r := newRig(t, true)
	f := r.order(put("k", "v"))
	if begin(r, "k") {
		t.Error("beside a write in flight")
	}
	r.publish(f)
	for i := range maxPromotions {
		if !begin(r, fmt.Sprint(i)) {
			t.Fatalf("only %d at a time", i)
		}
	}
	if begin(r, "one more") {
		t.Errorf("more than %d at a time", maxPromotions)
	}
	if r := newRig(t, false); begin(r, "k") {
		t.Error("in a cache")
	}
	r = newRig(t, true)
	r.mem.NoLease = true
	if begin(r, "k") {
		t.Error("without leases")
	}
}

// TestPlaceAndVersionOnce: an item must not come back to its place under its version
// before a lease has passed; two leases later nothing is remembered.
func TestPlaceAndVersionOnce(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	slot, version := r.slot("k"), r.next-1
	if r.TooSoon(slot.Place(), version) {
		t.Error("too soon for what never left")
	}
	r.evict("k")
	if !r.TooSoon(slot.Place(), version) {
		t.Error("not too soon at once")
	}
	r.Mu.Lock()
	r.left(slot.Place()+1000, version) // the turn under way must not drop what came in behind its begin
	r.Mu.Unlock()
	r.lease = r.lease.Add(time.Millisecond)
	r.mem.Reclaim.Tick(r.lease)
	if !r.TooSoon(slot.Place(), version) {
		t.Error("forgotten before a lease")
	}
	r.pass()
	r.pass()
	if r.TooSoon(slot.Place(), version) || r.gone.turning {
		t.Errorf("remembered after two leases; turning %v", r.gone.turning)
	}
}

// TestFill: what the fill reads loses against every newer write, and is counted where
// there is no memory for it.
func TestFill(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(r *rig) // the chunk's snapshot is taken
		during func(r *rig)
		noItem bool
		fate   FillFate
		value  string
		where  Location
	}{
		{name: "nothing", fate: FillLinked, value: "old", where: InMemory},
		{name: "no memory", noItem: true, fate: FillCounted, where: InPebble},
		{name: "put since", during: func(r *rig) { r.do(put("k", "new")) }, fate: FillDropped, value: "new", where: InMemory},
		{name: "deleted since", during: func(r *rig) { r.do(put("k", "x")); r.do(del("k")) }, fate: FillDropped, where: Nowhere},
		{name: "put and evicted since", during: func(r *rig) { r.do(put("k", "x")); r.evict("k") }, fate: FillDropped, where: InPebble},
		{name: "put without a slot since", during: func(r *rig) { r.full = true; r.do(put("k", "x")); r.full = false }, fate: FillDropped, where: InPebble},
		{name: "in flight", during: func(r *rig) { r.order(put("k", "x")) }, fate: FillDropped, where: Nowhere},
		{name: "linked before", before: func(r *rig) { r.do(put("k", "new")) }, fate: FillDropped, value: "new", where: InMemory},
		{name: "too many", during: func(r *rig) {
			r.Mu.Lock()
			defer r.Mu.Unlock()
			for i := range maxTouched + 1 {
				r.fill.touch(fmt.Append(nil, i))
			}
		}, fate: FillVoid, where: Nowhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			version := r.do(put("another", "x")).Version // of a time before this life's k
			if c.before != nil {
				c.before(r)
			}
			r.BeginChunk(true, false)
			if c.during != nil {
				c.during(r)
			}
			var place layout.Place
			var class uint8
			var mem []byte
			if !c.noItem {
				place, class, mem = r.write("k", "old", version)
			}
			r.Mu.Lock()
			fate := r.LinkFilled(time.Now(), r.hash("k"), []byte("k"), version, place, class, mem)
			r.Mu.Unlock()
			r.EndChunk()
			if fate != c.fate {
				t.Errorf("fate %d, want %d", fate, c.fate)
			}
			r.want("k", c.value, c.where)
		})
	}
}

// TestRepair: a damaged item is replaced by what the disk has, unless a write came, or it
// is not damaged.
func TestRepair(t *testing.T) {
	for _, c := range []struct {
		name      string
		damage    bool
		meanwhile func(r *rig)
		noItem    bool
		repaired  bool
		value     string
		where     Location
	}{
		{name: "damaged", damage: true, repaired: true, value: "v", where: InMemory},
		{name: "damaged, no memory", damage: true, noItem: true, repaired: true, where: InPebble},
		{name: "whole", value: "v", where: InMemory},
		{name: "overwritten", damage: true, meanwhile: func(r *rig) { r.do(put("k", "w")) }, value: "w", where: InMemory},
		{name: "being overwritten", damage: true, meanwhile: func(r *rig) { r.order(put("k", "w")) }, where: InPebble},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			version := r.do(put("k", "v")).Version
			slot := r.slot("k")
			r.Mu.Lock()
			p := r.AddProbe(r.hash("k"), []byte("k"))
			r.Mu.Unlock()
			if c.meanwhile != nil {
				c.meanwhile(r)
			}
			if c.damage {
				mem := r.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
				mem[layout.ItemHeaderSize] ^= 1
			}
			var place layout.Place
			var class uint8
			var mem []byte
			if !c.noItem {
				place, class, mem = r.write("k", "v", version)
			}
			r.Mu.Lock()
			repaired := r.LinkRepaired(p, slot, version, place, class, mem)
			r.DropProbe(p)
			r.Mu.Unlock()
			if repaired != c.repaired {
				t.Errorf("repaired %v", repaired)
			}
			r.want("k", c.value, c.where)
		})
	}
}

// pebbleSlots counts the slots of keys that are in Pebble only.
func (r *rig) pebbleSlots() int { ix, _ := r.Counts(); return ix.Pebble }

// TestTwins: a put of a key that is in Pebble only takes a slot of its own, because the
// other may be another key's too. When it is evicted again there are two slots that say
// the same, and one of them goes a lease later.
func TestTwins(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	r.evict("k")
	r.do(put("k", "w"))
	r.want("k", "w", InMemory)
	if n := r.pebbleSlots(); n != 1 {
		t.Errorf("%d slots of keys in Pebble behind the second put", n)
	}
	r.evict("k")
	for _, want := range []int{2, 1} {
		r.want("k", "", InPebble)
		if n := r.pebbleSlots(); n != want {
			t.Errorf("%d slots of keys in Pebble, want %d", n, want)
		}
		r.pass()
	}
}

// TestDrop: a slot that is given up for room is counted at once and cleared a lease later:
// at no moment is the miss of its key believed.
func TestDrop(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	r.evict("k")
	r.Mu.Lock()
	r.DropNear(r.hash("k"))
	counted := r.Index.Slotless(r.hash("k"))
	r.Mu.Unlock()
	if n := r.pebbleSlots(); n != 1 || !counted {
		t.Errorf("at once: %d slots, counted %v", n, counted)
	}
	r.Mu.Lock()
	r.DropNear(r.hash("k")) // it is on its way
	r.Mu.Unlock()
	if n := r.mem.Counts.SlotsDropped.Load(); n != 1 {
		t.Errorf("dropped %d times", n)
	}
	r.want("k", "", InPebble)
	r.pass()
	if n := r.pebbleSlots(); n != 0 || len(r.dropping) != 0 {
		t.Errorf("a lease later: %d slots, %d on their way", n, len(r.dropping))
	}
	r.want("k", "", InPebble)
}

// TestPass: the slot of a key that is gone is cleared when a pass over the shard's keys
// has met none that it could stand for, and a write keeps it.
func TestPass(t *testing.T) {
	for _, c := range []struct {
		name   string
		during func(r *rig)
		swept  bool
	}{
		{"nothing", func(*rig) {}, true},
		{"the key is met", func(r *rig) { r.Meet([]layout.Hash{r.hash("k")}) }, false},
		{"another key is met", func(r *rig) { r.Meet([]layout.Hash{r.hash("l")}) }, true},
		{"the key is written", func(r *rig) { r.order(put("k", "new")) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			r.do(put("k", "v"))
			if _, on := r.BeginPass(0); on {
				t.Fatal("a pass without traces")
			}
			r.evict("k")
			r.do(del("k"))
			r.want("k", "", InPebble) // its slot may be another key's
			if _, on := r.BeginPass(2); on {
				t.Fatal("a pass for less than it is worth")
			}
			if _, on := r.BeginPass(1); !on || !r.Doubts() {
				t.Fatal("no pass over a trace")
			}
			c.during(r)
			for r.ClearDoubted(1) {
			}
			r.EndPass()
			if ix, _ := r.Counts(); (ix.Pebble == 0) != c.swept || int(r.mem.Counts.SlotsSwept.Load()) != 1-ix.Pebble {
				t.Errorf("%d slots are left, %d were swept", ix.Pebble, r.mem.Counts.SlotsSwept.Load())
			}
		})
	}
}

// TestPassKeepsFlight: a slot of a key of which a write is in flight as the pass begins is
// not doubted: the disk shows a delete before it is published.
func TestPassKeepsFlight(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "v"))
	r.evict("k")
	r.do(del("k"))
	f := r.order(put("k", "new"))
	if _, on := r.BeginPass(1); !on || r.Doubts() {
		t.Error("a slot is doubted whose key is being written")
	}
	r.publish(f)
}

// TestWithheld: a shard that is withheld vouches for no miss, filled or not, until a lease
// behind its release.
func TestWithheld(t *testing.T) {
	r := newRig(t, true)
	sh, err := New(0, r.mem, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if shown, ok := sh.SetFull(0); !shown || !ok || !sh.Withheld() || sh.Index.Filled() {
		t.Errorf("shown %v, withheld %v, filled %v", shown, sh.Withheld(), sh.Index.Filled())
	}
	sh.Release()
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if sh.withheld || !sh.Index.Filled() {
		t.Errorf("behind the release: withheld %v, filled %v", sh.withheld, sh.Index.Filled())
	}
}
