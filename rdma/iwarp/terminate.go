package iwarp

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
	termControlLen = 4
	termLengthLen  = 2
	// termHeaderMax is the most that D and R put behind the length.
	termHeaderMax = untaggedLen + readReqLen
	termMaxLen    = termControlLen + termLengthLen + termHeaderMax

	termFlagM = 0x80
	termFlagD = 0x40
	termFlagR = 0x20
	// termSiwFlags are the same three as siw writes them.
	termSiwFlags = 0x07
)

// A termCode is layer, type and code of a Terminate as they stand on the wire,
// 16 bits, plus bit 16 so that zero can mean "nothing wrong".
type termCode uint32

const termSet termCode = 1 << 16

const (
	layerRDMAP = 0
	layerDDP   = 1
	layerLLP   = 2
)

// Every reason for which this package sends a Terminate, and those it knows
// from others: RFC 5040 section 4.8, RFC 5041 section 8, RFC 5044 section 8,
// RFC 6581 section 8.
const (
	termLocalCatastrophic termCode = termSet | 0x0000
	termInvalidSTag       termCode = termSet | 0x0100 // READ source unknown
	termBounds            termCode = termSet | 0x0101 // READ source out of bounds
	termAccess            termCode = termSet | 0x0102 // no right on MR or QP
	termNotAssociated     termCode = termSet | 0x0103 // MR of another PD
	termTOWrap            termCode = termSet | 0x0104 // TO + size overflows
	termRDMAPVersion      termCode = termSet | 0x0205
	termOpcode            termCode = termSet | 0x0206
	termStream            termCode = termSet | 0x0207
	termGlobal            termCode = termSet | 0x0208
	termCannotInvalidate  termCode = termSet | 0x0209
	termUnspecified       termCode = termSet | 0x02ff // shorter than its own headers

	termDDPCatastrophic    termCode = termSet | 0x1000
	termDDPInvalidSTag     termCode = termSet | 0x1100 // tagged buffer unknown
	termDDPBounds          termCode = termSet | 0x1101
	termDDPNotAssociated   termCode = termSet | 0x1102
	termDDPTOWrap          termCode = termSet | 0x1103
	termDDPTaggedVersion   termCode = termSet | 0x1104
	termQueueNumber        termCode = termSet | 0x1201
	termNoBuffer           termCode = termSet | 0x1202 // no receive posted; READ beyond IRD
	termMSNRange           termCode = termSet | 0x1203
	termMO                 termCode = termSet | 0x1204
	termTooLong            termCode = termSet | 0x1205
	termDDPUntaggedVersion termCode = termSet | 0x1206

	termStreamLost      termCode = termSet | 0x2001
	termCRC             termCode = termSet | 0x2002
	termMarker          termCode = termSet | 0x2003
	termMPAFrame        termCode = termSet | 0x2004
	termMPACatastrophic termCode = termSet | 0x2005
	termIRD             termCode = termSet | 0x2006
	termRTR             termCode = termSet | 0x2007
)

func (c termCode) layer() int { return int(c>>12) & 15 }
func (c termCode) etype() int { return int(c>>8) & 15 }
func (c termCode) code() int  { return int(c) & 255 }

// termTable says what each code means, and what becomes of the oldest work
// request when a peer sends it. Codes that are not here are protocol errors.
var termTable = map[termCode]struct {
	text   string
	status rdma.Status
	class  error
}{
	termLocalCatastrophic: {"local catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	termInvalidSTag:       {"invalid STag", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termBounds:            {"base or bounds violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termAccess:            {"access rights violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termNotAssociated:     {"STag not associated with this stream", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termTOWrap:            {"tagged offset wraps", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termRDMAPVersion:      {"invalid RDMAP version", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termOpcode:            {"unexpected opcode", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termStream:            {"catastrophic error of this stream", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	termGlobal:            {"catastrophic error of the peer", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	termCannotInvalidate:  {"STag cannot be invalidated", rdma.StatusRemInvReqErr, rdma.ErrAccess},
	termUnspecified:       {"unspecified error", rdma.StatusGeneralErr, rdma.ErrProtocol},

	termDDPCatastrophic:    {"DDP catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	termDDPInvalidSTag:     {"invalid STag of a tagged buffer", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termDDPBounds:          {"tagged buffer base or bounds violation", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termDDPNotAssociated:   {"STag not associated with this DDP stream", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termDDPTOWrap:          {"tagged offset of a DDP segment wraps", rdma.StatusRemAccessErr, rdma.ErrAccess},
	termDDPTaggedVersion:   {"invalid DDP version (tagged)", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termQueueNumber:        {"invalid queue number", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termNoBuffer:           {"no buffer available", rdma.StatusRNRRetryExcErr, rdma.ErrReceiverNotReady},
	termMSNRange:           {"message sequence number out of range", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termMO:                 {"invalid message offset", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termTooLong:            {"message too long for the receive buffer", rdma.StatusRemInvReqErr, rdma.ErrProtocol},
	termDDPUntaggedVersion: {"invalid DDP version (untagged)", rdma.StatusGeneralErr, rdma.ErrProtocol},

	termStreamLost:      {"TCP stream lost", rdma.StatusRemAbortErr, rdma.ErrPeerGone},
	termCRC:             {"MPA CRC mismatch", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termMarker:          {"MPA markers and length disagree", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termMPAFrame:        {"invalid MPA request or reply", rdma.StatusGeneralErr, rdma.ErrProtocol},
	termMPACatastrophic: {"MPA catastrophic error", rdma.StatusRemOpErr, rdma.ErrPeerGone},
	termIRD:             {"not enough IRD", rdma.StatusRemOpErr, rdma.ErrProtocol},
	termRTR:             {"no RTR frame in common", rdma.StatusGeneralErr, rdma.ErrProtocol},
}

// String gives numbers and words: "1/2/2 (no buffer available)".
func (c termCode) String() string {
	text := termTable[c].text
	if text == "" {
		text = "unknown"
	}
	return fmt.Sprintf("%d/%d/%#x (%s)", c.layer(), c.etype(), c.code(), text)
}

// status is what a peer's Terminate means for the oldest work request.
func (c termCode) status() rdma.Status {
	if e, ok := termTable[c]; ok {
		return e.status
	}
	return rdma.StatusGeneralErr
}

// class is the error class of the connection's end, at both ends.
func (c termCode) class() error {
	if e, ok := termTable[c]; ok {
		return e.class
	}
	return rdma.ErrProtocol
}

// A terminate is a message to send or one that came.
type terminate struct {
	code    termCode
	hasLen  bool   // M
	segLen  uint16 // ULPDU length of the wrong segment
	header  []byte // its DDP header, and its READ request if hasRead
	hasRead bool   // R
}

// about fills in what ulpdu, the wrong segment, contributes: the standards
// want its headers in the message, except for errors of the layer below.
func (t *terminate) about(ulpdu []byte) {
	if t.code.layer() == layerLLP || len(ulpdu) < ctrlLen {
		return
	}
	n := untaggedLen
	if ulpdu[0]&ddpTagged != 0 {
		n = taggedLen
	}
	if len(ulpdu) < n {
		return
	}
	t.hasLen, t.segLen = true, uint16(len(ulpdu))
	t.header = ulpdu[:n]
	if opcode(ulpdu[1]&15) == opReadReq && n == untaggedLen && len(ulpdu) >= n+readReqLen {
		t.hasRead = true
		t.header = ulpdu[:n+readReqLen]
	}
}

// append encodes the body of the message; the header is the caller's.
func (t *terminate) append(dst []byte) []byte {
	var flags byte
	if t.hasLen {
		flags |= termFlagM
		if len(t.header) > 0 {
			flags |= termFlagD
		}
		if t.hasRead {
			flags |= termFlagR
		}
	}
	dst = append(dst, byte(t.code>>8), byte(t.code), flags, 0)
	if !t.hasLen {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, t.segLen)
	return append(dst, t.header...)
}

// appendTerminateFPDU frames t as the one message of queue 2.
func appendTerminateFPDU(dst []byte, t *terminate, crc bool) []byte {
	dst, start := beginFPDU(dst)
	dst = appendUntagged(dst, opTerminate, true, queueTerminate, 1, 0)
	dst = t.append(dst)
	return endFPDU(dst, start, crc)
}

// parseTerminate decodes the body of a Terminate, hostile bytes. Embedded
// headers that are cut short are left out: peers do that, and the code is
// what counts.
//
// Linux's siw (until at least 6.1) lays the bit fields of the first word out
// from the low end of each byte: type before layer, and R, D, M as bits 2, 1, 0.
// Its flags stand where the RFC has reserved zeros, which gives it away; without
// any flag the code is taken as the RFC has it.
func parseTerminate(b []byte) (t terminate, ok bool) {
	if len(b) < termControlLen {
		return t, false
	}
	first, flags := b[0], b[2]
	if flags&(termFlagM|termFlagD|termFlagR) == 0 && flags&termSiwFlags != 0 {
		first = bits.RotateLeft8(first, 4)
		flags = bits.Reverse8(flags)
	}
	t.code = termSet | termCode(first)<<8 | termCode(b[1])
	b = b[termControlLen:]
	if flags&termFlagM == 0 || len(b) < termLengthLen {
		return t, true
	}
	t.hasLen, t.segLen = true, binary.BigEndian.Uint16(b)
	b = b[termLengthLen:]
	if flags&termFlagD == 0 || len(b) < ctrlLen {
		return t, true
	}
	n := untaggedLen
	if b[0]&ddpTagged != 0 {
		n = taggedLen
	}
	if len(b) < n {
		return t, true
	}
	t.header = b[:n]
	if flags&termFlagR != 0 && len(b) >= n+readReqLen {
		t.hasRead = true
		t.header = b[:n+readReqLen]
	}
	return t, true
}
