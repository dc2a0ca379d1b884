package region

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestRetire: a region leaves the view and is listed before it is said; its
// memory is counted until it is freed; neither id nor place comes back.
func TestRetire(t *testing.T) {
	told := 0
	tab := newTestTable(t, func(c *Config) { c.OnView = func() { told++ } })
	a, memA, _ := tab.Add(layout.KindItems)
	b, _, err := tab.Add(layout.KindItems)
	if err != nil {
		t.Fatal(err)
	}
	memA[5000] = 7
	before, used, reclaim := tab.View(), tab.InUse(), tab.ReclaimVersion()
	version, err := tab.Retire(a.ID)
	if err != nil || version != before.Version+1 || tab.ViewVersion() != version {
		t.Fatalf("version %d after %d: %v", version, before.Version, err)
	}
	v := tab.View()
	if err := v.Check(); err != nil || len(v.Regions) != len(before.Regions)-1 || len(before.Regions) != 3 {
		t.Errorf("%d regions of %d: %v", len(v.Regions), len(before.Regions), err)
	}
	for p := a.Base; p.Byte() < a.End(); p += layout.PlaceOfByte(layout.RegionGranule) {
		if tab.Bytes(p, 8) != nil || tab.Look(p, 8, func([]byte) { t.Error("called") }) {
			t.Errorf("a place in it is found: %v", p)
		}
	}
	if tab.Bytes(b.Base, 8) == nil {
		t.Error("the other region is not found any more")
	}
	beat, err := layout.ParseBeat(tab.Root()[layout.BeatOffset:], 7)
	if errors.Is(err, layout.ErrIncarnation) { // not beaten yet
		beat = tab.Beat(1)
	}
	if beat.ViewVersion != version || beat.ReclaimVersion != reclaim+1 {
		t.Errorf("the beat says %+v", beat)
	}
	h := tab.Header()
	entry, err := layout.ParseRetired(tab.Root()[uint64(h.ReclaimOffset)+(reclaim+1)%uint64(h.ReclaimEntries)*layout.RetiredSize:])
	if err != nil || entry.Place != a.Base || uint64(entry.Pages)*layout.PageSize != a.Length {
		t.Errorf("listed as %+v: %v", entry, err)
	}
	if tab.InUse() != used || memA[5000] != 7 || len(tab.RetiredRegions()) != 1 {
		t.Errorf("its memory is gone already: %d bytes of %d", tab.InUse(), used)
	}
	if _, err := tab.Retire(a.ID); err == nil {
		t.Error("retired twice")
	}
	if _, err := tab.Retire(0); err == nil {
		t.Error("an index region was retired")
	}
	if err := tab.FreeRetired(b.ID); !errors.Is(err, errNotRetired) {
		t.Errorf("a region in the view was freed: %v", err)
	}
	if err := tab.FreeRetired(a.ID); err != nil || tab.InUse() != used-a.Length || len(tab.RetiredRegions()) != 0 {
		t.Errorf("%d bytes of %d in use: %v", tab.InUse(), used, err)
	}
	if err := tab.FreeRetired(a.ID); !errors.Is(err, errNotRetired) {
		t.Errorf("freed twice: %v", err)
	}
	c, _, err := tab.Add(layout.KindItems)
	if err != nil || c.ID <= b.ID || c.Base.Byte() < b.End() {
		t.Errorf("region %d at %v after region %d at %v: %v", c.ID, c.Base, b.ID, b.Base, err)
	}
	if told != 5 { // root, a, b, gone, c
		t.Errorf("told of %d views", told)
	}
	tab.Retire(b.ID) // Close frees it with the others
}

// TestRetireWaitsForGuests: memory is not freed while a caller that does not own
// it looks at it.
func TestRetireWaitsForGuests(t *testing.T) {
	tab := newTestTable(t, nil)
	r, _, err := tab.Add(layout.KindItems)
	if err != nil {
		t.Fatal(err)
	}
	looking, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tab.Look(r.Base, 8, func([]byte) {
			close(looking)
			<-done
		})
	})
	<-looking
	if _, err := tab.Retire(r.ID); err != nil {
		t.Fatal(err)
	}
	freed := make(chan error, 1)
	wg.Go(func() { freed <- tab.FreeRetired(r.ID) })
	select {
	case <-freed:
		t.Error("freed under a guest")
	case <-time.After(50 * time.Millisecond):
	}
	close(done)
	if err := <-freed; err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestBump: the version rises beside regions that are added, and never goes back.
func TestBump(t *testing.T) {
	tab := newTestTable(t, nil)
	var wg sync.WaitGroup
	begun := tab.ViewVersion()
	const each = 200
	for range 2 {
		wg.Go(func() {
			last := uint64(0)
			for range each {
				if v := tab.Bump(); v <= last {
					t.Errorf("version %d after %d", v, last)
				} else {
					last = v
				}
			}
		})
	}
	for range 4 {
		if _, _, err := tab.Add(layout.KindItems); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	v := tab.View()
	if v.Version != begun+2*each+4 || len(v.Regions) != 5 || tab.Beat(1).ViewVersion != v.Version {
		t.Errorf("version %d with %d regions, began with %d; the beat: %+v", v.Version, len(v.Regions), begun, tab.Beat(2))
	}
}

// TestSpare: no region goes if its places would be missed.
func TestSpare(t *testing.T) {
	tab := newTestTable(t, nil)
	a, _, _ := tab.Add(layout.KindItems)
	tab.mu.Lock()
	tab.nextBase = placeSpace - 16*mib + tab.inUse - 4*mib // there can be 2 of these once more, and no 3
	tab.mu.Unlock()
	b, _, err := tab.Add(layout.KindItems)
	if err != nil {
		t.Fatal(err)
	}
	if !tab.Spare(a.Length) || !tab.Spare(a.Length+b.Length) || tab.Spare(a.Length+b.Length+1) {
		t.Error("which may go is miscounted")
	}
	for _, r := range []layout.Region{a, b} {
		if !tab.Spare(r.Length) {
			t.Errorf("region %d may not go", r.ID)
		}
		if _, err := tab.Retire(r.ID); err != nil {
			t.Fatal(err)
		}
		if err := tab.FreeRetired(r.ID); err != nil {
			t.Fatal(err)
		}
	}
	for tab.InUse() < tab.Limit() {
		r, _, err := tab.Add(layout.KindItems)
		if err != nil {
			t.Fatalf("with %d bytes of %d in use: %v", tab.InUse(), tab.Limit(), err)
		}
		if tab.Spare(r.Length) {
			t.Error("one more may go")
		}
	}
}
