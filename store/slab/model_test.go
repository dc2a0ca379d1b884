package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

const (
	mib   = 1 << 20
	lease = 2 * time.Second
)

// world is a slab allocator with everything around it and a clock.
type world struct {
	t     testing.TB
	table *region.Table
	rec   *reclaim.Reclaimer
	slabs *Slabs
	now   time.Time
}

func newWorld(t testing.TB, limit uint64) *world {
	t.Helper()
	tab, err := region.NewTable(region.Config{Memory: new(region.HeapMemory), Incarnation: 3, Shards: 1,
		RegionSize: 2 * mib, IndexRegionSize: mib, Limit: limit, ReclaimEntries: 64})
	if err != nil {
		t.Fatal(err)
	}
	r := reclaim.New(tab, lease)
	return &world{t: t, table: tab, rec: r, slabs: New(tab, r), now: time.Unix(1000, 0)}
}

// pass lets time pass in beats.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(reclaim.BeatMargin)
		w.rec.Tick(w.now)
	}
}

// shadow is what the model knows: which caller has which memory, and what every
// 4 KiB unit was last used for.
type shadow struct {
	*world
	live  map[layout.Place]held
	lines []layout.Place     // by 32-byte line of the place space: the place that holds it
	unit  map[uint64]unitUse // by 4 KiB unit of the place space
}

type held struct {
	class uint8
	pins  int
	freed bool // while pinned
}

type unitUse struct {
	class uint8
	last  time.Time // of the last free in it
}

// claim checks a place that Alloc returned, and notes it.
func (s *shadow) claim(p layout.Place, class uint8, size int) {
	n := layout.ClassSize(class)
	if n < size || int(p.Byte())%8 != 0 {
		s.t.Fatalf("place %v of class %d (%d bytes) for %d", p, class, n, size)
	}
	if s.slabs.Bytes(p, class) == nil {
		s.t.Fatalf("place %v of class %d leaves its region", p, class)
	}
	for w := p; w < p+layout.Place(n/8); w += 4 {
		if other := s.lines[w/4]; other != 0 {
			s.t.Fatalf("place %v of class %d overlaps the one at %v", p, class, other)
		}
		s.lines[w/4] = p
	}
	for u := p.Byte() / unitBytes; u <= (p.Byte()+uint64(n)-1)/unitBytes; u++ {
		old, known := s.unit[u]
		if known && old.class != class {
			if waited := s.now.Sub(old.last); waited < reclaim.Wait(lease) {
				s.t.Fatalf("unit %d went from class %d to %d after %v", u, old.class, class, waited)
			}
			if s.rec.Version() == 0 {
				s.t.Fatalf("unit %d changed class and was never listed", u)
			}
		}
		s.unit[u] = unitUse{class: class, last: s.now}
	}
	s.live[p] = held{class: class}
}

// release notes that a place is free again.
func (s *shadow) release(p layout.Place) {
	h := s.live[p]
	n := layout.ClassSize(h.class)
	for w := p; w < p+layout.Place(n/8); w += 4 {
		s.lines[w/4] = 0
	}
	for u := p.Byte() / unitBytes; u <= (p.Byte()+uint64(n)-1)/unitBytes; u++ {
		s.unit[u] = unitUse{class: h.class, last: s.now}
	}
	delete(s.live, p)
}

// Random allocation, freeing and pinning of classes from 32 B to 300 KiB (each
// a multiple of 32 bytes, so that the model can note lines of 32) under a
// limit that is soon reached: places never overlap, memory changes class only
// a lease after its last use, pinned places stay.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 77))
			s := &shadow{world: newWorld(t, 9*mib), live: map[layout.Place]held{}, lines: make([]layout.Place, 16*mib/32), unit: map[uint64]unitUse{}}
			var places []layout.Place // live and not freed
			var pinned []layout.Place // once for each Pin
			sizes := []int{32, 96, 160, 1024, 4096, 8192, 9216, 20480, 65536, 299 << 10}
			refused, changed := 0, 0
			for op := range 30_000 {
				// Phases favour one size and growth or shrinking, so that pages
				// run empty and are wanted by others.
				phase := op / 1500
				grow := phase%2 == 0
				switch x := rng.IntN(100); {
				case x < 5 && len(places) > 0:
					p := places[rng.IntN(len(places))]
					h := s.live[p]
					s.slabs.Pin(p)
					h.pins++
					s.live[p] = h
					pinned = append(pinned, p)
				case x < 12 && len(pinned) > 0:
					p := pinned[0]
					pinned = pinned[1:]
					h := s.live[p]
					h.pins--
					s.live[p] = h
					s.slabs.Unpin(p)
					if h.freed && h.pins == 0 {
						s.release(p)
					}
				case (x < 75) == grow || len(places) == 0:
					size := sizes[(phase/2+rng.IntN(3))%len(sizes)] - rng.IntN(8)
					p, class, err := s.slabs.Alloc(size)
					if errors.Is(err, region.ErrNoMemory) {
						refused++
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if u, ok := s.unit[p.Byte()/unitBytes]; ok && u.class != class {
						changed++
					}
					s.claim(p, class, size)
					places = append(places, p)
				default:
					i := rng.IntN(len(places))
					p := places[i]
					places[i] = places[len(places)-1]
					places = places[:len(places)-1]
					h := s.live[p]
					s.slabs.Free(p, h.class)
					if h.pins > 0 {
						h.freed = true
						s.live[p] = h
					} else {
						s.release(p)
					}
				}
				if op%40 == 0 {
					s.pass(reclaim.BeatMargin)
				}
			}
			s.checkStats()
			t.Logf("%d live, %d refused, %d units changed class, %d retirements", len(s.live), refused, changed, s.rec.Version())
			if refused == 0 || changed == 0 {
				t.Error("the run met no pressure: it proves little")
			}
			for _, p := range pinned {
				s.slabs.Unpin(p)
			}
			for _, p := range places {
				s.slabs.Free(p, s.live[p].class)
			}
			s.pass(time.Minute)
			if st := s.slabs.Stats(); st.Retired != 0 || st.Live != 0 {
				t.Errorf("%d bytes still retired a minute later, %d live", st.Retired, st.Live)
			}
		})
	}
}

// checkStats compares Stats with the model.
func (s *shadow) checkStats() {
	st := s.slabs.Stats()
	var live uint64
	pins := 0
	for _, h := range s.live {
		live += uint64(layout.ClassSize(h.class))
		if h.pins > 0 {
			pins++
		}
	}
	if st.Live != live || st.Pinned != pins {
		s.t.Errorf("Stats says %d live bytes and %d pinned, the model %d and %d", st.Live, st.Pinned, live, pins)
	}
	var items uint64
	for _, r := range s.table.View().Regions {
		if r.Kind == layout.KindItems {
			items += r.Length - layout.PageSize
		}
	}
	if sum := st.InUse + st.Retired + st.Free; sum != items {
		s.t.Errorf("in use %d + retired %d + free %d = %d, the regions hold %d", st.InUse, st.Retired, st.Free, sum, items)
	}
}
