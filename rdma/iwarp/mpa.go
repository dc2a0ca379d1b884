package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
)

// The MPA request and reply, the only bytes of a connection that are not
// FPDUs (RFC 5044 section 7.1, RFC 6581 section 9). All numbers big endian.
//
//	 0                               16  17  18        20
//	┌───────────────────────────────┬───┬───┬─────────┬───────────────────────┐
//	│ "MPA ID Req Frame" or         │ f │rev│ PD      │ private data, PD      │
//	│ "MPA ID Rep Frame"            │   │   │ length  │ length bytes, ≤ 512   │
//	└───────────────────────────────┴───┴───┴─────────┴───────────────────────┘
//	f: M markers wanted │ C CRC wanted │ R rejected │ S enhanced │ 4 reserved
//
// With revision 2 and flag S the private data begins with
//
//	┌─┬─┬──────────────┬─┬─┬──────────────┐
//	│A│B│ IRD (14)     │C│D│ ORD (14)     │
//	└─┴─┴──────────────┴─┴─┴──────────────┘
//	A: peer-to-peer, so the initiator begins with an RTR frame; which one:
//	B a zero-length FULPDU, C a zero-length WRITE, D a zero-length READ.
const (
	mpaKeyLen     = 16
	mpaFlagsOff   = mpaKeyLen
	mpaRevOff     = mpaFlagsOff + 1
	mpaLengthOff  = mpaRevOff + 1
	mpaHeaderLen  = mpaLengthOff + 2
	mpaMaxPrivate = 512
	mpaCtrlLen    = 4

	mpaKeyRequest = "MPA ID Req Frame"
	mpaKeyReply   = "MPA ID Rep Frame"

	mpaFlagMarkers  = 0x80
	mpaFlagCRC      = 0x40
	mpaFlagReject   = 0x20
	mpaFlagEnhanced = 0x10

	// mpaNoNegotiation in IRD or ORD says: leave that to the programs.
	mpaNoNegotiation = 0x3fff
)

// RTR is a set of frames with which an initiator may say "ready to receive"
// in peer-to-peer mode (RFC 6581 section 4.3).
type RTR uint8

const (
	// RTRSend is an FPDU that carries nothing at all (flag B).
	RTRSend RTR = 1 << iota
	// RTRWrite is a zero-length RDMA WRITE (flag C).
	RTRWrite
	// RTRRead is a zero-length RDMA READ (flag D).
	RTRRead

	rtrAll = RTRSend | RTRWrite | RTRRead
)

// String names the set as it appears in ConnInfo.Detail.
func (r RTR) String() string {
	if r == 0 {
		return "none"
	}
	s := ""
	for _, f := range []struct {
		bit  RTR
		name string
	}{{RTRSend, "send"}, {RTRWrite, "write"}, {RTRRead, "read"}} {
		if r&f.bit != 0 {
			if s != "" {
				s += "|"
			}
			s += f.name
			r &^= f.bit
		}
	}
	if r != 0 {
		s += fmt.Sprintf("|RTR(%d)", uint8(r))
	}
	return s
}

// An mpaFrame is a parsed request or reply.
type mpaFrame struct {
	reply    bool
	markers  bool
	crc      bool
	reject   bool
	enhanced bool // the four-byte control below is there
	revision uint8

	peerToPeer bool // A
	rtr        RTR  // B, C, D
	ird, ord   uint16

	private []byte // without the control; a view of the parsed bytes
}

// append encodes f. Limits are the caller's business: private data fits.
func (f *mpaFrame) append(dst []byte) []byte {
	key := mpaKeyRequest
	if f.reply {
		key = mpaKeyReply
	}
	dst = append(dst, key...)
	n := len(f.private)
	if f.enhanced {
		n += mpaCtrlLen
	}
	dst = append(dst, f.flags(), f.revision)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	if f.enhanced {
		ird, ord := f.ird&mpaNoNegotiation, f.ord&mpaNoNegotiation
		for _, b := range []struct {
			on   bool
			word *uint16
			bit  uint16
		}{
			{f.peerToPeer, &ird, 0x8000}, {f.rtr&RTRSend != 0, &ird, 0x4000},
			{f.rtr&RTRWrite != 0, &ord, 0x8000}, {f.rtr&RTRRead != 0, &ord, 0x4000},
		} {
			if b.on {
				*b.word |= b.bit
			}
		}
		dst = binary.BigEndian.AppendUint16(dst, ird)
		dst = binary.BigEndian.AppendUint16(dst, ord)
	}
	return append(dst, f.private...)
}

func (f *mpaFrame) flags() byte {
	var b byte
	if f.markers {
		b |= mpaFlagMarkers
	}
	if f.crc {
		b |= mpaFlagCRC
	}
	if f.reject {
		b |= mpaFlagReject
	}
	if f.enhanced {
		b |= mpaFlagEnhanced
	}
	return b
}

// parseMPAHeader reads the fixed part, hostile bytes, and says how many bytes
// of private data follow: at most 512, so that a reader may allocate them.
// Reserved flags are ignored, as RFC 5044 asks of a receiver.
func parseMPAHeader(b []byte, reply bool) (f mpaFrame, private int, err error) {
	if len(b) < mpaHeaderLen {
		return f, 0, fmt.Errorf("%w: MPA frame of %d bytes, at least %d needed", rdma.ErrProtocol, len(b), mpaHeaderLen)
	}
	key := mpaKeyRequest
	if reply {
		key = mpaKeyReply
	}
	if string(b[:mpaKeyLen]) != key {
		return f, 0, fmt.Errorf("%w: no MPA key %q but %q", rdma.ErrProtocol, key, b[:mpaKeyLen])
	}
	flags := b[mpaFlagsOff]
	f = mpaFrame{
		reply:    reply,
		markers:  flags&mpaFlagMarkers != 0,
		crc:      flags&mpaFlagCRC != 0,
		reject:   flags&mpaFlagReject != 0,
		enhanced: flags&mpaFlagEnhanced != 0,
		revision: b[mpaRevOff],
	}
	private = int(binary.BigEndian.Uint16(b[mpaLengthOff:]))
	if private > mpaMaxPrivate {
		return f, 0, fmt.Errorf("%w: %d bytes of MPA private data, at most %d allowed", rdma.ErrProtocol, private, mpaMaxPrivate)
	}
	return f, private, nil
}

// setPrivate gives f its private data and takes the revision 2 control off it.
// Revision 1 knows no flag S, so it is not believed there.
func (f *mpaFrame) setPrivate(b []byte) error {
	f.enhanced = f.enhanced && f.revision >= 2
	if !f.enhanced {
		f.private = b
		return nil
	}
	if len(b) < mpaCtrlLen {
		return fmt.Errorf("%w: enhanced MPA frame with %d bytes of private data, the control needs %d", rdma.ErrProtocol, len(b), mpaCtrlLen)
	}
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	f.peerToPeer = ird&0x8000 != 0
	if ird&0x4000 != 0 {
		f.rtr |= RTRSend
	}
	if ord&0x8000 != 0 {
		f.rtr |= RTRWrite
	}
	if ord&0x4000 != 0 {
		f.rtr |= RTRRead
	}
	f.ird, f.ord = ird&mpaNoNegotiation, ord&mpaNoNegotiation
	f.private = b[mpaCtrlLen:]
	return nil
}

// parseMPA parses a whole frame that must fill b exactly.
func parseMPA(b []byte, reply bool) (mpaFrame, error) {
	f, n, err := parseMPAHeader(b, reply)
	if err != nil {
		return f, err
	}
	if rest := len(b) - mpaHeaderLen; rest != n {
		return f, fmt.Errorf("%w: MPA frame announces %d bytes of private data and has %d", rdma.ErrProtocol, n, rest)
	}
	err = f.setPrivate(b[mpaHeaderLen:])
	return f, err
}
