package proto

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
	// Bytes of the control, of both headers with it, and of the body of a READ request.
	ControlLen     = 2
	TaggedLen      = ControlLen + 4 + 8
	UntaggedLen    = ControlLen + 4 + 4 + 4 + 4
	ReadRequestLen = 4 + 8 + 4 + 4 + 8

	flagTagged   = 0x80
	flagLast     = 0x40
	ddpVersion   = 1
	rdmapVersion = 1

	// The queues of untagged segments.
	QueueSend      = 0
	QueueRead      = 1
	QueueTerminate = 2

	// MaxHeaderLen is the length of the largest header in front of a payload, bytes.
	MaxHeaderLen = UntaggedLen
)

// Opcode is the RDMAP operation of a segment (RFC 5040 section 4.3).
type Opcode uint8

// The operations, as they stand on the wire.
const (
	OpWrite            Opcode = 0
	OpReadRequest      Opcode = 1
	OpReadResponse     Opcode = 2
	OpSend             Opcode = 3
	OpSendInvalidate   Opcode = 4
	OpSendSE           Opcode = 5
	OpSendSEInvalidate Opcode = 6
	OpTerminate        Opcode = 7
)

// String is the name that the RFC has.
func (o Opcode) String() string {
	switch o {
	case OpWrite:
		return "RDMA Write"
	case OpReadRequest:
		return "RDMA Read Request"
	case OpReadResponse:
		return "RDMA Read Response"
	case OpSend:
		return "Send"
	case OpSendInvalidate:
		return "Send with Invalidate"
	case OpSendSE:
		return "Send with SE"
	case OpSendSEInvalidate:
		return "Send with SE and Invalidate"
	case OpTerminate:
		return "Terminate"
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// A Segment is a decoded header. Tagged segments use STag and TO, untagged
// ones QN, MSN and MO.
type Segment struct {
	Tagged, Last bool
	Op           Opcode
	STag         uint32
	TO           uint64
	QN, MSN, MO  uint32
}

// A ReadRequest is what stands behind the header of a READ request.
type ReadRequest struct {
	SinkSTag   uint32
	SinkTO     uint64
	Size       uint32
	SourceSTag uint32
	SourceTO   uint64
}

// AppendTagged writes the header of a tagged segment.
func AppendTagged(dst []byte, op Opcode, last bool, stag uint32, to uint64) []byte {
	c := byte(flagTagged | ddpVersion)
	if last {
		c |= flagLast
	}
	dst = append(dst, c, rdmapVersion<<6|byte(op))
	dst = binary.BigEndian.AppendUint32(dst, stag)
	return binary.BigEndian.AppendUint64(dst, to)
}

// AppendUntagged writes the header of an untagged segment.
func AppendUntagged(dst []byte, op Opcode, last bool, qn, msn, mo uint32) []byte {
	c := byte(ddpVersion)
	if last {
		c |= flagLast
	}
	dst = append(dst, c, rdmapVersion<<6|byte(op), 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, qn)
	dst = binary.BigEndian.AppendUint32(dst, msn)
	return binary.BigEndian.AppendUint32(dst, mo)
}

// AppendReadRequest writes the body of a READ request.
func AppendReadRequest(dst []byte, r ReadRequest) []byte {
	dst = binary.BigEndian.AppendUint32(dst, r.SinkSTag)
	dst = binary.BigEndian.AppendUint64(dst, r.SinkTO)
	dst = binary.BigEndian.AppendUint32(dst, r.Size)
	dst = binary.BigEndian.AppendUint32(dst, r.SourceSTag)
	return binary.BigEndian.AppendUint64(dst, r.SourceTO)
}

// ParseSegment decodes the header of ulpdu, which is hostile, and returns the
// payload behind it as a view. The checks that need no state are made here, in
// the order of the layers: DDP version, RDMAP version, opcode, the form that
// the opcode must have, its queue. A failure is the Terminate to send.
func ParseSegment(ulpdu []byte) (s Segment, payload []byte, bad Code) {
	if len(ulpdu) < ControlLen {
		return s, nil, CodeUnspecified
	}
	c0, c1 := ulpdu[0], ulpdu[1]
	s.Tagged, s.Last = c0&flagTagged != 0, c0&flagLast != 0
	if c0&3 != ddpVersion {
		if s.Tagged {
			return s, nil, CodeDDPTaggedVersion
		}
		return s, nil, CodeDDPUntaggedVersion
	}
	s.Op = Opcode(c1 & 15)
	if c1>>6 != rdmapVersion {
		return s, nil, CodeRDMAPVersion
	}
	if s.Op > OpTerminate || s.Tagged != (s.Op == OpWrite || s.Op == OpReadResponse) {
		return s, nil, CodeOpcode
	}
	if s.Tagged {
		if len(ulpdu) < TaggedLen {
			return s, nil, CodeUnspecified
		}
		s.STag = binary.BigEndian.Uint32(ulpdu[ControlLen:])
		s.TO = binary.BigEndian.Uint64(ulpdu[ControlLen+4:])
		return s, ulpdu[TaggedLen:], 0
	}
	if len(ulpdu) < UntaggedLen {
		return s, nil, CodeUnspecified
	}
	s.STag = binary.BigEndian.Uint32(ulpdu[ControlLen:])
	s.QN = binary.BigEndian.Uint32(ulpdu[ControlLen+4:])
	s.MSN = binary.BigEndian.Uint32(ulpdu[ControlLen+8:])
	s.MO = binary.BigEndian.Uint32(ulpdu[ControlLen+12:])
	want := uint32(QueueSend)
	switch s.Op {
	case OpReadRequest:
		want = QueueRead
	case OpTerminate:
		want = QueueTerminate
	}
	if s.QN != want {
		return s, nil, CodeQueueNumber
	}
	return s, ulpdu[UntaggedLen:], 0
}

// ParseReadRequest decodes the body of a READ request; b is exactly its bytes.
func ParseReadRequest(b []byte) (r ReadRequest, ok bool) {
	if len(b) != ReadRequestLen {
		return r, false
	}
	return ReadRequest{
		SinkSTag:   binary.BigEndian.Uint32(b),
		SinkTO:     binary.BigEndian.Uint64(b[4:]),
		Size:       binary.BigEndian.Uint32(b[12:]),
		SourceSTag: binary.BigEndian.Uint32(b[16:]),
		SourceTO:   binary.BigEndian.Uint64(b[20:]),
	}, true
}
