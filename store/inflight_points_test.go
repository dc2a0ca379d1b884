//go:build points

package store

import (
	"testing"
	"time"
)

// What writes in flight mean for those who look elsewhere: for a probe of
// Pebble, and for the fill.

// TestPromotionLosesToBatch: a get reads an evicted key from Pebble, and before
// that value is back in memory a batch deletes the key, or puts it and the key
// is evicted again.
func TestPromotionLosesToBatch(t *testing.T) {
	for _, del := range []bool{true, false} {
		t.Run(deleteIf(del).String(), func(t *testing.T) {
			n := open(t, testConfig(memFS()))
			n.fill()
			n.put(0, "k", "old")
			n.evictKey(0, "k")
			once := false
			hook(t, func(point string, _ ...uint64) {
				if point == "promote" && !once {
					once = true
					k := Part{Key: []byte("k"), Delete: del}
					if !del {
						k.Value = []byte("new")
					}
					n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("other"), Value: []byte("v")}, k}}})
					n.evictKey(0, "k")
				}
			})
			n.get(0, "k")
			if !once {
				t.Fatal("nothing was promoted")
			}
			if value, _ := n.get(0, "k"); value == "old" {
				t.Errorf("the value from before the batch is back")
			}
			if _, value, ok, _ := n.reader().get(0, "k"); ok && value == "old" {
				t.Errorf("a reader sees the value from before the batch")
			}
			n.want(0, "other", "v")
		})
	}
}

// TestFillLosesToSlotlessPut: the fill has read k; k is put, and there is no memory for
// its new value; then the fill brings the old one in.
func TestFillLosesToSlotlessPut(t *testing.T) {
	fs, large := memFS(), pattern(2<<20, "new")
	config := func() Config {
		c := testConfig(fs)
		c.RegionSize, c.Memory.(*heapMemory).limit = 1<<20, 2<<20
		return c
	}
	n := restartedWith(t, config, Write{Op: Op{Value: []byte("old")}}, func(n *node) {
		n.put(0, "k", large)
		if n.slotOf(0, "k") != 0 {
			panic("there was memory for it")
		}
	})
	n.fill()
	if value, _ := n.get(0, "k"); value != large {
		t.Errorf("the old value is back: %q", clip(value))
	}
	if _, value, ok, _ := n.reader().get(0, "k"); ok && value != large {
		t.Errorf("a reader sees the old value: %q", clip(value))
	}
	n.want(1, "k", "old")
}

// TestFillLeavesFlightAlone: the fill has read k, which is soon to expire; k is touched,
// which finds no item to hide; then the fill brings k in, while the touch is in
// flight. Somebody would say "expired" after the old expiry, and others see the
// touched key later.
func TestFillLeavesFlightAlone(t *testing.T) {
	fs, time0 := newStalledFS(), newFakeTime()
	config := func() Config {
		c := testConfig(fs)
		c.clock, c.noKeeper = time0.source, true
		return c
	}
	release, touched := func() {}, make(chan error, 1)
	n := restartedWith(t, config, Write{Op: Op{Value: []byte("v"), TTL: 3 * time.Second}}, func(n *node) {
		release = fs.stall()
		w := &Write{Op: Op{Key: []byte("k"), Kind: OpTouch, TTL: time.Minute}, Done: func(w *Write) { touched <- w.Err }}
		if err := n.Submit(w); err != nil {
			panic(err)
		}
	})
	defer func() { release() }()
	waitFor(t, "the fill", func() bool { return n.Stats().FillKeys == 4 })
	sh := n.shard(0)
	sh.Mu.Lock()
	flying := sh.Inflight(n.hash("k"), []byte("k")) != nil
	_, live := sh.Resident(n.hash("k"), []byte("k"))
	sh.Mu.Unlock()
	if !flying {
		t.Fatal("the touch is not in flight: the scenario does not happen")
	}
	if live {
		t.Errorf("an item with the old expiry is live while a touch of it is in flight")
	}
	release()
	if err := <-touched; err != nil {
		t.Fatal(err)
	}
	n.pass(time0, 4*time.Second)
	n.want(0, "k", "v")
	n.wantAbsent(1, "k")
}
