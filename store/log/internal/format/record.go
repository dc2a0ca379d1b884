package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// A record:
//
//	  0      8      12     13      14     16       24      32     40
//	+------+------+------+-------+------+--------+-------+------+----------+-----------
//	| sum  | size | kind | flags | name | stream | index | term | body     | zeros up to
//	| 64   | 32   | 8    | 0     | 16   | 64     | 64    | 64   | size     | 8 bytes
//	+------+------+------+-------+------+--------+-------+------+----------+-----------
//
// The sum is xxh3-64 over everything behind it, padding included, seeded with the
// segment's salt and the record's position. So a record can be verified alone, when
// somebody reads one value out of the log, and cannot be taken for one at another place.
const (
	offRecordSum    = 0
	offRecordSize   = offRecordSum + 8
	offRecordKind   = offRecordSize + 4
	offRecordFlags  = offRecordKind + 1
	offRecordName   = offRecordFlags + 1
	offRecordStream = offRecordName + 2
	offRecordIndex  = offRecordStream + 8
	offRecordTerm   = offRecordIndex + 8

	// RecordHead is the length of a record without its body.
	RecordHead = offRecordTerm + 8
)

// Kind says what a record is.
type Kind uint8

const (
	// Write is what a stream appends, in its own words. The log does not look into it.
	Write Kind = 1
	// Entry is an entry of a replicated stream: it has an index and a term, and it takes
	// the place of all entries of its stream from its index on.
	Entry Kind = 2
	// Fact is a value that has a name in its stream, and takes the place of the fact of
	// the same name before it. An empty one removes the fact.
	Fact Kind = 3
)

// String names the kind for tools.
func (k Kind) String() string {
	switch k {
	case Write:
		return "write"
	case Entry:
		return "entry"
	case Fact:
		return "fact"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Record is one record. Body aliases what was parsed.
type Record struct {
	Position Position // of its first byte; set by the parser
	Kind     Kind
	Stream   uint64
	Name     uint16 // of a fact
	Index    uint64 // of an entry, or what the stream likes
	Term     uint64 // of an entry, or what the stream likes
	Body     []byte
}

// RecordSize is the length of a record with a body of so many bytes, padding included.
func RecordSize(body int) int { return recordLen(body) }

func recordLen(body int) int { return (RecordHead + body + Align - 1) &^ (Align - 1) }

// PutRecord writes the head of a record with a body of so many bytes at the start of b,
// which has RecordSize(body) bytes, and zeros behind where the body ends; it returns the
// place of the body, which the caller fills. The checksum is SealFrame's.
func PutRecord(b []byte, r *Record, body int) []byte {
	le := binary.LittleEndian
	le.PutUint64(b[offRecordSum:], 0)
	le.PutUint32(b[offRecordSize:], uint32(body))
	b[offRecordKind], b[offRecordFlags] = byte(r.Kind), 0
	le.PutUint16(b[offRecordName:], r.Name)
	le.PutUint64(b[offRecordStream:], r.Stream)
	le.PutUint64(b[offRecordIndex:], r.Index)
	le.PutUint64(b[offRecordTerm:], r.Term)
	clear(b[RecordHead+body:])
	return b[RecordHead : RecordHead+body : RecordHead+body]
}

// RecordAt returns the length, padding included, of the record at the start of b, of which
// the head is there, as the head says. It verifies nothing: what ParseRecord is given must
// be this long. It is at most RecordHead and 4 GiB.
func RecordAt(b []byte) int64 {
	return (RecordHead + int64(binary.LittleEndian.Uint32(b[offRecordSize:])) + Align - 1) &^ (Align - 1)
}

// ParseRecord verifies the record at the start of b, which stood at a position.
func ParseRecord(b []byte, salt uint64, at Position) (Record, error) {
	if _, _, err := checkRecord(b, salt, at); err != nil {
		return Record{}, err
	}
	r, _ := ViewRecord(b, at)
	return r, nil
}

// errSum does not say the sums. They are made with the salt, or of it, and error messages
// leave the server: whoever has the sums of known bytes could work the salt out.
var errSum = errors.New("the checksum does not hold")

// checkRecord verifies the record at the start of b and returns its length and its sum.
func checkRecord(b []byte, salt uint64, at Position) (n int, sum uint64, err error) {
	le := binary.LittleEndian
	if len(b) < RecordHead {
		return 0, 0, fmt.Errorf("%d bytes are shorter than the head of a record", len(b))
	}
	size := RecordAt(b)
	if size > int64(len(b)) {
		return 0, 0, fmt.Errorf("a record of %d bytes where %d are left", size, len(b))
	}
	n = int(size)
	sum = recordSum(b[:n], salt, at)
	if sum != le.Uint64(b[offRecordSum:]) {
		return 0, 0, errSum
	}
	if k := Kind(b[offRecordKind]); k < Write || k > Fact || b[offRecordFlags] != 0 {
		return 0, 0, fmt.Errorf("%v with flags %#x: %w", k, b[offRecordFlags], ErrNewer)
	}
	// One record has one encoding, so what a reader takes can be compared byte by byte.
	if used := RecordHead + int(le.Uint32(b[offRecordSize:])); used < n && le.Uint64(b[n-Align:n])>>(Align*(Align-(n-used))) != 0 {
		return 0, 0, fmt.Errorf("a record of %d bytes is not padded with zeros", used)
	}
	return n, sum, nil
}

// ViewRecord returns the record at the start of b, which was verified or is just being
// written, and its length. Its Body aliases b.
func ViewRecord(b []byte, at Position) (Record, int) {
	le := binary.LittleEndian
	size := int(le.Uint32(b[offRecordSize:]))
	return Record{
		Position: at, Kind: Kind(b[offRecordKind]), Stream: le.Uint64(b[offRecordStream:]), Name: le.Uint16(b[offRecordName:]),
		Index: le.Uint64(b[offRecordIndex:]), Term: le.Uint64(b[offRecordTerm:]), Body: b[RecordHead : RecordHead+size : RecordHead+size],
	}, recordLen(size)
}

// recordSum is the checksum of a record. The position goes through fold, so that two
// positions of one segment have seeds that differ in all bits.
func recordSum(b []byte, salt uint64, at Position) uint64 {
	return xxh3.HashSeed(b[offRecordSize:], fold(salt, uint64(at)))
}
