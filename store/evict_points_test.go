//go:build points

package store

import "testing"

// TestPromotionLosesToPut: a get reads an evicted key from Pebble, and before that value
// is back in memory the key is written, and evicted again.
func TestPromotionLosesToPut(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(0, "k", "old")
	n.evictKey(0, "k")
	once := false
	hook(t, func(point string, _ ...uint64) {
		if point == "promote" && !once {
			once = true
			n.put(0, "k", "new")
			n.evictKey(0, "k")
		}
	})
	n.get(0, "k")
	if !once {
		t.Fatal("nothing was promoted")
	}
	if value, _ := n.get(0, "k"); value != "new" {
		t.Errorf("the old value is back: %q", value)
	}
	if _, value, ok, _ := n.reader().get(0, "k"); ok && value != "new" {
		t.Errorf("a reader sees the old value: %q", value)
	}
}

// TestFillLosesToEviction: the fill's snapshot has the old value of a key that was put
// and evicted since.
func TestFillLosesToEviction(t *testing.T) {
	n := restarted(t, memFS(), func(n *node) {
		n.put(0, "k", "new")
		if !n.evictKey(0, "k") {
			panic("not evicted")
		}
	})
	n.fill()
	if value, _ := n.get(0, "k"); value != "new" {
		t.Errorf("the old value is back: %q", value)
	}
}
