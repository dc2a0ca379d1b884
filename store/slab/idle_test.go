package slab

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

const idleWhile = 10 * time.Second

// idle looks for idle regions over and over for a while, and has those that are
// taken out retired and, a lease later, freed. It returns how many.
func (w *world) idle(d time.Duration) (gone int) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.pass(idleWhile / 4) {
		for _, r := range w.slabs.Idle(w.now, idleWhile) {
			gone++
			if _, err := w.table.Retire(r.ID); err != nil {
				w.t.Fatal(err)
			}
			w.rec.After(func() {
				if err := w.table.FreeRetired(r.ID); err != nil {
					w.t.Error(err)
				}
			})
		}
	}
	w.pass(2 * reclaim.Wait(lease))
	return gone
}

// TestIdleRegions: what is empty for a while is given back, oversized regions
// too; what holds an item, or one that is pinned, stays; so does the last one.
func TestIdleRegions(t *testing.T) {
	w := newWorld(t, 64*mib)
	var places []layout.Place
	var class uint8
	for range 5 * 2 * mib / 1024 {
		p, c, err := w.slabs.Alloc(1024)
		if err != nil {
			t.Fatal(err)
		}
		places, class = append(places, p), c
	}
	big, bigClass, err := w.slabs.Alloc(20 * mib) // a region of its own
	if err != nil {
		t.Fatal(err)
	}
	full, views := w.table.InUse(), len(w.table.View().Regions)
	if gone := w.idle(3 * idleWhile); gone != 0 {
		t.Fatalf("%d regions were given back with items in them", gone)
	}
	w.slabs.Pin(big)
	w.slabs.Free(big, bigClass)
	if gone := w.idle(3 * idleWhile); gone != 0 {
		t.Fatalf("%d regions were given back, of a pinned item", gone)
	}
	w.slabs.Unpin(big)
	if gone := w.idle(3 * idleWhile); gone != 1 || w.table.InUse() > full-20*mib {
		t.Fatalf("%d regions were given back, %d bytes of %d are left", gone, w.table.InUse(), full)
	}
	// All but one item in the middle, which keeps its region.
	kept := places[len(places)/2]
	for _, p := range places {
		if p != kept {
			w.slabs.Free(p, class)
		}
	}
	reg, _, _ := w.table.Locate(kept)
	w.idle(3 * idleWhile)
	v := w.table.View()
	if len(v.Regions) >= views-3 || w.slabs.Bytes(kept, class) == nil {
		t.Errorf("%d regions of %d are left; the item's: %v", len(v.Regions), views, w.slabs.Bytes(kept, class) != nil)
	}
	w.slabs.Free(kept, class)
	w.idle(5 * idleWhile)
	v = w.table.View()
	if err := v.Check(); err != nil || len(v.Regions) != 2 {
		t.Errorf("%d regions are left, want the index and one of items: %v", len(v.Regions), err)
	}
	if st := w.slabs.Stats(); st.Live != 0 || st.Retired != 0 || st.InUse+st.Free+layout.PageSize != v.Regions[1].Length {
		t.Errorf("of a region of %d bytes: %+v", v.Regions[1].Length, st)
	}
	// What is added has ids and places of its own.
	before := w.table.View()
	for range 3 * 2 * mib / 1024 {
		if _, _, err := w.slabs.Alloc(1024); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range w.table.View().Regions[len(before.Regions):] {
		if r.ID <= reg.ID || r.Base <= reg.Base || int(r.ID) < views {
			t.Errorf("region %d at %v came after region %d at %v", r.ID, r.Base, reg.ID, reg.Base)
		}
	}
}

// TestIdleKeepsPlaces: nothing is given back whose part of the place space would
// be missed.
func TestIdleKeepsPlaces(t *testing.T) {
	w := newWorld(t, 8<<40) // all that there are
	for range 3 {
		p, c, err := w.slabs.Alloc(2 * mib)
		if err != nil {
			t.Fatal(err)
		}
		w.slabs.Free(p, c)
	}
	if _, _, err := w.slabs.Alloc(20 * mib); err != nil {
		t.Fatal(err)
	}
	before := len(w.table.View().Regions)
	if gone := w.idle(5 * idleWhile); gone != 0 || before < 3 {
		t.Errorf("%d of %d regions were given back", gone, before)
	}
}

// TestIdleIsInterrupted: one item, however short it stays, begins the wait anew;
// and what was taken out is not found by those who had drawn it to clear it.
func TestIdleIsInterrupted(t *testing.T) {
	w := newWorld(t, 64*mib)
	var places []layout.Place
	var class uint8
	for len(w.table.View().Regions) < 4 {
		p, c, err := w.slabs.Alloc(100 << 10)
		if err != nil {
			t.Fatal(err)
		}
		places, class = append(places, p), c
	}
	for _, p := range places {
		w.slabs.Free(p, class)
	}
	w.pass(2 * reclaim.Wait(lease))
	for range 8 {
		if gone := w.slabs.Idle(w.now, idleWhile); len(gone) != 0 {
			t.Fatalf("given back after %v", w.now)
		}
		w.pass(idleWhile / 2)
		var all []layout.Place
		for range len(places) {
			p, _, err := w.slabs.Alloc(100 << 10)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		for _, p := range all {
			w.slabs.Free(p, class)
		}
		w.pass(2 * reclaim.Wait(lease))
	}
	var drawn []*Clearing
	for range 50 {
		if c, ok := w.slabs.Look(class, rand.Uint64()); ok {
			drawn = append(drawn, c)
		}
	}
	if gone := w.idle(4 * idleWhile); gone == 0 {
		t.Fatal("nothing was given back")
	}
	for _, c := range drawn {
		if _, _, ok := w.table.Locate(c.place(c.first)); !ok && c.Begin() {
			t.Error("a run in a region that is gone was closed")
		}
	}
}

// TestIdleKeepsAll: where readers believe for ever what they have read, nothing
// is given back.
func TestIdleKeepsAll(t *testing.T) {
	w := newWorld(t, 64*mib)
	w.rec = reclaim.NewKeeping(w.table, lease)
	w.slabs = New(w.table, w.rec)
	p, class, err := w.slabs.Alloc(5 * mib)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.slabs.Alloc(100); err != nil {
		t.Fatal(err)
	}
	w.slabs.Free(p, class)
	if gone := w.idle(5 * idleWhile); gone != 0 {
		t.Errorf("%d regions were given back", gone)
	}
}

// TestIdleRace: regions come and go as fast as they can under allocators that
// fill what they get and look at it again.
func TestIdleRace(t *testing.T) {
	w := newWorld(t, 48*mib)
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1000, 0).Add(time.Duration(clock.Load())) }
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var allocs, refused atomic.Int64
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 5))
			type mine struct {
				p     layout.Place
				class uint8
				mark  uint64
			}
			var list []mine
			free := func(n int) {
				for _, m := range list[:n] {
					b := w.slabs.Bytes(m.p, m.class)
					if b == nil || binary.LittleEndian.Uint64(b[24:]) != m.mark || binary.LittleEndian.Uint64(b[len(b)-8:]) != m.mark {
						t.Errorf("the item at %v is gone, or another's", m.p)
					}
					w.slabs.Free(m.p, m.class)
				}
				list = append(list[:0], list[n:]...)
			}
			defer func() { free(len(list)) }()
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				for range 200 { // a burst, and then nothing is left of it
					size := []int{40, 1000, 8192, 60 << 10, 500 << 10, 3 * mib}[rng.IntN(6)]
					p, class, err := w.slabs.Alloc(size)
					if errors.Is(err, region.ErrNoMemory) {
						refused.Add(1)
						free(len(list) / 2)
						continue
					} else if err != nil {
						t.Error(err)
						return
					}
					allocs.Add(1)
					m := mine{p, class, rng.Uint64()}
					b := w.slabs.Bytes(p, class)
					binary.LittleEndian.PutUint64(b[24:], m.mark)
					binary.LittleEndian.PutUint64(b[len(b)-8:], m.mark)
					list = append(list, m)
				}
				free(len(list))
				time.Sleep(time.Duration(20+rng.IntN(40)) * time.Millisecond)
			}
		})
	}
	gone := 0
	for begun := time.Now(); gone < 200; {
		if time.Since(begun) > 60*time.Second {
			t.Errorf("only %d regions were given back", gone)
			break
		}
		clock.Add(int64(reclaim.BeatMargin))
		w.rec.Tick(now())
		for _, r := range w.slabs.Idle(now(), 2*reclaim.BeatMargin) {
			if _, err := w.table.Retire(r.ID); err != nil {
				t.Fatal(err)
			}
			gone++
			w.rec.After(func() {
				if err := w.table.FreeRetired(r.ID); err != nil {
					t.Error(err)
				}
			})
		}
		if used := w.table.InUse(); used > 48*mib {
			t.Fatalf("%d bytes in use, the limit is %d", used, 48*mib)
		}
		time.Sleep(100 * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	v := w.table.View()
	if err := v.Check(); err != nil {
		t.Error(err)
	}
	t.Logf("%d regions came and went under %d allocations, %d refused; the view is of version %d", gone, allocs.Load(), refused.Load(), v.Version)
}
