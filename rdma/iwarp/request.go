package iwarp

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// A requester has the READs that were sent and are not completed.
type requester struct {
	q        *qp
	reads    int // at most ORD; under QP.Mu
	ring     readRing
	inFlight atomic.Int64 // the bytes of these READs, and perRead for each; written under QP.Mu
}

// A readRing records the READs under way, oldest first, for the reader: the
// responses come in the order of the requests. The transmitter pushes under
// QP.Mu; the reader looks at the front without a lock, which is why tail is
// atomic. Slots are reused only after retired, under QP.Mu, has passed them.
type readRing struct {
	slots   []*soft.SendWQE // length a power of two ≥ ORD; nil: an RTR READ
	whole   []uint32        // beside slots: the length of a READ with one sink, else 0
	tail    atomic.Uint64   // written by the transmitter
	head    uint64          // next expected: the reader's
	retired uint64          // under QP.Mu
}

func (r *readRing) push(w *soft.SendWQE) {
	t := r.tail.Load()
	r.slots[t&uint64(len(r.slots)-1)] = w
	n := uint32(0)
	if w != nil && w.SGL.Len() == 1 {
		n = w.Length
	}
	r.whole[t&uint64(len(r.whole)-1)] = n
	r.tail.Store(t + 1)
}

// due is how many bytes the response to the oldest READ has, if they go to one sink; else 0. It
// does not look at the READ, which is gone if the QP has died.
func (r *readRing) due() uint32 {
	if r.head == r.tail.Load() {
		return 0
	}
	return r.whole[r.head&uint64(len(r.whole)-1)]
}

// front is the oldest READ without its whole response.
func (r *readRing) front() (w *soft.SendWQE, ok bool) {
	if r.head == r.tail.Load() {
		return nil, false
	}
	return r.slots[r.head&uint64(len(r.slots)-1)], true
}

// placed counts n bytes of the oldest READ as placed; last ends it.
func (req *requester) placed(n uint32, last bool) {
	rx := &req.q.rx
	rx.readGot += n
	if last {
		rx.readGot = 0
		rx.readsDone++
		req.ring.head++
	}
}

// finish completes the READs whose responses are all there. The caller holds
// Mu.
func (req *requester) finish() {
	q := req.q
	n := q.rx.readsDone
	if n == 0 {
		return
	}
	q.rx.readsDone = 0
	req.reads -= n
	for ; n > 0; n-- {
		w := req.ring.slots[req.ring.retired&uint64(len(req.ring.slots)-1)]
		if w != nil {
			req.inFlight.Add(-perRead - int64(w.Length))
		}
		req.ring.slots[req.ring.retired&uint64(len(req.ring.slots)-1)] = nil
		req.ring.retired++
		if w != nil {
			w.Done = true
		}
	}
	q.RetireLocked()
}

// This file turns requests of the program into segments. All of it runs in the
// transmitter, under QP.Mu except where a function says otherwise.

// frameRTR appends the frame that opens a peer-to-peer connection.
func (tx *transmitter) frameRTR(tb *txBuffer) {
	q := tx.q
	dst, start := proto.BeginFPDU(tb.b)
	switch tx.rtr {
	case RTRWrite:
		dst = proto.AppendTagged(dst, proto.OpWrite, true, 0, 0)
	case RTRRead:
		tx.readMSN++
		dst = proto.AppendUntagged(dst, proto.OpReadRequest, true, proto.QueueRead, tx.readMSN, 0)
		dst = proto.AppendReadRequest(dst, proto.ReadRequest{})
		q.req.reads++
		q.req.ring.push(nil)
	}
	tb.b = proto.EndFPDU(dst, start, q.wire.crc)
	tx.rtr = 0
}

// frameRequest appends the next segment of the next request.
func (tx *transmitter) frameRequest(tb *txBuffer) bool {
	q := tx.q
	w := q.SQ.At(q.SQ.Next)
	if w.Op == rdma.OpRDMARead {
		return tx.frameRead(tb, w)
	}
	if w.Sent == 0 && w.Inline == nil && !w.SGL.Check(&q.pd.PD, 0) {
		q.failLocked(localFault(w.Op))
		return false
	}
	n := min(w.Length-w.Sent, uint32(q.wire.maxPayload))
	if w.Op == rdma.OpSend && w.Sent == 0 {
		tx.sendMSN++
	}
	if n >= copyUnlocked {
		tx.framing = true
		q.Mu.Unlock()
	}
	ok := tx.appendData(tb, w, n)
	if n >= copyUnlocked {
		q.Mu.Lock()
		tx.framing = false
		if q.StateLocked() == rdma.QPError {
			return false
		}
	}
	if !ok {
		q.failLocked(localFault(w.Op))
		return false
	}
	w.Sent += n
	if w.Sent == w.Length {
		w.Done = true
		q.SQ.Next++
	}
	return true
}

// appendData frames n bytes of a SEND or WRITE. It touches the program's
// memory, and runs with or without Mu.
func (tx *transmitter) appendData(tb *txBuffer, w *soft.SendWQE, n uint32) bool {
	dst, start := proto.BeginFPDU(tb.b)
	last := w.Sent+n == w.Length
	if w.Op == rdma.OpSend {
		op := proto.OpSend
		if w.Solicit {
			op = proto.OpSendSE
		}
		dst = proto.AppendUntagged(dst, op, last, proto.QueueSend, tx.sendMSN, w.Sent)
	} else {
		dst = proto.AppendTagged(dst, proto.OpWrite, last, w.Remote.RKey, w.Remote.Addr+uint64(w.Sent))
	}
	ok := true
	if w.Inline != nil {
		dst = append(dst, w.Inline[w.Sent:w.Sent+n]...)
	} else {
		at := len(dst)
		dst = dst[:at+int(n)] // txCap has room for every segment
		ok = w.SGL.Gather(dst[at:], uint64(w.Sent))
	}
	tb.b = proto.EndFPDU(dst, start, tx.q.wire.crc)
	return ok
}

// frameRead appends a READ request and records which response to expect.
func (tx *transmitter) frameRead(tb *txBuffer, w *soft.SendWQE) bool {
	q := tx.q
	if !w.SGL.Check(&q.pd.PD, rdma.AccessLocalWrite) {
		q.failLocked(localFault(w.Op))
		return false
	}
	stag, to := sinkOf(w)
	tx.readMSN++
	dst, start := proto.BeginFPDU(tb.b)
	dst = proto.AppendUntagged(dst, proto.OpReadRequest, true, proto.QueueRead, tx.readMSN, 0)
	dst = proto.AppendReadRequest(dst, proto.ReadRequest{
		SinkSTag: stag, SinkTO: to, Size: w.Length,
		SourceSTag: w.Remote.RKey, SourceTO: w.Remote.Addr,
	})
	tb.b = proto.EndFPDU(dst, start, q.wire.crc)
	q.req.reads++
	q.req.inFlight.Add(perRead + int64(w.Length))
	q.SQ.Next++
	q.req.ring.push(w)
	return true
}

// sinkOf is the tagged buffer that a READ names to the responder, which only
// echoes it. With several entries it is the first one, as if the others
// followed it: the responses are placed by the list.
func sinkOf(w *soft.SendWQE) (stag uint32, to uint64) {
	if w.SGL.Len() == 0 {
		return 0, 0
	}
	e := w.SGL.At(0)
	return e.MR.LKey(), e.Off
}
