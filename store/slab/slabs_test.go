package slab

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

func TestSizes(t *testing.T) {
	w := newWorld(t, 512*mib)
	for _, c := range []struct {
		size int
		ok   bool
	}{{1, true}, {32, true}, {144, true}, {8192, true}, {8193, true}, {layout.MaxItemSize, true}, {72 << 20, true}, {72<<20 + 1, false}} {
		p, class, err := w.slabs.Alloc(c.size)
		var tooLarge *SizeError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &tooLarge) {
			t.Errorf("Alloc(%d): %v", c.size, err)
			continue
		}
		if err == nil {
			if n := len(w.slabs.Bytes(p, class)); n < c.size || n < minItem {
				t.Errorf("Alloc(%d) gave class %d of %d bytes", c.size, class, n)
			}
			w.slabs.Free(p, class)
		}
	}
	if minItem != layout.ItemSize(1, 0, false) {
		t.Errorf("minItem is %d, the smallest item has %d", minItem, layout.ItemSize(1, 0, false))
	}
}

// One key of each size costs pages, not regions; the pages of a class are
// dense.
func TestFootprint(t *testing.T) {
	w := newWorld(t, 512*mib)
	sizes := 0
	for class := uint8(4); layout.ClassSize(class) <= MaxPaged; class++ {
		if _, _, err := w.slabs.Alloc(layout.ClassSize(class)); err != nil {
			t.Fatal(err)
		}
		sizes++
	}
	st := w.slabs.Stats()
	t.Logf("one item of each of %d sizes: %d KiB in use", sizes, st.InUse>>10)
	if st.InUse != uint64(sizes*PageBytes) {
		t.Errorf("%d bytes in use for %d sizes", st.InUse, sizes)
	}
	for class := uint8(4); layout.ClassSize(class) <= MaxPaged; class++ {
		n := PageBytes / layout.ClassSize(class)
		for range n - 1 {
			w.slabs.Alloc(layout.ClassSize(class))
		}
	}
	if again := w.slabs.Stats(); again.InUse != st.InUse {
		t.Errorf("filling the pages took more of them: %d bytes", again.InUse)
	}
}

// A freed place comes back at once within its class.
func TestReuseWithinClass(t *testing.T) {
	w := newWorld(t, 8*mib)
	for _, size := range []int{144, 100 << 10} {
		a, class, _ := w.slabs.Alloc(size)
		b, _, _ := w.slabs.Alloc(size)
		w.slabs.Free(a, class)
		c, _, _ := w.slabs.Alloc(size)
		if c != a || c == b {
			t.Errorf("size %d: after freeing %v came %v", size, a, c)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	w := newWorld(t, 8*mib)
	small, cs, _ := w.slabs.Alloc(144)
	large, cl, _ := w.slabs.Alloc(100 << 10)
	w.slabs.Pin(small)
	w.slabs.Free(small, cs) // deferred
	for name, f := range map[string]func(){
		"page freed under another class": func() { w.slabs.Free(small+1, cs+1) },
		"inside a place":                 func() { w.slabs.Free(large+512, cl) },
		"span of another class":          func() { w.slabs.Free(large, cl+1) },
		"no class":                       func() { w.slabs.Free(large, 0) },
		"outside":                        func() { w.slabs.Free(layout.MaxPlace, cl) },
		"in the index region":            func() { w.slabs.Free(512, cs) },
		"pinned place freed twice":       func() { w.slabs.Free(small, cs) },
		"unpinned":                       func() { w.slabs.Unpin(large) },
		"not allocated":                  func() { w.slabs.Free(small+layout.Place(144/8), cs) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
	w.slabs.Unpin(small)
	if st := w.slabs.Stats(); st.Pinned != 0 || st.Live != uint64(layout.ClassSize(cl)) {
		t.Errorf("after the last Unpin: %+v", st)
	}
}

// When the limit is reached, memory that other classes do not use goes where
// it is wanted: empty pages, kept spans, and a nearly empty page once its last
// items are gone. It takes a lease, and Alloc says no meanwhile.
func TestPressure(t *testing.T) {
	w := newWorld(t, 3*mib) // 1 MiB of index, 2 MiB of items
	type place struct {
		p     layout.Place
		class uint8
	}
	fill := func(size int) (got []place) {
		for {
			p, class, err := w.slabs.Alloc(size)
			if err != nil {
				if !errors.Is(err, region.ErrNoMemory) {
					t.Fatal(err)
				}
				return got
			}
			got = append(got, place{p, class})
		}
	}
	small := fill(256)
	if got := fill(4096); len(got) > 15 {
		t.Fatalf("%d items of 4 KiB in a full store", len(got))
	}
	// All small items but a few go: most pages run empty and are retired at
	// once; the page of the few is drained on demand.
	keep := small[len(small)-3:]
	for _, it := range small[:len(small)-3] {
		w.slabs.Free(it.p, it.class)
	}
	w.pass(4 * time.Second)
	before := len(fill(4096))
	w.pass(4 * time.Second)
	more := len(fill(4096))
	t.Logf("%d items of 4 KiB after a lease, %d more after pressure", before, more)
	if before < 400 || more < 16 {
		t.Errorf("%d items of 4 KiB at first, then %d more: the small pages were not given up", before, more)
	}
	for _, it := range keep {
		w.slabs.Free(it.p, it.class)
	}
	w.pass(4 * time.Second)
	fill(4096)
	w.pass(4 * time.Second)
	if last := len(fill(4096)); w.slabs.Stats().InUse < 2*mib-2*PageBytes {
		t.Errorf("%d more at last, and %d bytes in use", last, w.slabs.Stats().InUse)
	}
}

// Under pressure the emptiest pages of other classes take no new items, run
// empty as their items go, and change hands; their class gets them back when
// it has nothing else.
func TestDraining(t *testing.T) {
	w := newWorld(t, 3*mib) // 2 MiB of items: 31 pages
	type place struct {
		p     layout.Place
		class uint8
	}
	alloc := func(size int) (place, bool) {
		p, class, err := w.slabs.Alloc(size)
		return place{p, class}, err == nil
	}
	var small []place
	for {
		it, ok := alloc(256)
		if !ok {
			break
		}
		small = append(small, it)
	}
	var kept []place
	for i, it := range small { // one item stays in every page
		if i%(PageBytes/256) == 0 {
			kept = append(kept, it)
		} else {
			w.slabs.Free(it.p, it.class)
		}
	}
	ofSmall := func() ClassStats {
		for _, c := range w.slabs.Stats().Classes {
			if c.Size == 256 {
				return c
			}
		}
		t.Fatal("the class has no memory")
		return ClassStats{}
	}
	for range 2 * lookEvery * maxDraining {
		if _, ok := alloc(1024); ok {
			t.Fatal("memory from nowhere")
		}
	}
	if got := ofSmall(); got.Draining != maxDraining || got.Pages != len(kept) {
		t.Fatalf("under pressure: %+v", got)
	}
	for range (len(kept) - maxDraining) * (PageBytes/256 - 1) {
		if it, ok := alloc(256); !ok {
			t.Fatal("the class does not get its own places")
		} else {
			small = append(small, it)
		}
	}
	if got := ofSmall(); got.Draining != maxDraining {
		t.Errorf("new items went to draining pages: %+v", got)
	}
	if _, ok := alloc(256); !ok || ofSmall().Draining != maxDraining {
		t.Errorf("nothing but draining pages left, and: %v, %+v", ok, ofSmall())
	}
	// The kept items of draining pages go; under pressure the pages follow.
	for _, it := range kept {
		w.slabs.Free(it.p, it.class)
	}
	alloc(1024)
	w.pass(4 * time.Second)
	if _, ok := alloc(1024); !ok {
		t.Errorf("no page changed hands: %+v", ofSmall())
	}
}

func TestConcurrent(t *testing.T) {
	w := newWorld(t, 24*mib)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			type place struct {
				p     layout.Place
				class uint8
			}
			var mine []place
			for range 6000 {
				if len(mine) > 0 && rng.IntN(2) == 0 {
					i := rng.IntN(len(mine))
					it := mine[i]
					mine[i] = mine[len(mine)-1]
					mine = mine[:len(mine)-1]
					b := w.slabs.Bytes(it.p, it.class)
					if got := layout.LoadWord(b, 24); got != uint64(it.p)+uint64(g) {
						t.Errorf("place %v of goroutine %d holds %#x", it.p, g, got)
					}
					w.slabs.Free(it.p, it.class)
					continue
				}
				size := 40 << rng.IntN(11)
				p, class, err := w.slabs.Alloc(size)
				if err != nil {
					continue
				}
				layout.StoreWord(w.slabs.Bytes(p, class), 24, uint64(p)+uint64(g))
				mine = append(mine, place{p, class})
			}
			for _, it := range mine {
				w.slabs.Free(it.p, it.class)
			}
		})
	}
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		for {
			select {
			case <-stop:
				return
			default:
				w.pass(200 * time.Millisecond)
				w.slabs.Stats()
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-ticked
	if st := w.slabs.Stats(); st.Live != 0 {
		t.Errorf("%d bytes live in the end", st.Live)
	}
}

func TestNoAllocations(t *testing.T) {
	w := newWorld(t, 64*mib)
	for _, size := range []int{144, 100 << 10} {
		n := testing.AllocsPerRun(1000, func() {
			p, class, err := w.slabs.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			w.slabs.Free(p, class)
		})
		if n != 0 {
			t.Errorf("size %d: %v allocations for an Alloc and a Free", size, n)
		}
	}
}

func BenchmarkAllocFree(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"144", 144}, {"4096", 4096}, {"1MiB", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, 512*mib)
			// A ring of places, so that Alloc does not always meet the same one.
			type place struct {
				p     layout.Place
				class uint8
			}
			var ring [64]place
			for i := range ring {
				ring[i].p, ring[i].class, _ = w.slabs.Alloc(c.size)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				it := &ring[i%len(ring)]
				w.slabs.Free(it.p, it.class)
				it.p, it.class, _ = w.slabs.Alloc(c.size)
				i += 7
			}
		})
	}
}
