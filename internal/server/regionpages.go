package server

import (
	"context"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/store/layout"
)

// gathering is what is known of regions whose pages came one by one, as they were
// used, and are to become transparent huge ones once the region is full: a
// software fabric then reads them with a hundredth of the address translations.
type gathering struct {
	asked chan struct{} // capacity 1
	// done are the regions that have been gone through. Of regionsLoop.
	done map[uint32]bool
}

// ask says that there may be a full region. It does not block.
func (g *gathering) ask() {
	select {
	case g.asked <- struct{}{}:
	default:
	}
}

// gather goes through the full regions, which are all but the newest of each
// kind. Where huge_pages is off there is nothing to do.
func (r *regions) gather(ctx context.Context) {
	if r.huge != HugeTry {
		return
	}
	all := *r.byID.Load()
	newest := make(map[layout.RegionKind]uint32)
	for id, s := range all {
		newest[s.kind] = max(newest[s.kind], id)
	}
	if r.gathering.done == nil {
		r.gathering.done = make(map[uint32]bool)
	}
	for id := range r.gathering.done {
		if all[id] == nil {
			delete(r.gathering.done, id)
		}
	}
	for id, s := range all {
		if r.gathering.done[id] || newest[s.kind] == id || s.mem.Kind() != memory.Mmap {
			continue
		}
		r.gathering.done[id] = true
		s.mem.Gather(func() bool { return ctx.Err() == nil })
	}
}
