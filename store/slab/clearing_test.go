package slab

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// A full world: small items everywhere, and a large one is wanted. Clearing
// makes room for it: a lease after its last item is freed, and not earlier.
func TestClearing(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, 6*mib)
		live := map[layout.Place]uint8{}
		sizes := []int{64, 200, 1000, 6000, 20_000, 70_000}
		for {
			p, class, err := w.slabs.Alloc(sizes[rng.IntN(len(sizes))])
			if err != nil {
				break
			}
			live[p] = class
		}
		large, _ := w.slabs.Class(700_000)
		var c *Clearing
		for range 1000 {
			if l, ok := w.slabs.Look(large, rng.Uint64()); ok && l.Begin() {
				c = l
				break
			}
		}
		if c == nil {
			t.Fatalf("seed %d: no run to clear", seed)
		}
		if c.Bytes() < 700_000 || c.All(large) {
			t.Errorf("seed %d: a run of %d bytes", seed, c.Bytes())
		}
		// Nothing is given out in it.
		inRun := map[layout.Place]bool{}
		for _, it := range c.Items(0, nil) {
			if live[it.Place] != it.Class || inRun[it.Place] {
				t.Fatalf("seed %d: %v of class %d is in the run; it has class %d", seed, it.Place, it.Class, live[it.Place])
			}
			inRun[it.Place] = true
		}
		for p, class := range live {
			if !inRun[p] && rng.IntN(10) == 0 {
				w.slabs.Free(p, class)
				delete(live, p)
				if p, class, err := w.slabs.Alloc(layout.ClassSize(class)); err == nil {
					if _, taken := live[p]; taken {
						t.Fatalf("seed %d: %v was given out twice", seed, p)
					}
					if inRun[p] {
						t.Fatalf("seed %d: %v was given out in the run", seed, p)
					}
					live[p] = class
				}
			}
		}
		for c, n := c, 0; !c.Done(); n++ {
			if n > 3 {
				t.Fatalf("seed %d: never done", seed)
			}
			for _, it := range c.Items(0, nil) {
				w.slabs.Free(it.Place, it.Class)
				delete(live, it.Place)
			}
		}
		w.pass(reclaim.Wait(lease) / 2)
		if c.Complete() {
			t.Errorf("seed %d: complete before its lease", seed)
		}
		w.pass(2 * reclaim.Wait(lease))
		if !c.Complete() {
			t.Fatalf("seed %d: not complete a lease later", seed)
		}
		p, class, err := w.slabs.Alloc(700_000)
		if err != nil || class != large {
			t.Fatalf("seed %d: no memory for the large item: %v", seed, err)
		}
		for q, qc := range live {
			if q+layout.Place(layout.ClassSize(qc)/8) > p && q < p+layout.Place(layout.ClassSize(class)/8) {
				t.Fatalf("seed %d: %v overlaps the large item at %v", seed, q, p)
			}
		}
		w.slabs.Free(p, class)
		// All that was taken comes back.
		for p, class := range live {
			w.slabs.Free(p, class)
		}
		w.pass(3 * reclaim.Wait(lease))
		if st := w.slabs.Stats(); st.Live != 0 || st.Retired != 0 {
			t.Errorf("seed %d: %+v", seed, st)
		}
	}
}

// Given up, a run is as it was, and its parts are free for any class.
func TestClearingCancelled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	w := newWorld(t, 4*mib)
	live := map[layout.Place]uint8{}
	for {
		p, class, err := w.slabs.Alloc(100 + 100*rng.IntN(300))
		if err != nil {
			break
		}
		live[p] = class
	}
	large, _ := w.slabs.Class(500_000)
	cancelled := 0
	for range 2000 {
		c, ok := w.slabs.Look(large, rng.Uint64())
		if !ok || !c.Begin() {
			continue
		}
		for i, it := range c.Items(0, nil) {
			if i%2 == 0 {
				w.slabs.Free(it.Place, it.Class)
				delete(live, it.Place)
			}
		}
		w.pass(2 * reclaim.Wait(lease))
		c.Cancel()
		c.Cancel()
		cancelled++
		for {
			p, class, err := w.slabs.Alloc(100 + 100*rng.IntN(300))
			if err != nil {
				break
			}
			if _, taken := live[p]; taken {
				t.Fatalf("%v was given out twice", p)
			}
			live[p] = class
		}
		if cancelled == 20 {
			break
		}
	}
	if cancelled == 0 {
		t.Fatal("no run was cleared")
	}
	for p, class := range live {
		w.slabs.Free(p, class)
	}
	w.pass(3 * reclaim.Wait(lease))
	if st := w.slabs.Stats(); st.Live != 0 || st.Retired != 0 {
		t.Errorf("%+v", st)
	}
	for _, c := range w.slabs.Stats().Classes {
		if c.Live != 0 || c.Draining != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// Every item can be drawn, nothing else is.
func TestSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	w := newWorld(t, 8*mib)
	for _, size := range []int{64, 5000, 50_000} {
		live := map[layout.Place]bool{}
		var class uint8
		for range 60 {
			p, c, err := w.slabs.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			live[p], class = true, c
		}
		for p := range live {
			if rng.IntN(3) == 0 {
				w.slabs.Free(p, class)
				delete(live, p)
			}
		}
		seen := map[layout.Place]bool{}
		for range 2000 {
			for _, p := range w.slabs.Sample(class, 4, rng.Uint64, nil) {
				if !live[p] {
					t.Fatalf("size %d: %v holds no item", size, p)
				}
				seen[p] = true
			}
		}
		if len(seen) != len(live) || w.slabs.Live(class) != len(live) {
			t.Errorf("size %d: %d of %d were drawn, Live says %d", size, len(seen), len(live), w.slabs.Live(class))
		}
	}
}
