package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// evictKey evicts a key's item; false if it may not go, or there is none.
func (n *node) evictKey(at int, key string) bool {
	sh, h := n.shard(at), n.hash(key)
	sh.Mu.Lock()
	it, ok := sh.Resident(h, []byte(key))
	v := shard.Victim{Place: it.Slot.Place(), Class: it.Slot.Class(), Shard: sh.ID, Version: it.Version, Hash: h, Key: []byte(key)}
	sh.Mu.Unlock()
	return ok && sh.Evict(&v)
}

// slotOf is the slot of a key with an item.
func (n *node) slotOf(shard int, key string) layout.Slot {
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	ref, ok := sh.Find(n.hash(key), []byte(key))
	if !ok {
		return 0
	}
	return ref.Slot()
}

// TestEvictAndPromote: an evicted key is asked for, and a get brings it back.
func TestEvictAndPromote(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	for size := range 4 {
		key, value := fmt.Sprintf("k%d", size), pattern(1<<(6*size)>>1, "value")
		v := n.put(0, key, value)
		r.want(0, key, value)
		if !n.evictKey(0, key) {
			t.Fatal("not evicted")
		}
		if n.evictKey(0, key) {
			t.Error("evicted twice")
		}
		if st := n.Stats(); st.Keys != uint64(size) || st.PebbleOnly != 1+2*uint64(size)-uint64(size) {
			t.Errorf("%d keys in memory, %d Pebble-only slots", st.Keys, st.PebbleOnly)
		}
		r.wantAsk(0, key)
		if ok, err := n.Stat(context.Background(), 0, []byte(key)); err != nil || ok.Version != v {
			t.Errorf("Stat: %+v, %v", ok, err)
		}
		r.wantAsk(0, key) // Stat brings nothing back
		n.lease()
		n.lease()
		n.want(0, key, value)
		r.want(0, key, value)
		if got, _, _, _ := r.get(0, key); got != v {
			t.Errorf("version %v came back, it was %v", got, v)
		}
	}
	// A delete, a put and a batch of an evicted key.
	n.evictKey(0, "k1")
	if !n.del(0, "k1") {
		t.Error("an evicted key did not exist")
	}
	n.wantAbsent(0, "k1")
	if n.del(0, "k1") {
		t.Error("a deleted key existed")
	}
	n.evictKey(0, "k2")
	n.put(0, "k2", "new")
	r.want(0, "k2", "new")
	n.want(0, "k2", "new")
	n.evictKey(0, "k2")
	n.del(0, "k2")
	n.put(0, "k2", "newer")
	r.want(0, "k2", "newer")
}

// TestPairOnce: a value that was just evicted does not come back to the place
// where it stood, before a lease has passed.
func TestPairOnce(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(0, "k", "value")
	stood := map[layout.Place]bool{}
	for i := range 20 {
		slot := n.slotOf(0, "k")
		if slot != 0 {
			if stood[slot.Place()] {
				t.Fatalf("round %d: the same version is again at %v, where it stood less than a lease ago", i, slot.Place())
			}
			stood[slot.Place()] = true
			n.evictKey(0, "k")
		}
		n.want(0, "k", "value") // may or may not bring it back
		n.put(0, fmt.Sprintf("other-%d", i), "value")
	}
	for range 3 {
		n.lease()
	}
	n.want(0, "k", "value")
	if n.slotOf(0, "k") == 0 {
		t.Error("it does not come back a lease later")
	}
}

// TestTwinGoesALeaseLater: a key that is evicted again has two Pebble-only
// slots, until a lease has passed; the other is never taken over.
func TestTwinGoesALeaseLater(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	for i := range 10 {
		value := fmt.Sprint("value ", i)
		n.put(0, "k", value)
		n.evictKey(0, "k")
		want := uint64(min(i+1, 2))
		if st := n.Stats(); st.PebbleOnly != want {
			t.Errorf("round %d: %d Pebble-only slots, want %d", i, st.PebbleOnly, want)
		}
		r.wantAsk(0, "k")
		n.lease()
		n.lease()
		if st := n.Stats(); st.PebbleOnly != 1 {
			t.Errorf("round %d: %d Pebble-only slots a lease later", i, st.PebbleOnly)
		}
		r.wantAsk(0, "k")
		n.want(0, "k", value)
		r.want(0, "k", value)
	}
	// Several in one lease.
	for i := range 5 {
		n.put(0, "k", fmt.Sprint("again ", i))
		n.evictKey(0, "k")
		r.wantAsk(0, "k")
	}
	n.lease()
	if st := n.Stats(); st.PebbleOnly != 1 {
		t.Errorf("%d Pebble-only slots at the end", st.PebbleOnly)
	}
}

// twins returns two keys of one shard that a slot does not tell apart:
// they have the same fingerprint, and a bucket in common in the first segment.
func (n *node) twins() (a, b string) {
	a = "twin"
	h := n.hash(a)
	x, y := h.Mains(layout.SegmentGroups(0))
	var name [8]byte
	for i := uint64(0); ; i++ {
		binary.LittleEndian.PutUint64(name[:], i)
		g := n.hash(string(name[:]))
		if g.Fingerprint() != h.Fingerprint() {
			continue
		}
		if c, d := g.Mains(layout.SegmentGroups(0)); c == x || c == y || d == x || d == y {
			return a, string(name[:])
		}
	}
}

// TestTwinsKeepTheirSlots: whatever is done to one of two such keys while the
// other is in Pebble only, that one stays.
func TestTwinsKeepTheirSlots(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	a, b := n.twins()
	r := n.reader()
	n.put(0, a, "of a")
	n.evictKey(0, a)
	n.wantAbsent(0, b)
	for i := range 3 {
		n.put(0, b, "of b")
		if _, _, found, ask := r.get(0, a); !found && !ask {
			t.Fatalf("round %d: a reader says that %q is absent", i, a)
		}
		n.evictKey(0, b)
		r.wantAsk(0, a)
		r.wantAsk(0, b)
		n.del(0, b)
		n.lease()
		if _, _, found, ask := r.get(0, a); !found && !ask {
			t.Fatalf("round %d: a reader says that %q is absent", i, a)
		}
		n.wantAbsent(0, b)
		n.want(0, a, "of a")
		n.evictKey(0, a)
	}
}

// TestEvictedItemIsDead: who remembers the place of an evicted item does not
// see it after the key was put again.
func TestEvictedItemIsDead(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	n.put(0, "k", "old")
	r.want(0, "k", "old")
	n.evictKey(0, "k")
	r.wantAsk(0, "k")
	n.put(0, "k", pattern(1000, "new")) // elsewhere
	n.lease()
	r.want(0, "k", pattern(1000, "new"))
}

// TestNoEvictionUnderAWrite: in a cache an eviction is a delete. A put on the
// condition of a version was judged while the key was there; were the key
// evicted before the put is visible, somebody could find it absent in between.
func TestNoEvictionUnderAWrite(t *testing.T) {
	n := open(t, cacheConfig(64<<20))
	v := n.put(0, "k", "one")
	stall, stalled := make(chan struct{}), make(chan struct{})
	if err := n.Submit(&Write{Op: Op{Shard: 1, Key: []byte("x")}, Done: func(*Write) { close(stalled); <-stall }}); err != nil {
		t.Fatal(err)
	}
	<-stalled // the publisher stands
	done := make(chan error, 1)
	if err := n.Submit(&Write{Op: Op{Key: []byte("k"), Value: []byte("two"), If: CondVersion, IfVersion: v}, Done: func(w *Write) { done <- w.Err }}); err != nil {
		t.Fatal(err)
	}
	n.evictKey(0, "k")
	_, found := n.get(0, "k")
	close(stall)
	if err := <-done; err == nil && !found {
		t.Error("the key was absent after a put on the condition of its version was judged, and before that took effect")
	}
}

// TestHeldStays: what somebody was given the place of is not evicted.
func TestHeldStays(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(0, "k", "value")
	h, err := n.Hold(context.Background(), 0, []byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	if n.evictKey(0, "k") {
		t.Error("evicted while held")
	}
	h.Release()
	if !n.evictKey(0, "k") {
		t.Error("not evicted after its release")
	}
}

// TestDropCounted: a slot that is dropped is counted for first, and stays for a
// lease, for those who saw the bucket's header before.
func TestDropCounted(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	n.put(0, "k", "value")
	n.evictKey(0, "k")
	r.wantAsk(0, "k")
	drop := func() {
		sh, h := n.shard(0), n.hash("k")
		sh.Mu.Lock()
		sh.DropNear(h)
		sh.Mu.Unlock()
	}
	dropped := false
	r.mid = func() {
		if !dropped {
			dropped = true
			drop()
		}
	}
	if _, _, found, ask := r.get(0, "k"); !found && !ask {
		t.Error("dropped in the middle of a READ: a reader says that the key is absent")
	}
	r.mid = nil
	for range 3 {
		if _, _, found, ask := r.get(0, "k"); !found && !ask {
			t.Error("dropped: a reader says that the key is absent")
		}
		n.lease()
	}
	if st := n.Stats(); st.PebbleOnly != 0 || st.Slotless == 0 {
		t.Errorf("%d Pebble-only slots, %d counted", st.PebbleOnly, st.Slotless)
	}
	n.want(0, "k", "value") // and it is back
	r.want(0, "k", "value")
}
