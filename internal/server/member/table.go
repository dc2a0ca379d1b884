package member

import (
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions is the memory that a table tells of.
type Regions interface {
	// Wire returns how clients READ a region by the device with index dev. false: not
	// by this one.
	Wire(dev int, reg layout.Region) (wire.Region, bool)
}

// Tables makes the region tables of a node. The zero value is ready. Safe for concurrent
// use.
type Tables struct {
	mu   sync.Mutex
	last *cluster.Table // nil: none made yet
}

// Make returns the region table of the node's own keys as the cluster may be told of it:
// a snapshot, with a version that rises with each difference that it shows. A region that
// is on its way out is in it as retired until it is gone. devices are the names of the
// node's devices in their order. Tables of spaces are not in it: their rkeys come
// with their sessions only.
func (p *Tables) Make(node string, st *store.Store, regions Regions, devices []string) *cluster.Table {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &cluster.Table{Node: node, Incarnation: st.Incarnation(), Version: 1}
	t.Devices = append(t.Devices, devices[:min(len(devices), cluster.MaxDevices)]...)
	add := func(state cluster.RegionState, list []layout.Region) {
		for _, reg := range list {
			r := cluster.Region{ID: reg.ID, Kind: uint8(reg.Kind), State: state, Base: reg.Base.Byte(), Length: reg.Length}
			for dev := range t.Devices {
				if w, ok := regions.Wire(dev, reg); ok {
					r.Keys = append(r.Keys, cluster.RemoteKey{Device: uint8(dev), RKey: w.RKey, Addr: w.Addr})
				}
			}
			t.Regions = append(t.Regions, r)
		}
	}
	// In this order: one that is retired in between is told as serving once more.
	retired := st.RetiredRegions()
	add(cluster.Serving, st.View().Regions)
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
