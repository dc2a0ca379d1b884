package region

import "github.com/rdmakv/rdmakv/store/layout"

// replaceView publishes a view with the regions that change makes of the old
// ones, which it must leave as they are: a view is immutable. By the time it
// returns the new version stands in the beat line. Caller holds t.mu.
func (t *Table) replaceView(change func(old []layout.Region) []layout.Region) uint64 {
	v := *t.view.Load()
	v.Version++
	v.Regions = change(v.Regions)
	t.view.Store(&v)
	t.storeViewVersion(v.Version)
	return v.Version
}

// Bump raises the view version although the regions are the same: what clients
// fetch together with the table, or how they reach a region, has changed. They
// come for it when they see the beat, or by their next Ping. It returns the
// version.
func (t *Table) Bump() uint64 {
	defer t.changed() // after mu
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replaceView(func(old []layout.Region) []layout.Region { return old })
}

// changed tells who asked for it that there is a newer view.
func (t *Table) changed() {
	if t.cfg.OnView != nil {
		t.cfg.OnView()
	}
}
