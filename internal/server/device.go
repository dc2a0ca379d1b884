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
	r, err := ds.srv.main.MakeRail(d.Device)
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	ds.warnOfRights(d)
	return d, r, nil
}

// opened is a device that the node has opened.
func (ds *devices) opened(f rdma.Fabric, asked string, dev rdma.Device) *base.Device {
	return base.NewDevice(f, asked, dev, ds.srv.main.Draining.Load, ds.noteLost)
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
