package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

// published is the region table as the cluster is told of it.
type published struct {
	onChange atomic.Pointer[func()]

	mu   sync.Mutex
	last *cluster.Table // nil: none made yet
}

// OnChange has f called after each change of the region table: a region added, a
// rkey renewed, a region retired or gone. It may be called from any goroutine,
// several times for one change; it must not block.
func (r *regions) OnChange(f func()) { r.published.onChange.Store(&f) }

// changed tells of it. It is the store's OnView.
func (r *regions) changed() {
	if f := r.published.onChange.Load(); f != nil {
		(*f)()
	}
}

// RegionTable returns the region table of the node's own keys as the cluster may
// be told of it: a snapshot, with a version that rises with each difference that
// it shows. A region that is on its way out is in it as retired until it is
// gone. nil before Start. Tables of spaces are nobody else's: their rkeys come
// with their sessions only.
func (srv *Server) RegionTable(node string) *cluster.Table {
	srv = srv.root
	if !srv.serving.Load() {
		return nil
	}
	p := &srv.regions.published
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &cluster.Table{Node: node, Incarnation: srv.incarnation, Version: 1}
	devices := srv.deviceList()
	for _, d := range devices[:min(len(devices), cluster.MaxDevices)] {
		t.Devices = append(t.Devices, d.name())
	}
	add := func(state cluster.RegionState, list []layout.Region) {
		for _, reg := range list {
			r := cluster.Region{ID: reg.ID, Kind: uint8(reg.Kind), State: state, Base: reg.Base.Byte(), Length: reg.Length}
			for dev := range t.Devices {
				if w, ok := srv.regions.wire(dev, reg); ok {
					r.Keys = append(r.Keys, cluster.RemoteKey{Device: uint8(dev), RKey: w.RKey, Addr: w.Addr})
				}
			}
			t.Regions = append(t.Regions, r)
		}
	}
	// In this order: one that is retired in between is told as serving once more.
	retired := srv.store.RetiredRegions()
	add(cluster.Serving, srv.store.View().Regions)
	add(cluster.Retired, retired)
	slices.SortFunc(t.Regions, func(a, b cluster.Region) int { return int(a.ID) - int(b.ID) })
	if last := p.last; last != nil {
		same := func(a, b cluster.Region) bool { return a.Equal(&b) }
		if t.Version = last.Version; last.Node == t.Node && slices.EqualFunc(last.Regions, t.Regions, same) {
			return last
		}
		t.Version++
	}
	p.last = t
	return t
}
