package document

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// The bytes of an entry of the group's log (little endian). The log's record has the checksum:
//
//	 0        1     8      24     32
//	+--------+-----+------+------+----------------------
//	| format | 0   | name | term | entry of the content
//	| 8: 1   | 56  | 128  | 64   |
//	+--------+-----+------+------+----------------------
//
//	name  at random, so that whoever has proposed the entry knows it among those that are applied
//	term  in which it was proposed. An entry that stands in the log with another term is void
//
// A program that meets another format, or bits where zeros should be, must not go on, because it would part from the
// replicas that know it. An entry that is shorter than its head was written by no program: it is void at all replicas.
const (
	entryFormat = 1

	offName   = 8
	offTerm   = offName + nameLen
	entryHead = offTerm + 8

	nameLen = 16
)

// MaxEntry bounds what Do takes, in bytes. The node's log may take less.
const MaxEntry = consensus.MaxEntry - entryHead

// A name tells an entry from all others.
type name [nameLen]byte

func newName() (n name) {
	rand.Read(n[:]) // never fails
	return n
}

// appendEntry appends an entry as it is proposed.
func appendEntry(b []byte, n name, term uint64, data []byte) []byte {
	b = append(b, entryFormat, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, n[:]...)
	b = binary.LittleEndian.AppendUint64(b, term)
	return append(b, data...)
}

// parseEntry reads an entry that stands in the log with a term; data aliases it. It takes any bytes. void: the entry
// changes nothing, at no replica.
//
// Errors: consensus.ErrEntry.
func parseEntry(b []byte, term uint64) (n name, data []byte, void bool, err error) {
	if len(b) > 0 && b[0] != entryFormat {
		return n, nil, false, fmt.Errorf("format %d, expected %d: %w", b[0], entryFormat, consensus.ErrEntry)
	}
	if len(b) < entryHead {
		return n, nil, true, nil
	}
	if flags := binary.LittleEndian.Uint64(b) >> 8; flags != 0 {
		return n, nil, false, fmt.Errorf("flags %#x: %w", flags, consensus.ErrEntry)
	}
	copy(n[:], b[offName:])
	return n, b[entryHead:], binary.LittleEndian.Uint64(b[offTerm:]) != term, nil
}
