package e2e

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The values of these tests say which key they belong to and whether they are
// whole:

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordOverhead is the least size of a value, beside its key.
const recordOverhead = 2 + 8 + 4

// appendRecord appends a value of size bytes, or the least size.
func appendRecord(dst, key []byte, seq uint64, size int) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(key)))
	dst = append(dst, key...)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	fill := byte(seq)
	for len(dst)-start < size-4 {
		dst = append(dst, fill)
		fill = fill*5 + 1
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseRecord checks a value read under key and returns its sequence number.
func parseRecord(key, value []byte) (seq uint64, err error) {
	if len(value) < recordOverhead+len(key) {
		return 0, fmt.Errorf("key %q: a value of %d bytes is none of ours", key, len(value))
	}
	body, sum := value[:len(value)-4], binary.LittleEndian.Uint32(value[len(value)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return 0, fmt.Errorf("key %q: the value of %d bytes is not whole", key, len(value))
	}
	n := int(binary.LittleEndian.Uint16(body))
	if n != len(key) || string(body[2:2+n]) != string(key) {
		return 0, fmt.Errorf("key %q has the value of another key, of %d bytes", key, n)
	}
	return binary.LittleEndian.Uint64(body[2+n:]), nil
}
