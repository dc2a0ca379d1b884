package region

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestLastRegionOnItsWay: the last region that the limit allows counts a moment
// before it can be used. A caller that looks for room in that moment waits for
// it, and is not told that there is no memory.
func TestLastRegionOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTestTable(t, func(c *Config) { c.Limit = 2 * mib })
		ix := tab.Index()
		seen := ix.count()
		go ix.growth.Run(Forever, func() error { // as add does, slowly
			r, mem, err := tab.AddAtLeast(layout.KindIndex, layout.PageSize)
			time.Sleep(time.Minute)
			ix.mu.Lock()
			defer ix.mu.Unlock()
			ix.append(r, mem, 1)
			return err
		})
		synctest.Wait()
		if _, err := tab.CanAdd(layout.KindIndex, layout.PageSize); err == nil {
			t.Fatal("there is room for one more")
		}
		if err := ix.grow(layout.PageSize, seen); err != nil {
			t.Errorf("with a region on its way: %v", err)
		}
		if ix.count() != seen+1 {
			t.Error("it was not waited for")
		}
		if err := ix.grow(layout.PageSize, seen); err != nil {
			t.Errorf("with a region that was not seen: %v", err)
		}
		if err := ix.grow(layout.PageSize, seen+1); err == nil {
			t.Error("room beyond the limit")
		}
	})
}
