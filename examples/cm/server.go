package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// server is the passive side:
//
//	rdma_create_id ─▶ rdma_bind_addr ─▶ rdma_listen ─ CONNECT_REQUEST, with a new id ─▶
//	  ibv_create_qp, INIT, post receives, RTR, RTS ─▶ rdma_accept ─ ESTABLISHED ─▶
//	  work ─ DISCONNECTED ─▶ rdma_disconnect ─▶ destroy
func server(ctx context.Context, at netip.AddrPort, c config, out io.Writer) (err error) {
	ev, err := newEvents(c, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ev.ch.Close()) }()
	id, err := ev.ch.NewID()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()

	// 1. The address says which device; a wildcard stands for all of them, and
	// then every request tells which one it came through.
	if err := id.Bind(at); err != nil {
		return err
	}
	if err := id.Listen(8); err != nil {
		return err
	}
	fmt.Fprintf(out, "1 server: bound and listening at %v\n", id.LocalAddr())

	for served := 0; c.count == 0 || served < c.count; served++ {
		// 2. A client may connect at any time, so this wait ends with ctx only.
		req, err := ev.ch.Get(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "        event %v, status %d\n", req.Type, req.Status)
		switch req.Type {
		case ibv.CMConnectRequest:
			if err := answer(ctx, ev, req, c, out); err != nil {
				return err
			}
		case ibv.CMDeviceRemoval:
			return errors.New("the device is being taken away")
		default: // TIMEWAIT_EXIT of an earlier client, for example
			served--
		}
	}
	return nil
}

// answer serves one client. The new id is ours to close.
func answer(ctx context.Context, ev *events, req ibv.CMEvent, c config, out io.Writer) (err error) {
	id := req.ID
	defer func() { err = errors.Join(err, id.Close()) }()
	fmt.Fprintf(out, "2 server: %v asks through device %s, says %q; its QP is %#06x\n",
		id.PeerAddr(), id.Device(), printable(req.Param.PrivateData), req.Param.QPNum)
	if c.reject {
		fmt.Fprintln(out, "3 server: reject")
		return id.Reject([]byte("not today"))
	}

	fmt.Fprintln(out, "3 server: open the device, make PD, MR, CQ and QP")
	e, err := newEndpoint(id.Device(), out)
	if err != nil {
		return errors.Join(err, id.Reject(nil))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	// All the way to RTS, receives posted, before we accept: the client sends
	// as soon as it has our answer.
	if err := e.toInit(id); err != nil {
		return errors.Join(err, id.Reject(nil))
	}
	if err := e.toRTS(id); err != nil {
		return errors.Join(err, id.Reject(nil))
	}
	p := e.param()
	p.PrivateData = []byte("welcome")
	if err := id.Accept(p); err != nil {
		return err
	}
	fmt.Fprintf(out, "4 server: QP %#06x is in RTS; accepted, with private data\n", e.qp.Num())
	if _, err := ev.expect(ctx, ibv.CMEstablished); err != nil {
		return err
	}

	text, err := e.receive(ctx, c.timeout)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "5 server: received %q\n", text)
	if err := e.send("pong"); err != nil {
		return err
	}
	fmt.Fprintln(out, `        sent "pong"`)

	// The client hangs up. Our queue pair does not notice by itself: it is we
	// that must answer, or outstanding work on it may stay so for ever.
	if _, err := ev.expect(ctx, ibv.CMDisconnected); err != nil {
		return err
	}
	fmt.Fprintln(out, "6 server: disconnect too, then destroy QP, CQ, MR, PD and id")
	return e.disconnect(id)
}

// printable is private data up to the first zero. On InfiniBand and RoCE it comes
// padded with zeros to the size of its field.
func printable(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
