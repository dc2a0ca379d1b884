package slab

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// TestLastRegionOnItsWay: the last region that the limit allows counts a moment
// before items can lie in it. A caller that looks for room in that moment waits
// for it: if it were told that there is no memory, its item would go without a
// place.
func TestLastRegionOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3*mib)
		sp, q := &w.slabs.space, request{pageUnits, pageUnits}
		go sp.growth.Run(region.Forever, func() error { // as add does, slowly
			_, _, err := w.table.AddAtLeast(layout.KindItems, unitBytes)
			time.Sleep(time.Minute)
			return err
		})
		synctest.Wait()
		begun := time.Now()
		if err := sp.grow(q, 0, region.Forever); err != nil {
			t.Errorf("with a region on its way: %v", err)
		}
		if time.Since(begun) == 0 {
			t.Error("it was not waited for")
		}
		if err := sp.grow(q, 0, region.Forever); err == nil {
			t.Error("room beyond the limit")
		}
	})
}
