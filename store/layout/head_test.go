package layout

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

func headOf(total int64, partLen int) Head {
	h := Head{Shape: Shape{Total: total, PartLen: partLen}}
	for i := range h.ID {
		h.ID[i] = byte(0xa0 + i)
	}
	for n := range h.Parts() {
		h.Sums = append(h.Sums, 0x1111111111111111*uint64(n+1))
	}
	return h
}

// TestHeadGolden holds the bytes of a head, of a part's key and of an upload's record.
func TestHeadGolden(t *testing.T) {
	head := AppendHead(nil, headOf(100_000, MinPartLen))
	keys, ok := NewPartKeys(headOf(1, MinPartLen).ID, func(key []byte) bool { return xxh3.Hash(key[:offPartID])%64 == 5 })
	if !ok {
		t.Fatal("no nonce")
	}
	upload := AppendUpload(nil, Upload{Shape: Shape{Total: 100_000, PartLen: MinPartLen}, Key: []byte("film")})
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"head", head, "fcb1d485a5a1cff2e48b72f0ca169518a0a1a2a3a4a5a6a7a8a9aaabacadaeaf" +
			"a0860100000000000000010002000000" + "11111111111111112222222222222222" + goldenHeadSum},
		{"key of part 2", keys.Key(2), goldenPartKey},
		{"upload", upload, "a086010000000000" + "0000010000000000" + "66696c6d"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

const (
	goldenHeadSum = "79becbe95f540d3e"
	goldenPartKey = "d80b66354a5735ea573b624ea8eb55fd" + "7b30303030303066387d" + "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf" + "00000002"
)

// TestHeadRoundTrip: what is appended is parsed, for shapes at their bounds.
func TestHeadRoundTrip(t *testing.T) {
	for _, s := range []Shape{
		{1, MinPartLen}, {MinPartLen, MinPartLen}, {MinPartLen + 1, MinPartLen}, {MaxParts * MinPartLen, MinPartLen},
		{MaxWholeLen, MaxPartLen}, {MaxWholeLen, MaxWholeLen / MaxParts}, {MaxWholeLen - 1, 12 << 20},
	} {
		want := headOf(s.Total, s.PartLen)
		b := AppendHead([]byte("x"), want)[1:]
		got, err := ParseHead(b)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || !IsHead(b) || WholeLen(b) != s.Total || len(b) > MaxHeadLen {
			t.Errorf("%+v: %v, %d bytes", s, err, len(b))
		}
		end := int64(0)
		for n := 1; n <= s.Parts(); n++ {
			off, length := s.Part(n)
			if off != end || length < 1 || length > s.PartLen || length < s.PartLen && n < s.Parts() {
				t.Fatalf("%+v: part %d is %d bytes at %d", s, n, length, off)
			}
			end += int64(length)
		}
		if end != s.Total {
			t.Errorf("%+v: the parts have %d bytes", s, end)
		}
	}
}

// TestShapes: what no value is cut into is refused, in one line that says why.
func TestShapes(t *testing.T) {
	for _, s := range []Shape{
		{}, {-1, MinPartLen}, {MaxWholeLen + 1, MaxPartLen}, {1, 0}, {1, MinPartLen - ChunkSize}, {1, MinPartLen + 1},
		{1, MaxPartLen + ChunkSize}, {MaxParts*MinPartLen + 1, MinPartLen}, {1, -MinPartLen},
	} {
		if err := s.Check(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestHeadFlips: a head with any bit flipped is none.
func TestHeadFlips(t *testing.T) {
	b := AppendHead(nil, headOf(100_000, MinPartLen))
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := ParseHead(b); !errors.Is(err, ErrHead) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		if _, err := ParseHead(b[:n]); !errors.Is(err, ErrHead) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := ParseHead(append(b, 0)); !errors.Is(err, ErrHead) {
		t.Error("a byte behind the head")
	}
	if n := WholeLen([]byte("plain")); n != 5 {
		t.Errorf("a plain value of 5 bytes stands for %d", n)
	}
}

// TestHeadsHaveAFlag: an item with a head says so in its flags, where a program that knows no
// heads refuses it; every other item has the flags it had.
func TestHeadsHaveAFlag(t *testing.T) {
	mem := make([]byte, 1<<17)
	damaged := AppendHead(nil, headOf(100_000, MinPartLen))
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		value []byte
		flags uint64
	}{
		{AppendHead(nil, headOf(100_000, MinPartLen)), flagHead},
		{[]byte("value"), 0},
		{damaged, 0},
		{[]byte(headMark), 0},
		{append([]byte(headMark), make([]byte, ChunkSize)...), flagChunked},
	} {
		WriteItem(mem, 7, 64, Item{Version: 9, Key: []byte("k"), Value: c.value}, Pending)
		SetState(mem, 9, Live)
		if got := getWord(mem, offItemWord1) & flagsMask; got != c.flags {
			t.Errorf("a value of %d bytes has flags %#x, want %#x", len(c.value), got, c.flags)
		}
		it, err := ParseItem(mem, 7, 64)
		if err != nil || it.Chunks == 0 && !bytes.Equal(it.Value(), c.value) {
			t.Errorf("a value of %d bytes: %v", len(c.value), err)
		}
	}
}

// TestPartKeys: keys of one upload differ in the number alone, and are parsed back.
func TestPartKeys(t *testing.T) {
	id := headOf(1, MinPartLen).ID
	keys, ok := NewPartKeys(id, func(key []byte) bool { return xxh3.Hash(key[:offPartID])%512 == 3 })
	if !ok {
		t.Fatal("no nonce")
	}
	for _, n := range []int{UploadPart, 1, 2, MaxParts} {
		key := keys.Key(n)
		got, number, ok := ParsePartKey(key)
		if !ok || got != id || number != n || !IsPartKey(key) || !bytes.HasPrefix(key, PartPrefix()) {
			t.Errorf("part %d: %x, %d, %v", n, got, number, ok)
		}
	}
	for _, key := range [][]byte{nil, []byte("user"), PartPrefix(), keys.Key(MaxParts + 1), append(keys.Key(1), 0), keys.Key(1)[1:]} {
		if _, _, ok := ParsePartKey(key); ok {
			t.Errorf("%x is parsed", key)
		}
	}
	if strings.ContainsAny(partMark+headMark, "{}") {
		t.Error("a mark has braces: it would choose the shard")
	}
	if _, ok := NewPartKeys(id, func([]byte) bool { return false }); ok {
		t.Error("a shard that no key is in")
	}
}

// FuzzHead: what is parsed is the one encoding of what it says.
func FuzzHead(f *testing.F) {
	f.Add(AppendHead(nil, headOf(100_000, MinPartLen)))
	f.Add(AppendHead(nil, headOf(MaxWholeLen, MaxPartLen)))
	f.Add([]byte(headMark))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHead(b); err == nil && !bytes.Equal(AppendHead(nil, h), b) {
			t.Errorf("%x has another encoding", b)
		} else if err != nil && !errors.Is(err, ErrHead) {
			t.Error(err)
		}
		// With its sum made to hold.
		if len(b) >= headMin && len(b)%8 == 0 {
			b = append([]byte(headMark), b[markLen:len(b)-8]...)
			b = withSum(b)
			if h, err := ParseHead(b); err == nil && !bytes.Equal(AppendHead(nil, h), b) {
				t.Errorf("%x has another encoding", b)
			}
		}
	})
}

// withSum appends the sum of what is there.
func withSum(b []byte) []byte {
	s := xxh3.Hash(b)
	for i := range 8 {
		b = append(b, byte(s>>(8*i)))
	}
	return b
}

// FuzzUpload: likewise of records of uploads, and of keys of parts.
func FuzzUpload(f *testing.F) {
	f.Add(AppendUpload(nil, Upload{Shape: Shape{Total: 100_000, PartLen: MinPartLen}, Key: []byte("film")}))
	keys, _ := NewPartKeys(UploadID{1}, func([]byte) bool { return true })
	f.Add(keys.Key(3))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := ParseUpload(b); err == nil && !bytes.Equal(AppendUpload(nil, u), b) {
			t.Errorf("%x has another encoding", b)
		} else if err != nil && !errors.Is(err, ErrUpload) {
			t.Error(err)
		}
		if _, n, ok := ParsePartKey(b); ok && (n > MaxParts || !IsPartKey(b)) {
			t.Errorf("%x is part %d", b, n)
		}
	})
}
