package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// twin returns a key whose hash leads to the slot of another key, too.
func (n *node) twin(shard int, slot layout.Slot) string {
	n.t.Helper()
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	key := []byte("twin-")
	for i := range int64(50_000_000) {
		key = strconv.AppendInt(key[:5], i, 10)
		h := layout.HashKey(n.mem.Seed, key)
		if h.Fingerprint() != slot.Fingerprint() {
			continue
		}
		if _, ok := sh.Index.Find(h, func(o layout.Slot) bool { return o == slot }); ok {
			return string(key)
		}
	}
	n.t.Fatal("no twin found")
	return ""
}

// TestNamelessRepair: an item shows another key than its own. Its key is found among those of the
// set and of the base, each once, and what a set says is gone is none of them.
func TestNamelessRepair(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  func(n *node)
		repairs uint64 // 0: the item is given up
		value   string
	}{
		{name: "in the log alone", repairs: 1, value: "first", before: func(*node) {}},
		{name: "in the base alone", repairs: 1, value: "first", before: func(n *node) { n.checkpoint() }},
		{name: "in both", repairs: 1, value: "other", before: func(n *node) {
			n.checkpoint()
			n.put(1, "k", "other")
		}},
		{name: "beside one that is gone by the set", repairs: 1, value: "first", before: func(n *node) {
			twin := n.twin(1, n.placeOf(1, "k"))
			n.put(1, twin, "twin")
			n.checkpoint()
			n.del(1, twin)
		}},
		{name: "beside one that the log has", value: "first", before: func(n *node) {
			twin := n.twin(1, n.placeOf(1, "k"))
			n.put(1, twin, "twin")
			n.evictKey(1, twin)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := testConfig(memFS())
			conf.noKeeper, conf.checkpoints = true, time.Hour
			n := open(t, conf)
			n.fill()
			n.put(1, "k", "first")
			c.before(n)
			n.damageKey(1, "k")
			n.scrubAll(2)
			if st := n.Stats(); st.Repaired != c.repairs || (st.Orphans == 0) != (c.repairs != 0) {
				t.Errorf("%d repaired, %d given up", st.Repaired, st.Orphans)
			}
			n.want(1, "k", c.value)
			if c.repairs != 0 {
				n.reader().want(1, "k", c.value)
			} else if _, _, found, ask := n.reader().get(1, "k"); !found && !ask {
				t.Error("a miss is believed")
			}
		})
	}
}

// damageKey flips a bit of the key in an item.
func (n *node) damageKey(shard int, key string) {
	n.t.Helper()
	slot := n.placeOf(shard, key)
	mem := n.mem.Table.Bytes(slot.Place(), layout.ClassSize(slot.Class()))
	it, ok := layout.PeekItem(mem, nil)
	if !ok || string(it.Key) != key {
		n.t.Fatalf("the item of %s shows %q", key, it.Key)
	}
	for off := layout.ItemHeaderSize; off < len(mem); off++ {
		if mem[off] == key[0] {
			n.damage(shard, key, off)
			return
		}
	}
	n.t.Fatal("the key is not in its item")
}
