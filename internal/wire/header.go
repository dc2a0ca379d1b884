package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Versions of the protocol that this package speaks. The two ends agree on
// one in the connection's private data; it then stands in every header.
const (
	VersionMin = 4
	VersionMax = 4
)

// HeaderSize is the size in bytes of the header of every message.
const HeaderSize = 48

// Offsets of the header fields, each derived from the one before.
const (
	offVersion  = 0
	offType     = offVersion + 1
	offStatus   = offType + 1
	offFlags    = offStatus + 2
	offCredits  = offFlags + 2
	offID       = offCredits + 2
	offLength   = offID + 8
	offReserved = offLength + 4
	offSequence = offReserved + 4
	offTag      = offSequence + SequenceSize
)

// The header ends where it says, and its 8-byte fields are aligned.
var (
	_ = [1]struct{}{}[offTag+TagSize-HeaderSize]
	_ = [1]struct{}{}[offID%8]
	_ = [1]struct{}{}[offSequence%8]
)

// Faults of a message. All are violations of the protocol: the session that
// sent it ends.
var (
	// ErrShort: the message ends before its last field.
	ErrShort = errors.New("wire: message cut off")
	// ErrTrailing: bytes stand behind the last field, or the header's body
	// length is not that of the SEND.
	ErrTrailing = errors.New("wire: length does not match the message")
	// ErrReserved: a reserved bit or byte is not zero.
	ErrReserved = errors.New("wire: reserved bytes are not zero")
	// ErrRange: a field holds a value that is not defined for it.
	ErrRange = errors.New("wire: field out of range")
	// ErrVersion: the header names a version this package does not speak.
	ErrVersion = errors.New("wire: unknown protocol version")
	// ErrType: the header names a message type that does not exist.
	ErrType = errors.New("wire: unknown message type")
	// ErrMagic: the private data is not ours: some other program is calling.
	ErrMagic = errors.New("wire: not this protocol")
)

// Type says what a message is. Replies have ReplyBit set.
type Type uint8

// These are the requests of the client, and the one message that a server sends unasked.
const (
	TypeHello    Type = 1  // authenticates the session; first message
	TypeView     Type = 2  // the region table, one page
	TypePut      Type = 3  // a value that fits into the message
	TypePutLarge Type = 4  // a value that the server READs from the client
	TypeDelete   Type = 5  //
	TypeGet      Type = 6  // the SEND path of a get
	TypeRelease  Type = 7  // gives a held place back
	TypeExists   Type = 8  //
	TypeScan     Type = 9  // one page of keys
	TypePing     Type = 11 // keepalive; needs no credit, no store lock
	TypeGoodbye  Type = 12 // server to client, unasked: the session will end
	// Version 2 brought these.
	TypeUpdate     Type = 13 // increment or touch
	TypeBatch      Type = 14 // several keys of one shard, all or nothing
	TypeBatchLarge Type = 15 // the same, READ from the client
	TypeWatch      Type = 16 // long poll for events
	TypeReport     Type = 17 // one-sided reads and damage, as the client saw them
	// Version 3 brought this.
	TypeFetch Type = 21 // a part of a held place, by SEND
	// Version 4 brought this. It took away 10, 18, 19 and 20, which are not used again.
	TypeDocument Type = 22 // a text, in parts: counters, the cluster, what the operator asks
	// Several messages in one (pack.go).
	TypePack Type = 23
	// What a reader of replicated keys has to know (groupinfo.go).
	TypeGroupInfo Type = 24

	// ReplyBit marks the reply to a request of the type below it.
	ReplyBit Type = 0x80
)

// MaxRequest is the highest request type.
const MaxRequest = TypeGroupInfo

var typeNames = [...]string{
	TypeHello: "Hello", TypeView: "View", TypePut: "Put", TypePutLarge: "PutLarge",
	TypeDelete: "Delete", TypeGet: "Get", TypeRelease: "Release", TypeExists: "Exists",
	TypeScan: "Scan", TypePing: "Ping", TypeGoodbye: "Goodbye",
	TypeUpdate: "Update", TypeBatch: "Batch", TypeBatchLarge: "BatchLarge", TypeWatch: "Watch", TypeReport: "Report",
	TypeFetch: "Fetch", TypeDocument: "Document", TypePack: "Pack",
	TypeGroupInfo: "GroupInfo",
}

// Reply returns the type of the reply to t.
func (t Type) Reply() Type { return t | ReplyBit }

// IsReply reports whether t is the type of a reply.
func (t Type) IsReply() bool { return t&ReplyBit != 0 }

// Request returns the request that t answers; a request is its own.
func (t Type) Request() Type { return t &^ ReplyBit }

// valid: requests, their replies, Goodbye, which has none, and packs of the first two.
func (t Type) valid() bool {
	return t.Request().IsRequest() || t == TypeGoodbye || t.Request() == TypePack
}

// IsRequest reports whether t is what a client asks.
func (t Type) IsRequest() bool {
	return int(t) < len(typeNames) && typeNames[t] != "" && t != TypeGoodbye && t != TypePack
}

func (t Type) String() string {
	r := t.Request()
	if int(r) >= len(typeNames) || typeNames[r] == "" {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	if t.IsReply() {
		return typeNames[r] + "Reply"
	}
	return typeNames[r]
}

// Flags modify a message.
type Flags uint16

const (
	// FlagWantCredits on a request: the client had to wait for credits and
	// could use more; the server may grant more with its reply.
	FlagWantCredits Flags = 1 << 0

	flagsKnown = FlagWantCredits
)

func (f Flags) String() string {
	switch {
	case f == 0:
		return "0"
	case f == FlagWantCredits:
		return "want-credits"
	}
	return fmt.Sprintf("Flags(%#x)", uint16(f))
}

// A Header is the first 48 bytes of a message, without the seal at their end
// (seal.go).
type Header struct {
	Version uint8
	Type    Type
	Status  Status // of replies and Goodbye; StatusOK in requests
	Flags   Flags
	Credits uint16 // messages that the sender is newly ready to receive
	ID      uint64 // chosen by the client, echoed by the reply
	Length  uint32 // bytes of the body
}

func (h Header) String() string {
	s := fmt.Sprintf("%v id=%d", h.Type, h.ID)
	if h.Type.IsReply() || h.Type == TypeGoodbye {
		s += " " + h.Status.String()
	}
	if h.Flags != 0 {
		s += " flags=" + h.Flags.String()
	}
	if h.Credits != 0 {
		s += fmt.Sprintf(" credits=+%d", h.Credits)
	}
	return s + fmt.Sprintf(" body=%d", h.Length)
}

// ParseHeader reads the header of msg, which is one whole SEND; the body is
// Body(msg). The seal is not looked at: Seal.Open has checked it. It fails with ErrShort, ErrVersion, ErrType, ErrReserved,
// ErrRange or ErrTrailing.
func ParseHeader(msg []byte) (Header, error) {
	if len(msg) >= HeaderSize && (msg[offVersion] < VersionMin || msg[offVersion] > VersionMax) {
		return Header{Version: msg[offVersion]}, ErrVersion
	}
	return parseHeader(msg)
}

// ParseHeaderIn is ParseHeader for a message in a session of a version, whichever the two ends have agreed on: each other one is ErrVersion.
func ParseHeaderIn(msg []byte, version uint8) (Header, error) {
	if len(msg) >= HeaderSize && msg[offVersion] != version {
		return Header{Version: msg[offVersion]}, fmt.Errorf("%w: version %d in a session of version %d", ErrVersion, msg[offVersion], version)
	}
	return parseHeader(msg)
}

// parseHeader reads the header, of whichever version.
func parseHeader(msg []byte) (Header, error) {
	if len(msg) < HeaderSize {
		return Header{}, ErrShort
	}
	h, err := parseHead(msg)
	switch {
	case err != nil:
		return h, err
	case uint64(h.Length) != uint64(len(msg)-HeaderSize):
		return h, ErrTrailing
	}
	return h, nil
}

// parseHead reads the header, of whichever version, but for its seal: what a message in a pack has of it. msg has as
// many bytes.
func parseHead(msg []byte) (Header, error) {
	h := Header{
		Version: msg[offVersion],
		Type:    Type(msg[offType]),
		Status:  Status(binary.LittleEndian.Uint16(msg[offStatus:])),
		Flags:   Flags(binary.LittleEndian.Uint16(msg[offFlags:])),
		Credits: binary.LittleEndian.Uint16(msg[offCredits:]),
		ID:      binary.LittleEndian.Uint64(msg[offID:]),
		Length:  binary.LittleEndian.Uint32(msg[offLength:]),
	}
	switch {
	case !h.Type.valid():
		return h, ErrType
	case h.Flags&^flagsKnown != 0 || binary.LittleEndian.Uint32(msg[offReserved:]) != 0:
		return h, ErrReserved
	case h.Status != StatusOK && !h.Type.IsReply() && h.Type != TypeGoodbye:
		return h, ErrRange
	}
	return h, nil
}

// Body returns the body of a message whose header has parsed.
func Body(msg []byte) []byte { return msg[HeaderSize:] }

// begin appends a header with the body length still open; finish closes it.
func begin(dst []byte, t Type, id uint64) []byte {
	dst = append(dst, VersionMax, byte(t), 0, 0, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, id)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	return append(dst, unsealed[:]...)
}

// unsealed stands in the header until the message is sealed.
var unsealed [SequenceSize + TagSize]byte

// finish writes the body length into the header that begin appended at start.
func finish(dst []byte, start int) []byte {
	n := len(dst) - start - HeaderSize
	binary.LittleEndian.PutUint32(dst[start+offLength:], uint32(n))
	return dst
}

// SetCredits writes the credits that msg grants. It may be called until the
// message is posted; a server does it last, when it knows what it re-posted.
func SetCredits(msg []byte, n uint16) {
	binary.LittleEndian.PutUint16(msg[offCredits:], n)
}

// SetFlags replaces the flags of an encoded message.
func SetFlags(msg []byte, f Flags) {
	binary.LittleEndian.PutUint16(msg[offFlags:], uint16(f))
}

// SetVersion replaces the version of an encoded message by the agreed one.
func SetVersion(msg []byte, v uint8) { msg[offVersion] = v }
