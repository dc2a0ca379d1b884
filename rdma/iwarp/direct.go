package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// The payload of a long segment of a READ response need not pass through the
// buffer: it is read from the socket right into the sink. That of the segment that has
// begun is known; the segments behind it are guessed (ahead.go), so that one system call
// takes several:
//
//	socket   │payload          │pad│CRC│len│header│payload          │pad│CRC│len│header│
//	          ▼                 ▼                  ▼                 ▼
//	          sink              buffer             sink              aside
//
// These bytes are placed before their CRC has been seen. That is safe for two
// reasons. The header must equal, in every field, that of the one segment which
// is due, or the bytes are taken back out of the sink and judged in the buffer. And
// the content of a sink is undefined until its READ has completed, which it does
// not if the CRC is wrong. Everything that does not fit goes through the buffer,
// and is judged there.
type direct struct {
	w      *soft.SendWQE // nil: none under way
	off    uint64        // in w's list, of the next byte
	left   int           // payload bytes to come
	tail   int           // bytes of pad and CRC behind them
	length uint32        // of the payload
	last   bool          // it ends the response
	sum    uint32        // CRC so far
}

const (
	// directMin is how many bytes must be missing to be worth it.
	directMin = 4 << 10
	// directAhead is how much is read together with the end of a payload: the
	// header of the next segment, which tells whether that one can go directly,
	// too.
	directAhead = proto.FPDULengthLen + proto.TaggedLen
)

// beginDirect looks whether b, the begin of an FPDU of want bytes, can be
// completed directly; if so it has taken all of b. The caller has set busy.
func (rx *receiver) beginDirect(b []byte, want int) bool {
	q := rx.q
	if q.wire.secure != nil || want-len(b) < directMin || len(b) < directAhead {
		return false
	}
	size := int(binary.BigEndian.Uint16(b))
	s, payload, bad := proto.ParseSegment(b[proto.FPDULengthLen:])
	if bad != 0 || s.Op != proto.OpReadResponse || len(payload) > size-proto.TaggedLen {
		return false
	}
	w, ok := q.req.ring.front()
	if !ok || w == nil || w.SGL.Len() != 1 {
		return false
	}
	got, n := rx.readGot, uint32(size-proto.TaggedLen)
	stag, to := sinkOf(w)
	total := uint64(got) + uint64(n)
	if s.STag != stag || s.TO != to+uint64(got) || total > uint64(w.Length) || s.Last != (total == uint64(w.Length)) {
		return false
	}
	if len(payload) > 0 && !w.SGL.Scatter(uint64(got), payload) {
		return false
	}
	rx.direct = direct{w: w, off: uint64(got), left: int(n), length: n, last: s.Last, tail: want - proto.FPDULengthLen - size}
	if q.wire.crc {
		rx.direct.sum = proto.Checksum(0, b[:directAhead])
	}
	rx.direct.placed(payload, q.wire.crc)
	return true
}

// placed notes that the next bytes of the payload are in the sink.
func (d *direct) placed(b []byte, crc bool) {
	if crc {
		d.sum = proto.Checksum(d.sum, b)
	}
	d.off += uint64(len(b))
	d.left -= len(b)
}

// readDirect reads once to where the bytes belong, as far as that is known or can be guessed,
// and into the buffer up to the end of a header. It returns false if there is no sink any
// more: then the caller reads into the buffer alone. The caller holds mu.
func (rx *receiver) readDirect() (n int, more bool, err error, ok bool) {
	q := rx.q
	q.Mu.Lock()
	if q.StateLocked() == rdma.QPError || rx.stopped {
		rx.direct = direct{} // what comes from here on is dropped
		q.Mu.Unlock()
		return 0, false, nil, false
	}
	rx.busy = true
	q.Mu.Unlock()

	var bad *cause
	var sink []byte
	var m *soft.MR
	if w := rx.direct.w; w != nil {
		if e := w.SGL.At(0); e.MR.Within(e.Off, e.Len) && e.MR.Acquire() {
			m, sink = e.MR, e.MR.Bytes()[e.Off:][:e.Len]
		} else {
			bad = rx.lostSink(nil)
		}
	}
	if bad == nil {
		rx.space()
		rx.plan(sink)
		if n, more, err = rx.sock.readMany(q.wire.fd, rx.buf.ahead.pieces); err == nil && n > 0 {
			bad = rx.placeAhead(n)
		}
		clear(rx.buf.ahead.pieces)
	}
	if m != nil {
		m.Release()
	}

	q.Mu.Lock()
	defer q.Mu.Unlock()
	rx.busy = false
	if bad != nil {
		q.failLocked(bad)
		rx.direct = direct{}
	}
	q.settle()
	return n, more, err, bad == nil
}

// endDirect ends the segment once its pad and CRC are in the buffer. It returns
// false as long as they are not.
func (rx *receiver) endDirect() (done bool, bad *cause) {
	d := &rx.direct
	if d.left > 0 || rx.end-rx.start < d.tail {
		return false, nil
	}
	tail := rx.buf.b[rx.start : rx.start+d.tail]
	rx.start += d.tail
	return true, rx.finishDirect(tail)
}

// finishDirect ends the segment, whose pad and CRC are tail.
func (rx *receiver) finishDirect(tail []byte) *cause {
	d := &rx.direct
	if rx.q.wire.crc {
		pad := len(tail) - proto.FPDUCRCLen
		if proto.Checksum(d.sum, tail[:pad]) != binary.LittleEndian.Uint32(tail[pad:]) {
			return violation(proto.CodeCRC, nil)
		}
	}
	rx.q.req.placed(d.length, d.last)
	*d = direct{}
	return nil
}

// lostSink is the end of a READ whose sink's region was closed.
func (rx *receiver) lostSink(ulpdu []byte) *cause {
	c := violation(proto.CodeDDPInvalidSTag, ulpdu)
	c.Err = fmt.Errorf("%w: the sink of a READ was closed while it was under way", rdma.ErrLocal)
	c.Send = rdma.StatusLocProtErr
	return c
}
