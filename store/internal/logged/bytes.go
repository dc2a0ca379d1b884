package logged

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Where a value stands that is in a table of values, in the place of the value:
//
//	 0       8        16       24       32      40
//	+-------+--------+--------+--------+-------+
//	| table | number | offset | length | sum   |
//	| 64    | 32, 0  | 64     | 64     | 64    |
//	+-------+--------+--------+--------+-------+
//
//	table   its number, which is not 0
//	number  of the value in it
//	offset  of its bytes in the file
//	length  of the value
//	sum     xxh3-64 of the value
const (
	offBytesTable  = 0
	offBytesNumber = offBytesTable + 8
	offBytesOffset = offBytesNumber + 8
	offBytesLength = offBytesOffset + 8
	offBytesSum    = offBytesLength + 8
	bytesLen       = offBytesSum + 8
)

// putBytes writes where a value stands.
func putBytes(b []byte, at *base.Bytes) {
	le := binary.LittleEndian
	le.PutUint64(b[offBytesTable:], at.Table)
	le.PutUint64(b[offBytesNumber:], uint64(at.Number))
	le.PutUint64(b[offBytesOffset:], at.Offset)
	le.PutUint64(b[offBytesLength:], at.Length)
	le.PutUint64(b[offBytesSum:], at.Sum)
}

// bytesOf reads where a value stands, of bytes that were verified.
func bytesOf(b []byte) *base.Bytes {
	le := binary.LittleEndian
	return &base.Bytes{
		Table: le.Uint64(b[offBytesTable:]), Number: uint32(le.Uint64(b[offBytesNumber:])), Offset: le.Uint64(b[offBytesOffset:]),
		Length: le.Uint64(b[offBytesLength:]), Sum: le.Uint64(b[offBytesSum:]),
	}
}

// checkBytes verifies where a value stands.
func checkBytes(b []byte) error {
	le := binary.LittleEndian
	table, number, offset, length := le.Uint64(b), le.Uint64(b[offBytesNumber:]), le.Uint64(b[offBytesOffset:]), le.Uint64(b[offBytesLength:])
	switch {
	case table == 0:
		return malformed("a value in a table without a number")
	case number >= 1<<32:
		return malformed("value %d of table %d", number, table)
	case length > layout.MaxValueLen || length == 0:
		return malformed("a value of %d bytes in table %d, must be 1 to %d", length, table, layout.MaxValueLen)
	case offset >= 1<<62:
		return malformed("a value at offset %d of table %d", offset, table)
	}
	return nil
}

// checkBytes verifies where the values stand that are in tables, which is there.
func (w *Write) checkBytes() error {
	if !w.tables {
		return nil
	}
	for e := range w.effectsAsTheyStand {
		if !e.inTable {
			continue
		}
		if err := checkBytes(e.Value); err != nil {
			return fmt.Errorf("the value of key %.40q: %w", e.Key, err)
		}
	}
	return nil
}
