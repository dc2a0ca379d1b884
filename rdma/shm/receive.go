//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// A receiver is the consumer of the peer's ring and what it is in the middle of.
// The consumer holds mu, which comes before QP.Mu.
type receiver struct {
	q  *qp
	mu sync.Mutex
	consumer
	live bool // connected: the channel is there and the QP not in ERR

	readGot uint32 // bytes of the oldest READ that this end has posted
	stopped bool   // a READ that is not allowed: nothing behind it is acted upon
}

// These bound how much a poller takes from one ring at once, because others have
// to be looked at, too.
const (
	glanceRecords = 64
	serveRecords  = 512
)

var (
	errShown        = errors.New("no such region, out of bounds, or not any more")
	errClosedRegion = errors.New("the region was closed")
)

// glance serves the ring if there is something in it and no other goroutine serves
// it.
func (rx *receiver) glance() {
	if !rx.mu.TryLock() {
		return
	}
	if rx.live && rx.ready() {
		rx.drain(glanceRecords)
	}
	rx.mu.Unlock()
}

// serve empties the ring and sets asleep: from now on the peer must wake this end.
// The socket's goroutine calls it, and a goroutine that has polled.
func (rx *receiver) serve() {
	q := rx.q
	rx.mu.Lock()
	defer rx.mu.Unlock()
	rx.settle(math.MaxInt)
	q.Mu.Lock()
	if q.StateLocked() != rdma.QPError {
		q.tx.pump() // there may be room
	}
	q.Mu.Unlock()
}

// settle empties the ring and sets asleep, in a bounded number of rounds; it
// returns false if there is more. Nothing behind a READ that is not allowed is
// acted upon, so there the ring stays as it is. The caller holds mu.
func (rx *receiver) settle(goes int) bool {
	for rx.live && !rx.stopped {
		rx.h.asleep.Store(1)
		if !rx.ready() {
			return true
		}
		if goes--; goes < 0 {
			return false
		}
		rx.drain(serveRecords)
	}
	return true
}

// claim says that a goroutine polls the ring: the peer need not wake us.
func (rx *receiver) claim() {
	if rx.mu.TryLock() {
		if rx.live {
			rx.h.asleep.Store(0)
		}
		rx.mu.Unlock()
	}
}

// unclaim ends that.
func (rx *receiver) unclaim() {
	rx.mu.Lock()
	if !rx.settle(1) {
		rx.q.sockets.Go(rx.serve) // rx is live, so finish has not waited for them yet
	}
	rx.mu.Unlock()
}

// drain handles up to limit records. The caller holds mu.
func (rx *receiver) drain(limit int) {
	q := rx.q
	for range limit {
		if rx.stopped || q.Dying() {
			rx.live = rx.live && !q.Dying()
			break
		}
		r, ok, err := rx.next()
		if err != nil {
			rx.lose(violation(err))
			break
		}
		if !ok {
			break
		}
		if c := rx.handle(&r); c != nil {
			rx.lose(*c)
			break
		}
		rx.release(&r)
	}
	if rx.h.full.Load() != 0 && rx.h.full.Swap(0) != 0 {
		q.wake()
	}
}

// lose ends the connection; its ring is not looked at any more.
func (rx *receiver) lose(c cause) {
	rx.live = false
	rx.q.fail(c)
}

// handle acts on a record; nil or the end of the connection.
func (rx *receiver) handle(r *record) *cause {
	switch r.typ {
	case recSend:
		return rx.onSend(r)
	case recWrite:
		return rx.onWrite(r)
	case recRead:
		return rx.onRead(r)
	case recResp:
		return rx.onResponse(r)
	}
	return &cause{soft.Cause{Err: fmt.Errorf("%w: a record of type %d", rdma.ErrProtocol, r.typ)}, byeProtocol}
}

// onSend places a piece of a SEND into a posted receive.
func (rx *receiver) onSend(r *record) *cause {
	q := rx.q
	if !q.Inbox.Receiving {
		if !q.RQ.Take(&q.Inbox.Recv) {
			return &cause{soft.Cause{Err: fmt.Errorf("%w: a SEND of the peer met no receive", rdma.ErrReceiverNotReady)}, byeNotReady}
		}
		q.Inbox.Receiving, q.Inbox.Got = true, 0
		if !q.Inbox.Recv.SGL.Check(&q.pd.PD, rdma.AccessLocalWrite) {
			return &cause{soft.BadReceive(), byeLocal}
		}
	}
	if uint64(q.Inbox.Got)+uint64(len(r.payload)) > min(q.Inbox.Recv.SGL.Total(), soft.MaxMsgSize) {
		return &cause{soft.Cause{
			Err:  fmt.Errorf("%w: a SEND of the peer is longer than the receive that it met (%d bytes)", rdma.ErrProtocol, q.Inbox.Recv.SGL.Total()),
			Recv: rdma.StatusLocLenErr,
		}, byeProtocol}
	}
	if len(r.payload) > 0 && !q.Inbox.Recv.SGL.Scatter(uint64(q.Inbox.Got), r.payload) {
		return &cause{soft.BadReceive(), byeLocal}
	}
	q.Inbox.Got += uint32(len(r.payload))
	if r.flags&flagLast == 0 {
		if len(r.payload) == 0 {
			return emptyPiece()
		}
		return nil
	}
	wc := rdma.WC{ID: q.Inbox.Recv.ID, Op: rdma.OpRecv, QPN: q.QPN(), ByteLen: q.Inbox.Got}
	if r.flags&flagSolicit != 0 {
		wc.Flags = rdma.WCSolicited
	}
	q.Inbox.Receiving = false
	q.RecvCQ.Push(wc)
	return nil
}

// emptyPiece is a piece that brings a message no further: a peer could send such
// pieces for ever.
func emptyPiece() *cause {
	return &cause{soft.Cause{Err: fmt.Errorf("%w: a piece of no bytes in the middle of a message", rdma.ErrProtocol)}, byeProtocol}
}

// onWrite places a piece of a WRITE. Every piece names its place.
func (rx *receiver) onWrite(r *record) *cause {
	q := rx.q
	refuse := func(err error) *cause {
		c := forbidden("a WRITE of the peer", err)
		return &c
	}
	if q.Access()&rdma.AccessRemoteWrite == 0 {
		return refuse(errors.New("the right was not granted"))
	}
	if len(r.payload) == 0 {
		if r.flags&flagLast == 0 {
			return emptyPiece()
		}
		return nil
	}
	m := q.pd.dev.Regions.Get(uint32(r.a))
	switch {
	case r.a>>32 != 0, m == nil, m.Owner() != &q.pd.PD, m.Access()&rdma.AccessRemoteWrite == 0, !m.Within(r.b, uint32(len(r.payload))):
		return refuse(errShown)
	case !m.Acquire():
		return refuse(errClosedRegion)
	}
	copy(m.Bytes()[r.b:], r.payload)
	m.Release()
	return nil
}

// onRead notes what the peer asks to read. Whether the peer may read it is decided
// now, so that nothing behind a forbidden READ is acted upon, and again when the
// READ is served. The refusal itself waits: the READs before it get their answers
// first.
func (rx *receiver) onRead(r *record) *cause {
	q := rx.q
	p := response{key: uint32(r.a), addr: r.b, size: uint32(r.a >> 32)}
	if p.size > soft.MaxMsgSize {
		return &cause{soft.Cause{Err: fmt.Errorf("%w: a READ of %d bytes", rdma.ErrProtocol, p.size)}, byeProtocol}
	}
	_, p.refused = rx.admit(&p)
	rx.stopped = p.refused != nil
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.StateLocked() == rdma.QPError {
		return nil
	}
	if len(q.tx.resp) >= q.IRD {
		return &cause{soft.Cause{Err: fmt.Errorf("%w: more READs at a time than the %d that were agreed on", rdma.ErrProtocol, q.IRD)}, byeProtocol}
	}
	q.tx.resp = append(q.tx.resp, p)
	q.tx.pump()
	return nil
}

// admit decides whether the peer may read what it asks for: the right on the QP
// at this moment, the key, its PD, its right, and bounds without overflow.
func (rx *receiver) admit(r *response) (*soft.MR, error) {
	q := rx.q
	if q.Access()&rdma.AccessRemoteRead == 0 {
		return nil, errors.New("the right was not granted")
	}
	if r.size == 0 {
		return nil, nil
	}
	m := q.pd.dev.Regions.Get(r.key)
	if m == nil || m.Owner() != &q.pd.PD || m.Access()&rdma.AccessRemoteRead == 0 || !m.Within(r.addr, r.size) {
		return nil, errShown
	}
	return m, nil
}

// onResponse places a piece of the answer to our oldest READ.
func (rx *receiver) onResponse(r *record) *cause {
	q := rx.q
	q.Mu.Lock()
	var w *soft.SendWQE
	if len(q.tx.reads) > 0 {
		w = q.tx.reads[0]
	}
	q.Mu.Unlock()
	if w == nil {
		if q.Dying() {
			return nil
		}
		return badResponse()
	}
	n := uint64(rx.readGot) + uint64(len(r.payload))
	last := r.flags&flagLast != 0
	if n > uint64(w.Length) || last != (n == uint64(w.Length)) {
		return badResponse()
	}
	if !last && len(r.payload) == 0 {
		return emptyPiece()
	}
	if len(r.payload) > 0 && !w.SGL.Scatter(uint64(rx.readGot), r.payload) {
		return &cause{soft.Cause{Err: fmt.Errorf("%w: the sink of a READ was closed while it was under way", rdma.ErrLocal), Send: rdma.StatusLocProtErr}, byeLocal}
	}
	rx.readGot = uint32(n)
	if !last {
		return nil
	}
	rx.readGot = 0
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.StateLocked() == rdma.QPError {
		return nil
	}
	w.Done = true
	q.tx.reads = append(q.tx.reads[:0], q.tx.reads[1:]...)
	q.RetireLocked()
	q.tx.pump()
	return nil
}

// badResponse is the end of the oldest READ when an answer does not fit it.
func badResponse() *cause {
	return &cause{soft.Cause{Err: fmt.Errorf("%w: a READ response that fits no READ", rdma.ErrProtocol), Send: rdma.StatusBadRespErr}, byeProtocol}
}

// hangup ends the connection once the peer has hung up. The messages that the peer
// had sent before are received first, as from a wire.
func (rx *receiver) hangup(err error) {
	q := rx.q
	rx.mu.Lock()
	defer rx.mu.Unlock()
	// The loop takes at most what a ring holds: another process that has the
	// memory could go on for ever.
	for left := ringSize / recordHeader; left > 0 && rx.live && !rx.stopped && rx.ready(); left -= serveRecords {
		rx.drain(serveRecords)
	}
	if err != nil {
		rx.lose(cause{soft.Cause{Err: err, Send: rdma.StatusRetryExcErr}, byeProtocol})
		return
	}
	raceAcquire()
	last := bye(q.ch.in.bye.Load())
	q.Mu.Lock()
	defer q.Mu.Unlock()
	var oldest *soft.SendWQE
	if q.SQ.Head != q.SQ.Tail {
		oldest = q.SQ.At(q.SQ.Head)
	}
	rx.live = false
	q.failLocked(hungUp(last, oldest))
}
