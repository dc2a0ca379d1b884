package verbs

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
	exchangeMagic   = 0x524b5150 // "RKQP"
	exchangeVersion = 1

	offKind      = 5
	offLength    = 6
	frameHeader  = 8
	frameSum     = 4
	endpointSize = 32
	// maxExchangePrivate is what a reply or reject may carry.
	maxExchangePrivate = maxRejectPrivate
	maxBody            = endpointSize + maxExchangePrivate

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

// An endpoint is what the other end must know of a QP.
type endpoint struct {
	qpn, psn uint32
	gid      ibv.GID
	lid      uint16
	mtu      ibv.MTU
	link     ibv.LinkLayer
	ird, ord uint8
	gidType  ibv.GIDType
}

// A frame is one message of the exchange.
type frame struct {
	kind    frameKind
	end     endpoint // of requests and replies
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
		b = be.AppendUint32(b, e.qpn)
		b = be.AppendUint32(b, e.psn)
		b = append(b, e.gid[:]...)
		b = be.AppendUint16(b, e.lid)
		b = append(b, byte(e.mtu), byte(e.link), e.ird, e.ord, byte(e.gidType), 0)
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
		if len(body) > maxExchangePrivate {
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
	f.end = endpoint{
		qpn: be.Uint32(body), psn: be.Uint32(body[4:]), gid: ibv.GID(body[8:24]), lid: be.Uint16(body[24:]),
		mtu: ibv.MTU(body[26]), link: ibv.LinkLayer(body[27]), ird: body[28], ord: body[29], gidType: ibv.GIDType(body[30]),
	}
	f.private = append([]byte(nil), body[endpointSize:]...)
	return f, f.end.check(body[31])
}

// check refuses what no device can be told.
func (e *endpoint) check(reserved byte) error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{e.qpn < 2 || e.qpn > maxQPN, fmt.Sprintf("QPN %#x", e.qpn)}, // 0 and 1 manage the subnet
		{e.psn > maxQPN, fmt.Sprintf("PSN %#x", e.psn)},
		{e.mtu.Bytes() == 0, fmt.Sprintf("MTU code %d", e.mtu)},
		{e.link != ibv.LinkInfiniBand && e.link != ibv.LinkEthernet, fmt.Sprintf("link layer %d", e.link)},
		{e.link == ibv.LinkInfiniBand && e.lid == 0 && e.gid == ibv.GID{}, "neither LID nor GID"},
		{e.link == ibv.LinkEthernet && e.gid == ibv.GID{}, "no GID"},
		{e.gidType > ibv.GIDRoCEv2, fmt.Sprintf("GID type %d", e.gidType)},
		{reserved != 0, fmt.Sprintf("reserved byte %#x", reserved)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", errExchange, c.text)
		}
	}
	return nil
}
