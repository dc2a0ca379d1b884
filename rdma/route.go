package rdma

import "context"

// A Router is a Fabric whose devices are tied to addresses: a RoCE port answers
// at the addresses of its network interface and nowhere else, and reaches what
// that interface reaches. A program that was not told which device to open asks
// here. A fabric that reaches everything from every device (iwarp) is no Router.
type Router interface {
	// Route names the device that reaches the host:port address addr. It fails
	// with ErrNoDevice, and the text says why, if none does. It sends nothing
	// to addr, but may ask the kernel for a route and a neighbour.
	Route(ctx context.Context, addr string) (Route, error)
	// Local names the devices that can listen at the host:port address addr,
	// each with an address of its own. A wildcard host ("", "0.0.0.0", "::")
	// stands for every address of every device.
	Local(ctx context.Context, addr string) ([]Route, error)
}

// A Route is a device and the address to use with it.
type Route struct {
	Device string // for Fabric.Open
	Addr   string // host:port: the peer's for Route, our own for Local
	Reason string // why this device, for the log
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
