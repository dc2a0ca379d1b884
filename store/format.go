package store

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
// Shard 0xffff holds what concerns the whole store (kind meta only). Behind the
// kind stand
//
//	data    the user's key
//	dedup   client id 16 | slot 2 (BE): the newest result of that slot (dedup.go)
//	meta    a name (meta.go)
//	expiry  second 8 (BE) | the user's key: it expires by the end of that second
//	        of server time, unless it was written since (expire.go)
//
// Value (little endian), called a record:
//
//	 0        1       2            8                  16                 16/24              24/32
//	+--------+-------+------------+------------------+------------------+------------------+---------
//	| format | flags | reserved 0 | version          | expiry           | checksum         | value
//	| 8      | 8     | 48         | 64 (56 in use)   | 64, if flag 1    | 64               |
//	+--------+-------+------------+------------------+------------------+------------------+---------
//
// The checksum is xxh3-64 over the Pebble key and the whole record but for the
// checksum itself. Pebble has checksums of its own for blocks; this one also
// covers the way through memtable, blob files and our own code, and ties the
// value to its key.

// kind is the third byte of a Pebble key.
type kind uint8

const (
	kindData  kind = 1 // a user's key
	kindDedup kind = 2 // results kept for exactly-once (dedup.go)
	kindMeta  kind = 3 // facts about a shard or the store
	// kindExpiry lists keys by the second in which they expire (expire.go).
	kindExpiry kind = 4
)

// String names the kind for tools.
func (k kind) String() string {
	switch k {
	case kindData:
		return "data"
	case kindDedup:
		return "dedup"
	case kindMeta:
		return "meta"
	case kindExpiry:
		return "expiry"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

const (
	keyPrefixLen = 3
	storeShard   = 0xffff // the "shard" of the store's own keys

	recordFormat = 1
	flagExpiry   = 1 << 0

	offFormat   = 0
	offFlags    = offFormat + 1
	offReserved = offFlags + 1
	offVersion  = offReserved + 6
	offExpiry   = offVersion + 8 // only with flagExpiry

	recordHeader = offVersion + 8 + 8 // without expiry
)

// appendKey appends the Pebble key of key to dst.
func appendKey(dst []byte, shard uint16, k kind, key []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, shard)
	dst = append(dst, byte(k))
	return append(dst, key...)
}

// parseKey splits a Pebble key. The result aliases b.
func parseKey(b []byte) (shard uint16, k kind, key []byte, ok bool) {
	if len(b) < keyPrefixLen {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint16(b), kind(b[2]), b[keyPrefixLen:], true
}

// kindBounds returns the span of a shard's keys of one kind: [lower, upper).
func kindBounds(shard uint16, k kind) (lower, upper []byte) {
	return appendKey(nil, shard, k, nil), appendKey(nil, shard, k+1, nil)
}

// prefixBounds returns the span of a shard's data keys that start with prefix.
func prefixBounds(shard uint16, prefix []byte) (lower, upper []byte) {
	lower = appendKey(nil, shard, kindData, prefix)
	upper = append([]byte(nil), lower...)
	for i := len(upper) - 1; i >= 0; i-- {
		if upper[i]++; upper[i] != 0 {
			return lower, upper[:i+1]
		}
	}
	return lower, nil // unreachable: the kind byte is never 0xff
}

// A record is the parsed value of a Pebble key. Value aliases the parsed bytes.
type record struct {
	version layout.Version
	expiry  uint64 // microseconds since 1970; 0: none
	value   []byte
}

// recordSize returns the length of r on the disk.
func recordSize(valueLen int, expiry bool) int {
	if expiry {
		return recordHeader + 8 + valueLen
	}
	return recordHeader + valueLen
}

// putRecord writes the record into b, which must have exactly recordSize
// bytes. pkey is the Pebble key it will stand under.
func putRecord(b, pkey []byte, r record) {
	clear(b[:offVersion])
	b[offFormat] = recordFormat
	binary.LittleEndian.PutUint64(b[offVersion:], uint64(r.version))
	at := offExpiry
	if r.expiry != 0 {
		b[offFlags] |= flagExpiry
		binary.LittleEndian.PutUint64(b[at:], r.expiry)
		at += 8
	}
	if n := copy(b[at+8:], r.value); n != len(r.value) || at+8+n != len(b) {
		panic(fmt.Sprintf("store: record of %d bytes for a value of %d", len(b), len(r.value)))
	}
	binary.LittleEndian.PutUint64(b[at:], recordSum(pkey, b[:at], b[at+8:]))
}

// parseRecord verifies b, which stood under pkey, and returns what it holds.
// The error text is a detail for a CorruptError.
func parseRecord(b, pkey []byte) (record, error) {
	if len(b) < recordHeader {
		return record{}, fmt.Errorf("record of %d bytes is shorter than its header", len(b))
	}
	if b[offFormat] != recordFormat {
		return record{}, fmt.Errorf("record format %d, expected %d", b[offFormat], recordFormat)
	}
	r := record{version: layout.Version(binary.LittleEndian.Uint64(b[offVersion:]))}
	at := offExpiry
	if b[offFlags]&flagExpiry != 0 {
		if len(b) < recordHeader+8 {
			return record{}, fmt.Errorf("record of %d bytes is shorter than its header", len(b))
		}
		r.expiry = binary.LittleEndian.Uint64(b[at:])
		at += 8
	}
	r.value = b[at+8:]
	if got, want := recordSum(pkey, b[:at], r.value), binary.LittleEndian.Uint64(b[at:]); got != want {
		return record{}, fmt.Errorf("checksum %016x, expected %016x", got, want)
	}
	if b[offFlags]&^flagExpiry != 0 {
		return record{}, fmt.Errorf("unknown record flags %#x: written by a newer version", b[offFlags])
	}
	return r, nil
}

// recordSum is the checksum of a record: head and value chained under the key.
// Chaining by seed keeps it at one pass over the value with no copy.
func recordSum(pkey, head, value []byte) uint64 {
	return xxh3.HashSeed(value, xxh3.HashSeed(head, xxh3.Hash(pkey)))
}
