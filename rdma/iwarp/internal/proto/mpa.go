package proto

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
	keyLen      = 16
	flagsOff    = keyLen
	revisionOff = flagsOff + 1
	lengthOff   = revisionOff + 1

	// FrameHeaderLen is the length of the part that every frame has, bytes.
	FrameHeaderLen = lengthOff + 2
	// MaxPrivate bounds what may follow it, bytes.
	MaxPrivate = 512
	// NegotiationLen is how much of that revision 2 takes for IRD and ORD.
	NegotiationLen = 4

	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"

	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10

	// NoNegotiation in IRD or ORD says: leave that to the programs.
	NoNegotiation = 0x3fff
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

	// RTRAll is the set of all of them.
	RTRAll = RTRSend | RTRWrite | RTRRead
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

// A Frame is a parsed request or reply.
type Frame struct {
	Reply    bool
	Markers  bool
	CRC      bool
	Reject   bool
	Enhanced bool // the four-byte control below is there
	Revision uint8

	PeerToPeer bool // A
	RTR        RTR  // B, C, D
	IRD, ORD   uint16

	Private []byte // without the control; a view of the parsed bytes
}

// Append encodes f. Limits are the caller's business: private data fits.
func (f *Frame) Append(dst []byte) []byte {
	key := keyRequest
	if f.Reply {
		key = keyReply
	}
	dst = append(dst, key...)
	n := len(f.Private)
	if f.Enhanced {
		n += NegotiationLen
	}
	dst = append(dst, f.flags(), f.Revision)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	if f.Enhanced {
		ird, ord := f.IRD&NoNegotiation, f.ORD&NoNegotiation
		for _, b := range []struct {
			on   bool
			word *uint16
			bit  uint16
		}{
			{f.PeerToPeer, &ird, 0x8000}, {f.RTR&RTRSend != 0, &ird, 0x4000},
			{f.RTR&RTRWrite != 0, &ord, 0x8000}, {f.RTR&RTRRead != 0, &ord, 0x4000},
		} {
			if b.on {
				*b.word |= b.bit
			}
		}
		dst = binary.BigEndian.AppendUint16(dst, ird)
		dst = binary.BigEndian.AppendUint16(dst, ord)
	}
	return append(dst, f.Private...)
}

func (f *Frame) flags() byte {
	var b byte
	if f.Markers {
		b |= flagMarkers
	}
	if f.CRC {
		b |= flagCRC
	}
	if f.Reject {
		b |= flagReject
	}
	if f.Enhanced {
		b |= flagEnhanced
	}
	return b
}

// ParseFrameHeader reads the fixed part, hostile bytes, and says how many bytes
// of private data follow: at most 512, so that a reader may allocate them. It
// ignores reserved flags, as RFC 5044 asks of a receiver.
func ParseFrameHeader(b []byte, reply bool) (f Frame, private int, err error) {
	if len(b) < FrameHeaderLen {
		return f, 0, fmt.Errorf("%w: MPA frame of %d bytes, at least %d needed", rdma.ErrProtocol, len(b), FrameHeaderLen)
	}
	key := keyRequest
	if reply {
		key = keyReply
	}
	if string(b[:keyLen]) != key {
		return f, 0, fmt.Errorf("%w: no MPA key %q but %q", rdma.ErrProtocol, key, b[:keyLen])
	}
	flags := b[flagsOff]
	f = Frame{
		Reply:    reply,
		Markers:  flags&flagMarkers != 0,
		CRC:      flags&flagCRC != 0,
		Reject:   flags&flagReject != 0,
		Enhanced: flags&flagEnhanced != 0,
		Revision: b[revisionOff],
	}
	private = int(binary.BigEndian.Uint16(b[lengthOff:]))
	if private > MaxPrivate {
		return f, 0, fmt.Errorf("%w: %d bytes of MPA private data, at most %d allowed", rdma.ErrProtocol, private, MaxPrivate)
	}
	return f, private, nil
}

// SetPrivate gives f its private data and takes the revision 2 control off it.
// Revision 1 has no flag S, so SetPrivate ignores the flag there.
func (f *Frame) SetPrivate(b []byte) error {
	f.Enhanced = f.Enhanced && f.Revision >= 2
	if !f.Enhanced {
		f.Private = b
		return nil
	}
	if len(b) < NegotiationLen {
		return fmt.Errorf("%w: enhanced MPA frame with %d bytes of private data, the control needs %d", rdma.ErrProtocol, len(b), NegotiationLen)
	}
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	f.PeerToPeer = ird&0x8000 != 0
	if ird&0x4000 != 0 {
		f.RTR |= RTRSend
	}
	if ord&0x8000 != 0 {
		f.RTR |= RTRWrite
	}
	if ord&0x4000 != 0 {
		f.RTR |= RTRRead
	}
	f.IRD, f.ORD = ird&NoNegotiation, ord&NoNegotiation
	f.Private = b[NegotiationLen:]
	return nil
}

// ParseFrame parses a whole frame that must fill b exactly.
func ParseFrame(b []byte, reply bool) (Frame, error) {
	f, n, err := ParseFrameHeader(b, reply)
	if err != nil {
		return f, err
	}
	if rest := len(b) - FrameHeaderLen; rest != n {
		return f, fmt.Errorf("%w: MPA frame announces %d bytes of private data and has %d", rdma.ErrProtocol, n, rest)
	}
	err = f.SetPrivate(b[FrameHeaderLen:])
	return f, err
}
