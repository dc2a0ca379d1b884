package index

import (
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// What a put and a SEND get do on every call allocates nothing.
func TestNoAllocations(t *testing.T) {
	w := newWorld(t, 16*mib)
	for k := uint64(1); k < 5000; k++ {
		w.insert(k)
	}
	w.pass(4 * lease)
	k := uint64(0)
	eq := func(s layout.Slot) bool { return uint64(s.Place()) == k }
	n := testing.AllocsPerRun(1000, func() {
		k = k%4999 + 1
		h := hashOf(k)
		r, ok := w.ix.Find(h, eq)
		if !ok {
			t.Fatalf("key %d is lost", k)
		}
		s := r.Slot()
		w.ix.Clear(r)
		r, ok = w.ix.Room(w.now, h)
		if !ok {
			t.Fatal("no room where a slot was just cleared")
		}
		w.ix.Set(r, s)
		w.ix.Slotless(h)
	})
	if n != 0 {
		t.Errorf("%v allocations for Find, Clear, Room and Set", n)
	}
}

const benchKeys = 200_000

func benchWorld(b *testing.B) *world {
	w := newWorld(b, 256*mib)
	for k := uint64(1); k <= benchKeys; k++ {
		w.insert(k)
		if k%4096 == 0 {
			w.pass(reclaim.BeatMargin)
		}
	}
	return w
}

func BenchmarkFindHit(b *testing.B) {
	w := benchWorld(b)
	k, i := uint64(0), uint64(0)
	eq := func(s layout.Slot) bool { return uint64(s.Place()) == k }
	b.ReportAllocs()
	for b.Loop() {
		i += 7919
		k = i%benchKeys + 1
		if _, ok := w.ix.Find(hashOf(k), eq); !ok {
			b.Fatal("lost")
		}
	}
}

func BenchmarkFindMiss(b *testing.B) {
	w := benchWorld(b)
	eq := func(layout.Slot) bool { return false }
	i := uint64(1 << 40)
	b.ReportAllocs()
	for b.Loop() {
		i++
		w.ix.Find(hashOf(i), eq)
	}
}

func BenchmarkRoomSetClear(b *testing.B) {
	w := benchWorld(b)
	i := uint64(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		i++
		h := hashOf(i)
		r, ok := w.ix.Room(w.now, h)
		if !ok {
			b.Fatal("no room")
		}
		w.ix.Set(r, slotOf(i))
		w.ix.Clear(r)
	}
}

// Inserts from empty, growth included: the mean over a fill of 200,000 keys.
func BenchmarkInsertWithGrowth(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchWorld(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchKeys, "ns/key")
}

// One growth by a quarter step, about 1,660 keys: how long the writers of a
// segment wait.
func BenchmarkGrowth(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, 16*mib)
		k := uint64(1)
		for {
			if _, ok := w.ix.dir[0].room(hashOf(k)); !ok {
				break
			}
			w.insert(k)
			k++
		}
		b.StartTimer()
		w.insert(k)
	}
}
