package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/warm"
	"github.com/rdmakv/rdmakv/store/layout"
)

// word is the word of the memory that was left at a place, with which a test plays damage. It is nil where no region is.
func (m *keptHeap) word(t testing.TB, p layout.Place) []byte {
	t.Helper()
	for _, mem := range m.left {
		h, err := layout.ParseRegionHeader(mem)
		if err != nil {
			t.Fatal(err)
		}
		if p >= h.Base && p.Byte() < h.Base.Byte()+h.Length {
			off := p.Byte() - h.Base.Byte()
			return mem[off:]
		}
	}
	t.Fatalf("no region has place %v", p)
	return nil
}

// where returns the slot of a key, and where that stands.
func (n *node) where(shard int, key string) (slot layout.Slot, at layout.Place) {
	n.t.Helper()
	sh := n.shards[shard]
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	ref, ok := sh.Find(n.hash(key), []byte(key))
	if !ok {
		n.t.Fatalf("%q has no slot", key)
	}
	return ref.Slot(), ref.Place()
}

// held opens the next life over m, in which nothing is believed but what somebody asks for.
func heldWarm(t *testing.T, m *keptHeap) *node {
	c := warmConfig(m)
	c.holdFill = make(chan struct{})
	return openWarm(t, c)
}

// neverOne fails if k has the value that was replaced.
func (n *node) neverOne(believed bool) {
	n.t.Helper()
	if believed {
		n.believed()
	}
	if got, ok := n.get(0, "k"); ok && got == "one" {
		n.t.Errorf("an older value is back")
	}
	if _, got, found, _ := n.reader().get(0, "k"); found && got == "one" {
		n.t.Errorf("a reader finds an older value")
	}
}

// TestWarmNotLive: an item that was dead, pending or held when the life ended is not believed, and, once it was looked at, by no later life, though
// its state is turned.
func TestWarmNotLive(t *testing.T) {
	for _, state := range []layout.State{layout.Pending, layout.Dead, layout.Held} {
		m := newKeptHeap()
		n := openWarm(t, warmConfig(m))
		n.put(0, "k", "one")
		slot, _ := n.where(0, "k")
		m = m.die()
		item := m.word(t, slot.Place())
		v, _ := layout.LoadState(item)
		layout.SetState(item, v, state)
		n = heldWarm(t, m)
		n.wantAbsent(0, "k")
		m = m.die()
		layout.SetState(m.word(t, slot.Place()), v, layout.Live)
		openWarm(t, warmConfig(m)).neverOne(true)
	}
}

// TestWarmLostStaysLost: a key whose slot was damaged is lost. A later value of it is not replaced by the one that was lost, though the life that
// wrote it ends before it has believed all, and the slot is put right in place of the later one.
func TestWarmLostStaysLost(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, m *keptHeap, at layout.Place){
		"slot":   func(t *testing.T, m *keptHeap, at layout.Place) { layout.StoreWord(m.word(t, at), 0, ^uint64(0)) },
		"bucket": func(t *testing.T, m *keptHeap, at layout.Place) { layout.StoreWord(m.word(t, at&^7), 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newKeptHeap()
			n := openWarm(t, warmConfig(m))
			n.put(0, "j", "one") // of the same class, so that the page is not used for another
			n.put(0, "k", "one")
			slot, at := n.where(0, "k")
			other := "other"
			for n.put(0, other, "stays"); ; n.put(0, other, "stays") { // in another bucket
				if _, p := n.where(0, other); p&^7 != at&^7 {
					break
				}
				other += "s"
			}
			m = m.die()
			damage(t, m, at)
			n = heldWarm(t, m)
			n.want(0, other, "stays") // it was believed when it was asked for
			n.wantAbsent(0, "k")
			n.put(0, "k", pattern(500, "two"))
			_, now := n.where(0, "k")
			m = m.die()
			layout.StoreWord(m.word(t, now), 0, 0)
			layout.StoreWord(m.word(t, at), 0, uint64(slot))
			n = openWarm(t, warmConfig(m))
			n.neverOne(false)
			n.neverOne(true)
			n.want(0, other, "stays")
		})
	}
}

// TestWarmOlderLife: when a life has believed all that was left to it, no later one believes an item of the lives before it.
func TestWarmOlderLife(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	n.put(0, "k", "one")
	slot, at := n.where(0, "k")
	first := m.die()
	old := make([]uint64, layout.ClassSize(slot.Class())/8)
	for i := range old {
		old[i] = layout.LoadWord(first.word(t, slot.Place()), 8*i)
	}
	n = openWarm(t, warmConfig(first))
	n.believed()
	n.put(0, "k", pattern(500, "two"))
	m = first.die()
	for i, w := range old {
		layout.StoreWord(m.word(t, slot.Place()), 8*i, w)
	}
	layout.StoreWord(m.word(t, at), 0, uint64(slot))
	n = openWarm(t, warmConfig(m))
	n.neverOne(false)
	n.neverOne(true)
}

// TestWarmMisplaced: a slot in another shard, in a bucket that is not its key's, or that leads where another leads is dropped, and whatever is done to
// the keys after that finds memory in order.
func TestWarmMisplaced(t *testing.T) {
	begin := func(t *testing.T) (m *keptHeap, slot layout.Slot, mine, others, foreign layout.Place) {
		m = newKeptHeap()
		n := openWarm(t, warmConfig(m))
		n.put(0, "k", "one")
		n.put(1, "k", "one of another shard") // its hash is the same, and so is its bucket
		slot, mine = n.where(0, "k")
		_, others = n.where(1, "k")
		a, b := n.hash("k").Mains(layout.SegmentGroups(0))
		four := []int{a.MainBucket(), b.MainBucket(), a.OverflowBucket(), b.OverflowBucket()}
		for bucket := 0; ; bucket++ { // one that is none of its four; the first key of a segment is in the first of these
			if !slices.Contains(four, bucket) {
				return m.die(), slot, mine, others, mine&^7 + layout.PlaceOfByte(uint64(bucket*layout.BucketSize)) - layout.PlaceOfByte(uint64(four[0]*layout.BucketSize)) + 1
			}
		}
	}
	counts := func(t *testing.T, m *keptHeap, dropped, refused, keys uint64) *node {
		t.Helper()
		n := openWarm(t, warmConfig(m))
		if st := n.believed(); st.Dropped != dropped || st.Refused != refused || n.Stats().Keys != keys {
			t.Errorf("%+v, %d keys; want %d dropped, %d refused, %d keys", st, n.Stats().Keys, dropped, refused, keys)
		}
		for i := range 100 { // what was freed is used again, and what was not is not freed twice
			n.put(0, "k", pattern(i, "k"))
			n.put(1, "k", pattern(i, "l"))
			n.want(0, "k", pattern(i, "k"))
			n.del(0, "k")
			n.del(1, "k")
		}
		return n
	}
	t.Run("shard", func(t *testing.T) {
		m, slot, mine, others, _ := begin(t)
		layout.StoreWord(m.word(t, others), 0, uint64(slot))
		layout.StoreWord(m.word(t, mine), 0, 0)
		counts(t, m, 1, 0, 0)
	})
	t.Run("bucket", func(t *testing.T) {
		m, slot, mine, _, foreign := begin(t)
		layout.StoreWord(m.word(t, mine), 0, 0)
		layout.StoreWord(m.word(t, foreign), 0, uint64(slot))
		counts(t, m, 1, 0, 1)
	})
	t.Run("twice", func(t *testing.T) {
		m, slot, mine, _, _ := begin(t)
		layout.StoreWord(m.word(t, mine+1), 0, uint64(slot))
		counts(t, m, 0, 1, 2)
	})
}

// TestWarmSlotDamagedMeanwhile: a slot that is damaged before the pass comes to it, and leads into no region, costs its key and nothing else.
func TestWarmSlotDamagedMeanwhile(t *testing.T) {
	m := newKeptHeap()
	n := openWarm(t, warmConfig(m))
	n.put(0, "k", "one")
	n.put(0, "other", "two")
	slot, at := n.where(0, "k")
	n = heldWarm(t, m.die())
	word := n.mem.Table.Bytes(at, 8)
	if layout.Slot(layout.LoadWord(word, 0)) != slot {
		t.Fatal("the slot is not where it was")
	}
	layout.StoreWord(word, 0, uint64(layout.MakeSlot(slot.Fingerprint(), slot.Class(), slot.Place()+layout.PlaceOfByte(1<<40))))
	close(n.cfg.holdFill)
	if st := n.believed(); st.Dropped != 1 || st.Believed != 1 || n.Stats().Keys != 1 {
		t.Errorf("%+v, %d keys; want 1 dropped, 1 believed, 1 key", st, n.Stats().Keys)
	}
	n.want(0, "other", "two")
	n.put(0, "k", "three")
	n.want(0, "k", "three")
}

// TestWarmVersionsAhead: no version is given out that the record does not cover, the record is raised before what it covers is used up, and the next life
// begins above it.
func TestWarmVersionsAhead(t *testing.T) {
	m := newKeptHeap()
	c := warmConfig(m)
	c.noKeeper = true
	n := openWarm(t, c)
	covered := func() layout.Version {
		l, err := warm.ReadLife(m.record)
		if err != nil {
			t.Fatal(err)
		}
		return l.Versions
	}
	for range 3 {
		if v := n.put(0, "k", "v"); v >= covered() {
			t.Fatalf("version %v was given out, and the record covers those below %v", v, covered())
		}
		next, limit := n.pipe.Versions()
		if limit > covered() {
			t.Fatalf("versions below %v may be given out, and the record covers those below %v", limit, covered())
		}
		n.pipe.Skip(next + versionsAhead/2 + 1)
		raiseVersions(n.Store)
		if next, limit := n.pipe.Versions(); limit < next+versionsAhead/2 || limit > covered() {
			t.Fatalf("versions %v to %v may be given out, and the record covers those below %v", next, limit, covered())
		}
	}
	_, limit := n.pipe.Versions()
	n.pipe.Skip(limit)
	w := Write{Op: Op{Key: []byte("k"), Value: []byte("v")}}
	if err := n.Do(t.Context(), &w); !errors.Is(errors.Join(err, w.Err), ErrEpochs) {
		t.Errorf("a write that the record does not cover: %v, %v", err, w.Err)
	}
	raiseVersions(n.Store)
	v := n.put(0, "k", "v")
	if v < limit || v >= covered() {
		t.Errorf("version %v behind %v, the record covers those below %v", v, limit, covered())
	}
	// By now versions are ahead of the time of day, at which they begin where there is no record.
	if next := openWarm(t, warmConfig(m.die())).put(0, "k", "v"); next <= v {
		t.Errorf("version %v of the next life, behind %v", next, v)
	}
}
