package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// packCase makes a pack of two of the messages that testdata/messages has besides.
func packCase(t *testing.T, d *datadriven.TestData) []byte {
	id := num(t, d, "id")
	if d.HasArg("replies") {
		second := AppendError(nil, TypeUpdate, id+1, StatusNotNumber, "five")
		SetCredits(second, 2)
		return packOf(AppendWriteReply(nil, TypePut, id, WriteReply{Version: 8, Applied: true}), second)
	}
	second := AppendDelete(nil, id+1, Delete{Key: []byte("kb"), Terms: termsCase(t, d)})
	SetFlags(second, FlagWantCredits)
	return packOf(AppendPut(nil, id, Put{Key: []byte("ka"), Value: []byte("abc")}), second)
}

// packOf makes a pack of encoded messages, as a client does: in the buffer of the first.
func packOf(msgs ...[]byte) []byte {
	buf := make([]byte, 1<<16)
	copy(buf, msgs[0])
	pack := PackInto(buf, len(msgs[0]))
	for _, m := range msgs[1:] {
		pack = AppendPacked(pack, m)
	}
	return bytes.Clone(pack)
}

// unpack returns the messages of a pack that parses, each as if it had travelled alone.
func unpack(h Header, body []byte) (msgs [][]byte, err error) {
	count, err := ParsePack(h, body)
	if err != nil {
		return nil, err
	}
	for range count {
		m, b, rest, err := NextPacked(body)
		if err != nil {
			return nil, err
		}
		msg := append(append(bytes.Clone(body[:packedHead]), unsealed[:]...), b...)
		if again, err := ParseHeader(msg); err != nil || again != m {
			return nil, errors.Join(err, errors.New("it is another message alone"))
		}
		msgs, body = append(msgs, msg), rest
	}
	return msgs, nil
}

// reencodePack is reencode for a pack.
func reencodePack(h Header, body []byte) ([]byte, error) {
	msgs, err := unpack(h, body)
	if err != nil {
		return nil, err
	}
	pack := BeginPack(nil, h.Type)
	for _, m := range msgs {
		pack = AppendPacked(pack, m)
	}
	return pack, nil
}

// TestPackWays: a pack that is begun empty and one that is made in the buffer of its first message
// are the same bytes, of the size that was said.
func TestPackWays(t *testing.T) {
	put := AppendPut(nil, 3, Put{Key: []byte("k"), Value: make([]byte, 100)})
	del := AppendDelete(nil, 4, Delete{Key: []byte("kk")})
	a := packOf(put, del, put)
	b := BeginPack(nil, 0)
	for _, m := range [][]byte{put, del, put} {
		b = AppendPacked(b, m)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("\n%x\n%x", a, b)
	}
	if want := HeaderSize + 2*PackedSize(len(put)) + PackedSize(len(del)); len(a) != want {
		t.Errorf("%d bytes, not %d", len(a), want)
	}
}

// TestPackFaults changes a good pack in one thing at a time.
func TestPackFaults(t *testing.T) {
	put, del := AppendPut(nil, 1, Put{Key: []byte("k")}), AppendDelete(nil, 2, Delete{Key: []byte("k")})
	many := func(n int) [][]byte {
		msgs := make([][]byte, n)
		for i := range msgs {
			msgs[i] = del
		}
		return msgs
	}
	set := func(at int, b byte) func([]byte) []byte {
		return func(m []byte) []byte { m[at] = b; return m }
	}
	same := func(m []byte) []byte { return m }
	first, second := HeaderSize, HeaderSize+PackedSize(len(put))
	for _, c := range []struct {
		name   string
		msgs   [][]byte
		change func([]byte) []byte
		want   error
	}{
		{"two", many(2), same, nil},
		{"as many as there may be", many(MaxPacked), same, nil},
		{"one more", many(MaxPacked + 1), same, ErrRange},
		{"one", many(1), same, ErrRange},
		{"a request id", [][]byte{put, del}, set(offID, 1), ErrRange},
		{"credits", [][]byte{put, del}, set(offCredits, 1), ErrRange},
		{"a flag", [][]byte{put, del}, set(offFlags, 1), ErrRange},
		{"a status", [][]byte{AppendWriteReply(nil, TypePut, 1, WriteReply{}), AppendWriteReply(nil, TypePut, 1, WriteReply{})}, set(offStatus, 1), ErrRange},
		{"another version inside", [][]byte{put, del}, set(second, VersionMax+1), ErrVersion},
		{"no type inside", [][]byte{put, del}, set(second+offType, 0), ErrType},
		{"a Hello inside", [][]byte{put, del}, set(first+offType, byte(TypeHello)), ErrType},
		{"a Ping inside", [][]byte{put, del}, set(second+offType, byte(TypePing)), ErrType},
		{"a Goodbye inside", [][]byte{put, del}, set(second+offType, byte(TypeGoodbye)), ErrType},
		{"a pack inside", [][]byte{put, del}, set(second+offType, byte(TypePack)), ErrType},
		{"a reply among requests", [][]byte{put, del}, set(second+offType, byte(TypeDelete|ReplyBit)), ErrType},
		{"requests in a pack of replies", [][]byte{put, del}, set(offType, byte(TypePack|ReplyBit)), ErrType},
		{"reserved inside", [][]byte{put, del}, set(second+offReserved, 1), ErrReserved},
		{"a status inside", [][]byte{put, del}, set(second+offStatus, 1), ErrRange},
		{"longer than it is", [][]byte{put, del}, set(second+offLength+3, 0xff), ErrShort},
		{"shorter than it is", [][]byte{put, del}, set(second+offLength, 1), ErrVersion},
		{"a byte behind it", [][]byte{put, del}, func(m []byte) []byte { return finish(append(m, 0), 0) }, ErrShort},
	} {
		msg := c.change(packOf(c.msgs...))
		h, err := ParseHeader(msg)
		if err != nil {
			t.Errorf("%s: header: %v", c.name, err)
			continue
		}
		if n, err := ParsePack(h, Body(msg)); !errors.Is(err, c.want) || err == nil && n != len(c.msgs) {
			t.Errorf("%s: %d, %v, want %v", c.name, n, err, c.want)
		}
	}
}

// FuzzPack gives ParsePack arbitrary bodies. What parses is between 2 and MaxPacked messages, each
// of which parses alone, and they make the same pack again.
func FuzzPack(f *testing.F) {
	put, del := AppendPut(nil, 1, Put{Key: []byte("k"), Value: []byte("v")}), AppendDelete(nil, 2, Delete{Key: []byte("k")})
	f.Add(false, Body(packOf(put, del)))
	f.Add(false, Body(packOf(put)))
	f.Add(true, Body(packOf(AppendWriteReply(nil, TypePut, 1, WriteReply{Version: 9, Applied: true}), AppendError(nil, TypeGet, 2, StatusNotFound, "no"))))
	f.Fuzz(func(t *testing.T, reply bool, body []byte) {
		h := Header{Version: VersionMax, Type: TypePack, Length: uint32(len(body))}
		if reply {
			h.Type = TypePack.Reply()
		}
		n, err := ParsePack(h, body)
		if err != nil {
			return
		}
		msgs, err := unpack(h, body)
		if err != nil || n != len(msgs) || n < 2 || n > MaxPacked {
			t.Fatalf("%d messages, %d counted: %v", len(msgs), n, err)
		}
		for _, m := range msgs {
			if !Packable(m) {
				t.Fatalf("%x is not packable", m)
			}
		}
		if again := packOf(msgs...); !bytes.Equal(Body(again), body) {
			t.Fatalf("not canonical:\n%x\n%x", body, Body(again))
		}
	})
}
