//go:build points

package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What writes in flight mean for those who look elsewhere: for a probe of
// Pebble, for the fill, for the one who publishes.

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

// TestPublishedInOrder: where no sync is waited for, the committer publishes
// what it has committed unless the publisher is behind. Here the publisher has
// an older put in its hands when a newer one of its shard is committed.
func TestPublishedInOrder(t *testing.T) {
	c := testConfig(memFS())
	c.Sync, c.WatchBytes = Off, MinWatchBytes
	n := open(t, c)
	n.fill()
	from, err := n.Watch(WatchRequest{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	submit := func(key string, done func()) uint64 {
		w := &Write{Op: Op{Key: []byte(key)}, Done: func(*Write) { done() }}
		if err := n.Submit(w); err != nil {
			panic(err)
		}
		return uint64(w.Version)
	}
	var older atomic.Uint64 // its version
	olderDone, newerDone := make(chan struct{}), make(chan struct{})
	hook(t, func(point string, args ...uint64) {
		if point != "publish.pending" || args[0] != older.Load() {
			return
		}
		// On the publisher. The newer one comes to wait behind us, or it does not.
		for n.pipe.Unpublished() < 2 {
			select {
			case <-newerDone:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	// The committer publishes the first write itself, and waits in its
	// callback until there are more than one group takes: the older put is a
	// commit of its own. The newer one is queued while the committer publishes
	// the group before that, so the older one goes to the publisher.
	begun, resume := make(chan struct{}), make(chan struct{})
	submit("first", func() { close(begun); <-resume })
	<-begun
	var once sync.Once
	for range writesWithoutSync {
		submit("filler", func() {
			once.Do(func() { submit("newer", func() { close(newerDone) }) })
		})
	}
	older.Store(submit("older", func() { close(olderDone) }))
	close(resume)
	<-olderDone
	<-newerDone
	sh := n.shard(0)
	if m := sh.Marks(); m.Published != m.Ordered {
		t.Errorf("published went back to %v; the newest write, %v, is published", m.Published, m.Ordered)
	}
	page, err := n.Watch(WatchRequest{From: from.Next, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	events := page.Events
	if want := writesWithoutSync + 3; len(events) != want {
		t.Errorf("%d events, want %d", len(events), want)
	}
	for i := 1; i < len(events); i++ {
		if events[i].Version <= events[i-1].Version {
			t.Errorf("an event of version %v behind one of %v", events[i].Version, events[i-1].Version)
		}
	}
}
