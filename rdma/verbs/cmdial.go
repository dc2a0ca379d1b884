package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

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
		c, err := q.reach(ctx, loop, to)
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
		info, err := q.answered(ctx, c, ird, ord)
		if err != nil {
			loop.drop(c.id)
		}
		return info, err
	}
	return rdma.ConnInfo{}, last
}

// reach resolves address and route. The kernel picks the device; it must be
// ours.
func (q *qp) reach(ctx context.Context, loop *cmLoop, to netip.AddrPort) (_ *cmConn, err error) {
	d := q.pd.dev
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
	from := netip.AddrPort{}
	if o.GIDIndex >= 0 {
		if a := gidAddr(d.gid.GID); a.Is4() == to.Addr().Is4() {
			from = netip.AddrPortFrom(a, 0)
		}
	}
	// Both are hints to old kernels, which have none of them.
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

// unreachable gives a refusal by the kernel to look for an address its class:
// there is no way to it, whatever the number.
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
	err := q.adoptPort(c.id)
	if err != nil {
		c.loop.drop(c.id)
		return err
	}
	param := q.connParam(ird, ord, slices.Clone(private))
	if !q.pd.dev.iwarp {
		err = c.id.Connect(param)
	} else {
		var over atomic.Bool // whoever is second drops the identifier
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
func (q *qp) answered(ctx context.Context, c *cmConn, ird, ord int) (rdma.ConnInfo, error) {
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
	path, err := q.bringCM(c.id, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	info := infoOf("librdmacm", slices.Clone(ev.Param.PrivateData), ird, ord, local, remote, path)
	if !d.iwarp {
		if err := c.id.Establish(); err != nil {
			return rdma.ConnInfo{}, fmt.Errorf("rdma_establish: %w", classify(err))
		}
	}
	if err := c.attach(q, info); err != nil {
		return rdma.ConnInfo{}, err
	}
	return info, nil
}

// connParam is what both ends tell the connection manager.
func (q *qp) connParam(ird, ord int, private []byte) ibv.ConnParam {
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
	return min(ird, int(p.ResponderResources)), min(ord, int(p.InitiatorDepth))
}

// adoptPort moves the QP to the port and partition that the connection uses, if
// these are not those that it was created with.
func (q *qp) adoptPort(id *ibv.CMID) error {
	if q.pd.dev.iwarp {
		return nil
	}
	attr, _, err := id.InitQPAttr(ibv.QPSInit)
	if err != nil {
		return fmt.Errorf("rdma_init_qp_attr: %w", classify(err))
	}
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if err := q.toInit(attr.Port, attr.PKeyIndex); err != nil {
		return fmt.Errorf("INIT: %w", classify(err))
	}
	return nil
}

// bringCM moves the QP to RTS by what librdmacm knows of the path. On iWARP the
// kernel has done so.
func (q *qp) bringCM(id *ibv.CMID, ird, ord int) (rdma.Path, error) {
	d := q.pd.dev
	if d.iwarp {
		return d.pathOf(&ibv.QPAttr{}), nil
	}
	rtr, rtrMask, err := id.InitQPAttr(ibv.QPSRTR)
	if err != nil {
		return rdma.Path{}, fmt.Errorf("rdma_init_qp_attr: %w", classify(err))
	}
	rts, rtsMask, err := id.InitQPAttr(ibv.QPSRTS)
	if err != nil {
		return rdma.Path{}, fmt.Errorf("rdma_init_qp_attr: %w", classify(err))
	}
	if err := q.bring(&rtr, &rts, rtrMask, rtsMask, ird, ord); err != nil {
		return rdma.Path{}, err
	}
	return d.pathOf(&rtr), nil
}

func tcpAddr(a netip.AddrPort) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}
