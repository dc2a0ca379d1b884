package index

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// evict makes a key's slot a Pebble-only one.
func (w *world) evict(key uint64) {
	r, ok := w.ix.Find(hashOf(key), is(key))
	if !ok {
		w.t.Fatalf("key %d is lost", key)
	}
	h := hashOf(key)
	w.ix.Set(r, layout.PebbleSlot(h))
	if twins := w.ix.Pair(h, r); twins != nil {
		w.rec.After(func() { w.ix.ClearTwin(twins) })
	}
}

// pebbled counts the Pebble-only slots that stand for a key.
func (w *world) pebbled(key uint64) (n int) {
	h := hashOf(key)
	w.ix.Near(h, func(r Ref) bool {
		if r.Slot() == layout.PebbleSlot(h) {
			n++
		}
		return true
	})
	return n
}

// Keys come, leave memory, come back to another slot, lose their Pebble-only
// slot for a count, and are deleted, over many growths. At every time each key
// that exists has its slot, or one that says "Pebble only", or is counted.
func TestPebbleModel(t *testing.T) {
	for run := range uint64(max(1, 4/scale)) {
		t.Run(fmt.Sprintf("seed %d", run), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(run, 9))
			w := newWorld(t, 64*mib)
			w.ix.SetFilled()
			type state uint8
			const (
				resident state = iota + 1
				cold
				counted
			)
			keys := map[uint64]state{}
			var list []uint64
			pick := func() uint64 { return list[rng.IntN(len(list))] }
			next := uint64(1)
			check := func(k uint64, s state) {
				t.Helper()
				_, found := w.ix.Find(hashOf(k), is(k))
				switch {
				case found != (s == resident):
					t.Fatalf("key %d: found %v, state %d", k, found, s)
				case s == cold && w.pebbled(k) == 0 && (!w.ix.Slotless(hashOf(k)) || w.headerSays(hashOf(k)) == 0):
					t.Fatalf("key %d is in Pebble only, and nothing says so", k)
				case s == counted && (!w.ix.Slotless(hashOf(k)) || w.headerSays(hashOf(k)) == 0):
					t.Fatalf("key %d has no slot and is not counted", k)
				}
			}
			twins := 0
			for op := range 60_000 / min(scale, 2) {
				switch x := rng.IntN(100); {
				case x < 40 || len(list) == 0:
					if !w.insert(next) {
						w.ix.AddSlotless(hashOf(next))
						keys[next] = counted
					} else {
						keys[next] = resident
					}
					list = append(list, next)
					next++
				case x < 70:
					if k := pick(); keys[k] == resident {
						w.evict(k)
						if w.pebbled(k) > 1 {
							twins++
						}
						keys[k] = cold
					}
				case x < 85:
					if k := pick(); keys[k] != resident && w.insert(k) {
						keys[k] = resident
					}
				case x < 90:
					// A Pebble-only slot goes: counted, and cleared a lease later.
					k := pick()
					s := layout.PebbleSlot(hashOf(k))
					if w.pebbled(k) == 0 {
						break
					}
					h, _ := s.PebbleHash()
					w.ix.AddSlotless(h)
					w.rec.After(func() {
						w.ix.Near(h, func(r Ref) bool {
							if r.Slot() == s {
								w.ix.Clear(r)
							}
							return true
						})
					})
				case x < 95:
					k := pick()
					w.ix.RemoveSlotless(hashOf(k))
					if keys[k] == resident {
						r, _ := w.ix.Find(hashOf(k), is(k))
						w.ix.Clear(r)
					}
					delete(keys, k)
					for i := range list {
						if list[i] == k {
							list[i] = list[len(list)-1]
							list = list[:len(list)-1]
							break
						}
					}
				default:
					k := pick()
					check(k, keys[k])
				}
				if op%200 == 0 {
					w.pass(reclaim.BeatMargin)
				}
				if op%7_500 == 0 {
					w.check()
					for k, s := range keys {
						check(k, s)
					}
				}
			}
			w.check()
			for k, s := range keys {
				check(k, s)
			}
			w.pass(2 * lease)
			n := 0
			for r := range w.ix.All {
				if r.Slot().Class() == layout.ClassPebble {
					n++
				}
			}
			st := w.ix.Stats()
			if n != st.Pebble || twins == 0 || st.Segments < 4 {
				t.Errorf("%d Pebble-only slots, counted as %d; %d twins; %d segments", n, st.Pebble, twins, st.Segments)
			}
			for k := range keys {
				if w.pebbled(k) > 1 {
					t.Errorf("key %d has %d Pebble-only slots after all leases", k, w.pebbled(k))
				}
			}
			t.Logf("%+v, %d twins", st, twins)
		})
	}
}

// Of two slots that say the same none goes if one of them has changed since.
func TestTwinsPart(t *testing.T) {
	w := newWorld(t, 16*mib)
	h := hashOf(7)
	s := layout.PebbleSlot(h)
	two := func() (a, b Ref) {
		a, _ = w.ix.Room(w.now, h)
		w.ix.Set(a, s)
		b, _ = w.ix.Room(w.now, h)
		w.ix.Set(b, s)
		return a, b
	}
	a, b := two()
	twins := w.ix.Pair(h, b)
	w.ix.Clear(a)
	w.ix.Set(a, s) // it says the same again, but not all the time
	if w.ix.ClearTwin(twins) || w.pebbled(7) != 2 {
		t.Error("one went, and the other is younger than a lease")
	}
	twins = w.ix.Pair(h, b)
	if !w.ix.ClearTwin(twins) || w.pebbled(7) != 1 || a.Slot() != s {
		t.Error("the younger did not go")
	}
	if w.ix.Pair(h, a) != nil || len(w.ix.twins) != 0 {
		t.Error("twins are left")
	}
	// Growth leaves one of them out, and parts them.
	w.ix.Clear(a)
	_, b = two()
	twins = w.ix.Pair(h, b)
	next := uint64(1 << 20)
	w.untilGrowth(&next)
	if w.ix.ClearTwin(twins) || w.pebbled(7) != 1 || w.ix.Stats().Pebble != 1 {
		t.Errorf("%d slots after growth", w.pebbled(7))
	}
	w.check()
}
