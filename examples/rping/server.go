package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/rdma"
)

// server listens, and serves one client, or with -P one after the other.
func server(ctx context.Context, dev rdma.Device, addr string, c Config, out io.Writer) (err error) {
	if !dev.Attr().Caps.Has(rdma.CapWrite) {
		return fmt.Errorf("%w: device %s does no RDMA WRITE", rdma.ErrNotSupported, dev.Name())
	}
	l, err := dev.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	fmt.Fprintf(out, "server: listening at %v over %s (%s)\n", l.Addr(), dev.Attr().Fabric, dev.Name())
	for {
		req, err := l.Accept(ctx)
		if ctx.Err() != nil && c.Persistent {
			return nil // interrupted: the usual end
		}
		if err != nil {
			return err
		}
		err = serve(ctx, dev, req, c, out)
		if !c.Persistent {
			return err
		}
		if err != nil { // one bad client does not end the service
			fmt.Fprintln(out, "server:", err)
		}
	}
}

// serve answers one client until it goes. The picture is at client.
func serve(ctx context.Context, dev rdma.Device, req rdma.ConnRequest, c Config, out io.Writer) (err error) {
	// The client needs no right in our memory, except that on an iWARP card
	// the response to our READ arrives like a WRITE by the peer.
	access, sinkAccess := rdma.Access(0), rdma.AccessLocalWrite
	if dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		access, sinkAccess = rdma.AccessRemoteWrite, sinkAccess|rdma.AccessRemoteWrite
	}
	e, err := newEnd(dev, access, c.Timeout) // posts the first receive: before Accept
	if err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	data, err := e.register(c.Size, sinkAccess)
	if err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	accept, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := req.Accept(accept, e.qp, rdma.ConnParams{IRD: 1, ORD: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "server: client %v\n", conn.RemoteAddr)

	rounds := 0
	for ; ; rounds++ {
		source, err := e.recv(ctx)
		if errors.Is(err, rdma.ErrFlushed) {
			break // the connection ended between two rounds: the usual end
		}
		if err == nil {
			err = e.round(ctx, source, data, c, out)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", rounds, err)
		}
	}
	<-e.qp.Done() // flushed, so the queue pair has died, and Err says why
	fmt.Fprintf(out, "server: %d rounds, then the connection ended: %v\n", rounds, e.qp.Err())
	return nil
}

// round reads what the client names first and writes it where the client says
// then. Both names come from the network: the sizes are compared with our own
// buffer before the card sees them. A wrong address or rkey needs no check here,
// it is the client's own memory and the client's own card refuses.
func (e *end) round(ctx context.Context, source info, data rdma.MR, c Config, out io.Writer) error {
	if source.size == 0 || uint64(source.size) > data.Len() {
		return fmt.Errorf("client has %d bytes to read, our buffer holds 1 to %d (-S)", source.size, data.Len())
	}
	err := e.post(ctx, rdma.SendWR{
		ID: idData, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
		SGL:    []rdma.SGE{{MR: data, Len: source.size}},
		Remote: rdma.RemoteAddr{Addr: source.addr, RKey: source.rkey},
	})
	if err != nil {
		return err
	}
	end := bytes.IndexByte(data.Bytes()[:source.size], 0)
	if end < 0 {
		return errors.New("the client's text has no zero at its end")
	}
	if c.Verbose {
		fmt.Fprintf(out, "server ping data: %s\n", data.Bytes()[:end])
	}
	if err := e.send(ctx, info{}); err != nil { // go ahead
		return err
	}

	sink, err := e.recv(ctx)
	if err != nil {
		return err
	}
	length := uint32(end + 1) // with the zero
	if sink.size < length {
		return fmt.Errorf("client has room for %d bytes, its text has %d", sink.size, length)
	}
	err = e.post(ctx, rdma.SendWR{
		ID: idData, Op: rdma.OpRDMAWrite, Flags: rdma.SendSignaled,
		SGL:    []rdma.SGE{{MR: data, Len: length}},
		Remote: rdma.RemoteAddr{Addr: sink.addr, RKey: sink.rkey},
	})
	if err != nil {
		return err
	}
	// The completion of the WRITE does not say that the client's memory holds
	// the data (on iWARP it proves almost nothing). But a message that is sent
	// behind it on the same queue pair arrives behind it.
	return e.send(ctx, info{})
}
