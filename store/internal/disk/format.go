package disk

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// What stands in Pebble.
//
// Key:
//
//	 0        2      3
//	+--------+------+---------------------------
//	| shard  | kind | key, or a name of ours
//	| 16 BE  |  8   |
//	+--------+------+---------------------------
//
// Big endian, so that a shard is one span and keys inside it keep their order.
// Shard 0xffff holds what concerns the whole store (kinds meta and bytes). Behind the
// kind stand
//
//	data    the user's key
//	dedup   client id 16 | slot 2 (BE): the newest result of that slot (internal/dedup)
//	meta    a name (meta.go)
//	expiry  second 8 (BE) | the user's key: it expires by the end of that second
//	        of server time, unless it was written since
//	value   the user's key: its value, which stands apart from the record (apart.go)
//	bytes   only in shard 0xffff: a value in a table of values (bytes.go), which is no record
//
// Value (little endian), called a record:
//
//	 0        1       2            8                  16                 16/24              24/32
//	+--------+-------+------------+------------------+------------------+------------------+---------
//	| format | flags | reserved 0 | version          | expiry           | checksum         | value
//	| 8      | 8     | 48         | 64 (56 in use)   | 64, if flag 1    | 64               |
//	+--------+-------+------------+------------------+------------------+------------------+---------
//
// Flag 2 says that the value stands apart, and a note of it follows (apart.go). The
// checksum is xxh3-64 over the Pebble key and the whole record but for the
// checksum itself. Pebble has checksums of its own for blocks; this one also
// covers the way through memtable, blob files and our own code, and ties the
// value to its key.

// Kind is the third byte of a Pebble key.
type Kind uint8

const (
	KindData  Kind = 1 // a user's key
	KindDedup Kind = 2 // results kept for exactly-once (internal/dedup)
	KindMeta  Kind = 3 // facts about a shard or the store
	// KindExpiry lists keys by the second in which they expire.
	KindExpiry Kind = 4
)

// String names the kind for tools.
func (k Kind) String() string {
	switch k {
	case KindData:
		return "data"
	case KindDedup:
		return "dedup"
	case KindMeta:
		return "meta"
	case KindExpiry:
		return "expiry"
	case KindValue:
		return "value"
	case KindBytes:
		return "bytes"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

const (
	keyPrefixLen = 3
	StoreShard   = 0xffff // the "shard" of the store's own keys

	recordFormat = 1
	flagExpiry   = 1 << 0

	offFormat   = 0
	offFlags    = offFormat + 1
	offReserved = offFlags + 1
	offVersion  = offReserved + 6
	offExpiry   = offVersion + 8 // only with flagExpiry

	RecordHeader = offVersion + 8 + 8 // without expiry
)

// AppendKey appends the Pebble key of key to dst.
func AppendKey(dst []byte, shard uint16, k Kind, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, shard)
	dst = append(dst, byte(k))
	return append(dst, key...)
}

// ParseKey splits a Pebble key. The result aliases b.
func ParseKey(b []byte) (shard uint16, k Kind, key []byte, ok bool) {
	if len(b) < keyPrefixLen {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint16(b), Kind(b[2]), b[keyPrefixLen:], true
}

// appendExpiryKey appends the Pebble key of a listed key.
func appendExpiryKey(dst []byte, shard uint16, second uint64, key []byte) []byte {
	dst = AppendKey(dst, shard, KindExpiry, nil)
	return append(binary.BigEndian.AppendUint64(dst, second), key...)
}

// parseExpiryKey splits the part behind the kind.
func parseExpiryKey(b []byte) (second uint64, key []byte, ok bool) {
	if len(b) <= 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b), b[8:], true
}

// KindBounds returns the span of a shard's keys of one kind: [lower, upper).
func KindBounds(shard uint16, k Kind) (lower, upper []byte) {
	return AppendKey(nil, shard, k, nil), AppendKey(nil, shard, k+1, nil)
}

// PrefixBounds returns the span of a shard's data keys that start with prefix.
func PrefixBounds(shard uint16, prefix []byte) (lower, upper []byte) {
	lower = AppendKey(nil, shard, KindData, prefix)
	upper = append([]byte(nil), lower...)
	for i := len(upper) - 1; i >= 0; i-- {
		if upper[i]++; upper[i] != 0 {
			return lower, upper[:i+1]
		}
	}
	return lower, nil // unreachable: the kind byte is never 0xff
}

// A Record is the parsed value of a Pebble key. Value aliases the parsed bytes.
type Record struct {
	Version layout.Version
	Expiry  uint64 // microseconds since 1970; 0: none
	Value   []byte
}

// RecordSize returns the length of r on the disk.
func RecordSize(valueLen int, expiry bool) int {
	if expiry {
		return RecordHeader + 8 + valueLen
	}
	return RecordHeader + valueLen
}

// PutRecord writes the record into b, which must have exactly recordSize
// bytes. pkey is the Pebble key it will stand under.
func PutRecord(b, pkey []byte, r Record) {
	clear(b[:offVersion])
	b[offFormat] = recordFormat
	binary.LittleEndian.PutUint64(b[offVersion:], uint64(r.Version))
	at := offExpiry
	if r.Expiry != 0 {
		b[offFlags] |= flagExpiry
		binary.LittleEndian.PutUint64(b[at:], r.Expiry)
		at += 8
	}
	if n := copy(b[at+8:], r.Value); n != len(r.Value) || at+8+n != len(b) {
		panic(fmt.Sprintf("store: record of %d bytes for a value of %d", len(b), len(r.Value)))
	}
	binary.LittleEndian.PutUint64(b[at:], recordSum(pkey, b[:at], b[at+8:]))
}

// ParseRecord verifies b, which stood under pkey, and returns what it holds.
// The error text is a detail for a CorruptError.
func ParseRecord(b, pkey []byte) (Record, error) {
	if len(b) < RecordHeader {
		return Record{}, fmt.Errorf("record of %d bytes is shorter than its header", len(b))
	}
	if b[offFormat] != recordFormat {
		return Record{}, fmt.Errorf("record format %d, expected %d", b[offFormat], recordFormat)
	}
	r := Record{Version: layout.Version(binary.LittleEndian.Uint64(b[offVersion:]))}
	at := offExpiry
	if b[offFlags]&flagExpiry != 0 {
		if len(b) < RecordHeader+8 {
			return Record{}, fmt.Errorf("record of %d bytes is shorter than its header", len(b))
		}
		r.Expiry = binary.LittleEndian.Uint64(b[at:])
		at += 8
	}
	r.Value = b[at+8:]
	if got, want := recordSum(pkey, b[:at], r.Value), binary.LittleEndian.Uint64(b[at:]); got != want {
		return Record{}, fmt.Errorf("checksum %016x, expected %016x", got, want)
	}
	if b[offFlags]&^flagExpiry != 0 {
		return Record{}, fmt.Errorf("unknown record flags %#x: written by a newer version", b[offFlags])
	}
	return r, nil
}

// recordSum is the checksum of a record: head and value chained under the key.
// Chaining by seed keeps it at one pass over the value with no copy.
func recordSum(pkey, head, value []byte) uint64 {
	return xxh3.HashSeed(value, xxh3.HashSeed(head, xxh3.Hash(pkey)))
}
