package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// client is the active side:
//
//	rdma_create_id ─▶ rdma_resolve_addr  ─ ADDR_RESOLVED ─▶ rdma_resolve_route ─ ROUTE_RESOLVED ─▶
//	  ibv_create_qp, INIT, post receives ─▶ rdma_connect ─ CONNECT_RESPONSE ─▶
//	  RTR, RTS, rdma_establish ─▶ work ─▶ rdma_disconnect ─ DISCONNECTED ─▶ destroy
func client(ctx context.Context, to netip.AddrPort, c config, out io.Writer) (err error) {
	ev, err := newEvents(c, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ev.ch.Close()) }()

	// 1. An identifier is to the connection manager what a socket is to TCP.
	id, err := ev.ch.NewID()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()

	// 2. Ask which device leads to this address, and what its hardware address
	// is.
	fmt.Fprintf(out, "1 client: resolve the address %v\n", to)
	if err := id.ResolveAddr(netip.AddrPort{}, to, 2*time.Second); err != nil {
		return err
	}
	if _, err := ev.expect(ctx, ibv.CMAddrResolved); err != nil {
		return err
	}
	fmt.Fprintf(out, "        from now on the id belongs to device %s, port %d, our address %v\n", id.Device(), id.Port(), id.LocalAddr())

	// 3. Ask for the path. On InfiniBand the subnet manager is asked; on
	// Ethernet the answer is at hand.
	fmt.Fprintln(out, "2 client: resolve the route")
	if err := id.ResolveRoute(2 * time.Second); err != nil {
		return err
	}
	if _, err := ev.expect(ctx, ibv.CMRouteResolved); err != nil {
		return err
	}

	// 4. Now that the device is known, the objects can be made. The receive
	// for the server's answer is posted before the server can know of us.
	fmt.Fprintln(out, "3 client: open the device, make PD, MR, CQ and QP")
	e, err := newEndpoint(id.Device(), out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.toInit(id); err != nil {
		return err
	}

	// 5. The request carries our QP number, our packet number, what we offer
	// to serve, and up to 56 bytes of our own.
	fmt.Fprintf(out, "4 client: connect, with QP %#06x and private data\n", e.qp.Num())
	p := e.param()
	p.PrivateData = []byte("may I come in?")
	if err := id.Connect(p); err != nil {
		return err
	}
	// Because the queue pair is ours and not librdmacm's, the answer comes to
	// us before the connection is complete. An iWARP device completes it itself.
	answer, err := ev.expect(ctx, ibv.CMConnectResponse, ibv.CMEstablished)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "        the server says %q; its QP is %#06x\n", printable(answer.Param.PrivateData), answer.Param.QPNum)
	if answer.Type == ibv.CMConnectResponse {
		fmt.Fprintln(out, "5 client: QP to RTR and RTS, then tell the server (establish)")
		if err := e.toRTS(id); err != nil {
			return err
		}
		if err := id.Establish(); err != nil { // sends "ready to use"
			return err
		}
	}

	// 6. Work: one message each way.
	if err := e.send("ping"); err != nil {
		return err
	}
	fmt.Fprintln(out, `6 client: sent "ping"`)
	text, err := e.receive(ctx, c.timeout)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "        received %q\n", text)

	// 7. The end. Both sides are told; then each takes its objects down.
	fmt.Fprintln(out, "7 client: disconnect")
	if err := e.disconnect(id); err != nil {
		return err
	}
	_, err = ev.expect(ctx, ibv.CMDisconnected)
	return err
}
