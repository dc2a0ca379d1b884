package iwarp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/rdmakv/rdmakv/rdma"
)

// The payload of a long segment of a READ response need not pass through the
// buffer: the rest of it is read from the socket right into the sink.
//
//	buffer    │len│header│payload so far│                     │pad│CRC│len│header│
//	                          │ copied
//	sink                      └─────────▶│ the rest, by recvmsg│
//
// That is before its CRC has been seen. Nothing is believed for it: the header
// must be, in every field, that of the one segment which is due, so that the
// bytes go where only a correct segment would have put them; and what a sink
// holds is undefined until its READ has completed, which it does not if the CRC
// is wrong. Whatever does not fit goes through the buffer, and is judged there.
type direct struct {
	w      *sendWQE // nil: none under way
	off    uint64   // in w's list, of the next byte
	left   int      // payload bytes to come
	tail   int      // bytes of pad and CRC behind them
	length uint32   // of the payload
	last   bool     // it ends the response
	sum    uint32   // CRC so far
}

const (
	// directMin is how many bytes must be missing to be worth it.
	directMin = 4 << 10
	// directAhead is read together with the end of a payload: the header of what
	// follows, which tells whether that can go directly, too.
	directAhead = fpduLengthLen + taggedLen
)

// beginDirect looks whether b, the begin of an FPDU of want bytes, can be
// completed directly; then it has taken all of b. While rxBusy is set.
func (q *qp) beginDirect(b []byte, want int) bool {
	if q.secure != nil || want-len(b) < directMin || len(b) < directAhead {
		return false
	}
	size := int(binary.BigEndian.Uint16(b))
	s, payload, bad := parseSegment(b[fpduLengthLen:])
	if bad != 0 || s.op != opReadResp || len(payload) > size-taggedLen {
		return false
	}
	w, ok := q.orq.front()
	if !ok || w == nil || w.sgl.n != 1 {
		return false
	}
	got, n := q.rx.readGot, uint32(size-taggedLen)
	stag, to := w.sink()
	total := uint64(got) + uint64(n)
	if s.stag != stag || s.to != to+uint64(got) || total > uint64(w.length) || s.last != (total == uint64(w.length)) {
		return false
	}
	if len(payload) > 0 && !w.sgl.scatter(uint64(got), payload) {
		return false
	}
	d := direct{w: w, off: uint64(got) + uint64(len(payload)), left: int(n) - len(payload), length: n, last: s.last}
	d.tail = want - fpduLengthLen - size
	if q.crc {
		d.sum = crc32.Update(0, castagnoli, b)
	}
	q.rx.direct = d
	return true
}

// readDirect reads once into the sink, and behind its end into the buffer. False:
// there is no sink any more, read into the buffer alone. Under rxMu.
func (q *qp) readDirect() (n int, more bool, err error, ok bool) {
	d := &q.rx.direct
	q.mu.Lock()
	if q.state == rdma.QPError {
		*d = direct{} // what comes now is forgotten
		q.mu.Unlock()
		return 0, false, nil, false
	}
	q.rxBusy = true
	q.mu.Unlock()

	var bad *cause
	e := d.w.sgl.at(0)
	if e.mr.within(e.off, e.len) && e.mr.acquire() {
		sink := e.mr.buf[e.off+d.off:][:d.left]
		space := q.space()
		n, more, err = q.rx.sock.readTwo(q.fd, sink, space[:min(d.tail+directAhead, len(space))])
		if k := min(n, d.left); err == nil && k > 0 {
			if q.crc {
				d.sum = crc32.Update(d.sum, castagnoli, sink[:k])
			}
			d.off += uint64(k)
			d.left -= k
			q.rx.end += n - k
		}
		e.mr.release()
	} else {
		bad = q.lostSink(nil)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.rxBusy = false
	if bad != nil {
		q.failLocked(*bad)
		*d = direct{}
	}
	q.settle()
	return n, more, err, bad == nil
}

// endDirect ends the segment once its pad and CRC are in the buffer. It returns
// false as long as they are not.
func (q *qp) endDirect() (done bool, bad *cause) {
	rx := &q.rx
	d := &rx.direct
	if d.left > 0 || rx.end-rx.start < d.tail {
		return false, nil
	}
	tail := rx.buf.b[rx.start : rx.start+d.tail]
	if q.crc {
		pad := d.tail - fpduCRCLen
		if crc32.Update(d.sum, castagnoli, tail[:pad]) != binary.LittleEndian.Uint32(tail[pad:]) {
			return true, violation(termCRC, nil)
		}
	}
	rx.start += d.tail
	q.placed(d.length, d.last)
	*d = direct{}
	return true, nil
}

// placed counts n bytes of the oldest READ as placed; last ends it.
func (q *qp) placed(n uint32, last bool) {
	rx := &q.rx
	rx.readGot += n
	if last {
		rx.readGot = 0
		rx.readsDone++
		q.orq.head++
	}
}

// lostSink is the end that a sink brings whose region was closed.
func (q *qp) lostSink(ulpdu []byte) *cause {
	c := violation(termDDPInvalidSTag, ulpdu)
	c.err = fmt.Errorf("%w: the sink of a READ was closed while it was under way", rdma.ErrLocal)
	c.status = rdma.StatusLocProtErr
	return c
}
