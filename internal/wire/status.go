package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Status is how a request went. The numbers are part of the protocol and are
// never given a second meaning.
type Status uint16

const (
	StatusOK          Status = 0
	StatusNotFound    Status = 1  // the key does not exist
	StatusTooLarge    Status = 2  // the value exceeds Welcome.MaxValue
	StatusKeyEmpty    Status = 3  // a key has at least one byte
	StatusKeyTooLarge Status = 4  // the key exceeds Welcome.MaxKey
	StatusBadRequest  Status = 5  // the body does not parse, or a field is wrong
	StatusOverloaded  Status = 6  // a bound of the server is reached; try later
	StatusNoSpace     Status = 7  // the server's disk is full; gets go on
	StatusCorrupt     Status = 8  // stored bytes fail their check
	StatusChecksum    Status = 9  // the value READ from the client is not the one announced
	StatusClosing     Status = 10 // the server is shutting down; connect again
	StatusVersion     Status = 11 // no protocol version in common
	StatusAuth        Status = 12 // the secret is not the same on both sides
	StatusInternal    Status = 13 // a fault of the server; its log says more
	StatusBusy        Status = 14 // too many sessions; connect later
	StatusNoHold      Status = 15 // no such held place (any more)
	StatusUnknown     Status = 16 // the outcome of a write is not known
	StatusIdle        Status = 17 // the session was silent for too long
	StatusProtocol    Status = 18 // the peer broke the protocol
	StatusNotNumber   Status = 19 // the value to be incremented is no decimal int64
	StatusNumberRange Status = 20 // the sum does not fit into an int64
	StatusCrossShard  Status = 21 // the keys of a batch are not all of one shard
	StatusBadBatch    Status = 22 // a batch is empty, too long, or names a key twice
	StatusUnsupported Status = 23 // not in this mode of the server
	StatusMoved       Status = 24 // the key is another node's; the body is a Moved
	StatusNoMap       Status = 25 // a node of a cluster that has no shard map yet
	StatusDenied      Status = 26 // the tenant has not the right
	StatusNotLeader   Status = 27 // another replica leads the key's group; the body is a NotLeader
	statusCount              = 28
)

var statusTable = [statusCount]struct{ name, text string }{
	StatusOK:          {"ok", "done"},
	StatusNotFound:    {"not-found", "key not found"},
	StatusTooLarge:    {"too-large", "value too large"},
	StatusKeyEmpty:    {"key-empty", "key is empty"},
	StatusKeyTooLarge: {"key-too-large", "key too large"},
	StatusBadRequest:  {"bad-request", "request is malformed"},
	StatusOverloaded:  {"overloaded", "server is overloaded, try again later"},
	StatusNoSpace:     {"no-space", "server has no disk space left"},
	StatusCorrupt:     {"corrupt", "stored value is corrupt"},
	StatusChecksum:    {"checksum", "value changed while it was being put"},
	StatusClosing:     {"closing", "server is shutting down"},
	StatusVersion:     {"version", "no protocol version in common"},
	StatusAuth:        {"auth", "authentication failed"},
	StatusInternal:    {"internal", "internal error of the server"},
	StatusBusy:        {"busy", "server has too many sessions"},
	StatusNoHold:      {"no-hold", "held place is gone"},
	StatusUnknown:     {"unknown", "outcome of the write is not known"},
	StatusIdle:        {"idle", "session was silent for too long"},
	StatusProtocol:    {"protocol", "protocol violation"},
	StatusNotNumber:   {"not-number", "value is not a decimal integer"},
	StatusNumberRange: {"number-range", "number would leave the range of 64 bits"},
	StatusCrossShard:  {"cross-shard", "keys of a batch belong to different shards"},
	StatusBadBatch:    {"bad-batch", "batch is empty, too large, or names a key twice"},
	StatusUnsupported: {"unsupported", "server does not support this in its mode"},
	StatusMoved:       {"moved", "key belongs to another node"},
	StatusNoMap:       {"no-map", "cluster has no shard map yet: run kvclient cluster init"},
	StatusDenied:      {"denied", "tenant has not the right"},
	StatusNotLeader:   {"not-leader", "another node leads the replicas of the key"},
}

// String is the short name of the status, as metrics use it.
func (s Status) String() string {
	if int(s) < len(statusTable) {
		return statusTable[s].name
	}
	return fmt.Sprintf("Status(%d)", uint16(s))
}

// Err is nil for StatusOK, else a StatusError.
func (s Status) Err() error {
	if s == StatusOK {
		return nil
	}
	return StatusError(s)
}

// A StatusError is a status as an error. errors.Is compares two of them by
// value: errors.Is(err, wire.StatusNotFound.Err()).
type StatusError Status

func (e StatusError) Error() string {
	if int(e) < len(statusTable) {
		return statusTable[e].text
	}
	return Status(e).String()
}

// A RemoteError is a refusal with the server's own words. It unwraps to the
// StatusError of its status.
type RemoteError struct {
	Status Status
	Detail string // may be empty
}

func (e *RemoteError) Error() string {
	if e.Detail == "" {
		return StatusError(e.Status).Error()
	}
	return e.Detail
}

// Unwrap returns Status.Err().
func (e *RemoteError) Unwrap() error { return e.Status.Err() }

// StatusOf finds the status inside err: StatusOK for nil, StatusInternal for
// an error that carries none.
func StatusOf(err error) Status {
	if err == nil {
		return StatusOK
	}
	if se, ok := errors.AsType[StatusError](err); ok {
		return Status(se)
	}
	return StatusInternal
}

// MaxDetail bounds the text of a refusal in bytes; longer ones are cut.
const MaxDetail = 512

// AppendError appends the reply to a request of type t that was refused.
// Status must not be StatusOK. The text is cut to MaxDetail bytes.
func AppendError(dst []byte, t Type, id uint64, s Status, detail string) []byte {
	if s == StatusOK {
		panic("wire: AppendError with StatusOK")
	}
	start := len(dst)
	dst = begin(dst, t.Reply(), id)
	binary.LittleEndian.PutUint16(dst[start+offStatus:], uint16(s))
	return finish(append(dst, cutText(detail)...), start)
}

// ReplyError turns a reply's header and body into an error: nil for StatusOK,
// else a RemoteError. It copies the text. The bodies of StatusMoved and StatusNotLeader are no
// text, see ParseMoved and ParseNotLeader.
func ReplyError(h Header, body []byte) error {
	switch h.Status {
	case StatusOK:
		return nil
	case StatusMoved:
		m, err := ParseMoved(body)
		if err != nil {
			return &RemoteError{Status: h.Status}
		}
		return &RemoteError{Status: h.Status, Detail: "key belongs to node " + cleanText(m.Owner)}
	case StatusNotLeader:
		m, err := ParseNotLeader(body)
		if err != nil || len(m.Leader) == 0 {
			return &RemoteError{Status: h.Status}
		}
		return &RemoteError{Status: h.Status, Detail: "the replicas of the key are led by node " + cleanText(m.Leader)}
	}
	return &RemoteError{Status: h.Status, Detail: cleanText(body)}
}

// cutText cuts s to MaxDetail bytes at a rune boundary.
func cutText(s string) string {
	if len(s) <= MaxDetail {
		return s
	}
	n := MaxDetail
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cleanText makes a peer's text safe to print: at most MaxDetail bytes, and
// no control characters, which could steer a terminal.
func cleanText(b []byte) string {
	b = b[:min(len(b), MaxDetail)]
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		if r < ' ' || r == utf8.RuneError || r >= 0x7f && r < 0xa0 {
			r = '?'
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
