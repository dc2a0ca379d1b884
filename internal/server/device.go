package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// A device is one opened RNIC with what the node made on it: all that cannot be
// shared between devices. The slabs are registered with each.
type device struct {
	srv    *Server
	index  int // in slab.mrs and staging.sinks; no other device ever has it
	fabric rdma.Fabric
	asked  string // the name it was opened by; may be empty
	dev    rdma.Device
	attr   rdma.DeviceAttr
	pd     rdma.PD // of slabs and buffers
	shares bool    // dev is the node's: this device is a space's
	node   *device // the node's device of which this is a space's; else itself
	closed bool    // what was made on it is, and dev too unless it is shared

	away    atomic.Pointer[absence] // the hardware is gone (away.go); nil while it is there
	cm      atomic.Pointer[cmState] // nil: not known (selfdial.go)
	mending bool                    // of devicesLoop

	run     context.Context // of its lanes
	halt    context.CancelFunc
	running sync.WaitGroup

	stopChecks context.CancelFunc // ends checkLoop; nil if it was not begun
	checking   sync.WaitGroup

	lanes   []*lane
	laneErr error // why makeLanes failed
	lost    error // why the store's memory is not registered with it

	opens    atomic.Int32              // sessions that are open
	lastPath atomic.Pointer[rdma.Path] // of the one opened last

	shared    bool // sessions take receives from their lane's SRQ
	sendDepth int  // replies that one QP has posted at most
	readDepth int  // READs from one client that are in flight at most
	maxRead   int  // bytes of one READ
}

// maxReadDepth and maxReadPiece bound the READs of a rendezvous: beyond them
// more in flight brings nothing and holds more of the client's link.
const (
	maxReadDepth = 16
	maxReadPiece = 256 << 10
	// maxFetches is how many values of one client are READ at a time: enough
	// to keep its link busy, and no more than the device has READs in flight,
	// because each of them has one at least.
	maxFetches = 2
)

// openDevice opens the device of a listener and makes its PD; lanes and
// listeners come later, when the store is open.
func (srv *Server) openDevice(ctx context.Context, l Listener) (*device, error) {
	dev, err := l.Fabric.Open(ctx, l.Device)
	if err != nil {
		return nil, err
	}
	return srv.newDevice(l.Fabric, l.Device, dev, false)
}

// newDevice makes a PD on an opened device. A space shares it with the node and
// leaves it open; whatever it makes on it is in a PD of its own.
func (srv *Server) newDevice(f rdma.Fabric, asked string, dev rdma.Device, shares bool) (_ *device, err error) {
	d := &device{srv: srv, index: len(srv.devices), fabric: f, asked: asked, dev: dev, attr: dev.Attr(), shares: shares}
	d.node = d
	d.run, d.halt = context.WithCancel(srv.run)
	if d.pd, err = dev.AllocPD(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.shared = srv.cfg.SharedReceives == SharedOn ||
		srv.cfg.SharedReceives == SharedAuto && d.attr.Caps.Has(rdma.CapSRQ|rdma.CapRNR)
	if d.shared && !d.attr.Caps.Has(rdma.CapSRQ) {
		return nil, errors.Join(fmt.Errorf("server: shared receives: device %q has no SRQ: %w", dev.Name(), rdma.ErrNotSupported), d.close())
	}
	if d.attr.Caps.Has(rdma.CapAccessIgnored) && !shares {
		srv.log.Warn(limitNone, "this device does not keep to the rights of queue pairs: whoever is connected and knows an rkey reads it, before he has authenticated too; without secret_file anybody may connect", "device", d.name(), "because", d.attr.Rights)
	} else if d.attr.Caps.Has(rdma.CapNoRevoke) && !shares {
		srv.log.Warn(limitNone, "this device keeps rights of queue pairs that were taken away: a session loses them not before its queue pair is closed", "device", d.name(), "because", d.attr.Rights)
	}
	d.readDepth = clampLimit(maxReadDepth, d.attr.MaxQPInitRdAtom)
	d.sendDepth = clampLimit(srv.cfg.Credits+2, d.attr.MaxQPWR-d.readDepth)
	d.maxRead = clampLimit(maxReadPiece, int(min(uint64(d.attr.MaxMsgSize), maxReadPiece)))
	if srv.cfg.Credits+1 > d.attr.MaxQPWR && !d.shared {
		return nil, errors.Join(fmt.Errorf("server: credits = %d: device %q takes %d receives per QP", srv.cfg.Credits, dev.Name(), d.attr.MaxQPWR), d.close())
	}
	return d, nil
}

// name is FABRIC/DEVICE, as logs and statistics have it.
func (d *device) name() string { return d.attr.Fabric + "/" + d.dev.Name() }

// clampLimit returns want, or a device's limit if that is lower; a device that
// names none has none.
func clampLimit(want, limit int) int {
	if limit <= 0 {
		return want
	}
	return min(want, limit)
}

// makeLanes makes the lanes, if they are not there yet.
func (d *device) makeLanes() error {
	n := d.srv.cfg.Lanes
	for i := len(d.lanes); i < n && d.laneErr == nil; i++ {
		var l *lane
		if l, d.laneErr = newLane(d, i, n); d.laneErr == nil {
			d.lanes = append(d.lanes, l)
		}
	}
	return d.laneErr
}

// runLanes begins to poll.
func (d *device) runLanes() {
	for _, l := range d.lanes {
		d.running.Add(1)
		d.srv.lanes.Go(func() {
			defer d.running.Done()
			l.run(d.run)
		})
	}
}

// pick chooses the lane with the fewest sessions and reserves a place on it;
// nil if all are full.
func (d *device) pick() *lane {
	var best *lane
	for _, l := range d.lanes {
		if best == nil || l.sessions.Load() < best.sessions.Load() {
			best = l
		}
	}
	// Who takes a place looks then whether the device is gone; who closes it says so
	// first, and then waits until nobody has a place.
	if best == nil || int(best.sessions.Add(1)) > best.capacity || d.away.Load() != nil {
		if best != nil {
			best.sessions.Add(-1)
		}
		return nil
	}
	return best
}

// close releases everything; sessions and regions must be gone. The listeners
// have been closed by then.
func (d *device) close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	if d.halt != nil {
		d.halt()
		d.running.Wait()
	}
	var errs []error
	for _, l := range d.lanes {
		errs = append(errs, l.close())
	}
	if d.pd != nil {
		errs = append(errs, d.pd.Close())
	}
	if !d.shares {
		errs = append(errs, d.dev.Close())
	}
	return errors.Join(errs...)
}
