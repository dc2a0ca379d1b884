package rdma

import (
	"context"
	"fmt"
)

// A Router is a Fabric whose devices are tied to addresses: a RoCE port answers
// at the addresses of its network interface and nowhere else, and reaches what
// that interface reaches. A program that was not told which device to open asks
// the Router; OpenFor and OpenAt do it. A fabric that reaches every address from
// every device (iwarp) is no Router.
type Router interface {
	// Route names the device that reaches the host:port address addr. If none does,
	// it fails with ErrNoDevice, and the text says why. It sends nothing to addr,
	// but may ask the kernel for a route and a neighbour.
	Route(ctx context.Context, addr string) (Route, error)
	// Local names the devices that can listen at the host:port address addr,
	// each with the address to give to Device.Listen. A wildcard host ("",
	// "0.0.0.0", "::") stands for every address of every device.
	Local(ctx context.Context, addr string) ([]Route, error)
}

// A Route is a device and the address to use with it.
type Route struct {
	Device string // for Fabric.Open
	Addr   string // host:port: the peer's for Route, our own for Local
	Reason string // why this device, for the log
}

// OpenFor opens the device of f that reaches the host:port address addr, to
// connect to route.Addr. If f is a Router, that is the device that Route names,
// and route.Addr the address that it found for the host; otherwise f chooses the
// device, and route.Addr is addr.
//
// Nothing is sent to addr. The errors are those of Router.Route and Fabric.Open:
// ErrNoDevice if no device reaches addr, ErrInvalid if a Router is given an addr that
// is no address, ctx.Err(). A fabric that is no Router does not look at addr:
// QP.Connect and Device.Listen do. On an error no device is open. A program that was
// told which device to use calls Fabric.Open with its name.
func OpenFor(ctx context.Context, f Fabric, addr string) (dev Device, route Route, err error) {
	r, ok := f.(Router)
	if !ok {
		return openAny(ctx, f, addr)
	}
	if route, err = r.Route(ctx, addr); err != nil {
		return nil, Route{}, err
	}
	return openRoute(ctx, f, route)
}

// OpenAt opens the device of f that can listen at the host:port address addr,
// to listen at route.Addr. If f is a Router, that is the first one that Local
// names, and route.Addr one of its own addresses where the host of addr is a
// wildcard; otherwise f chooses the device, and route.Addr is addr.
//
// Its errors are those of Router.Local and Fabric.Open: see OpenFor.
func OpenAt(ctx context.Context, f Fabric, addr string) (dev Device, route Route, err error) {
	r, ok := f.(Router)
	if !ok {
		return openAny(ctx, f, addr)
	}
	local, err := r.Local(ctx, addr)
	if err != nil {
		return nil, Route{}, err
	}
	if len(local) == 0 {
		err := fmt.Errorf("%w: none can listen there", ErrNoDevice)
		return nil, Route{}, &OpError{Op: "open", Fabric: f.Name(), Addr: addr, Err: err}
	}
	return openRoute(ctx, f, local[0])
}

// openRoute opens the device of a route.
func openRoute(ctx context.Context, f Fabric, route Route) (Device, Route, error) {
	dev, err := f.Open(ctx, route.Device)
	if err != nil {
		return nil, Route{}, err
	}
	return dev, route, nil
}

// openAny opens the device that f chooses: each of them goes with every address.
func openAny(ctx context.Context, f Fabric, addr string) (Device, Route, error) {
	dev, err := f.Open(ctx, "")
	if err != nil {
		return nil, Route{}, err
	}
	return dev, Route{Device: dev.Name(), Addr: addr, Reason: dev.Attr().Reason}, nil
}

// A Path is what a connection runs over, for people and for diagnosis. Fields
// that a fabric does not have are zero.
type Path struct {
	Device   string // name of the device
	Port     int    // number of its port, from 1
	GID      string // of this end: "::ffff:10.0.0.1"
	GIDIndex int    // its place in the port's GID table
	GIDType  string // "RoCE v2", "RoCE v1", "IB"
	PeerGID  string // of the other end
	LID      int    // of the peer; InfiniBand only
	MTU      int    // bytes of payload in one packet
}
