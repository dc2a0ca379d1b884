package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// client connects and plays the rounds:
//
//	client                                     server
//	  │ SEND  "my text is at addr, rkey, size"   │
//	  ├─────────────────────────────────────────▶│
//	  │◀═══════════ RDMA READ of the text ═══════│   the client's program sleeps
//	  │◀───────────────────── SEND "go ahead" ───┤
//	  │ SEND  "write it to addr, rkey, size"     │
//	  ├─────────────────────────────────────────▶│
//	  │◀═══════════ RDMA WRITE of the text ══════│   the client's program sleeps
//	  │◀───────────────────── SEND "go ahead" ───┤
//	  ▼ next round
//
// The client never reads nor writes anything remote: it lets the server do so.
func client(ctx context.Context, dev rdma.Device, addr string, c Config, out io.Writer) (err error) {
	if !dev.Attr().Caps.Has(rdma.CapWrite) {
		return fmt.Errorf("%w: device %s does no RDMA WRITE", rdma.ErrNotSupported, dev.Name())
	}
	// The server is to READ and WRITE our memory. A program with something to
	// lose grants such rights only once it knows its peer.
	e, err := newEnd(dev, rdma.AccessRemoteRead|rdma.AccessRemoteWrite, c.Timeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	// Two regions, each with one right only. Remote write needs local write.
	source, err := e.register(c.Size, rdma.AccessRemoteRead)
	if err != nil {
		return err
	}
	sink, err := e.register(c.Size, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	if err != nil {
		return err
	}

	dial, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// The server reads from us one READ at a time: IRD 1 is all that we serve.
	conn, err := e.qp.Connect(dial, addr, rdma.ConnParams{IRD: 1, ORD: 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "client: connected to %v over %s (%s)\n", conn.RemoteAddr, dev.Attr().Fabric, dev.Name())

	start := time.Now()
	for n := 0; c.Count == 0 || n < c.Count; n++ {
		fill(source.Bytes(), n)
		if err := e.send(ctx, info{source.Addr(), source.RKey(), uint32(c.Size)}); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
		if _, err := e.recv(ctx); err != nil { // the server has read
			return fmt.Errorf("round %d: %w", n, err)
		}
		if err := e.send(ctx, info{sink.Addr(), sink.RKey(), uint32(c.Size)}); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
		// The message behind a WRITE is what tells that the data is there. To
		// watch the memory instead is wrong: the order in which bytes of a
		// WRITE become visible is not promised.
		if _, err := e.recv(ctx); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
		if c.Validate && !bytes.Equal(source.Bytes(), sink.Bytes()) {
			return fmt.Errorf("round %d: data mismatch: sent %q, got back %q", n, source.Bytes(), sink.Bytes())
		}
		if c.Verbose {
			fmt.Fprintf(out, "ping data: %s\n", text(sink.Bytes()))
		}
	}
	how := "not compared (-V compares)"
	if c.Validate {
		how = "data verified"
	}
	took := time.Since(start)
	fmt.Fprintf(out, "client: %d rounds of %d bytes, %s, %v each\n", c.Count, c.Size, how, (took / time.Duration(max(c.Count, 1))).Round(time.Microsecond/10))
	return nil
}

// fill writes the text of round n: a counter, letters that differ from round to
// round, and a zero at the end, for the server sends back what is in front of it.
func fill(b []byte, n int) {
	i := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	const first, letters = 'A', 'z' - 'A' + 1
	for j := n; i < len(b)-1; i, j = i+1, j+1 {
		b[i] = byte(first + j%letters)
	}
	b[len(b)-1] = 0
}

// text is what stands in front of the first zero.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
