package space

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
)

// Rails are what a space has made on the devices of the node: one rail on each.
type Rails struct {
	mu   sync.RWMutex    // of the slice, which is replaced, never changed, once the space serves
	list []*session.Rail // in the order of the node's devices; Rail.Index is the number in regions and staging
}

// All returns the rails as they are now; not to be changed.
func (rs *Rails) All() []*session.Rail {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.list
}

// Add adds a rail before the space is open.
func (rs *Rails) Add(r *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = append(rs.list, r)
}

// Remove takes a rail out before the space serves.
func (rs *Rails) Remove(r *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = slices.DeleteFunc(slices.Clone(rs.list), func(o *session.Rail) bool { return o == r })
}

// Of returns the rail on a device; nil if there is none.
func (rs *Rails) Of(opened *base.Device) *session.Rail {
	for _, r := range rs.All() {
		if r.Device == opened {
			return r
		}
	}
	return nil
}

// LaneFor reserves a place for a session that comes by a device; nil if there is none.
func (rs *Rails) LaneFor(opened *base.Device) *session.Lane {
	if r := rs.Of(opened); r != nil {
		return r.Pick()
	}
	return nil
}

// Replace puts a rail in the place of the one with its index.
func (rs *Rails) Replace(fresh *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = slices.Clone(rs.list)
	for i, o := range rs.list {
		if o.Index == fresh.Index {
			rs.list[i] = fresh
		}
	}
}

// Close closes all rails. Sessions, and the regions on them, are gone.
func (rs *Rails) Close() error {
	var errs []error
	for _, r := range rs.list {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// MakeRail makes a rail with a PD of its own on a device. Its lanes come later, when the
// store is open.
func (sp *Space) MakeRail(opened *base.Device) (*session.Rail, error) {
	return session.NewRail(sp.run, sp.Sessions, opened, len(sp.Rails.list))
}

// Detach takes a device that is gone out of the registration of regions.
func (sp *Space) Detach(opened *base.Device) error {
	if r := sp.Rails.Of(opened); r != nil {
		return sp.Regions.Detach(r.Index)
	}
	return nil
}

// Attach registers regions and staging memory with a new rail, and makes its lanes.
func (sp *Space) Attach(ctx context.Context, r *session.Rail) error {
	if err := sp.Regions.Attach(ctx, r.Index, r.PD); err != nil {
		return err
	}
	sp.Staging.Attach(r.Index, memory.Sink{PD: r.PD, Attr: r.Attr})
	return r.MakeLanes(len(sp.Rails.All()))
}
