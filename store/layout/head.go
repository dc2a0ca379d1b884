package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// A value that is larger than MaxValueLen is stored in parts. Each part is an ordinary
// value under a key of its own (partkey.go), and the value under the key itself is the
// head, which says what the parts are:
//
//	 0 │ mark 16                                    │
//	16 │ id of the upload 16                        │
//	32 │ bytes of the whole value 8                 │
//	40 │ bytes of a part 4     │ number of parts 4  │
//	48 │ XXH3-64 of part 1, of part 2, … 8 each     │
//	   │ XXH3-64 of all before                      │
//
// All parts but the last have the same length. A head has one encoding: what ParseHead
// takes is the same bytes when it is appended again.
//
// It is the mark that tells a head from other values, and nothing beside the value. So the
// log, the base, backups and memory carry a head as they carry any value, and cannot lose
// what it is. The mark is random, so no value has it that was not meant to be a head; a server
// stores what begins with it only if it is one, and all its parts are there. If a client could put
// such a value without that, others would read it as a value whose parts are lost.
//
// An item with a head has a flag besides (item.go), which says nothing new: it is for
// programs that know no heads, which take the item for none of theirs and ask the server.
const (
	// MaxWholeLen bounds a value that is stored in parts, in bytes.
	MaxWholeLen = 1 << 30
	// MinPartLen and MaxPartLen bound a part, but for the last of a value, in bytes.
	MinPartLen = 64 << 10
	MaxPartLen = 16 << 20
	// MaxParts bounds the parts of a value.
	MaxParts = 1024

	offHeadID    = markLen
	offHeadTotal = offHeadID + UploadIDLen
	offHeadPart  = offHeadTotal + 8
	offHeadParts = offHeadPart + 4
	offHeadSums  = offHeadParts + 4
	headMin      = offHeadSums + 2*8

	// MaxHeadLen is the length of the longest head, in bytes. It fits any message.
	MaxHeadLen = headMin + (MaxParts-1)*8

	markLen = 16
	// UploadIDLen is the length of an UploadID, in bytes.
	UploadIDLen = 16
)

// Random, and for ever: 16 bytes from a random source each.
const (
	headMark = "\xfc\xb1\xd4\x85\xa5\xa1\xcf\xf2\xe4\x8b\x72\xf0\xca\x16\x95\x18"
	partMark = "\xd8\x0b\x66\x35\x4a\x57\x35\xea\x57\x3b\x62\x4e\xa8\xeb\x55\xfd"
)

// An UploadID names the parts of one put of a large value. It is random, so that no two
// puts have the same.
type UploadID [UploadIDLen]byte

// A Shape is how a value is cut into parts.
type Shape struct {
	Total   int64 // bytes of the whole value
	PartLen int   // bytes of each part but the last
}

// Check says what is wrong with a shape: nil if the parts of a value can be cut like that.
func (s Shape) Check() error {
	switch {
	case s.Total < 1 || s.Total > MaxWholeLen:
		return fmt.Errorf("a value of %d bytes in parts, must be 1 to %d", s.Total, MaxWholeLen)
	case s.PartLen < MinPartLen || s.PartLen > MaxPartLen || s.PartLen%ChunkSize != 0:
		return fmt.Errorf("parts of %d bytes, must be %d to %d and a multiple of %d", s.PartLen, MinPartLen, MaxPartLen, ChunkSize)
	case s.Parts() > MaxParts:
		return fmt.Errorf("%d parts of %d bytes, at most %d are possible", s.Parts(), s.PartLen, MaxParts)
	}
	return nil
}

// Parts is the number of parts. They are numbered from 1.
func (s Shape) Parts() int { return int((s.Total + int64(s.PartLen) - 1) / int64(s.PartLen)) }

// Part is where part n lies in the value: an offset and a length, both in bytes.
func (s Shape) Part(n int) (off int64, length int) {
	off = int64(n-1) * int64(s.PartLen)
	return off, int(min(int64(s.PartLen), s.Total-off))
}

// A Head is what is stored under the key of a value in parts.
type Head struct {
	ID UploadID
	Shape
	Sums []uint64 // XXH3-64 of each part, Parts() of them
}

// ErrHead: a value begins with the mark of heads and is none.
var ErrHead = errors.New("layout: not the head of a value in parts")

// IsHead says whether a value begins as heads do. Such a value is a head, or damaged.
func IsHead(value []byte) bool {
	return len(value) >= markLen && string(value[:markLen]) == headMark
}

// AppendHead appends a head. Its shape has been checked, and there is a sum for each part;
// otherwise it panics.
func AppendHead(dst []byte, h Head) []byte {
	if err := h.Check(); err != nil || len(h.Sums) != h.Parts() {
		panic(fmt.Sprintf("layout: a head with %d sums of %+v: %v", len(h.Sums), h.Shape, err))
	}
	at := len(dst)
	dst = append(append(dst, headMark...), h.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Total))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.PartLen))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.Sums)))
	for _, sum := range h.Sums {
		dst = binary.LittleEndian.AppendUint64(dst, sum)
	}
	return binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[at:]))
}

// ParseHead reads a head from a value, which may be any bytes. Nothing of it aliases the
// value. The error wraps ErrHead.
func ParseHead(value []byte) (Head, error) {
	le := binary.LittleEndian
	if !IsHead(value) {
		return Head{}, ErrHead
	}
	if len(value) < headMin || len(value) > MaxHeadLen || len(value)%8 != 0 {
		return Head{}, fmt.Errorf("%w: %d bytes", ErrHead, len(value))
	}
	sums := value[offHeadSums : len(value)-8]
	if le.Uint64(value[len(value)-8:]) != xxh3.Hash(value[:len(value)-8]) {
		return Head{}, fmt.Errorf("%w: its sum does not hold", ErrHead)
	}
	total := le.Uint64(value[offHeadTotal:])
	if total > MaxWholeLen {
		return Head{}, fmt.Errorf("%w: a value of %d bytes", ErrHead, total)
	}
	h := Head{Shape: Shape{Total: int64(total), PartLen: int(le.Uint32(value[offHeadPart:]))}}
	copy(h.ID[:], value[offHeadID:])
	if err := h.Check(); err != nil {
		return Head{}, fmt.Errorf("%w: %w", ErrHead, err)
	}
	if n := le.Uint32(value[offHeadParts:]); int(n) != h.Parts() || len(sums) != 8*h.Parts() {
		return Head{}, fmt.Errorf("%w: %d parts with %d bytes of sums, of a value in %d parts", ErrHead, n, len(sums), h.Parts())
	}
	h.Sums = make([]uint64, h.Parts())
	for i := range h.Sums {
		h.Sums[i] = le.Uint64(sums[8*i:])
	}
	return h, nil
}

// WholeLen is the length of the value that stands for value: that of the whole one if
// value is a head, otherwise its own.
func WholeLen(value []byte) int64 {
	if h, err := ParseHead(value); err == nil {
		return h.Total
	}
	return int64(len(value))
}

// isPartKey says whether a key begins as those of parts do.
func isPartKey(key []byte) bool { return bytes.HasPrefix(key, []byte(partMark)) }
