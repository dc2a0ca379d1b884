package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Kinds of SENDs.
const (
	kindHello = iota + 1
	kindWelcome
	kindData
	kindCredit
	kindOffer
	kindPiece
	kindTaken
	kindEnd
	kindRefusal
	kindQuestion
	kindAnswer
	kindFailure
	kinds
)

// head is what every SEND begins with.
const head = 8

// A message is one SEND.
type message struct {
	kind  uint8
	last  bool
	value uint32
	body  []byte
}

// put writes a message's head in front of its body, which stands in b[head:] already.
func (m *message) put(b []byte) {
	b[0], b[1], b[2], b[3] = m.kind, 0, 0, 0
	if m.last {
		b[1] = 1
	}
	binary.LittleEndian.PutUint32(b[4:], m.value)
}

var errProtocol = errors.New("transport: the other node breaks the protocol")

// parse reads a message. Its body is a part of b.
func parse(b []byte) (message, error) {
	if len(b) < head || b[0] == 0 || b[0] >= kinds || b[1] > 1 || b[2] != 0 || b[3] != 0 {
		return message{}, fmt.Errorf("%w: % x", errProtocol, b[:min(len(b), head)])
	}
	return message{kind: b[0], last: b[1] == 1, value: binary.LittleEndian.Uint32(b[4:]), body: b[head:]}, nil
}

// A shape says what memory an end of a way has.
type shape struct {
	sends, sendSize int
	recvs, recvSize int
	extra           int // behind them: the pieces of a snapshot, or the sinks of READs
	kept            int // of recvs: for credits, which come without one, on a way whose ends both send by credits
}

// grants is how many SENDs the other end may send before this one says that it has receives again.
func (s shape) grants() int { return s.recvs - s.kept }

const (
	small      = 1 << 10 // of what is no data
	pieceBytes = 256 << 10
	pieces     = 2
	sinks      = 2 // of a receiver, a piece each: one is read by who takes the snapshot, the other one is filled meanwhile
)

// dials and accepts are the shapes of both ends of each lane. What one end sends fits the
// other end's receives, and there are as many of these as credits.
var (
	dials = map[wire.Lane]shape{
		wire.LaneUrgent: {4, 16 << 10, 4, small, 0, 0},
		wire.LaneBulk:   {8, 64 << 10, 4, small, 0, 0},
		wire.LaneState:  {4, 16 << 10, 4, small, pieces * pieceBytes, 0},
		wire.LaneAsk:    {4, 16 << 10, 10, 16 << 10, 0, 2},
	}
	accepts = map[wire.Lane]shape{
		wire.LaneUrgent: {4, small, 8, 16 << 10, 0, 0},
		wire.LaneBulk:   {4, small, 16, 64 << 10, 0, 0},
		wire.LaneState:  {4, small, 4, 16 << 10, sinks * pieceBytes, 0},
		wire.LaneAsk:    {4, 16 << 10, 10, 16 << 10, 0, 2},
	}
)

// An end is this node's end of a way: a queue pair, and what it needs.
type end struct {
	shape
	cq    rdma.CQ
	qp    rdma.QP
	block *mem.Block
	mr    rdma.MR

	free   []int     // send slots
	done   []rdma.WC // completions that nobody has looked at
	broken error     // the way has ended
	over   func()    // tells the transport that it is closed
	wcs    [16]rdma.WC
}

// IDs of work requests: which kind, and which slot.
const (
	idSend = iota << 32
	idRecv
	idRead
	idKind = ^(uint64(1)<<32 - 1)
)

// newEnd makes an end on a device.
func (t *Transport) newEnd(dev rdma.Device, s shape, access rdma.Access) (e *end, err error) {
	e = &end{shape: s}
	made := e
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	pd, err := t.begin(dev, e)
	if err != nil {
		return nil, err
	}
	if e.block, err = mem.Alloc(s.sends*s.sendSize+s.recvs*s.recvSize+s.extra, mem.Options{Tag: "peers"}); err != nil {
		return nil, err
	}
	rights := rdma.AccessLocalWrite | access
	if dev.Attr().Caps.Has(rdma.CapReadSinkWrite) {
		rights |= rdma.AccessRemoteWrite // and the queue pair does not grant it
	}
	if e.mr, err = pd.RegMR(e.block.Bytes(), rights); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(s.sends + s.recvs + 2); err != nil {
		return nil, err
	}
	e.qp, err = pd.CreateQP(rdma.QPConfig{
		SendCQ: e.cq, RecvCQ: e.cq, Access: access,
		Cap: rdma.QPCap{MaxSendWR: s.sends + 2, MaxRecvWR: s.recvs, MaxSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	if err = t.opened(dev, e); err != nil {
		return nil, err
	}
	for i := range s.sends {
		e.free = append(e.free, i)
	}
	for i := range s.recvs {
		if err = e.recv(i); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// close gives everything back. It may be called on an end that is not whole.
func (e *end) close() {
	if e.qp != nil {
		e.qp.Close()
	}
	if e.cq != nil {
		e.cq.Close()
	}
	if e.mr != nil {
		e.mr.Close()
	}
	if e.block != nil {
		e.block.Free()
	}
	if e.over != nil {
		e.over()
	}
}

// sendSlot is the memory of a SEND, recvSlot that of a receive; rest is behind them.
func (e *end) sendSlot(i int) []byte { return e.block.Bytes()[i*e.sendSize : (i+1)*e.sendSize] }
func (e *end) recvSlot(i int) []byte {
	off := e.recvOff(i)
	return e.block.Bytes()[off : off+e.recvSize]
}
func (e *end) recvOff(i int) int { return e.sends*e.sendSize + i*e.recvSize }
func (e *end) restOff() int      { return e.sends*e.sendSize + e.recvs*e.recvSize }
func (e *end) rest() []byte      { return e.block.Bytes()[e.restOff():] }

// recv posts a receive.
func (e *end) recv(i int) error {
	_, err := e.qp.PostRecv([]rdma.RecvWR{{ID: idRecv | uint64(i), SGL: []rdma.SGE{{MR: e.mr, Off: uint64(e.recvOff(i)), Len: uint32(e.recvSize)}}}})
	return err
}

// post sends a message whose body of n bytes stands in a slot. If it is signaled, poll gives the slot back when it has left; else it is
// free when one that is posted later and is signaled has.
func (e *end) post(slot, n int, m message, signaled bool) error {
	m.put(e.sendSlot(slot))
	flags := rdma.SendFlags(0)
	if signaled {
		flags = rdma.SendSignaled
	}
	_, err := e.qp.PostSend([]rdma.SendWR{{
		ID: idSend | uint64(slot), Op: rdma.OpSend, Flags: flags,
		SGL: []rdma.SGE{{MR: e.mr, Off: uint64(slot * e.sendSize), Len: uint32(head + n)}},
	}})
	return err
}

// say sends a message, when a slot is free.
func (e *end) say(ctx context.Context, m message) error {
	if len(m.body) > e.sendSize-head {
		return fmt.Errorf("transport: a message of %d bytes", len(m.body))
	}
	for len(e.free) == 0 {
		if err := e.poll(ctx); err != nil {
			return err
		}
	}
	slot := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return e.post(slot, copy(e.sendSlot(slot)[head:], m.body), m, true)
}

// poll waits for completions. It gives back the slots of SENDs, and keeps the others. An error
// says that the way has ended, or is that of ctx.
func (e *end) poll(ctx context.Context) error {
	if e.broken != nil {
		return e.broken
	}
	n, err := rdma.Await(ctx, e.cq, e.wcs[:])
	if err != nil {
		return err
	}
	for _, wc := range e.wcs[:n] {
		switch {
		case wc.Status != rdma.StatusSuccess:
			if e.broken = e.qp.Err(); e.broken == nil {
				e.broken = wc.Status.Err()
			}
			return e.broken
		case wc.ID&idKind == idSend:
			e.free = append(e.free, int(uint32(wc.ID)))
		default:
			e.done = append(e.done, wc)
		}
	}
	return nil
}

// next waits for the next completion that is none of a SEND.
func (e *end) next(ctx context.Context) (rdma.WC, error) {
	for len(e.done) == 0 {
		if err := e.poll(ctx); err != nil {
			return rdma.WC{}, err
		}
	}
	wc := e.done[0]
	e.done = append(e.done[:0], e.done[1:]...)
	return wc, nil
}

// hear waits for the next message, and returns the receive that it stands in.
func (e *end) hear(ctx context.Context) (m message, slot int, err error) {
	for {
		wc, err := e.next(ctx)
		if err != nil {
			return message{}, 0, err
		}
		if wc.ID&idKind != idRecv {
			continue
		}
		slot = int(uint32(wc.ID))
		m, err = parse(e.recvSlot(slot)[:wc.ByteLen])
		return m, slot, err
	}
}
