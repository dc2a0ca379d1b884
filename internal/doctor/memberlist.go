package doctor

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A ping of memberlist, by hand: doctor must be able to tell a wrong key from a
// blocked port, and memberlist only says that it failed. It takes no part in
// the cluster: a ping tells a member nothing about who sent it.
//
// A packet (UDP):
//
//	┌─────┬───┬───────┬ sealed with the key, if there is one ──────────┐
//	│ 244 │ n │ label │ 1 │ nonce 12 │ type, msgpack │ tag 16          │
//	└─────┴───┴───────┴────────────────────────────────────────────────┘
//
// authenticated along: the label. A stream (TCP) begins with the same label; a
// sealed message on it is
//
//	┌────┬───────────┬ sealed ───────────────────────────────┐
//	│ 10 │ length 4  │ 1 │ nonce 12 │ type, msgpack │ tag 16 │
//	└────┴───────────┴───────────────────────────────────────┘
//
// authenticated along: the first five bytes, and the label. Answers on a stream
// have no label.
const (
	gossipPing     = 0
	gossipAck      = 2
	gossipCompound = 7
	gossipSealed   = 10
	gossipCRC      = 12
	gossipErr      = 13
	gossipLabelled = 244

	sealVersion = 1
	sealHead    = 1 + 12 // version and nonce

	// maxAnswer bounds what a peer may say: an ack or an error is far below.
	maxAnswer = 4096
)

// errSealed: what came cannot be opened with any of our keys.
var errSealed = errors.New("the answer is sealed with another key")

// A gossipCodec makes pings and opens answers.
type gossipCodec struct {
	label string
	keys  [][]byte // the first one seals; none: nothing is sealed
}

// ping is the message itself: a map with the fields of memberlist's struct
// ping. The name of the sender is there because a node may be told to answer
// nobody without one; the name of the receiver is left empty, which is anybody.
func (g *gossipCodec) ping(seq uint32) []byte {
	b := []byte{gossipPing, 0x83}
	b = appendText(b, "SeqNo")
	b = binary.BigEndian.AppendUint32(append(b, 0xce), seq)
	b = appendText(appendText(b, "Node"), "")
	return appendText(appendText(b, "SourceNode"), "kvclient-doctor")
}

// appendText appends a msgpack string of at most 31 bytes.
func appendText(b []byte, s string) []byte {
	return append(append(b, 0xa0|byte(len(s))), s...)
}

func (g *gossipCodec) head() []byte {
	if g.label == "" {
		return nil
	}
	return append([]byte{gossipLabelled, byte(len(g.label))}, g.label...)
}

func (g *gossipCodec) seal(dst, msg, along []byte) ([]byte, error) {
	aead, err := newGCM(g.keys[0])
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, 12)
	rand.Read(nonce)
	dst = append(append(dst, sealVersion), nonce...)
	return aead.Seal(dst, nonce, msg, along), nil
}

func (g *gossipCodec) open(sealed, along []byte) ([]byte, error) {
	if len(sealed) < sealHead || sealed[0] != sealVersion {
		return nil, errSealed
	}
	for _, key := range g.keys {
		aead, err := newGCM(key)
		if err != nil {
			return nil, err
		}
		if msg, err := aead.Open(nil, sealed[1:sealHead], sealed[sealHead:], along); err == nil {
			return msg, nil
		}
	}
	return nil, errSealed
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// packet is a ping as a UDP packet.
func (g *gossipCodec) packet(seq uint32) ([]byte, error) {
	if len(g.keys) == 0 {
		return append(g.head(), g.ping(seq)...), nil
	}
	return g.seal(g.head(), g.ping(seq), []byte(g.label))
}

// stream is a ping as the beginning of a TCP stream.
func (g *gossipCodec) stream(seq uint32) ([]byte, error) {
	msg := g.ping(seq)
	if len(g.keys) == 0 {
		return append(g.head(), msg...), nil
	}
	size := sealHead + len(msg) + 16
	frame := binary.BigEndian.AppendUint32([]byte{gossipSealed}, uint32(size))
	sealed, err := g.seal(nil, msg, append(bytes.Clone(frame), g.label...))
	if err != nil {
		return nil, err
	}
	return append(append(g.head(), frame...), sealed...), nil
}

// fromPacket is the message in a UDP packet that came back.
func (g *gossipCodec) fromPacket(b []byte) ([]byte, error) {
	head := g.head()
	if !bytes.HasPrefix(b, head) {
		return nil, errors.New("the answer has another label")
	}
	b = b[len(head):]
	if len(g.keys) > 0 {
		var err error
		if b, err = g.open(b, []byte(g.label)); err != nil {
			return nil, err
		}
	}
	if len(b) >= 5 && b[0] == gossipCRC {
		if crc32.ChecksumIEEE(b[5:]) != binary.BigEndian.Uint32(b[1:5]) {
			return nil, errors.New("the answer's checksum is wrong")
		}
		b = b[5:]
	}
	return b, nil
}

// hasAck reports whether msg answers the ping seq, alone or among other
// messages: a member puts what it has to tell everybody into the same packet.
//
//	┌───┬─ n ─┬ length 2, n times ┬ messages ┐
//	│ 7 │     │                   │          │
//	└───┴─────┴───────────────────┴──────────┘
func hasAck(msg []byte, seq uint32) bool {
	if len(msg) < 2 || msg[0] != gossipCompound {
		return isAck(msg, seq)
	}
	n := int(msg[1])
	if len(msg) < 2+2*n {
		return false
	}
	lengths, rest := msg[2:2+2*n], msg[2+2*n:]
	for i := range n {
		size := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if size > len(rest) {
			return false
		}
		if isAck(rest[:size], seq) {
			return true
		}
		rest = rest[size:]
	}
	return false
}

// fromStream reads the message that comes back on a stream. io.EOF: the peer
// closed it without a word. A peer of another key answers all the same, with an
// error that is sealed with its own.
func (g *gossipCodec) fromStream(r io.Reader) ([]byte, error) {
	first := make([]byte, 5)
	if _, err := io.ReadFull(r, first[:1]); err != nil {
		return nil, err
	}
	if first[0] != gossipSealed {
		rest, err := io.ReadAll(io.LimitReader(r, maxAnswer))
		if err != nil && len(rest) == 0 {
			return nil, err
		}
		return append(first[:1], rest...), nil
	}
	if _, err := io.ReadFull(r, first[1:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(first[1:])
	if n > maxAnswer {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	sealed := make([]byte, n)
	if _, err := io.ReadFull(r, sealed); err != nil {
		return nil, err
	}
	return g.open(sealed, append(first, g.label...))
}

// isAck reports whether msg answers the ping seq.
func isAck(msg []byte, seq uint32) bool {
	if len(msg) < 2 || msg[0] != gossipAck {
		return false
	}
	_, rest, ok := bytes.Cut(msg, append([]byte{0xa5}, "SeqNo"...))
	if !ok || len(rest) == 0 {
		return false
	}
	switch {
	case rest[0] < 0x80:
		return uint32(rest[0]) == seq
	case rest[0] == 0xce && len(rest) >= 5:
		return binary.BigEndian.Uint32(rest[1:]) == seq
	}
	return false
}

// A refusal is what a node of ours says in clear before it closes a stream: that
// it is of another cluster, does not talk to this address, or has no time.
//
//	┌─────┬─────┬────────┬────────┬──────┐
//	│ 0xE7│ RKV │ reason │ length │ text │
//	└─────┴─────┴────────┴────────┴──────┘
type refusal struct {
	reason byte
	text   string // for refusedLabel: the peer's own label
}

const (
	refusedLabel = 1
	refusedAllow = 2
	refusedBusy  = 3
)

func parseRefusal(msg []byte) (r refusal, ok bool) {
	rest, ok := bytes.CutPrefix(msg, []byte("\xe7RKV"))
	if !ok || len(rest) < 2 || len(rest) < 2+int(rest[1]) {
		return refusal{}, false
	}
	return refusal{rest[0], OneLine(string(rest[2 : 2+int(rest[1])]))}, true
}

// errText is the text of an error that a peer answered, for people.
func errText(msg []byte) (text string, ok bool) {
	if len(msg) < 2 || msg[0] != gossipErr {
		return "", false
	}
	_, rest, ok := bytes.Cut(msg, append([]byte{0xa5}, "Error"...))
	if !ok {
		return "", true
	}
	// A msgpack string: its head has one to three bytes, none of which is text.
	for len(rest) > 0 && (rest[0] < ' ' || rest[0] > '~') {
		rest = rest[1:]
	}
	return OneLine(string(rest)), true
}
