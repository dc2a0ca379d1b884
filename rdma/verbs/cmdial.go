package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// dialCM connects through librdmacm. With ErrRejected the info carries the
// peer's private data.
func (q *qp) dialCM(ctx context.Context, addr string, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	targets, err := resolve(ctx, addr)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	loop, err := q.pd.dev.loop()
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	var last error
	for _, to := range targets {
		c, err := q.pd.dev.reachFrom(ctx, loop, to)
		if err != nil {
			last = err
			if ctx.Err() != nil {
				break
			}
			continue // another address of the same host
		}
		if err = c.connect(ctx, q, ird, ord, private); err != nil {
			return rdma.ConnInfo{}, err
		}
		info, err := c.answered(ctx, q, ird, ord)
		if err != nil {
			loop.drop(c.id)
		}
		return info, err
	}
	return rdma.ConnInfo{}, last
}

// reachFrom resolves address and route, from an address of our device if it has
// one that leads to the target: where several NICs are in one subnet, the kernel's
// route alone leads to the first of them, whichever device was opened. If that
// fails the kernel chooses.
func (d *device) reachFrom(ctx context.Context, loop *cmLoop, to netip.AddrPort) (*cmConn, error) {
	from := d.source(ctx, to)
	return boundThenAny(ctx, from, func(ctx context.Context, from netip.AddrPort) (*cmConn, error) {
		return d.reach(ctx, loop, from, to)
	})
}

// boundThenAny reaches from an address and, if that fails, from any address that
// the kernel takes. The first attempt has half of the time that is left: an address
// without a host gives no error, so the first attempt could use up all the time.
func boundThenAny(ctx context.Context, from netip.Addr, reach func(context.Context, netip.AddrPort) (*cmConn, error)) (*cmConn, error) {
	if !from.IsValid() {
		return reach(ctx, netip.AddrPort{})
	}
	bound, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		bound, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	c, failed := reach(bound, netip.AddrPortFrom(from, 0))
	cancel()
	if failed == nil || ctx.Err() != nil {
		return c, failed
	}
	c, err := reach(ctx, netip.AddrPort{})
	if err != nil {
		err = fmt.Errorf("%w (and from %v: %v)", err, from, failed)
	}
	return c, err
}

// source is the address to connect to another one from: see pickSource; where a
// GID is asked for, that is the only one. None on InfiniBand and iWARP, whose GIDs
// are no IP addresses, and to the host itself by loopback.
func (d *device) source(ctx context.Context, to netip.AddrPort) netip.Addr {
	d.mu.Lock()
	p, chosen := d.port, d.gid
	d.mu.Unlock()
	if d.iwarp || p.attr.LinkLayer != ibv.LinkEthernet || to.Addr().IsLoopback() || to.Addr().IsLinkLocalUnicast() {
		return netip.Addr{}
	}
	if d.fabric.opts.GIDIndex >= 0 {
		p.gids = []ibv.GIDEntry{chosen}
	}
	return pickSource(p.gids, to.Addr(), subnets, func() netip.Addr {
		local, err := localToward(ctx, to)
		if err != nil {
			return netip.Addr{} // librdmacm says why there is no way
		}
		return local
	})
}

// pickSource chooses among the addresses of a GID table: the one in whose subnet
// the target is, by subnets, which tells those of a network interface; else, for a
// target behind a router, the one that the kernel's routing table has packets leave
// from, by routed. If that is none of the table no address is a safe choice: another
// address may be of a VLAN or a prefix that does not lead there.
func pickSource(gids []ibv.GIDEntry, to netip.Addr, subnets func(netdev string) []netip.Prefix, routed func() netip.Addr) netip.Addr {
	var usable []netip.Addr
	for _, g := range gids {
		a := gidAddr(g.GID)
		if !a.IsValid() || a.IsLinkLocalUnicast() || a.Is4() != to.Is4() {
			continue
		}
		for _, net := range subnets(g.NetDev) {
			if net.Addr() == a && net.Contains(to) {
				return a
			}
		}
		usable = append(usable, a)
	}
	if len(usable) > 0 {
		if a := routed(); slices.Contains(usable, a) {
			return a
		}
	}
	return netip.Addr{}
}

// subnets are the addresses of a network interface, with their prefixes.
func subnets(netdev string) []netip.Prefix {
	ifc, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return nil
	}
	var list []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ones, _ := n.Mask.Size()
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				list = append(list, netip.PrefixFrom(ip.Unmap(), ones))
			}
		}
	}
	return list
}

// reach resolves address and route. The kernel picks the device, and reach fails if
// it is not ours.
func (d *device) reach(ctx context.Context, loop *cmLoop, from, to netip.AddrPort) (_ *cmConn, err error) {
	o := &d.fabric.opts
	id, err := loop.ec.NewID()
	if err != nil {
		return nil, classify(err)
	}
	c := newCMConn(loop, id)
	loop.add(id, c)
	defer func() {
		if err != nil {
			loop.drop(id)
		}
	}()
	// Both are hints; old kernels have neither of them.
	_ = id.SetAckTimeout(o.Timeout)
	if o.TrafficClass != 0 {
		_ = id.SetTOS(o.TrafficClass)
	}
	if err := id.ResolveAddr(from, to, o.SetupTimeout); err != nil {
		return nil, fmt.Errorf("address: %w", unreachable(err))
	}
	if _, err := c.wait(ctx, "address", ibv.CMAddrResolved, nil); err != nil {
		return nil, err
	}
	if got := id.Device(); got != d.name {
		return nil, fmt.Errorf("%w: %v is reached by device %q, this is %s", rdma.ErrNoDevice, to.Addr(), got, d.name)
	}
	if err := id.ResolveRoute(o.SetupTimeout); err != nil {
		return nil, fmt.Errorf("route: %w", unreachable(err))
	}
	if _, err := c.wait(ctx, "route", ibv.CMRouteResolved, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// unreachable gives the kernel's error for an address its class. Whatever the error
// number is, it means that the address cannot be reached.
func unreachable(err error) error {
	err = classify(err)
	if errors.Is(err, rdma.ErrInvalid) || errors.Is(err, rdma.ErrProtocol) {
		return fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	return err
}

// connect sends the request. If it fails the identifier is destroyed, then or
// later: for iWARP the kernel connects TCP within the call, which may take it
// minutes, and no context reaches into it.
func (c *cmConn) connect(ctx context.Context, q *qp, ird, ord int, private []byte) error {
	err := c.adoptPort(q)
	if err != nil {
		c.loop.drop(c.id)
		return err
	}
	param := connParam(q, ird, ord, slices.Clone(private))
	if !q.pd.dev.iwarp {
		err = c.id.Connect(param)
	} else {
		var over atomic.Bool // set by the first of the two to end; the second drops the identifier
		done := make(chan error, 1)
		go func() {
			err := c.id.Connect(param)
			if !over.CompareAndSwap(false, true) {
				c.loop.drop(c.id)
			}
			done <- err
		}()
		select {
		case err = <-done:
		case <-ctx.Done():
			if over.CompareAndSwap(false, true) {
				return setupError(ctx, "rdma_connect", ctx.Err())
			}
			err = <-done
		}
	}
	if err != nil {
		c.loop.drop(c.id)
		return setupError(ctx, "rdma_connect", err)
	}
	return nil
}

// answered waits for the answer and brings the QP up.
func (c *cmConn) answered(ctx context.Context, q *qp, ird, ord int) (rdma.ConnInfo, error) {
	d := q.pd.dev
	want := ibv.CMConnectResponse
	if d.iwarp {
		want = ibv.CMEstablished
	}
	ev, err := c.wait(ctx, "waiting for the answer", want, nil)
	local, remote := tcpAddr(c.id.LocalAddr()), tcpAddr(c.id.PeerAddr())
	if err != nil {
		info := rdma.ConnInfo{}
		if errors.Is(err, rdma.ErrRejected) {
			info = rdma.ConnInfo{PrivateData: slices.Clone(ev.Param.PrivateData), LocalAddr: local, RemoteAddr: remote}
		}
		return info, err
	}
	ird, ord = d.agree(ird, ord, &ev.Param)
	path, err := c.bring(q, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	info := infoOf("librdmacm", slices.Clone(ev.Param.PrivateData), ird, ord, local, remote, path)
	if !d.iwarp {
		if err := c.id.Establish(); err != nil {
			return rdma.ConnInfo{}, fmt.Errorf("rdma_establish: %w", overtaken(err))
		}
	}
	if err := c.attach(q, info); err != nil {
		return rdma.ConnInfo{}, err
	}
	return info, nil
}

// connParam is what both ends tell the connection manager.
func connParam(q *qp, ird, ord int, private []byte) ibv.ConnParam {
	o := &q.pd.dev.fabric.opts
	return ibv.ConnParam{
		PrivateData: private, ResponderResources: uint8(ird), InitiatorDepth: uint8(ord),
		RetryCount: o.RetryCount, RNRRetryCount: o.RNRRetry, SRQ: q.srq != nil, QPNum: q.num,
	}
}

// agree takes the peer's depths into account. In an event they stand as this
// end sees them: initiator_depth is what the peer serves
// (rdma_get_cm_event(3)). An iWARP peer may say nothing.
func (d *device) agree(ird, ord int, p *ibv.ConnParam) (int, int) {
	if d.iwarp && p.InitiatorDepth == 0 && p.ResponderResources == 0 {
		return ird, ord
	}
	return agreed(ird, ord, int(p.InitiatorDepth), int(p.ResponderResources))
}

// adoptPort moves the QP to the port and partition that the connection uses, if
// these are not those that it was created with.
func (c *cmConn) adoptPort(q *qp) error {
	if q.pd.dev.iwarp {
		return nil
	}
	attr, _, err := c.id.InitQPAttr(ibv.QPSInit)
	if err != nil {
		return fmt.Errorf("rdma_init_qp_attr: %w", overtaken(err))
	}
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if err := q.toInit(attr.Port, attr.PKeyIndex); err != nil {
		return fmt.Errorf("INIT: %w", classify(err))
	}
	return nil
}

// overtaken gives an error of rdma_init_qp_attr(3) or rdma_establish(3) its class:
// the connection manager does both while the connection is in the right state, and
// says EINVAL when the peer has ended it meanwhile.
func overtaken(err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: the connection was ended while it was set up: %w", rdma.ErrPeerGone, classify(err))
	}
	return classify(err)
}

// bring moves the QP to RTS by what librdmacm knows of the path. On iWARP the
// kernel has done so.
func (c *cmConn) bring(q *qp, ird, ord int) (rdma.Path, error) {
	d := q.pd.dev
	if d.iwarp {
		return d.pathOf(&ibv.QPAttr{}), nil
	}
	rtr, rtrMask, err := c.id.InitQPAttr(ibv.QPSRTR)
	if err != nil {
		return rdma.Path{}, fmt.Errorf("rdma_init_qp_attr: %w", overtaken(err))
	}
	rts, rtsMask, err := c.id.InitQPAttr(ibv.QPSRTS)
	if err != nil {
		return rdma.Path{}, fmt.Errorf("rdma_init_qp_attr: %w", overtaken(err))
	}
	if err := q.bring(&rtr, &rts, rtrMask, rtsMask, ird, ord); err != nil {
		return rdma.Path{}, err
	}
	return d.pathOf(&rtr), nil
}

func tcpAddr(a netip.AddrPort) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}
