package iwarp

import (
	"encoding/binary"
	"fmt"
)

// DDP and RDMAP headers, always together in this order (RFC 5041 section 4,
// RFC 5040 section 4). All numbers big endian.
//
// Control, common to all segments:
//
//	 7 6 5   2 1 0   7 6 5 4 3     0
//	┌─┬─┬─────┬───┬───┬───┬─────────┐
//	│T│L│ rsv │DV │RV │rsv│ opcode  │   T tagged, L last, DV = RV = 1
//	└─┴─┴─────┴───┴───┴───┴─────────┘
//
// Tagged (RDMA WRITE, READ response), 14 bytes:
//
//	┌────────┬────────────────┬────────────────────────────────┐
//	│ctrl 2  │ STag 4         │ tagged offset (TO) 8           │
//	└────────┴────────────────┴────────────────────────────────┘
//
// Untagged (SEND on queue 0, READ request on 1, Terminate on 2), 18 bytes:
//
//	┌────────┬────────────────┬──────────┬──────────┬──────────┐
//	│ctrl 2  │ invalidate STag│ QN 4     │ MSN 4    │ MO 4     │
//	└────────┴────────────────┴──────────┴──────────┴──────────┘
//
// READ request, the 28 bytes behind an untagged header:
//
//	┌──────────────┬─────────────┬─────────┬────────────────┬──────────────┐
//	│ sink STag 4  │ sink TO 8   │ size 4  │ source STag 4  │ source TO 8  │
//	└──────────────┴─────────────┴─────────┴────────────────┴──────────────┘
const (
	ctrlLen     = 2
	taggedLen   = ctrlLen + 4 + 8
	untaggedLen = ctrlLen + 4 + 4 + 4 + 4
	readReqLen  = 4 + 8 + 4 + 4 + 8

	ddpTagged   = 0x80
	ddpLast     = 0x40
	ddpVersion  = 1
	rdmaVersion = 1

	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2

	// Bytes of the largest header in front of a payload.
	maxHeaderLen = untaggedLen
)

// opcode is the RDMAP operation of a segment (RFC 5040 section 4.3).
type opcode uint8

const (
	opWrite     opcode = 0
	opReadReq   opcode = 1
	opReadResp  opcode = 2
	opSend      opcode = 3
	opSendInv   opcode = 4
	opSendSE    opcode = 5
	opSendSEInv opcode = 6
	opTerminate opcode = 7
)

func (o opcode) String() string {
	switch o {
	case opWrite:
		return "RDMA Write"
	case opReadReq:
		return "RDMA Read Request"
	case opReadResp:
		return "RDMA Read Response"
	case opSend:
		return "Send"
	case opSendInv:
		return "Send with Invalidate"
	case opSendSE:
		return "Send with SE"
	case opSendSEInv:
		return "Send with SE and Invalidate"
	case opTerminate:
		return "Terminate"
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// A segment is a decoded header. Tagged segments use stag and to, untagged
// ones qn, msn and mo.
type segment struct {
	tagged, last bool
	op           opcode
	stag         uint32
	to           uint64
	qn, msn, mo  uint32
}

// A readRequest is what stands behind the header of a READ request.
type readRequest struct {
	sinkSTag uint32
	sinkTO   uint64
	size     uint32
	srcSTag  uint32
	srcTO    uint64

	// Not on the wire:
	rtr bool     // the zero-length READ that opened the connection
	bad termCode // refused when it came; answered in its turn
}

// appendTagged writes the header of a tagged segment.
func appendTagged(dst []byte, op opcode, last bool, stag uint32, to uint64) []byte {
	c := byte(ddpTagged | ddpVersion)
	if last {
		c |= ddpLast
	}
	dst = append(dst, c, rdmaVersion<<6|byte(op))
	dst = binary.BigEndian.AppendUint32(dst, stag)
	return binary.BigEndian.AppendUint64(dst, to)
}

// appendUntagged writes the header of an untagged segment.
func appendUntagged(dst []byte, op opcode, last bool, qn, msn, mo uint32) []byte {
	c := byte(ddpVersion)
	if last {
		c |= ddpLast
	}
	dst = append(dst, c, rdmaVersion<<6|byte(op), 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, qn)
	dst = binary.BigEndian.AppendUint32(dst, msn)
	return binary.BigEndian.AppendUint32(dst, mo)
}

// appendReadRequest writes the body of a READ request.
func appendReadRequest(dst []byte, r readRequest) []byte {
	dst = binary.BigEndian.AppendUint32(dst, r.sinkSTag)
	dst = binary.BigEndian.AppendUint64(dst, r.sinkTO)
	dst = binary.BigEndian.AppendUint32(dst, r.size)
	dst = binary.BigEndian.AppendUint32(dst, r.srcSTag)
	return binary.BigEndian.AppendUint64(dst, r.srcTO)
}

// parseSegment decodes the header of ulpdu, which is hostile, and returns the
// payload behind it as a view. The checks that need no state are made here, in
// the order of the layers: DDP version, RDMAP version, opcode, the form that
// the opcode must have, its queue. A failure is the Terminate to send.
func parseSegment(ulpdu []byte) (s segment, payload []byte, bad termCode) {
	if len(ulpdu) < ctrlLen {
		return s, nil, termUnspecified
	}
	c0, c1 := ulpdu[0], ulpdu[1]
	s.tagged, s.last = c0&ddpTagged != 0, c0&ddpLast != 0
	if c0&3 != ddpVersion {
		if s.tagged {
			return s, nil, termDDPTaggedVersion
		}
		return s, nil, termDDPUntaggedVersion
	}
	s.op = opcode(c1 & 15)
	if c1>>6 != rdmaVersion {
		return s, nil, termRDMAPVersion
	}
	if s.op > opTerminate || s.tagged != (s.op == opWrite || s.op == opReadResp) {
		return s, nil, termOpcode
	}
	if s.tagged {
		if len(ulpdu) < taggedLen {
			return s, nil, termUnspecified
		}
		s.stag = binary.BigEndian.Uint32(ulpdu[ctrlLen:])
		s.to = binary.BigEndian.Uint64(ulpdu[ctrlLen+4:])
		return s, ulpdu[taggedLen:], 0
	}
	if len(ulpdu) < untaggedLen {
		return s, nil, termUnspecified
	}
	s.stag = binary.BigEndian.Uint32(ulpdu[ctrlLen:])
	s.qn = binary.BigEndian.Uint32(ulpdu[ctrlLen+4:])
	s.msn = binary.BigEndian.Uint32(ulpdu[ctrlLen+8:])
	s.mo = binary.BigEndian.Uint32(ulpdu[ctrlLen+12:])
	want := uint32(queueSend)
	switch s.op {
	case opReadReq:
		want = queueRead
	case opTerminate:
		want = queueTerminate
	}
	if s.qn != want {
		return s, nil, termQueueNumber
	}
	return s, ulpdu[untaggedLen:], 0
}

// parseReadRequest decodes the body of a READ request; b is exactly its bytes.
func parseReadRequest(b []byte) (r readRequest, ok bool) {
	if len(b) != readReqLen {
		return r, false
	}
	return readRequest{
		sinkSTag: binary.BigEndian.Uint32(b),
		sinkTO:   binary.BigEndian.Uint64(b[4:]),
		size:     binary.BigEndian.Uint32(b[12:]),
		srcSTag:  binary.BigEndian.Uint32(b[16:]),
		srcTO:    binary.BigEndian.Uint64(b[20:]),
	}, true
}
