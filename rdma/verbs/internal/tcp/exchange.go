// Package tcp connects two queue pairs without a connection manager: over a TCP socket
// each end tells the other how its queue pair is reached, each moves its own to RTS,
// and the dialer says so. The socket stays open, because its end is the end of the
// peer. The package knows the bytes and their order; what a device must be told is
// behind the interface End. exchange.go has the bytes, dial.go and listen.go the two
// sides, link.go the socket of a connection.
package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// Frames of the exchange over TCP that connects two QPs by hand. All numbers
// are big-endian; the checksum is CRC32C over everything before it.
//
//	 0               4       5      6        8
//	+---------------+-------+------+--------+----------------+-----------+
//	| magic "RKQP"  | ver 1 | kind | length | body (length)  | CRC32C  4 |
//	+---------------+-------+------+--------+----------------+-----------+
//
// Body of a request and of a reply:
//
//	 0      4      8              24    26    27     28    29    30      31   32
//	+------+------+--------------+-----+-----+------+-----+-----+-------+----+---------+
//	| QPN  | PSN  | GID          | LID | MTU | link | IRD | ORD | GID   | 0  | private |
//	|      |      |              |     |     |      |     |     | type  |    | data    |
//	+------+------+--------------+-----+-----+------+-----+-----+-------+----+---------+
//
// A reject has private data only. Ready and bye are empty: the first says that
// the dialer's QP is in RTS, the second that an end closes.
const (
	fabric = "verbs" // in errors

	exchangeMagic   = 0x524b5150 // "RKQP"
	exchangeVersion = 1

	offKind      = 5
	offLength    = 6
	frameHeader  = 8
	frameSum     = 4
	endpointSize = 32
	// MaxPrivate is what a reply or reject may carry: as much as those of
	// the connection manager (rdma_accept(3), rdma_reject(3)).
	MaxPrivate = 148
	maxBody    = endpointSize + MaxPrivate

	maxQPN = 1<<24 - 1 // also of a PSN
)

type frameKind uint8

const (
	frameRequest frameKind = iota + 1
	frameReply
	frameReject
	frameReady
	frameBye
)

func (k frameKind) String() string {
	switch k {
	case frameRequest:
		return "request"
	case frameReply:
		return "reply"
	case frameReject:
		return "reject"
	case frameReady:
		return "ready"
	case frameBye:
		return "bye"
	}
	return fmt.Sprintf("frame %d", uint8(k))
}

// An Endpoint is what the other end must know of a QP.
type Endpoint struct {
	QPN, PSN uint32 // 24 bits each
	GID      ibv.GID
	LID      uint16
	MTU      ibv.MTU
	Link     ibv.LinkLayer
	IRD, ORD uint8 // READs that the end serves, and sends, at a time
	GIDType  ibv.GIDType
}

// A frame is one message of the exchange.
type frame struct {
	kind    frameKind
	end     Endpoint // of requests and replies
	private []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errExchange marks what is wrong with bytes of a peer.
var errExchange = fmt.Errorf("%w: queue pair exchange", rdma.ErrProtocol)

// append writes the frame.
func (f *frame) append(b []byte) []byte {
	start := len(b)
	be := binary.BigEndian
	b = be.AppendUint32(b, exchangeMagic)
	b = append(b, exchangeVersion, byte(f.kind), 0, 0)
	if f.kind == frameRequest || f.kind == frameReply {
		e := &f.end
		b = be.AppendUint32(b, e.QPN)
		b = be.AppendUint32(b, e.PSN)
		b = append(b, e.GID[:]...)
		b = be.AppendUint16(b, e.LID)
		b = append(b, byte(e.MTU), byte(e.Link), e.IRD, e.ORD, byte(e.GIDType), 0)
	}
	b = append(b, f.private...)
	be.PutUint16(b[start+offLength:], uint16(len(b)-start-frameHeader))
	return be.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// readFrame reads one frame, and not a byte more. Its private data is a copy.
func readFrame(r io.Reader) (frame, error) {
	var buf [frameHeader + maxBody + frameSum]byte
	if _, err := io.ReadFull(r, buf[:frameHeader]); err != nil {
		return frame{}, err
	}
	be := binary.BigEndian
	if m := be.Uint32(buf[:]); m != exchangeMagic {
		return frame{}, fmt.Errorf("%w: the peer speaks something else (%#x)", errExchange, m)
	}
	if v := buf[4]; v != exchangeVersion {
		return frame{}, fmt.Errorf("%w: version %d, this end speaks %d", errExchange, v, exchangeVersion)
	}
	n := int(be.Uint16(buf[offLength:]))
	if n > maxBody {
		return frame{}, fmt.Errorf("%w: a frame of %d bytes", errExchange, n)
	}
	all := buf[:frameHeader+n+frameSum]
	if _, err := io.ReadFull(r, all[frameHeader:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	body := all[frameHeader : frameHeader+n]
	if sum := be.Uint32(all[frameHeader+n:]); sum != crc32.Checksum(all[:frameHeader+n], castagnoli) {
		return frame{}, fmt.Errorf("%w: checksum of a frame", errExchange)
	}
	return parseFrame(frameKind(buf[offKind]), body)
}

// parseFrame checks a body.
func parseFrame(kind frameKind, body []byte) (frame, error) {
	f := frame{kind: kind}
	switch kind {
	case frameReject:
		if len(body) > MaxPrivate {
			return frame{}, fmt.Errorf("%w: a reject with %d bytes", errExchange, len(body))
		}
		f.private = append([]byte(nil), body...)
		return f, nil
	case frameReady, frameBye:
		if len(body) != 0 {
			return frame{}, fmt.Errorf("%w: %v with %d bytes", errExchange, kind, len(body))
		}
		return f, nil
	case frameRequest, frameReply:
	default:
		return frame{}, fmt.Errorf("%w: %v", errExchange, kind)
	}
	if len(body) < endpointSize {
		return frame{}, fmt.Errorf("%w: %v with %d bytes", errExchange, kind, len(body))
	}
	be := binary.BigEndian
	f.end = Endpoint{
		QPN: be.Uint32(body), PSN: be.Uint32(body[4:]), GID: ibv.GID(body[8:24]), LID: be.Uint16(body[24:]),
		MTU: ibv.MTU(body[26]), Link: ibv.LinkLayer(body[27]), IRD: body[28], ORD: body[29], GIDType: ibv.GIDType(body[30]),
	}
	f.private = append([]byte(nil), body[endpointSize:]...)
	return f, f.end.check(body[31])
}

// check refuses what no device can be told.
func (e *Endpoint) check(reserved byte) error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{e.QPN < 2 || e.QPN > maxQPN, fmt.Sprintf("QPN %#x", e.QPN)}, // 0 and 1 manage the subnet
		{e.PSN > maxQPN, fmt.Sprintf("PSN %#x", e.PSN)},
		{e.MTU.Bytes() == 0, fmt.Sprintf("MTU code %d", e.MTU)},
		{e.Link != ibv.LinkInfiniBand && e.Link != ibv.LinkEthernet, fmt.Sprintf("link layer %d", e.Link)},
		{e.Link == ibv.LinkInfiniBand && e.LID == 0 && e.GID == ibv.GID{}, "neither LID nor GID"},
		{e.Link == ibv.LinkEthernet && e.GID == ibv.GID{}, "no GID"},
		{e.GIDType > ibv.GIDRoCEv2, fmt.Sprintf("GID type %d", e.GIDType)},
		{reserved != 0, fmt.Sprintf("reserved byte %#x", reserved)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", errExchange, c.text)
		}
	}
	return nil
}
