package proto

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/rdmakv/rdmakv/rdma"
)

// The Terminate message, the last word on a connection that broke a rule
// (RFC 5040 section 4.8). It follows an untagged header on queue 2:
//
//	 0    4    8         16 17 18 19                 32
//	┌────┬────┬─────────┬──┬──┬──┬──────────────────┐
//	│lay-│type│ code    │M │D │R │ reserved         │
//	│er  │    │         │  │  │  │                  │
//	├────┴────┴─────────┼──┴──┴──┴──────────────────┘
//	│ segment length 16 │ if M: of the segment that was wrong
//	├───────────────────┴───────────────┐
//	│ its DDP header, 14 or 18 bytes    │ if D
//	├───────────────────────────────────┤
//	│ its READ request, 28 bytes        │ if R
//	└───────────────────────────────────┘
const (
	terminateControlLen = 4
	terminateLengthLen  = 2
	// terminateHeaderMax is the most that D and R put behind the length.
	terminateHeaderMax = UntaggedLen + ReadRequestLen

	flagM = 0x80
	flagD = 0x40
	flagR = 0x20
	// siwFlags are the same three as siw writes them.
	siwFlags = 0x07
)

// A Code is layer, type and code of a Terminate as they stand on the wire,
// 16 bits, plus bit 16 so that zero can mean "nothing wrong".
type Code uint32

const codeSet Code = 1 << 16

const (
	layerRDMAP = 0
	layerDDP   = 1
	layerLLP   = 2
)

// Every reason for which package iwarp sends a Terminate, and those it knows
// from others: RFC 5040 section 4.8, RFC 5041 section 8, RFC 5044 section 8,
// RFC 6581 section 8.
const (
	CodeLocalCatastrophic Code = codeSet | 0x0000
	CodeInvalidSTag       Code = codeSet | 0x0100 // READ source unknown
	CodeBounds            Code = codeSet | 0x0101 // READ source out of bounds
	CodeAccess            Code = codeSet | 0x0102 // no right on MR or QP
	CodeNotAssociated     Code = codeSet | 0x0103 // MR of another PD
	CodeTOWrap            Code = codeSet | 0x0104 // TO + size overflows
	CodeRDMAPVersion      Code = codeSet | 0x0205
	CodeOpcode            Code = codeSet | 0x0206
	CodeStream            Code = codeSet | 0x0207
	CodeGlobal            Code = codeSet | 0x0208
	CodeCannotInvalidate  Code = codeSet | 0x0209
	CodeUnspecified       Code = codeSet | 0x02ff // shorter than its own headers

	CodeDDPCatastrophic    Code = codeSet | 0x1000
	CodeDDPInvalidSTag     Code = codeSet | 0x1100 // tagged buffer unknown
	CodeDDPBounds          Code = codeSet | 0x1101
	CodeDDPNotAssociated   Code = codeSet | 0x1102
	CodeDDPTOWrap          Code = codeSet | 0x1103
	CodeDDPTaggedVersion   Code = codeSet | 0x1104
	CodeQueueNumber        Code = codeSet | 0x1201
	CodeNoBuffer           Code = codeSet | 0x1202 // no receive posted; READ beyond IRD
	CodeMSNRange           Code = codeSet | 0x1203
	CodeMO                 Code = codeSet | 0x1204
	CodeTooLong            Code = codeSet | 0x1205
	CodeDDPUntaggedVersion Code = codeSet | 0x1206

	CodeStreamLost      Code = codeSet | 0x2001
	CodeCRC             Code = codeSet | 0x2002
	CodeMarker          Code = codeSet | 0x2003
	CodeMPAFrame        Code = codeSet | 0x2004
	CodeMPACatastrophic Code = codeSet | 0x2005
	CodeIRD             Code = codeSet | 0x2006
	CodeRTR             Code = codeSet | 0x2007
)

// Wire is the code as it stands on the wire, 16 bits.
func (c Code) Wire() uint32 { return uint32(c &^ codeSet) }

func (c Code) layer() int { return int(c>>12) & 15 }
func (c Code) etype() int { return int(c>>8) & 15 }
func (c Code) code() int  { return int(c) & 255 }

// codes says what each code means, and how the oldest work request ends when a
// peer sends it. Codes that are not here are protocol errors.
var codes = map[Code]struct {
	text   string
	status rdma.Status
	class  error
}{
	CodeLocalCatastrophic: {"local catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	CodeInvalidSTag:       {"invalid STag", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeBounds:            {"base or bounds violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeAccess:            {"access rights violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeNotAssociated:     {"STag not associated with this stream", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeTOWrap:            {"tagged offset wraps", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeRDMAPVersion:      {"invalid RDMAP version", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeOpcode:            {"unexpected opcode", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeStream:            {"catastrophic error of this stream", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	CodeGlobal:            {"catastrophic error of the peer", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	CodeCannotInvalidate:  {"STag cannot be invalidated", rdma.StatusRemInvReqErr, rdma.ErrAccess},
	CodeUnspecified:       {"unspecified error", rdma.StatusGeneralErr, rdma.ErrProtocol},

	CodeDDPCatastrophic:    {"DDP catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	CodeDDPInvalidSTag:     {"invalid STag of a tagged buffer", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeDDPBounds:          {"tagged buffer base or bounds violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeDDPNotAssociated:   {"STag not associated with this DDP stream", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeDDPTOWrap:          {"tagged offset of a DDP segment wraps", rdma.StatusRemAccessErr, rdma.ErrAccess},
	CodeDDPTaggedVersion:   {"invalid DDP version (tagged)", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeQueueNumber:        {"invalid queue number", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeNoBuffer:           {"no buffer available", rdma.StatusRNRRetryExcErr, rdma.ErrReceiverNotReady},
	CodeMSNRange:           {"message sequence number out of range", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeMO:                 {"invalid message offset", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeTooLong:            {"message too long for the receive buffer", rdma.StatusRemInvReqErr, rdma.ErrProtocol},
	CodeDDPUntaggedVersion: {"invalid DDP version (untagged)", rdma.StatusGeneralErr, rdma.ErrProtocol},

	CodeStreamLost:      {"TCP stream lost", rdma.StatusRemAbortErr, rdma.ErrPeerGone},
	CodeCRC:             {"MPA CRC mismatch", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeMarker:          {"MPA markers and length disagree", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeMPAFrame:        {"invalid MPA request or reply", rdma.StatusGeneralErr, rdma.ErrProtocol},
	CodeMPACatastrophic: {"MPA catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	CodeIRD:             {"not enough IRD", rdma.StatusRemOpErr, rdma.ErrProtocol},
	CodeRTR:             {"no RTR frame in common", rdma.StatusGeneralErr, rdma.ErrProtocol},
}

// String gives numbers and words: "1/2/2 (no buffer available)".
func (c Code) String() string {
	text := codes[c].text
	if text == "" {
		text = "unknown"
	}
	return fmt.Sprintf("%d/%d/%#x (%s)", c.layer(), c.etype(), c.code(), text)
}

// Status is what a peer's Terminate means for the oldest work request.
func (c Code) Status() rdma.Status {
	if e, ok := codes[c]; ok {
		return e.status
	}
	return rdma.StatusGeneralErr
}

// Class is the error class of the connection's end, at both ends.
func (c Code) Class() error {
	if e, ok := codes[c]; ok {
		return e.class
	}
	return rdma.ErrProtocol
}

// A Terminate is a message to send or one that came.
type Terminate struct {
	Code    Code
	HasLen  bool   // M
	SegLen  uint16 // ULPDU length of the wrong segment
	Header  []byte // its DDP header, and its READ request if hasRead
	HasRead bool   // R
}

// About fills in what ulpdu, the wrong segment, contributes: the standards
// demand its headers in the message, except for errors of the layer below.
func (t *Terminate) About(ulpdu []byte) {
	if t.Code.layer() == layerLLP || len(ulpdu) < ControlLen {
		return
	}
	n := UntaggedLen
	if ulpdu[0]&flagTagged != 0 {
		n = TaggedLen
	}
	if len(ulpdu) < n {
		return
	}
	t.HasLen, t.SegLen = true, uint16(len(ulpdu))
	t.Header = ulpdu[:n]
	if Opcode(ulpdu[1]&15) == OpReadRequest && n == UntaggedLen && len(ulpdu) >= n+ReadRequestLen {
		t.HasRead = true
		t.Header = ulpdu[:n+ReadRequestLen]
	}
}

// Append encodes the body of the message; the header is the caller's.
func (t *Terminate) Append(dst []byte) []byte {
	var flags byte
	if t.HasLen {
		flags |= flagM
		if len(t.Header) > 0 {
			flags |= flagD
		}
		if t.HasRead {
			flags |= flagR
		}
	}
	dst = append(dst, byte(t.Code>>8), byte(t.Code), flags, 0)
	if !t.HasLen {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, t.SegLen)
	return append(dst, t.Header...)
}

// AppendTerminate frames t as the one message of queue 2.
func AppendTerminate(dst []byte, t *Terminate, crc bool) []byte {
	dst, start := BeginFPDU(dst)
	dst = AppendUntagged(dst, OpTerminate, true, QueueTerminate, 1, 0)
	dst = t.Append(dst)
	return EndFPDU(dst, start, crc)
}

// ParseTerminate decodes the body of a Terminate, hostile bytes. Embedded
// headers that are cut short are left out: some peers send such headers, and the
// code is what counts.
//
// Linux's siw (until at least 6.1) lays the bit fields of the first word out
// from the low end of each byte: type before layer, and R, D, M as bits 2, 1, 0.
// Its flags stand where the RFC has reserved zeros, which tells the two forms
// apart; a message without any flag is read as the RFC has it.
func ParseTerminate(b []byte) (t Terminate, ok bool) {
	if len(b) < terminateControlLen {
		return t, false
	}
	first, flags := b[0], b[2]
	if flags&(flagM|flagD|flagR) == 0 && flags&siwFlags != 0 {
		first = bits.RotateLeft8(first, 4)
		flags = bits.Reverse8(flags)
	}
	t.Code = codeSet | Code(first)<<8 | Code(b[1])
	b = b[terminateControlLen:]
	if flags&flagM == 0 || len(b) < terminateLengthLen {
		return t, true
	}
	t.HasLen, t.SegLen = true, binary.BigEndian.Uint16(b)
	b = b[terminateLengthLen:]
	if flags&flagD == 0 || len(b) < ControlLen {
		return t, true
	}
	n := UntaggedLen
	if b[0]&flagTagged != 0 {
		n = TaggedLen
	}
	if len(b) < n {
		return t, true
	}
	t.Header = b[:n]
	if flags&flagR != 0 && len(b) >= n+ReadRequestLen {
		t.HasRead = true
		t.Header = b[:n+ReadRequestLen]
	}
	return t, true
}
