package verbs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// resolve finds the addresses of host:port. An empty host is the unspecified
// address.
func resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: port %q is not a number within 0 and 65535", rdma.ErrInvalid, service)
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n))}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(n))}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		if ctx.Err() != nil {
			return nil, setup.CtxError(ctx)
		}
		return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	var list []netip.AddrPort
	for _, ip := range ips {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
	}
	// IPv4 first: it is what RoCE networks are numbered with.
	slices.SortStableFunc(list, func(a, b netip.AddrPort) int {
		switch {
		case a.Addr().Is4() == b.Addr().Is4():
			return 0
		case a.Addr().Is4():
			return -1
		}
		return 1
	})
	return list, nil
}

// Route names the device that reaches addr, as the kernel's routing table has
// it.
func (f *Fabric) Route(ctx context.Context, addr string) (rdma.Route, error) {
	fail := func(err error) (rdma.Route, error) { return rdma.Route{}, opError("route", addr, err) }
	if err := f.usable(); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.SetupTimeout)
	defer cancel()
	targets, err := resolve(ctx, addr)
	if err != nil {
		return fail(err)
	}
	var last error
	for _, to := range targets {
		r, err := f.routeTo(ctx, to)
		if err == nil {
			return r, nil
		}
		last = err
	}
	return fail(last)
}

// usable is nil if there are devices and the options are right.
func (f *Fabric) usable() error {
	if f.optErr != nil {
		return f.optErr
	}
	return f.Unavailable()
}

// routeTo finds the device that reaches an address: by librdmacm, or by the local
// address that packets to it leave from.
func (f *Fabric) routeTo(ctx context.Context, to netip.AddrPort) (rdma.Route, error) {
	if to.Addr().IsLoopback() {
		// librdmacm would name some device, on which no program can listen at this
		// address: on this host too a device is reached by its own.
		return rdma.Route{}, fmt.Errorf("%w: %v is no address of an RDMA device", rdma.ErrNoDevice, to.Addr())
	}
	local, err := localToward(ctx, to)
	if err != nil {
		return rdma.Route{}, err
	}
	var name string
	if f.opts.Connect == ConnectCM {
		name, err = f.cmRoute(ctx, to)
	} else {
		name, err = f.ownerByGID(local)
	}
	if err != nil {
		return rdma.Route{}, err
	}
	return rdma.Route{Device: name, Addr: to.String(), Reason: fmt.Sprintf("%s reaches %v from %v", name, to.Addr(), local)}, nil
}

// localToward is the address that packets to another one leave from. Making a
// UDP socket's connection looks at the routing table and sends nothing.
func localToward(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(to.Addr(), max(to.Port(), 1)).String())
	if err != nil {
		if ctx.Err() != nil {
			return netip.Addr{}, setup.CtxError(ctx)
		}
		return netip.Addr{}, fmt.Errorf("%w: no route: %w", rdma.ErrNoDevice, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// cmRoute asks librdmacm, which asks the kernel for route and neighbour.
func (f *Fabric) cmRoute(ctx context.Context, to netip.AddrPort) (string, error) {
	ec, err := ibv.NewEventChannel()
	if err != nil {
		return "", fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	defer ec.Close()
	id, err := ec.NewID()
	if err != nil {
		return "", classify(err)
	}
	defer id.Close()
	no := func(err error) (string, error) {
		return "", fmt.Errorf("%w: no RDMA device reaches %v: %w", rdma.ErrNoDevice, to.Addr(), err)
	}
	if err := id.ResolveAddr(netip.AddrPort{}, to, f.opts.SetupTimeout); err != nil {
		return no(err)
	}
	ev, err := ec.Get(ctx)
	switch {
	case ctx.Err() != nil:
		return "", setup.CtxError(ctx)
	case err != nil:
		return no(err)
	case ev.Type != ibv.CMAddrResolved:
		return no(eventError("the address cannot be resolved", ev.Status))
	}
	return id.Device(), nil
}

// Local names the devices that can listen at addr.
func (f *Fabric) Local(ctx context.Context, addr string) ([]rdma.Route, error) {
	fail := func(err error) ([]rdma.Route, error) { return nil, opError("local", addr, err) }
	if err := f.usable(); err != nil {
		return fail(err)
	}
	targets, err := resolve(ctx, addr)
	if err != nil {
		return fail(err)
	}
	wild := false
	if len(targets) == 1 && targets[0].Addr().IsUnspecified() {
		wild = true
		if targets, err = hostAddrs(targets[0]); err != nil {
			return fail(err)
		}
	}
	owner := f.ownerByGID
	if f.opts.Connect == ConnectCM {
		owner = f.ownerByBind
	}
	var routes []rdma.Route
	why := rdma.ErrNoDevice
	for _, at := range targets {
		name, err := owner(at.Addr())
		if err != nil {
			why = err
			continue
		}
		routes = append(routes, rdma.Route{Device: name, Addr: at.String(), Reason: fmt.Sprintf("%v is an address of %s", at.Addr(), name)})
	}
	if len(routes) == 0 {
		if wild {
			why = fmt.Errorf("%w: no address of this host is one of an RDMA device", rdma.ErrNoDevice)
		}
		return fail(why)
	}
	return routes, nil
}

// hostAddrs lists this host's addresses, of the family of any, with its port.
// Loopback and link-local addresses are left out: other hosts cannot use them.
func hostAddrs(any netip.AddrPort) ([]netip.AddrPort, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	var out []netip.AddrPort
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := p.Addr().Unmap()
		if !ip.IsGlobalUnicast() || any.Addr().Is4() && !ip.Is4() {
			continue
		}
		out = append(out, netip.AddrPortFrom(ip, any.Port()))
	}
	return out, nil
}

// ownerByBind asks librdmacm which device a local address belongs to, with a port
// of the kernel's choice.
func (f *Fabric) ownerByBind(ip netip.Addr) (string, error) {
	ec, err := ibv.NewEventChannel()
	if err != nil {
		return "", fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	defer ec.Close()
	id, err := ec.NewID()
	if err != nil {
		return "", classify(err)
	}
	defer id.Close()
	if err := id.Bind(netip.AddrPortFrom(ip, 0)); err != nil {
		return "", fmt.Errorf("%w: %v is no address of an RDMA device: %w", rdma.ErrNoDevice, ip, err)
	}
	name := id.Device()
	if name == "" {
		return "", fmt.Errorf("%w: %v belongs to no RDMA device", rdma.ErrNoDevice, ip)
	}
	return name, nil
}

// ownerByGID looks for a local address in the GID tables of all devices.
func (f *Fabric) ownerByGID(ip netip.Addr) (string, error) {
	list, err := f.list()
	if err != nil {
		return "", err
	}
	for _, d := range list {
		ports, err := f.look(d.Name)
		if err != nil {
			continue
		}
		for _, p := range ports {
			if slices.ContainsFunc(p.gids, func(g ibv.GIDEntry) bool { return matches(&g, ip) }) {
				return d.Name, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %v is not in the GID table of an RDMA device", rdma.ErrNoDevice, ip)
}
