package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/rdmakv/rdmakv/rdma"
)

// A device is one opened RNIC with what the node made on it. There is one
// today; what must not be shared between devices stands here, so that a second
// fabric is one more element of Server.devices.
type device struct {
	srv      *Server
	index    int // in Server.devices and in slab.mrs
	dev      rdma.Device
	attr     rdma.DeviceAttr
	pd       rdma.PD // of slabs and buffers; one until there are tenants
	lanes    []*lane
	listener rdma.Listener

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
)

// openDevice opens the device and makes its PD; lanes and listener come later,
// when the store is open.
func (srv *Server) openDevice(ctx context.Context) (*device, error) {
	dev, err := srv.cfg.Fabric.Open(ctx, srv.cfg.Device)
	if err != nil {
		return nil, err
	}
	d := &device{srv: srv, index: len(srv.devices), dev: dev, attr: dev.Attr()}
	if d.pd, err = dev.AllocPD(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	d.shared = srv.cfg.SharedReceives == SharedOn ||
		srv.cfg.SharedReceives == SharedAuto && d.attr.Caps.Has(rdma.CapSRQ|rdma.CapRNR)
	if d.shared && !d.attr.Caps.Has(rdma.CapSRQ) {
		return nil, errors.Join(fmt.Errorf("server: shared receives: device %q has no SRQ: %w", dev.Name(), rdma.ErrNotSupported), d.close())
	}
	d.readDepth = clampLimit(maxReadDepth, d.attr.MaxQPInitRdAtom)
	d.sendDepth = clampLimit(srv.cfg.Credits+2, d.attr.MaxQPWR-d.readDepth)
	d.maxRead = clampLimit(maxReadPiece, int(min(uint64(d.attr.MaxMsgSize), maxReadPiece)))
	if srv.cfg.Credits+1 > d.attr.MaxQPWR && !d.shared {
		return nil, errors.Join(fmt.Errorf("server: credits = %d: device %q takes %d receives per QP", srv.cfg.Credits, dev.Name(), d.attr.MaxQPWR), d.close())
	}
	return d, nil
}

// clampLimit returns want, or a device's limit if that is lower; a device that
// names none has none.
func clampLimit(want, limit int) int {
	if limit <= 0 {
		return want
	}
	return min(want, limit)
}

// start makes the lanes and the listener.
func (d *device) start(ctx context.Context) error {
	n := runtime.GOMAXPROCS(0)
	for i := range n {
		l, err := newLane(d, i, n)
		if err != nil {
			return err
		}
		d.lanes = append(d.lanes, l)
	}
	var err error
	d.listener, err = d.dev.Listen(ctx, d.srv.cfg.Listen)
	return err
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
	if best == nil || int(best.sessions.Add(1)) > best.capacity {
		if best != nil {
			best.sessions.Add(-1)
		}
		return nil
	}
	return best
}

// close releases everything; sessions and regions must be gone. The listener
// has been closed by then.
func (d *device) close() error {
	var errs []error
	for _, l := range d.lanes {
		errs = append(errs, l.close())
	}
	if d.pd != nil {
		errs = append(errs, d.pd.Close())
	}
	return errors.Join(append(errs, d.dev.Close())...)
}
