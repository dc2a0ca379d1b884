package perf

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Options of Run. The zero value is fine.
type Options struct {
	// Stall ends a test in which nothing moves; 0 means 15 s.
	Stall time.Duration
	// Progress, if not nil, counts the measured messages while the test runs.
	Progress *atomic.Uint64
}

// setupTime bounds connecting and each exchange of control messages.
const setupTime = 10 * time.Second

// clientReceives is how many receives a client posts: a pong, or four Credits;
// a Ready or a Result; and some.
const clientReceives = 8

// A client is one test seen from the side that measures.
type client struct {
	*end
	Params
	opt    Options
	data   *region
	slots  uint64
	peer   ready
	wrs    []rdma.SendWR
	sges   []rdma.SGE
	sent   uint64 // messages posted, warm-up included
	credit uint64 // SENDs that the server has room for, since the start
}

// Run makes one test with the server at addr. It fills in and checks p. The
// error wraps rdma.ErrInvalid (parameters), rdma.ErrNotSupported (a capability
// is missing here), ErrRefused (the server refuses), or is a class of the
// connection's.
func Run(ctx context.Context, dev rdma.Device, addr string, p Params, opt Options) (res Result, err error) {
	p.Fill()
	if err := p.Check(); err != nil {
		return res, err
	}
	if err := p.capable(dev.Attr()); err != nil {
		return res, fmt.Errorf("device %s: %w", dev.Name(), err)
	}
	if opt.Stall <= 0 {
		opt.Stall = 15 * time.Second
	}
	recvSize := controlSize
	if p.Op == Send && p.Kind == Latency {
		recvSize = p.Size
	}
	if most := dev.Attr().MaxQPWR - controlSlots; p.Depth > most {
		return res, fmt.Errorf("%w: depth %d, device %s takes %d", rdma.ErrInvalid, p.Depth, dev.Name(), most)
	}
	e, err := newEnd(dev, p.Depth+1, clientReceives, p.Inline, p.Events)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	c := &client{end: e, Params: p, opt: opt, slots: uint64(slots(p.Size, p.Depth))}
	c.Inline = min(p.Inline, e.inline)
	if err := c.prepare(recvSize); err != nil {
		return res, err
	}
	info, err := c.connect(ctx, addr)
	if err != nil {
		return res, err
	}
	attr := dev.Attr()
	res = Result{
		Test: p.Name(), Fabric: attr.Fabric, Device: dev.Name(), Path: pathOf(info), Mode: "poll", Meaning: p.meaning(),
		Bytes: p.Size, Depth: p.Depth, Batch: p.Batch, SignalEvery: p.SignalEvery, Inline: c.Inline, Warmup: p.Warmup,
	}
	if p.Events || e.soft {
		res.Mode = "events"
	}
	watched, stop := c.watch(ctx, opt.Stall)
	defer stop()
	if p.Kind == Latency {
		err = c.latency(watched, &res)
	} else {
		err = c.bandwidth(watched, &res)
	}
	return res, err
}

// prepare makes the buffers and the work requests, and posts the receives.
func (c *client) prepare(recvSize int) (err error) {
	access := rdma.AccessLocalWrite
	if c.Op == Write && c.Kind == Latency || c.Op == Read && c.attr.Caps.Has(rdma.CapReadSinkWrite) {
		// The pong of a write_lat lands here; an iWARP card needs the right for
		// the sink of a READ.
		access |= rdma.AccessRemoteWrite
	}
	n := int(c.slots)
	if c.Op == Write && c.Kind == Latency {
		n = 2 // pongs land in the first, pings are sent from the second
	}
	if c.data, err = c.region(n*stride(c.Size), access); err != nil {
		return err
	}
	c.wrs, c.sges = make([]rdma.SendWR, c.Batch), make([]rdma.SGE, c.Batch)
	return c.postReceives(clientReceives, recvSize)
}

// ErrRefused: the server will not do the test; the text says why.
var ErrRefused = errors.New("perf: the server refuses")

// connect dials, says Hello and waits for the Ready.
func (c *client) connect(ctx context.Context, addr string) (rdma.ConnInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTime, fmt.Errorf("%w: no test within %v", rdma.ErrDeadline, setupTime))
	defer cancel()
	info, err := c.qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: header(nil, typeHello)})
	if err != nil {
		if r, bad := parseReady(unpadded(info.PrivateData)); errors.Is(err, rdma.ErrRejected) && bad == nil {
			return info, fmt.Errorf("%w: %s", ErrRefused, r.Reason)
		}
		return info, err
	}
	h := hello{Op: c.Op, Kind: c.Kind, Events: c.Events, Size: uint32(c.Size), Depth: uint32(c.Depth),
		Messages: c.Iterations + c.Warmup, Time: uint64(c.Duration)}
	if c.Duration > 0 {
		h.Messages = 0
	}
	if c.Op == Write && c.Kind == Latency {
		h.Addr, h.RKey = c.data.mr.Addr(), c.data.mr.RKey()
		if err := c.qp.SetAccess(rdma.AccessRemoteWrite); err != nil {
			return info, err
		}
	}
	if err := c.send(ctx, h.append); err != nil {
		return info, err
	}
	msg, err := c.answer(ctx)
	if err != nil {
		return info, fmt.Errorf("waiting for the server's answer: %w", err)
	}
	if c.peer, err = parseReady(msg); err != nil {
		return info, err
	}
	if c.peer.Status != statusOK {
		return info, fmt.Errorf("%w: %s", ErrRefused, c.peer.Reason)
	}
	if c.Op != Send && uint64(c.peer.Length) < uint64(stride(c.Size)) {
		return info, fmt.Errorf("%w: a scratch buffer of %d bytes", errRange, c.peer.Length)
	}
	if c.Op != Send {
		c.slots = min(c.slots, uint64(c.peer.Length)/uint64(stride(c.Size)))
	}
	c.credit = uint64(c.peer.Receives)
	return info, nil
}

// answer waits for a control message, which stays valid until the next call,
// and posts its receive again.
func (c *client) answer(ctx context.Context) ([]byte, error) {
	for {
		wc, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if wc.ID&idKind != idRecv {
			continue
		}
		msg := append([]byte(nil), c.received(wc)...)
		if err := c.repost(wc); err != nil {
			return nil, err
		}
		if typeOf(msg) == typeCredit {
			if err := c.addCredit(msg); err != nil {
				return nil, err
			}
			continue
		}
		return msg, nil
	}
}

// unpadded cuts the zeros off with which InfiniBand's connection manager fills
// up private data.
func unpadded(b []byte) []byte {
	for len(b) > readySize && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// addCredit takes a Credit. It refuses a server that gives back more than it
// got, because sending that much would flood the server.
func (c *client) addCredit(msg []byte) error {
	n, err := parseCount(msg, typeCredit)
	if err != nil {
		return err
	}
	if n > c.sent {
		return fmt.Errorf("%w: %d receives given back of %d", errRange, n, c.sent)
	}
	c.credit = max(c.credit, n+uint64(c.peer.Receives))
	return nil
}

// message makes message number i (from 0) in slot k of the batch.
func (c *client) message(k int, i uint64, flags rdma.SendFlags) {
	off := i % c.slots * uint64(stride(c.Size))
	wr := &c.wrs[k]
	*wr = rdma.SendWR{ID: idData | (i + 1), Flags: flags}
	switch c.Op {
	case Read:
		wr.Op = rdma.OpRDMARead
	case Write:
		wr.Op = rdma.OpRDMAWrite
	case Send:
		wr.Op = rdma.OpSend
	}
	if c.Op != Send {
		wr.Remote = rdma.RemoteAddr{Addr: c.peer.Addr + off, RKey: c.peer.RKey}
	}
	if c.Op == Write && c.Kind == Latency {
		off += uint64(stride(c.Size))
	}
	if c.Size <= c.Inline {
		wr.Flags |= rdma.SendInline
		wr.Inline = c.data.bytes()[off:][:c.Size]
		return
	}
	c.sges[k] = rdma.SGE{MR: c.data.mr, Off: off, Len: uint32(c.Size)}
	wr.SGL = c.sges[k : k+1]
}

// finish says Done and checks the server's account.
func (c *client) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTime, fmt.Errorf("%w: no result within %v", rdma.ErrDeadline, setupTime))
	defer cancel()
	if err := c.send(ctx, func(dst []byte) []byte { return appendCount(dst, typeDone, c.sent) }); err != nil {
		return err
	}
	msg, err := c.answer(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the server's result: %w", err)
	}
	r, err := parseResult(msg)
	if err != nil {
		return err
	}
	if c.Op == Send && (r.Messages != c.sent || r.Bytes != c.sent*uint64(c.Size)) {
		return fmt.Errorf("perf: %d messages of %d bytes were sent, the server got %d with %d bytes", c.sent, c.Size, r.Messages, r.Bytes)
	}
	return nil
}

// count shows how far the measurement is.
func (c *client) count(n uint64) {
	if c.opt.Progress != nil {
		c.opt.Progress.Store(n)
	}
}
