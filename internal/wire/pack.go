package wire

import "fmt"

// A pack is several messages of one direction in one SEND, under one seal. What a message
// costs besides its bytes is paid once for all of them:
//
//	┌header: Pack┬head┬body┬head┬body┬ … ┐
//	└48          ┴24  ┴…   ┴24  ┴…   ┴ … ┘
//
// Head is the header of a message without its seal, so the pack's seal covers what the messages'
// own would have. The pack's own header says nothing: request id, status, flags and credits are
// zero. Each message means what it would have meant alone, and they come in their order: a
// request spends a credit and is answered by itself, a reply gives its credits.
//
// A pack of requests is Pack, one of replies is Pack with ReplyBit; each is sent only to a peer
// that has named FeaturePack. It has from 2 to MaxPacked messages, none of which is Hello, Ping,
// Goodbye or a pack, or the reply to one: these are about the connection, and wait for nothing.

// MaxPacked is how many messages a pack has at most.
const MaxPacked = 64

// packedHead is the size of the head of a message in a pack.
const packedHead = offSequence

// Packable reports whether an encoded message may be in a pack.
func Packable(msg []byte) bool { return Type(msg[offType]).packable() }

func (t Type) packable() bool {
	t = t.Request()
	return t.IsRequest() && t != TypeHello && t != TypePing
}

// PackedSize is how many bytes an encoded message of n bytes takes in a pack, whose own header
// takes HeaderSize.
func PackedSize(n int) int { return n - HeaderSize + packedHead }

// BeginPack appends the header of a pack of requests, or of replies.
func BeginPack(dst []byte, t Type) []byte { return begin(dst, TypePack|t&ReplyBit, 0) }

// AppendPacked adds an encoded message, which is packable and not sealed, to the pack that is the
// whole of dst. Its version is the pack's.
func AppendPacked(dst, msg []byte) []byte {
	dst = append(dst, msg[:packedHead]...)
	dst = append(dst, msg[HeaderSize:]...)
	return finish(dst, 0)
}

// PackInto makes a pack, of one message yet, of the encoded message of n bytes at the beginning of
// buf, in place. buf has room for HeaderSize+PackedSize(n) bytes.
func PackInto(buf []byte, n int) []byte {
	var head [packedHead]byte
	copy(head[:], buf)
	copy(buf[HeaderSize+packedHead:], buf[HeaderSize:n])
	dst := BeginPack(buf[:0], Type(head[offType]))
	SetVersion(dst, head[offVersion])
	dst = append(dst, head[:]...)
	return finish(dst[:HeaderSize+PackedSize(n)], 0)
}

// ParsePack checks the pack of a header that has parsed, but for the bodies of its messages, and
// returns how many it has. Faults: ErrRange (its own header, the number of messages), and those
// of a message: ErrShort, ErrType, ErrVersion (another one than the pack's), ErrReserved, ErrRange.
func ParsePack(h Header, body []byte) (count int, err error) {
	if h.ID != 0 || h.Status != StatusOK || h.Flags != 0 || h.Credits != 0 {
		return 0, ErrRange
	}
	for len(body) > 0 {
		if count == MaxPacked {
			return 0, fmt.Errorf("%w: more than %d messages in a pack", ErrRange, MaxPacked)
		}
		if len(body) >= packedHead && body[offVersion] != h.Version {
			return 0, fmt.Errorf("message %d of a pack: %w", count, ErrVersion)
		}
		m, _, rest, err := NextPacked(body)
		switch {
		case err != nil:
			return 0, fmt.Errorf("message %d of a pack: %w", count, err)
		case m.Type.IsReply() != h.Type.IsReply():
			return 0, fmt.Errorf("message %d of a pack: %w", count, ErrType)
		}
		body = rest
		count++
	}
	if count < 2 {
		return 0, fmt.Errorf("%w: %d messages in a pack", ErrRange, count)
	}
	return count, nil
}

// NextPacked returns the first message of the body of a pack that ParsePack has checked, and what is behind it.
func NextPacked(pack []byte) (h Header, body, rest []byte, err error) {
	if len(pack) < packedHead {
		return Header{}, nil, nil, ErrShort
	}
	if h, err = parseHead(pack); err != nil {
		return h, nil, nil, err
	}
	if !h.Type.packable() {
		return h, nil, nil, ErrType
	}
	end := packedHead + uint64(h.Length)
	if end > uint64(len(pack)) {
		return h, nil, nil, ErrShort
	}
	return h, pack[packedHead:end:end], pack[end:], nil
}
