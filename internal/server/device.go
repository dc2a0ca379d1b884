package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/rdma"
)

// devices are the RNICs that the node has opened, with its listeners on them.
type devices struct {
	srv *Server

	mu    sync.RWMutex // of slices that are replaced, never changed, once the node serves (away.go)
	list  []*device    // each opened once
	ports []*port      // in the order of Config.Listeners

	lost        chan struct{} // wakes run; room for one
	reopenFirst time.Duration // away.go; a test has it shorter
}

func newDevices(srv *Server) *devices {
	return &devices{srv: srv, lost: make(chan struct{}, 1), reopenFirst: reopenFirst}
}

// A device is an RNIC that the node has opened. Each space has a rail on it, with a PD
// and lanes of its own.
type device struct {
	*base.Device
	closed bool
	lost   error // why the memory of the main space is not registered with it

	cm      atomic.Pointer[cmState] // nil: not known (selfdial.go)
	mending bool                    // of devices.run

	stopChecks context.CancelFunc // ends selfDial.watch; nil if it was not begun
	checking   sync.WaitGroup
}

// open opens the device of a listener, and makes the main space's rail on it.
func (ds *devices) open(ctx context.Context, l Listener) (*device, *session.Rail, error) {
	dev, err := l.Fabric.Open(ctx, l.Device)
	if err != nil {
		return nil, nil, err
	}
	d := &device{Device: ds.opened(l.Fabric, l.Device, dev)}
	r, err := ds.srv.main.makeRail(d.Device)
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	ds.warnOfRights(d)
	return d, r, nil
}

// opened is a device that the node has opened.
func (ds *devices) opened(f rdma.Fabric, asked string, dev rdma.Device) *base.Device {
	return base.NewDevice(f, asked, dev, ds.srv.main.draining.Load, ds.noteLost)
}

// warnOfRights tells of a device that does not keep to the rights of queue pairs.
func (ds *devices) warnOfRights(d *device) {
	if d.Attr.Caps.Has(rdma.CapAccessIgnored) {
		ds.srv.log.Warn(base.LogAlways, "this device does not keep to the rights of queue pairs: whoever is connected and knows an rkey reads it, before he has authenticated too; without secret_file anybody may connect", "device", d.Name(), "because", d.Attr.Rights)
	} else if d.Attr.Caps.Has(rdma.CapNoRevoke) {
		ds.srv.log.Warn(base.LogAlways, "this device keeps rights of queue pairs that were taken away: a session loses them not before its queue pair is closed", "device", d.Name(), "because", d.Attr.Rights)
	}
}

// close closes the device. Listeners and the rails of all spaces are closed; a rail that
// is not keeps it open.
func (d *device) close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.Dev.Close()
}

// close closes all devices.
func (ds *devices) close() error {
	var errs []error
	for _, d := range ds.list {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// rails are what a space has made on the devices of the node: one rail on each.
type rails struct {
	mu   sync.RWMutex    // of the slice, which is replaced, never changed, once the space serves
	list []*session.Rail // by no order that others know: Rail.Index is its number in regions and staging
}

// all returns the rails as they are now; not to be changed.
func (rs *rails) all() []*session.Rail {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.list
}

// add adds a rail before the space is open.
func (rs *rails) add(r *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = append(rs.list, r)
}

// remove takes a rail out before the space serves.
func (rs *rails) remove(r *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = slices.DeleteFunc(slices.Clone(rs.list), func(o *session.Rail) bool { return o == r })
}

// of returns the rail on a device; nil if there is none.
func (rs *rails) of(opened *base.Device) *session.Rail {
	for _, r := range rs.all() {
		if r.Device == opened {
			return r
		}
	}
	return nil
}

// laneFor reserves a place for a session that comes by a device; nil if there is none.
func (rs *rails) laneFor(opened *base.Device) *session.Lane {
	if r := rs.of(opened); r != nil {
		return r.Pick()
	}
	return nil
}

// replace puts a rail in the place of the one with its index.
func (rs *rails) replace(fresh *session.Rail) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.list = slices.Clone(rs.list)
	for i, o := range rs.list {
		if o.Index == fresh.Index {
			rs.list[i] = fresh
		}
	}
}

// close closes all rails. Sessions, and the regions on them, are gone.
func (rs *rails) close() error {
	var errs []error
	for _, r := range rs.list {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// makeRail makes a rail with a PD of its own on a device. Its lanes come later, when the
// store is open.
func (sp *Space) makeRail(opened *base.Device) (*session.Rail, error) {
	return session.NewRail(sp.run, sp.sessions, opened, len(sp.rails.list))
}

// detach takes a device that is gone out of the registration of regions.
func (sp *Space) detach(opened *base.Device) error {
	if r := sp.rails.of(opened); r != nil {
		return sp.regions.Detach(r.Index)
	}
	return nil
}

// attach registers regions and staging memory with a new rail, and makes its lanes.
func (sp *Space) attach(ctx context.Context, r *session.Rail) error {
	if err := sp.regions.Attach(ctx, r.Index, r.PD); err != nil {
		return err
	}
	sp.staging.Attach(r.Index, memory.Sink{PD: r.PD, Attr: r.Attr})
	return r.MakeLanes(len(sp.rails.all()))
}
