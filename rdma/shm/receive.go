//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math"

	"github.com/rdmakv/rdmakv/rdma"
)

// A receiver is the consumer of the peer's ring and what it is in the middle of.
// Under qp.rxMu.
type receiver struct {
	consumer
	live bool // connected: the channel is there and the QP not in ERR

	recv      recvWQE // being filled
	receiving bool
	got       uint32 // bytes of it
	readGot   uint32 // bytes of the oldest READ of ours
	stopped   bool   // a READ that may not be: nothing behind it is acted upon
}

// Bounds of one go at a ring by a poller: others have to be looked at, too.
const (
	glanceRecords = 64
	serveRecords  = 512
)

var (
	errShown        = errors.New("no such region, out of bounds, or not any more")
	errClosedRegion = errors.New("the region was closed")
)

// glance serves the ring if there is something in it and nobody else does.
func (q *qp) glance() {
	if !q.rxMu.TryLock() {
		return
	}
	if q.rx.live && q.rx.ready() {
		q.drain(glanceRecords)
	}
	q.rxMu.Unlock()
}

// serve empties the ring and goes to sleep: the peer is to wake us from now on.
// It is the socket's goroutine that does so, and whoever has polled.
func (q *qp) serve() {
	q.rxMu.Lock()
	defer q.rxMu.Unlock()
	q.settle(math.MaxInt)
	q.mu.Lock()
	if q.state != rdma.QPError {
		q.pump() // there may be room
	}
	q.mu.Unlock()
}

// settle empties the ring and goes to sleep, in so many goes; false if there is
// more. Behind a READ that may not be nothing is acted upon, so that there the
// ring stays as it is. Under rxMu.
func (q *qp) settle(goes int) bool {
	for q.rx.live && !q.rx.stopped {
		q.rx.h.asleep.Store(1)
		if !q.rx.ready() {
			return true
		}
		if goes--; goes < 0 {
			return false
		}
		q.drain(serveRecords)
	}
	return true
}

// claim says that somebody polls the ring: the peer need not wake us.
func (q *qp) claim() {
	if q.rxMu.TryLock() {
		if q.rx.live {
			q.rx.h.asleep.Store(0)
		}
		q.rxMu.Unlock()
	}
}

// unclaim ends that.
func (q *qp) unclaim() {
	q.rxMu.Lock()
	if !q.settle(1) {
		q.sockets.Go(q.serve) // live, so that finish has not waited for them yet
	}
	q.rxMu.Unlock()
}

// drain handles up to limit records. Under rxMu.
func (q *qp) drain(limit int) {
	for range limit {
		if q.rx.stopped || q.dying.Load() {
			q.rx.live = q.rx.live && !q.dying.Load()
			break
		}
		r, ok, err := q.rx.next()
		if err != nil {
			q.lose(violation(err))
			break
		}
		if !ok {
			break
		}
		if c := q.handle(&r); c != nil {
			q.lose(*c)
			break
		}
		q.rx.release(&r)
	}
	if q.rx.h.full.Load() != 0 && q.rx.h.full.Swap(0) != 0 {
		q.wake()
	}
}

// lose ends the connection and the looking into its ring.
func (q *qp) lose(c cause) {
	q.rx.live = false
	q.fail(c)
}

// handle acts on a record; nil or the end of the connection.
func (q *qp) handle(r *record) *cause {
	switch r.typ {
	case recSend:
		return q.onSend(r)
	case recWrite:
		return q.onWrite(r)
	case recRead:
		return q.onRead(r)
	case recResp:
		return q.onResponse(r)
	}
	return &cause{err: fmt.Errorf("%w: a record of type %d", rdma.ErrProtocol, r.typ), bye: byeProtocol}
}

// onSend places a piece of a SEND into a posted receive.
func (q *qp) onSend(r *record) *cause {
	rx := &q.rx
	if !rx.receiving {
		if !q.rq.take(&rx.recv) {
			return &cause{err: fmt.Errorf("%w: a SEND of the peer met no receive", rdma.ErrReceiverNotReady), bye: byeNotReady}
		}
		rx.receiving, rx.got = true, 0
		if !rx.recv.sgl.check(q.pd, rdma.AccessLocalWrite) {
			return badReceive()
		}
	}
	if uint64(rx.got)+uint64(len(r.payload)) > min(rx.recv.sgl.total, maxMsgSize) {
		return &cause{
			err:  fmt.Errorf("%w: a SEND of the peer is longer than the receive that it met (%d bytes)", rdma.ErrProtocol, rx.recv.sgl.total),
			recv: rdma.StatusLocLenErr, bye: byeProtocol,
		}
	}
	if len(r.payload) > 0 && !rx.recv.sgl.scatter(uint64(rx.got), r.payload) {
		return badReceive()
	}
	rx.got += uint32(len(r.payload))
	if r.flags&flagLast == 0 {
		if len(r.payload) == 0 {
			return emptyPiece()
		}
		return nil
	}
	wc := rdma.WC{ID: rx.recv.id, Op: rdma.OpRecv, QPN: q.num, ByteLen: rx.got}
	if r.flags&flagSolicit != 0 {
		wc.Flags = rdma.WCSolicited
	}
	rx.receiving = false
	q.recvCQ.push(wc)
	return nil
}

// emptyPiece is a piece that brings a message no further: a peer could keep us
// busy with them for ever.
func emptyPiece() *cause {
	return &cause{err: fmt.Errorf("%w: a piece of no bytes in the middle of a message", rdma.ErrProtocol), bye: byeProtocol}
}

// badReceive is a receive whose memory cannot be used: our own fault.
func badReceive() *cause {
	return &cause{
		err:  fmt.Errorf("%w: a posted receive names memory that is closed, of another protection domain, out of bounds or without the right", rdma.ErrLocal),
		recv: rdma.StatusLocProtErr, bye: byeLocal,
	}
}

// onWrite places a piece of a WRITE. Every piece names its place.
func (q *qp) onWrite(r *record) *cause {
	refuse := func(err error) *cause {
		c := forbidden("a WRITE of the peer", err)
		return &c
	}
	if rdma.Access(q.access.Load())&rdma.AccessRemoteWrite == 0 {
		return refuse(errors.New("the right was not granted"))
	}
	if len(r.payload) == 0 {
		if r.flags&flagLast == 0 {
			return emptyPiece()
		}
		return nil
	}
	m := q.pd.dev.mrs.get(uint32(r.a))
	switch {
	case r.a>>32 != 0, m == nil, m.pd != q.pd, m.access&rdma.AccessRemoteWrite == 0, !m.within(r.b, uint32(len(r.payload))):
		return refuse(errShown)
	case !m.acquire():
		return refuse(errClosedRegion)
	}
	copy(m.buf[r.b:], r.payload)
	m.release()
	return nil
}

// onRead notes what the peer wants to read. Whether it may is decided now, so
// that nothing behind a forbidden READ is acted upon, and again when it is
// served. The refusal itself waits: the READs before it get their answers first.
func (q *qp) onRead(r *record) *cause {
	p := response{key: uint32(r.a), addr: r.b, size: uint32(r.a >> 32)}
	if p.size > maxMsgSize {
		return &cause{err: fmt.Errorf("%w: a READ of %d bytes", rdma.ErrProtocol, p.size), bye: byeProtocol}
	}
	_, p.refused = q.admit(&p)
	q.rx.stopped = p.refused != nil
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == rdma.QPError {
		return nil
	}
	if len(q.resp) >= q.ird {
		return &cause{err: fmt.Errorf("%w: more READs at a time than the %d that were agreed on", rdma.ErrProtocol, q.ird), bye: byeProtocol}
	}
	q.resp = append(q.resp, p)
	q.pump()
	return nil
}

// admit decides whether the peer may read what it asks for: the right on the QP
// at this moment, the key, its PD, its right, and bounds without overflow.
func (q *qp) admit(r *response) (*mr, error) {
	if rdma.Access(q.access.Load())&rdma.AccessRemoteRead == 0 {
		return nil, errors.New("the right was not granted")
	}
	if r.size == 0 {
		return nil, nil
	}
	m := q.pd.dev.mrs.get(r.key)
	if m == nil || m.pd != q.pd || m.access&rdma.AccessRemoteRead == 0 || !m.within(r.addr, r.size) {
		return nil, errShown
	}
	return m, nil
}

// onResponse places a piece of the answer to our oldest READ.
func (q *qp) onResponse(r *record) *cause {
	rx := &q.rx
	q.mu.Lock()
	var w *sendWQE
	if len(q.reads) > 0 {
		w = q.reads[0]
	}
	q.mu.Unlock()
	if w == nil {
		if q.dying.Load() {
			return nil
		}
		return badResponse()
	}
	n := uint64(rx.readGot) + uint64(len(r.payload))
	last := r.flags&flagLast != 0
	if n > uint64(w.length) || last != (n == uint64(w.length)) {
		return badResponse()
	}
	if !last && len(r.payload) == 0 {
		return emptyPiece()
	}
	if len(r.payload) > 0 && !w.sgl.scatter(uint64(rx.readGot), r.payload) {
		return &cause{err: fmt.Errorf("%w: the sink of a READ was closed while it was under way", rdma.ErrLocal), status: rdma.StatusLocProtErr, bye: byeLocal}
	}
	rx.readGot = uint32(n)
	if !last {
		return nil
	}
	rx.readGot = 0
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == rdma.QPError {
		return nil
	}
	w.done = true
	q.reads = append(q.reads[:0], q.reads[1:]...)
	q.retire()
	q.pump()
	return nil
}

// badResponse is an answer that does not fit the READ: the oldest request says so.
func badResponse() *cause {
	return &cause{err: fmt.Errorf("%w: a READ response that fits no READ", rdma.ErrProtocol), status: rdma.StatusBadRespErr, bye: byeProtocol}
}

// hangup ends the connection once the peer has hung up. What it had sent before
// is heard first, as it would be from a wire.
func (q *qp) hangup(err error) {
	q.rxMu.Lock()
	defer q.rxMu.Unlock()
	// At most what a ring holds: whoever else has the memory could go on for ever.
	for left := ringSize / recordHeader; left > 0 && q.rx.live && !q.rx.stopped && q.rx.ready(); left -= serveRecords {
		q.drain(serveRecords)
	}
	if err != nil {
		q.lose(cause{err: err, bye: byeProtocol, status: rdma.StatusRetryExcErr})
		return
	}
	raceAcquire()
	last := bye(q.ch.in.bye.Load())
	q.mu.Lock()
	defer q.mu.Unlock()
	var oldest *sendWQE
	if q.sq.head != q.sq.tail {
		oldest = q.sq.at(q.sq.head)
	}
	q.rx.live = false
	q.failLocked(hungUp(last, oldest))
}
