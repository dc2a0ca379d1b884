package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Control messages. Each is one SEND and begins with the same eight bytes;
// numbers are little-endian, reserved bytes are zero. In SEND tests the payload
// begins with a zero byte, which no control message does.
//
//	Header ┌magic "RKPF"┬type┬version┬ 0 ┐  8 bytes
//	       └4           ┴1   ┴1      ┴2  ┘
//	Hello  ┌header┬op┬kind┬flags┬size┬depth┬rkey┬addr┬messages┬time┐  48 bytes
//	       └8     ┴1 ┴1   ┴2    ┴4   ┴4    ┴4   ┴8   ┴8       ┴8   ┘
//	Ready  ┌header┬status┬ 0 ┬receives┬rkey┬length┬addr┬reason …┐  32 bytes and text
//	       └8     ┴1     ┴3  ┴4       ┴4   ┴4     ┴8   ┴0–160   ┘
//	Credit ┌header┬messages┐  16 bytes: receives given back since the start
//	       └8     ┴8       ┘
//	Done   ┌header┬messages┐  16 bytes: all that were sent, warm-up included
//	       └8     ┴8       ┘
//	Result ┌header┬messages┬bytes┐  24 bytes: what arrived
//	       └8     ┴8       ┴8    ┘
//
// The private data of the connection request is the header of a Hello alone;
// that of a refusal is a Ready with status and reason.
const (
	magic   = "RKPF"
	version = 1

	headerSize = 8
	helloSize  = headerSize + 40
	readySize  = headerSize + 24
	countSize  = headerSize + 8
	resultSize = headerSize + 16
	reasonMax  = 160

	// controlSize is room for any control message.
	controlSize = 192
)

var _ = [controlSize - readySize - reasonMax]struct{}{}

// The types of message.
const (
	typeHello = iota + 1
	typeReady
	typeCredit
	typeDone
	typeResult
)

// Flags of a Hello.
const flagEvents = 1

// The status of a Ready.
const (
	statusOK      = 0
	statusRefused = 1 // reason says why: a limit, a capability
)

// Faults of messages.
var (
	errShort    = errors.New("perf: message of the wrong length")
	errMagic    = errors.New("perf: not a message of this protocol")
	errVersion  = errors.New("perf: the other end speaks another version of the protocol")
	errType     = errors.New("perf: unexpected message")
	errReserved = errors.New("perf: reserved bytes are not zero")
	errRange    = errors.New("perf: a number in a message is out of range")
)

var le = binary.LittleEndian

// A hello asks for a test. Addr and RKey name the client's own buffer, into
// which the pongs of a write_lat go.
type hello struct {
	Op       Op
	Kind     Kind
	Events   bool
	Size     uint32
	Depth    uint32
	RKey     uint32
	Addr     uint64
	Messages uint64 // warm-up included; 0: as many as Time allows
	Time     uint64 // ns; how long the test may take; 0: no matter
}

// A ready answers a hello.
type ready struct {
	Status   uint8
	Receives uint32 // SENDs that may be on their way
	RKey     uint32
	Length   uint32 // of the scratch buffer
	Addr     uint64
	Reason   string
}

// A result says what the server saw.
type result struct{ Messages, Bytes uint64 }

func header(dst []byte, typ byte) []byte {
	return append(append(dst, magic...), typ, version, 0, 0)
}

func (h hello) append(dst []byte) []byte {
	dst = append(header(dst, typeHello), byte(h.Op), byte(h.Kind))
	var flags uint16
	if h.Events {
		flags |= flagEvents
	}
	dst = le.AppendUint16(dst, flags)
	for _, v := range []uint32{h.Size, h.Depth, h.RKey} {
		dst = le.AppendUint32(dst, v)
	}
	for _, v := range []uint64{h.Addr, h.Messages, h.Time} {
		dst = le.AppendUint64(dst, v)
	}
	return dst
}

func (r ready) append(dst []byte) []byte {
	dst = append(header(dst, typeReady), r.Status, 0, 0, 0)
	for _, v := range []uint32{r.Receives, r.RKey, r.Length} {
		dst = le.AppendUint32(dst, v)
	}
	dst = le.AppendUint64(dst, r.Addr)
	return append(dst, printable(r.Reason)...)
}

func appendCount(dst []byte, typ byte, n uint64) []byte {
	return le.AppendUint64(header(dst, typ), n)
}

func (r result) append(dst []byte) []byte {
	return le.AppendUint64(appendCount(dst, typeResult, r.Messages), r.Bytes)
}

// body checks the header and returns what is behind it.
func body(b []byte, typ byte) ([]byte, error) {
	switch {
	case len(b) < headerSize:
		return nil, errShort
	case string(b[:4]) != magic:
		return nil, errMagic
	case b[5] != version:
		return nil, fmt.Errorf("%w: %d, this is %d", errVersion, b[5], version)
	case b[4] != typ:
		return nil, fmt.Errorf("%w: type %d, want %d", errType, b[4], typ)
	case b[6] != 0 || b[7] != 0:
		return nil, errReserved
	}
	return b[headerSize:], nil
}

// typeOf is the type that a control message claims; 0 for payload.
func typeOf(b []byte) byte {
	if len(b) < headerSize || string(b[:4]) != magic {
		return 0
	}
	return b[4]
}

// parseHello reads a Hello. Sizes and times are as the client says: the server
// holds them against its limits.
func parseHello(b []byte) (hello, error) {
	if len(b) != helloSize {
		return hello{}, errShort
	}
	b, err := body(b, typeHello)
	if err != nil {
		return hello{}, err
	}
	h := hello{
		Op: Op(b[0]), Kind: Kind(b[1]),
		Size: le.Uint32(b[4:]), Depth: le.Uint32(b[8:]), RKey: le.Uint32(b[12:]),
		Addr: le.Uint64(b[16:]), Messages: le.Uint64(b[24:]), Time: le.Uint64(b[32:]),
	}
	flags := le.Uint16(b[2:])
	h.Events = flags&flagEvents != 0
	switch {
	case flags&^flagEvents != 0:
		return hello{}, errReserved
	case h.Op < Read || h.Op > Send || h.Kind < Latency || h.Kind > Bandwidth,
		h.Size < 1 || h.Size > MaxSize,
		h.Depth < 1 || h.Depth > MaxDepth,
		h.Kind == Latency && h.Depth != 1,
		h.Messages > 2*MaxIterations,
		h.Time > uint64(2*MaxDuration):
		return hello{}, errRange
	}
	return h, nil
}

func parseReady(b []byte) (ready, error) {
	if len(b) < readySize || len(b) > readySize+reasonMax {
		return ready{}, errShort
	}
	b, err := body(b, typeReady)
	if err != nil {
		return ready{}, err
	}
	r := ready{
		Status: b[0], Receives: le.Uint32(b[4:]), RKey: le.Uint32(b[8:]), Length: le.Uint32(b[12:]),
		Addr: le.Uint64(b[16:]), Reason: string(b[24:]),
	}
	switch {
	case b[1] != 0 || b[2] != 0 || b[3] != 0:
		return ready{}, errReserved
	case r.Status > statusRefused || r.Reason != printable(r.Reason):
		return ready{}, errRange
	}
	return r, nil
}

// parseCount reads a Credit or a Done.
func parseCount(b []byte, typ byte) (uint64, error) {
	if len(b) != countSize {
		return 0, errShort
	}
	b, err := body(b, typ)
	if err != nil {
		return 0, err
	}
	return le.Uint64(b), nil
}

func parseResult(b []byte) (result, error) {
	if len(b) != resultSize {
		return result{}, errShort
	}
	b, err := body(b, typeResult)
	if err != nil {
		return result{}, err
	}
	return result{le.Uint64(b), le.Uint64(b[8:])}, nil
}

// printable makes a reason that is safe on a terminal and fits, because the
// other end's text is shown to a person.
func printable(s string) string {
	b := []byte(s)
	b = b[:min(len(b), reasonMax)]
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
