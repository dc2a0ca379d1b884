package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/rdma"
)

// devices are what the node, or a space of it, has made on each device; of the node, its
// listeners too.
type devices struct {
	srv *Server

	mu    sync.RWMutex // of slices that are replaced, never changed, once the node serves (away.go)
	list  []*device    // each opened once
	ports []*port      // of the node, in the order of Config.Listeners

	lost        chan struct{} // wakes run; room for one
	reopenFirst time.Duration // away.go; a test has it shorter
}

func newDevices(srv *Server) *devices {
	return &devices{srv: srv, lost: make(chan struct{}, 1), reopenFirst: reopenFirst}
}

// A device is what the node, or a space of it, has made on an opened RNIC: all that cannot
// be shared between devices. The slabs are registered with each.
type device struct {
	*base.Device
	*session.Rail
	srv    *Server
	shares bool  // the opened device is the node's: this one is a space's
	closed bool  // what was made on it is, and the opened device too unless it is shared
	lost   error // why the store's memory is not registered with it

	cm      atomic.Pointer[cmState] // nil: not known (selfdial.go)
	mending bool                    // of devices.run

	stopChecks context.CancelFunc // ends selfDial.watch; nil if it was not begun
	checking   sync.WaitGroup
}

// open opens the device of a listener and makes its PD; lanes and
// listeners come later, when the store is open.
func (ds *devices) open(ctx context.Context, l Listener) (*device, error) {
	srv := ds.srv
	dev, err := l.Fabric.Open(ctx, l.Device)
	if err != nil {
		return nil, err
	}
	return ds.make(openedDevice(srv, l.Fabric, l.Device, dev), false)
}

// openedDevice is a device that the node has opened.
func openedDevice(srv *Server, f rdma.Fabric, asked string, dev rdma.Device) *base.Device {
	return base.NewDevice(f, asked, dev, srv.draining.Load, srv.devices.noteLost)
}

// make makes a PD on an opened device. A space shares it with the node and
// leaves it open; whatever it makes on it is in a PD of its own.
func (ds *devices) make(opened *base.Device, shares bool) (_ *device, err error) {
	srv := ds.srv
	d := &device{Device: opened, srv: srv, shares: shares}
	if d.Rail, err = session.NewRail(srv.run, srv.sessions, opened, len(ds.list)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if d.Attr.Caps.Has(rdma.CapAccessIgnored) && !shares {
		srv.log.Warn(base.LogAlways, "this device does not keep to the rights of queue pairs: whoever is connected and knows an rkey reads it, before he has authenticated too; without secret_file anybody may connect", "device", d.Name(), "because", d.Attr.Rights)
	} else if d.Attr.Caps.Has(rdma.CapNoRevoke) && !shares {
		srv.log.Warn(base.LogAlways, "this device keeps rights of queue pairs that were taken away: a session loses them not before its queue pair is closed", "device", d.Name(), "because", d.Attr.Rights)
	}
	return d, nil
}

// makeLanes makes the lanes, if they are not there yet.
func (d *device) makeLanes() error { return d.Rail.MakeLanes(len(d.srv.devices.all())) }

// close releases everything; sessions and regions must be gone. The listeners
// have been closed by then.
func (d *device) close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	if d.Rail != nil {
		errs = append(errs, d.Rail.Close())
	}
	if !d.shares {
		errs = append(errs, d.Dev.Close())
	}
	return errors.Join(errs...)
}
