//go:build teeth

package store

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What writes in flight mean for those who look elsewhere: for a probe of
// Pebble, for the fill, for the one who publishes.

// TestF6BatchUnderPromotion: a get reads an evicted key from Pebble, and before
// that value is back in memory a batch deletes the key, or puts it and the key
// is evicted again.
func TestF6BatchUnderPromotion(t *testing.T) {
	for _, del := range []bool{true, false} {
		t.Run(deleteIf(del).String(), func(t *testing.T) {
			bites(t, teeth.F6BatchTold, func(t *testing.T, found *violations) {
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
						n.do(Write{Op: OpBatch, Parts: []Part{{Key: []byte("other"), Value: []byte("v")}, k}})
						n.evictKey(0, "k")
					}
				})
				n.get(0, "k")
				if !once {
					t.Fatal("nothing was promoted")
				}
				if value, _ := n.get(0, "k"); value == "old" {
					found.add("the value from before the batch is back")
				}
				if _, value, ok, _ := n.reader().get(0, "k"); ok && value == "old" {
					found.add("a reader sees the value from before the batch")
				}
				n.want(0, "other", "v")
			})
		})
	}
}

// TestF6BatchUnderProbe: a put on the condition of a version reads an evicted
// key from Pebble. Meanwhile a batch puts that key: the version that was read is
// not the key's any more.
func TestF6BatchUnderProbe(t *testing.T) {
	bites(t, teeth.F6BatchTold, func(t *testing.T, found *violations) {
		var atRead atomic.Pointer[func()]
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if f := atRead.Load(); f != nil && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
				(*f)()
			}
			return nil
		}))
		n := open(t, testConfig(fs))
		n.fill()
		v := n.put(0, "k", "old")
		n.evictKey(0, "k")
		if err := n.db.Flush(); err != nil { // so that a look at the key reads the disk
			t.Fatal(err)
		}
		sh := n.shards[0]
		var once sync.Once
		f := func() {
			sh.mu.Lock()
			probed := len(sh.probes) > 0
			sh.mu.Unlock()
			if probed { // else it is Pebble's own affair
				once.Do(func() {
					atRead.Store(nil)
					n.do(Write{Op: OpBatch, Parts: []Part{{Key: []byte("k"), Value: []byte("of the batch")}}})
				})
			}
		}
		atRead.Store(&f)
		w := n.do(Write{Key: []byte("k"), Value: []byte("new"), If: CondVersion, IfVersion: v})
		if atRead.Load() != nil {
			t.Fatal("the put did not read the disk: the scenario does not happen")
		}
		if w.Err == nil {
			found.add("a put on the condition of version %v was applied after a batch had put the key", v)
		}
		if value, _ := n.get(0, "k"); value != "of the batch" {
			found.add("the batch is undone: %q", value)
		}
	})
}

// TestF6PutSlotless: the fill has read k; k is put, and there is no memory for
// its new value; then the fill brings the old one in.
func TestF6PutSlotless(t *testing.T) {
	bites(t, teeth.F6FillSlotless, func(t *testing.T, found *violations) {
		fs, large := memFS(), pattern(2<<20, "new")
		config := func() Config {
			c := testConfig(fs)
			c.RegionSize, c.Memory.(*heapMemory).limit = 1<<20, 2<<20
			return c
		}
		n := restartedWith(t, config, Write{Value: []byte("old")}, func(n *node) {
			n.put(0, "k", large)
			if n.slotOf(0, "k") != 0 {
				panic("there was memory for it")
			}
		})
		n.fill()
		if value, _ := n.get(0, "k"); value != large {
			found.add("the old value is back: %q", clip(value))
		}
		if _, value, ok, _ := n.reader().get(0, "k"); ok && value != large {
			found.add("a reader sees the old value: %q", clip(value))
		}
		n.want(1, "k", "old")
	})
}

// TestF12FillHides: the fill has read k, which is soon to expire; k is touched,
// which finds no item to hide; then the fill brings k in, while the touch is in
// flight. Somebody would say "expired" after the old expiry, and others see the
// touched key later.
func TestF12FillHides(t *testing.T) {
	bites(t, teeth.F12FillFlight, func(t *testing.T, found *violations) {
		fs, time0 := newStalledFS(), newFakeTime()
		config := func() Config {
			c := testConfig(fs)
			c.clock, c.noKeeper = time0.source, true
			return c
		}
		release, touched := func() {}, make(chan error, 1)
		n := restartedWith(t, config, Write{Value: []byte("v"), TTL: 3 * time.Second}, func(n *node) {
			release = fs.stall()
			w := &Write{Key: []byte("k"), Op: OpTouch, TTL: time.Minute, Done: func(w *Write) { touched <- w.Err }}
			if err := n.Submit(w); err != nil {
				panic(err)
			}
		})
		defer func() { release() }()
		waitFor(t, "the fill", func() bool { return n.Stats().FillKeys == 4 })
		sh := n.shards[0]
		sh.mu.Lock()
		flying := sh.inflight(layout.HashKey(n.seed, []byte("k")), []byte("k")) != nil
		_, live := sh.resident(n.Store, layout.HashKey(n.seed, []byte("k")), []byte("k"))
		sh.mu.Unlock()
		if !flying {
			t.Fatal("the touch is not in flight: the scenario does not happen")
		}
		if live {
			found.add("an item with the old expiry is live while a touch of it is in flight")
		}
		release()
		if err := <-touched; err != nil {
			t.Fatal(err)
		}
		n.pass(time0, 4*time.Second)
		n.want(0, "k", "v")
		n.wantAbsent(1, "k")
	})
}

// TestPublishedInOrder: where no sync is waited for, the committer publishes
// what it has committed unless the publisher is behind. Here the publisher has
// an older put in its hands when a newer one of its shard is committed.
func TestPublishedInOrder(t *testing.T) {
	bites(t, teeth.D5PublishInOrder, func(t *testing.T, found *violations) {
		c := testConfig(memFS())
		c.Sync, c.WatchBytes = Off, MinWatchBytes
		n := open(t, c)
		n.fill()
		from, err := n.Watch(WatchRequest{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		submit := func(key string, done func()) uint64 {
			w := &Write{Key: []byte(key), Done: func(*Write) { done() }}
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
			for n.unpublished.Load() < 2 {
				select {
				case <-newerDone:
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
		})
		// The committer publishes the first write itself, and waits in its
		// callback until there are more than one group takes: the older put is a
		// group of its own. The newer one is queued while the committer publishes
		// the group before that, so the older one goes to the publisher.
		begun, resume := make(chan struct{}), make(chan struct{})
		submit("first", func() { close(begun); <-resume })
		<-begun
		var once sync.Once
		for range groupWithoutSync {
			submit("filler", func() {
				once.Do(func() { submit("newer", func() { close(newerDone) }) })
			})
		}
		older.Store(submit("older", func() { close(olderDone) }))
		close(resume)
		<-olderDone
		<-newerDone
		sh := n.shards[0]
		sh.mu.Lock()
		if sh.published != sh.ordered {
			found.add("published went back to %v; the newest write, %v, is published", sh.published, sh.ordered)
		}
		sh.mu.Unlock()
		page, err := n.Watch(WatchRequest{From: from.Next, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		events := page.Events
		if want := groupWithoutSync + 3; len(events) != want {
			t.Errorf("%d events, want %d", len(events), want)
		}
		for i := 1; i < len(events); i++ {
			if events[i].Version <= events[i-1].Version {
				found.add("an event of version %v behind one of %v", events[i].Version, events[i-1].Version)
			}
		}
	})
}
