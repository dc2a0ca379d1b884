package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/examples/internal/nic"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// The only message of rping, in both directions, big-endian:
//
//	 0              8        12       16
//	┌──────────────┬────────┬────────┐
//	│ address  u64 │rkey u32│size u32│
//	└──────────────┴────────┴────────┘
//
// From the client it names a buffer; from the server it means "go ahead", and its
// content is ignored.
const infoLen = 16

type info struct {
	addr uint64
	rkey uint32
	size uint32
}

func (i info) put(b []byte) {
	binary.BigEndian.PutUint64(b[0:], i.addr)
	binary.BigEndian.PutUint32(b[8:], i.rkey)
	binary.BigEndian.PutUint32(b[12:], i.size)
}

func parseInfo(b []byte) info {
	return info{binary.BigEndian.Uint64(b[0:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
}

// IDs of our work requests. They come back in the completions. There is never
// more than one of a kind under way, so the kind is enough to tell them apart.
const (
	idRecv = iota + 1 // the receive for the peer's next message
	idSend            // our message
	idData            // the READ or WRITE
)

// These say where things are in an end's registered memory.
const (
	offRecv = 0
	offSend = infoLen
)

// An end is one side of a connection: a queue pair and what it needs.
//
//	          ┌── CQ ◀── completions ──┐
//	program ──┤                        QP ═══ wire ═══ peer
//	          └── memory ◀─ MRs ───────┘
//
// Memory is divided into messages (never given to the peer) and data, one MR
// each: an MR's rights hold for all of it, and the peer shall see the data only.
type end struct {
	timeout time.Duration
	pd      rdma.PD
	cq      rdma.CQ
	qp      rdma.QP
	wait    *nic.Waiter
	blocks  []*mem.Block
	mrs     []rdma.MR
	msgs    rdma.MR
	sending bool // a message was posted, and its completion not yet asked for
}

// newEnd makes everything but the data buffers. access is what the peer may do
// through this queue pair, provided that a memory region allows it too: both
// must say yes.
func newEnd(dev rdma.Device, access rdma.Access, timeout time.Duration) (e *end, err error) {
	e = &end{timeout: timeout}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	// At most three work requests are ever outstanding (the IDs above), so a
	// CQ of 16 cannot overflow.
	if e.cq, err = dev.CreateCQ(16); err != nil {
		return e, err
	}
	e.wait = nic.NewWaiter(e.cq)
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{
		SendCQ: e.cq, RecvCQ: e.cq, Access: access,
		Cap: rdma.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSGE: 1},
	})
	if err != nil {
		return e, err
	}
	// A receive writes into our memory: local write. The peer gets no right.
	if e.msgs, err = e.register(2*infoLen, rdma.AccessLocalWrite); err != nil {
		return e, err
	}
	return e, e.postRecv()
}

// register maps memory and registers it. Registered memory is pinned: the card
// reads and writes it by physical address, at any time and without asking. So
// it must not be memory that Go's garbage collector owns.
func (e *end) register(size int, access rdma.Access) (rdma.MR, error) {
	b, err := mem.Alloc(size, mem.Options{Tag: "rping"})
	if err != nil {
		return nil, err
	}
	e.blocks = append(e.blocks, b)
	mr, err := e.pd.RegMR(b.Bytes(), access)
	if err != nil {
		return nil, err
	}
	e.mrs = append(e.mrs, mr)
	return mr, nil
}

// close gives everything back in the opposite order: a parent refuses to go
// while it has children, and memory must outlive its registration.
func (e *end) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	for _, mr := range e.mrs {
		errs = append(errs, mr.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	for _, b := range e.blocks {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

// postRecv offers the buffer for the peer's next message. It must be posted before
// the peer can possibly send: a SEND without a receive is "receiver not ready",
// which iWARP answers by ending the connection.
func (e *end) postRecv() error {
	_, err := e.qp.PostRecv([]rdma.RecvWR{{
		ID: idRecv, SGL: []rdma.SGE{{MR: e.msgs, Off: offRecv, Len: infoLen}},
	}})
	return err
}

// recv waits for the peer's next message and offers the buffer again.
func (e *end) recv(ctx context.Context) (info, error) {
	wc, err := e.done(ctx, "receive", idRecv)
	if err != nil {
		return info{}, err
	}
	// Copy first, post then: once posted, the buffer is the card's.
	got := parseInfo(e.msgs.Bytes()[offRecv:])
	if wc.ByteLen != infoLen {
		return info{}, fmt.Errorf("peer sent a message of %d bytes, not %d", wc.ByteLen, infoLen)
	}
	return got, e.postRecv()
}

// send posts one message. It waits for the message before, whose buffer it takes,
// and not for this one: the end that gets the last message of all may hang up at
// once, and then its completion is flushed although it has arrived.
func (e *end) send(ctx context.Context, i info) error {
	if e.sending {
		if _, err := e.done(ctx, rdma.OpSend.String(), idSend); err != nil {
			return err
		}
	}
	e.sending = true
	i.put(e.msgs.Bytes()[offSend:])
	_, err := e.qp.PostSend([]rdma.SendWR{{
		ID: idSend, Op: rdma.OpSend, Flags: rdma.SendSignaled,
		SGL: []rdma.SGE{{MR: e.msgs, Off: offSend, Len: infoLen}},
	}})
	return err
}

// post posts a READ or a WRITE and waits for its completion.
func (e *end) post(ctx context.Context, wr rdma.SendWR) error {
	if _, err := e.qp.PostSend([]rdma.SendWR{wr}); err != nil {
		return err
	}
	_, err := e.done(ctx, wr.Op.String(), wr.ID)
	return err
}

// done waits for one completion, within the time for a step.
func (e *end) done(ctx context.Context, what string, id uint64) (rdma.WC, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	wc, err := e.wait.Wait(ctx, id)
	switch {
	case err != nil:
		return wc, fmt.Errorf("%s: %w", what, err)
	case wc.Status != rdma.StatusSuccess:
		return wc, failed(what, e.qp, wc)
	}
	return wc, nil
}
