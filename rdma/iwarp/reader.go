package iwarp

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// A receiver is the incoming direction. It belongs to the goroutine that holds mu
// (look.go); over TLS it belongs to the reader goroutine.
type receiver struct {
	q  *qp
	mu sync.Mutex // comes before QP.Mu

	sock       sockReader
	buf        *rxBuffer // only while there are bytes
	start, end int       // unprocessed bytes of buf
	direct     direct

	ended  bool   // the reader goroutine has gone, or is about to
	sure   bool   // the last read has said that there is nothing, and no error either
	served uint64 // READ requests that have come

	begun   bool          // the first FPDU has come
	started chan struct{} // closed by it; nil if no goroutine waits for it
	stopped bool          // a READ was refused: nothing behind it counts
	rtr     RTR           // kind of frame that the peer was to begin with

	sendMSN uint32       // of the SEND under way, or the last complete one
	readMSN uint32       // of the last READ request
	recvOp  proto.Opcode // of the SEND whose buffer is QP.Inbox

	readGot   uint32 // bytes placed of the oldest READ
	readsDone int    // READs completed in this round

	// Under QP.Mu.
	busy bool // bytes are being placed
	gone bool // the reader goroutine has ended: the transmitter, if there is one, closes the socket
}

// rxCap holds two of the longest FPDUs, so that one always fits behind
// what is left of another.
const rxCap = 2 * proto.MaxFPDULen

// An rxBuffer holds what came from the socket, and what became of it in this
// round.
type rxBuffer struct {
	b     []byte
	wcs   []rdma.WC   // receive completions to push
	reads []askedRead // READ requests to queue
	ahead ahead
}

// rxBatchWCs is how many receive completions are collected before a push.
const rxBatchWCs = 64

var rxPool = sync.Pool{New: func() any {
	b := &rxBuffer{b: make([]byte, rxCap), wcs: make([]rdma.WC, 0, rxBatchWCs)}
	b.ahead.pieces = make([][]byte, 0, aheadPieces)
	return b
}}

// read is the reader goroutine: one RawConn.Read for the whole life of the
// connection, whose callback does the work and asks to be called again when
// the socket is readable.
func (rx *receiver) read() {
	q := rx.q
	defer q.Workers.Done()
	var err error
	if q.wire.secure != nil {
		err = rx.readSecure()
	} else {
		err = q.wire.raw.Read(rx.readable)
	}
	q.look.stop()
	q.Fail(lost("read", err)) // a QP that was dead before keeps its first cause
	q.Mu.Lock()
	defer q.Mu.Unlock()
	rx.gone = true
	if !q.tx.busy { // else a writer has the last bytes, until the deadline of HangUp
		_ = q.wire.conn.Close()
	}
}

// readable is the RawConn callback: it takes what the socket has. It returns
// false to be called again when there is more, true to end.
func (rx *receiver) readable(uintptr) bool {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	if rx.ended {
		return true
	}
	if rx.drain() == drainEnd || rx.q.look.attend() == drainEnd {
		return true
	}
	rx.q.look.doubt()
	return false
}

// Outcomes of drain.
const (
	drainEmpty = iota // the socket has no more
	drainSome         // it had something
	drainEnd          // the connection has no more
)

// drain reads until the socket is empty and does what the bytes say. The caller
// holds mu.
func (rx *receiver) drain() int {
	for {
		n, more, err := rx.fetch(true)
		rx.sure = err == syscall.EAGAIN
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			more = false
		case rx.took(n, err) == drainEnd:
			return drainEnd
		}
		if !more {
			if rx.start == rx.end && !rx.q.look.muted.Load() {
				rx.dropBuffer()
			}
			return drainEmpty
		}
	}
}

// glance reads once, for a goroutine that looks again soon: the kernel does not
// announce what stays in the socket. The caller holds mu.
func (rx *receiver) glance() int {
	n, _, err := rx.fetch(false)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return drainEmpty
	}
	return rx.took(n, err)
}

// fetch reads once, to where the next bytes belong. more is valid if the caller
// asked for it.
func (rx *receiver) fetch(more bool) (int, bool, error) {
	if rx.expects() {
		if n, more, err, ok := rx.readDirect(); ok {
			return n, more, err
		}
	}
	b := rx.space()
	if more {
		n, more, err := rx.sock.read(rx.q.wire.fd, b)
		rx.end += max(n, 0)
		return n, more, err
	}
	n, err := rx.sock.glance(rx.q.wire.fd, b)
	rx.end += max(n, 0)
	return n, false, err
}

// space is where the next bytes of the stream go if they have no other place.
func (rx *receiver) space() []byte {
	if rx.buf == nil {
		rx.buf = rxPool.Get().(*rxBuffer)
		rx.start, rx.end = 0, 0
	}
	return rx.buf.b[rx.end:]
}

// took does what the n bytes say that fetch has brought.
func (rx *receiver) took(n int, err error) int {
	switch {
	case err != nil:
		rx.q.Fail(lost("read", err))
		return drainEnd
	case n == 0:
		rx.q.Fail(lost("read", nil))
		return drainEnd
	case rx.direct.left > 0 && rx.readsDone == 0:
		return drainSome // nothing for a round yet
	}
	if !rx.round() {
		return drainEnd
	}
	return drainSome
}

func (rx *receiver) dropBuffer() {
	b := rx.buf
	b.wcs, b.reads = b.wcs[:0], b.reads[:0] // nothing of this connection goes to the next
	rx.buf = nil
	rx.start, rx.end = 0, 0
	rxPool.Put(b)
}

// round processes the complete FPDUs in the buffer and then does everything
// that needs the lock, once: completions, responses, requests that waited for
// these READs. It returns false when a dead QP has lingered long enough: a peer
// that never stops sending would not be stopped by the socket's deadline.
func (rx *receiver) round() bool {
	q := rx.q
	q.Mu.Lock()
	if q.StateLocked() == rdma.QPError || rx.stopped {
		defer q.Mu.Unlock()
		rx.start, rx.end = 0, 0 // read and forget
		return q.StateLocked() != rdma.QPError || time.Now().Before(q.wire.lingerEnd)
	}
	rx.busy = true
	q.Mu.Unlock()

	bad := rx.segments()
	reads := rx.readsDone
	burst := len(rx.buf.wcs) + reads
	rx.pushReceives()

	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.tx.burst = burst
	rx.served += uint64(len(rx.buf.reads))
	q.req.finish()
	if bad == nil {
		bad = q.resp.queue()
	}
	rx.buf.reads = rx.buf.reads[:0] // also those that a violation has voided
	rx.busy = false
	if rx.begun && q.tx.silent {
		q.tx.silent = false
	}
	if bad != nil {
		q.failLocked(bad)
	}
	q.settle() // if it failed meanwhile
	if reads >= burstMin && q.look.muted.Load() && !q.resp.ready() && q.StateLocked() == rdma.QPRTS {
		q.tx.ringing = true // more requests are coming: the next goroutine that looks rings for all
		q.tx.rings.Store(true)
		return true
	}
	q.tx.kick()
	return true
}

// segments handles FPDU after FPDU. The rest of the buffer is the start of an
// FPDU that has not come whole; segments moves it to the front if the FPDU would
// not fit.
func (rx *receiver) segments() *cause {
	for {
		if rx.direct.w != nil {
			done, bad := rx.endDirect()
			if bad != nil {
				return bad
			}
			if !done {
				return nil
			}
		}
		ulpdu, n, want, err := proto.NextFPDU(rx.buf.b[rx.start:rx.end], rx.q.wire.crc)
		if err != nil {
			return violation(proto.CodeCRC, nil)
		}
		if n == 0 {
			if rx.start == rx.end || rx.beginDirect(rx.buf.b[rx.start:rx.end], want) {
				rx.start, rx.end = 0, 0
			} else if rx.start+want > len(rx.buf.b) || rx.start+proto.FPDULengthLen > len(rx.buf.b) {
				rx.end = copy(rx.buf.b, rx.buf.b[rx.start:rx.end])
				rx.start = 0
			}
			return nil
		}
		if bad := rx.segment(ulpdu); bad != nil {
			return bad
		}
		rx.start += n
		if rx.stopped {
			return nil
		}
	}
}

// segment handles one DDP segment.
func (rx *receiver) segment(ulpdu []byte) *cause {
	first := !rx.begun
	if first {
		rx.begun = true
		if rx.started != nil {
			close(rx.started)
		}
		if len(ulpdu) == 0 && rx.rtr == RTRSend {
			return nil
		}
	}
	s, payload, bad := proto.ParseSegment(ulpdu)
	if bad != 0 {
		return violation(bad, ulpdu)
	}
	switch s.Op {
	case proto.OpSend, proto.OpSendSE:
		if first && rx.rtr == RTRSend && len(payload) == 0 && s.Last && s.MSN == 1 {
			rx.sendMSN = 1
			return nil // a zero-length SEND as RTR takes no receive
		}
		return rx.onSend(s, payload, ulpdu)
	case proto.OpSendInvalidate, proto.OpSendSEInvalidate:
		return violation(proto.CodeCannotInvalidate, ulpdu)
	case proto.OpReadResponse:
		return rx.onReadResponse(s, payload, ulpdu)
	case proto.OpReadRequest:
		return rx.onReadRequest(s, payload, ulpdu, first)
	case proto.OpWrite:
		return rx.onWrite(s, payload, ulpdu, first)
	}
	return rx.onTerminate(s, payload)
}

// onTerminate takes the peer's Terminate, the last message of a connection.
func (rx *receiver) onTerminate(s proto.Segment, payload []byte) *cause {
	t, ok := proto.ParseTerminate(payload)
	if !ok || s.MSN != 1 || s.MO != 0 || !s.Last {
		return &cause{Cause: soft.Cause{Err: fmt.Errorf("%w: malformed Terminate", rdma.ErrProtocol), Send: rdma.StatusGeneralErr}}
	}
	c := &cause{Cause: soft.Cause{
		Err:  fmt.Errorf("%w: the peer sent Terminate %v", t.Code.Class(), t.Code),
		Send: t.Code.Status(),
	}}
	// On queue 1, "no buffer" does not mean a missing receive: it means a READ
	// beyond IRD.
	if t.Code == proto.CodeNoBuffer && len(t.Header) >= proto.ControlLen && proto.Opcode(t.Header[1]&15) == proto.OpReadRequest {
		c.Err = fmt.Errorf("%w: the peer sent Terminate: more READs in flight than its IRD", rdma.ErrProtocol)
		c.Send = rdma.StatusGeneralErr
	}
	return c
}

// pushReceives hands over the receives completed in this round.
func (rx *receiver) pushReceives() {
	b := rx.buf
	if len(b.wcs) > 0 {
		rx.q.RecvCQ.Push(b.wcs...)
		b.wcs = b.wcs[:0]
	}
}
