package region

import (
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

func TestRetiredIsListedBeforeItIsSaid(t *testing.T) {
	tab := newTestTable(t, nil) // a ring of 8
	for i := range uint64(20) {
		v := tab.Retired(layout.Place(1000*(i+1)), 16)
		if v != i+1 || tab.ReclaimVersion() != v {
			t.Fatalf("retirement %d made version %d, newest %d", i, v, tab.ReclaimVersion())
		}
		beat, err := layout.ParseBeat(tab.Root()[layout.BeatOffset:], 0)
		if err != nil || beat.ReclaimVersion != v {
			t.Fatalf("the beat line says reclaim version %d (%v), want %d at once", beat.ReclaimVersion, err, v)
		}
		r, err := layout.ParseRetired(tab.Root()[layout.RetiredOffset(tab.Header(), v):])
		if err != nil || r != (layout.Retired{Version: v, Place: layout.Place(1000 * (i + 1)), Pages: 16}) {
			t.Fatalf("ring entry of version %d: %+v, %v", v, r, err)
		}
	}
}

// Versions in the beat line never go back, whichever goroutines write, and
// whenever.
func TestBeatNeverGoesBack(t *testing.T) {
	tab := newTestTable(t, func(c *Config) { c.Limit = 64 * mib; c.RegionSize = mib })
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2000 {
			tab.Retired(5, 1)
		}
	})
	wg.Go(func() {
		for range 40 {
			if _, _, err := tab.Add(layout.KindItems); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for i := range uint64(2000) {
			if b := tab.Beat(i); b.Counter != i+1 {
				t.Errorf("beat %d has counter %d", i, b.Counter)
			}
		}
	})
	var last layout.Beat
	for range 2000 {
		now := layout.Beat{
			ViewVersion:    layout.LoadWord(tab.Root(), layout.BeatOffset+24),
			ReclaimVersion: layout.LoadWord(tab.Root(), layout.BeatOffset+32),
		}
		if now.ViewVersion < last.ViewVersion || now.ReclaimVersion < last.ReclaimVersion {
			t.Fatalf("went back from %+v to %+v", last, now)
		}
		last = now
	}
	wg.Wait()
	b, err := layout.ParseBeat(tab.Root()[layout.BeatOffset:], 7)
	if err != nil || b.ReclaimVersion != 2000 || b.ViewVersion != 41 || b.TimeMicros != 1999 || b.Counter != 2000 {
		t.Errorf("in the end: %+v, %v", b, err)
	}
}
