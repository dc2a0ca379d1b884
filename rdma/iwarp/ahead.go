package iwarp

import (
	"bytes"
	"encoding/binary"

	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// An ahead is what the receiver guesses of the bytes that come next: the segments of the READ
// response of which one has begun, so that one read of the socket puts several of them into the
// sink. A guess that is wrong costs a copy: what stands in the sink and belongs elsewhere is
// taken out of it into the buffer, in order, and is judged there as if it had come there. The
// first segment of a response is not guessed, because a READ that is refused leaves its sink as
// it was.
type ahead struct {
	n       int // of guesses
	guesses [aheadSegments]guess
	pieces  [][]byte // where one read puts its bytes, in order; at most aheadPieces
}

// A guess is a segment that is expected.
type guess struct {
	got, n uint32 // bytes of the response before it, and of its payload
	last   bool
	sink   []byte // where the payload goes
	header [directAhead]byte
	tail   int                                      // bytes of pad and CRC
	aside  [3 + proto.FPDUCRCLen + directAhead]byte // what comes behind the payload: these, and the next header
}

const (
	// aheadSegments bounds the segments of one guess, and aheadBytes their payload: if the
	// guess was wrong all of it must fit into the buffer, behind the end of a segment.
	aheadSegments = 8
	aheadBytes    = 96 << 10
	// aheadPieces: the payload under way, what is behind it, and two for each guess.
	aheadPieces = 2 + 2*aheadSegments
)

var _ [rxCap - aheadBytes - (aheadSegments+1)*(3+proto.FPDUCRCLen+directAhead)]struct{}

// expects reports whether the next bytes are best read by a plan: the rest of a segment, or
// while a long response is due the next header. The caller has no TLS.
func (rx *receiver) expects() bool {
	if rx.direct.w != nil {
		return true
	}
	n := rx.q.req.ring.due()
	return n > rx.readGot && n-rx.readGot >= directMin
}

// plan says where the next bytes go: the rest of the payload under way, what is behind it up to
// the end of the next header, and the segments that are guessed. sink is that of the READ under
// way, if there is one.
func (rx *receiver) plan(sink []byte) {
	if rx.start > 0 { // less than an FPDU
		rx.end = copy(rx.buf.b, rx.buf.b[rx.start:rx.end])
		rx.start = 0
	}
	a, d := &rx.buf.ahead, &rx.direct
	a.n, a.pieces = 0, a.pieces[:0]
	if d.left > 0 {
		a.pieces = append(a.pieces, sink[d.off:][:d.left])
	}
	behind := d.tail
	if d.w == nil && rx.end >= directAhead {
		// The begin of something else. It is read to its end and no further, or what follows would
		// have to be moved to the sink.
		behind = proto.FPDULen(int(binary.BigEndian.Uint16(rx.buf.b)))
	}
	a.pieces = append(a.pieces, rx.buf.b[rx.end:behind+directAhead])
	if d.w == nil || d.last {
		return
	}
	// Each segment is as long as this one, or ends the response.
	w := d.w
	stag, to := sinkOf(w)
	got, room := rx.readGot+d.length, uint32(aheadBytes)
	for got < w.Length && a.n < aheadSegments {
		n := min(d.length, w.Length-got)
		if n > room || n == 0 {
			return
		}
		g := &a.guesses[a.n]
		a.n++
		g.got, g.n, g.last, g.sink = got, n, got+n == w.Length, sink[got:][:n]
		size := proto.TaggedLen + int(n)
		proto.AppendTagged(proto.AppendFPDULength(g.header[:0], size), proto.OpReadResponse, g.last, stag, to+uint64(got))
		g.tail = proto.FPDULen(size) - proto.FPDULengthLen - size
		a.pieces = append(a.pieces, g.sink, g.aside[:g.tail+directAhead])
		got, room = got+n, room-n
	}
}

// placeAhead does what the n bytes say that came by the plan, up to the first of which the
// buffer has to judge.
func (rx *receiver) placeAhead(n int) *cause {
	a, d := &rx.buf.ahead, &rx.direct
	rest := a.pieces
	if d.left > 0 {
		k := min(n, d.left)
		d.placed(rest[0][:k], rx.q.wire.crc)
		n, rest = n-k, rest[1:]
		if d.left > 0 {
			return nil
		}
	}
	k := min(n, len(rest[0]))
	rx.end += k
	if n -= k; n == 0 {
		return nil
	}
	// Something has come that was guessed, so a segment was under way.
	rest = rest[1:]
	w := d.w
	rx.start = d.tail
	if bad := rx.finishDirect(rx.buf.b[:d.tail]); bad != nil {
		return bad
	}
	// The buffer has one header, and nothing else; n bytes are behind it.
	for i := range a.guesses[:a.n] {
		g := &a.guesses[i]
		if !bytes.Equal(rx.buf.b[rx.start:rx.end], g.header[:]) {
			rx.takeBack(rest, n)
			return nil
		}
		rx.start, rx.end = 0, 0
		*d = direct{w: w, off: uint64(g.got), left: int(g.n), tail: g.tail, length: g.n, last: g.last}
		if rx.q.wire.crc {
			d.sum = proto.Checksum(0, g.header[:])
		}
		k := min(n, d.left)
		d.placed(g.sink[:k], rx.q.wire.crc)
		if n -= k; d.left > 0 {
			return nil
		}
		behind := rest[1]
		rest = rest[2:]
		if n <= len(behind) {
			rx.end = copy(rx.buf.b, behind[:n])
			return nil
		}
		n -= len(behind)
		if bad := rx.finishDirect(behind[:g.tail]); bad != nil {
			return bad
		}
		rx.end = copy(rx.buf.b, behind[g.tail:])
	}
	return nil
}

// takeBack puts n bytes that were guessed wrongly behind what the buffer has.
func (rx *receiver) takeBack(pieces [][]byte, n int) {
	for _, p := range pieces {
		k := min(n, len(p))
		rx.end += copy(rx.buf.b[rx.end:], p[:k])
		n -= k
	}
}
