package linear

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// recordMark is the first byte of a record. A number begins with a digit or '-'.
const recordMark = 'R'

// minRecord is the least size of a record: mark and number.
const minRecord = 1 + 8

// Bytes is a value as the store gets it: a number in decimal digits, or a record
// of size bytes that carries its own number throughout, so that a mixture of two
// is seen. The size is part of neither.
func (v Value) Bytes(size int) []byte {
	if v.Num {
		return strconv.AppendInt(nil, v.N, 10)
	}
	b := make([]byte, max(size, minRecord)+8)
	b[0] = recordMark
	binary.LittleEndian.PutUint64(b[1:], uint64(v.N))
	x := fill(v.N)
	for i := minRecord; i < len(b)-8; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b[:len(b)-8]
}

func fill(n int64) uint64 { return uint64(n)*0x9e3779b97f4a7c15 + 1 }

// Parse reads a value back and checks every byte of it.
func Parse(b []byte) (Value, error) {
	if len(b) > 0 && b[0] != recordMark {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return Value{}, fmt.Errorf("a value of %d bytes is neither a number nor a record: %.40q", len(b), b)
		}
		return Value{Num: true, N: n}, nil
	}
	if len(b) < minRecord {
		return Value{}, fmt.Errorf("a value of %d bytes is no record", len(b))
	}
	v := Value{N: int64(binary.LittleEndian.Uint64(b[1:]))}
	if want := v.Bytes(len(b)); !bytes.Equal(b, want) {
		i := 0
		for b[i] == want[i] {
			i++
		}
		return v, fmt.Errorf("record %d of %d bytes is a mixture: it differs from byte %d on", v.N, len(b), i)
	}
	return v, nil
}

// ParseFirst reads the number of a record from its first bytes, at least
// minRecord of them.
func ParseFirst(b []byte) (Value, error) {
	if len(b) < minRecord || b[0] != recordMark {
		return Parse(b)
	}
	return Value{N: int64(binary.LittleEndian.Uint64(b[1:]))}, nil
}
