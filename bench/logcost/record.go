package main

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// A log as it may look, for its costs alone: the store's own may differ in fields,
// and hardly in bytes. Little endian.
//
// Group, whole blocks of 4 KiB:
//
//	 0        8         16      24     32      36      40          48     56         64
//	+--------+---------+-------+------+-------+-------+-----------+------+----------+---------+----
//	| number | position| life  | salt | count | bytes | durable   | sum  | reserved | records | 0
//	| 64     | 64      | 64    | 64   | 32    | 32    | 64        | 64   | 64       |         |
//	+--------+---------+-------+------+-------+-------+-----------+------+----------+---------+----
//
// The sum is over the head without it, and over the records. Record, filled up to 8 bytes:
//
//	 0      4      6      7       8       10     12       16        24       32          48    56
//	+------+------+------+-------+-------+------+--------+---------+--------+-----------+-----+-----+-------
//	| size | klen | kind | flags | shard | slot | seq    | version | stream | client id | sum | key | value
//	| 32   | 16   | 8    | 8     | 16    | 16   | 32     | 64      | 64     | 128       | 64  |     |
//	+------+------+------+-------+-------+------+--------+---------+--------+-----------+-----+-----+-------
//
// The sum is over the head without it, the key, the value, and, as seed, the place of the record
// in this use of the segment.
const (
	blockSize = 4 << 10

	groupNumber  = 0
	groupAt      = groupNumber + 8
	groupLife    = groupAt + 8
	groupSalt    = groupLife + 8
	groupCount   = groupSalt + 8
	groupBytes   = groupCount + 4
	groupDurable = groupBytes + 4
	groupSum     = groupDurable + 8
	groupHead    = groupSum + 16

	recordSize    = 0
	recordKeyLen  = recordSize + 4
	recordKind    = recordKeyLen + 2
	recordShard   = recordKind + 2
	recordSlot    = recordShard + 2
	recordSeq     = recordSlot + 2
	recordVersion = recordSeq + 4
	recordStream  = recordVersion + 8
	recordClient  = recordStream + 8
	recordSum     = recordClient + 16
	recordHead    = recordSum + 8

	groupLimit = 16 << 10 // where these groups are cut: 4 blocks
	segmentTag = 7        // number of the segment
	lifeTag    = 3
	saltTag    = 0x9e3779b97f4a7c15
)

// appendRecord appends a record that stands at place at of the segment.
func appendRecord(dst []byte, at int, shard uint16, version uint64, key, value []byte) []byte {
	begin := len(dst)
	dst = append(dst, make([]byte, recordHead)...)
	dst = append(append(dst, key...), value...)
	b := dst[begin:]
	binary.LittleEndian.PutUint32(b[recordSize:], uint32(len(b)))
	binary.LittleEndian.PutUint16(b[recordKeyLen:], uint16(len(key)))
	b[recordKind] = 1
	binary.LittleEndian.PutUint16(b[recordShard:], shard)
	binary.LittleEndian.PutUint64(b[recordVersion:], version)
	binary.LittleEndian.PutUint64(b[recordSum:], sumOfRecord(b, at))
	for len(dst)%8 != 0 {
		dst = append(dst, 0)
	}
	return dst
}

// sumOfRecord is the checksum of a record: of the head before the sum, mixed into the seed of
// that of key and value.
func sumOfRecord(b []byte, at int) uint64 {
	seed := xxh3.HashSeed(b[:recordSum], uint64(at)^saltTag)
	return xxh3.HashSeed(b[recordHead:], seed)
}

// sumOfGroup is the checksum of a group with so many bytes of records.
func sumOfGroup(b []byte, size int) uint64 {
	return xxh3.HashSeed(b[groupHead:groupHead+size], xxh3.HashSeed(b[:groupSum], saltTag))
}

// sealGroup writes the head of a group, and returns the group as whole blocks.
func sealGroup(b []byte, at, count int) []byte {
	size := len(b) - groupHead
	for _, f := range []struct {
		off int
		v   uint64
	}{{groupNumber, segmentTag}, {groupAt, uint64(at)}, {groupLife, lifeTag}, {groupDurable, uint64(at)}} {
		binary.LittleEndian.PutUint64(b[f.off:], f.v)
	}
	binary.LittleEndian.PutUint32(b[groupCount:], uint32(count))
	binary.LittleEndian.PutUint32(b[groupBytes:], uint32(size))
	binary.LittleEndian.PutUint64(b[groupSum:], sumOfGroup(b, size))
	return append(b, make([]byte, (blockSize-len(b)%blockSize)%blockSize)...)
}

// fillSegment fills a segment with groups of records until next has no more or the
// segment has no room. It returns how many records it took.
func fillSegment(segment []byte, next func(i int) (shard uint16, version uint64, key, value []byte)) (records int) {
	clear(segment)
	for at := 0; at+groupLimit <= len(segment); {
		group := make([]byte, groupHead, groupLimit)
		count := 0
		for {
			shard, version, key, value := next(records)
			need := recordHead + len(key) + len(value) + 8
			if count > 0 && len(group)+need > groupLimit || at+len(group)+need > len(segment) {
				break
			}
			group = appendRecord(group, at+len(group), shard, version, key, value)
			count, records = count+1, records+1
		}
		if count == 0 {
			break
		}
		at += copy(segment[at:], sealGroup(group, at, count))
	}
	return records
}

// A record is what eachRecord hands out. It aliases the segment.
type record struct {
	at      int // in the segment
	shard   uint16
	version uint64
	key     []byte
	value   []byte
}

// eachRecord calls f for the records of a segment, in order. Sums of groups are
// verified, and those of the records too if asked. It ends without error where no
// group stands; an error says what does not verify.
func eachRecord(segment []byte, sums bool, f func(r *record)) error {
	for at := 0; at+groupHead <= len(segment); {
		g := segment[at:]
		size, count := int(binary.LittleEndian.Uint32(g[groupBytes:])), int(binary.LittleEndian.Uint32(g[groupCount:]))
		if count == 0 {
			return nil
		}
		if size > len(g)-groupHead || binary.LittleEndian.Uint64(g[groupAt:]) != uint64(at) ||
			sumOfGroup(g, size) != binary.LittleEndian.Uint64(g[groupSum:]) {
			return fmt.Errorf("the group at %d does not verify", at)
		}
		if err := recordsOf(g[groupHead:groupHead+size], at+groupHead, count, sums, f); err != nil {
			return err
		}
		at += (groupHead + size + blockSize - 1) / blockSize * blockSize
	}
	return nil
}

// recordsOf walks the records of one group, which begin at place at of the segment.
func recordsOf(b []byte, at, count int, sums bool, f func(r *record)) error {
	var r record
	for range count {
		if len(b) < recordHead {
			return fmt.Errorf("the record at %d does not fit into its group", at)
		}
		size, klen := int(binary.LittleEndian.Uint32(b[recordSize:])), int(binary.LittleEndian.Uint16(b[recordKeyLen:]))
		if size < recordHead+klen || size > len(b) {
			return fmt.Errorf("the record at %d does not fit into its group", at)
		}
		if sums && sumOfRecord(b[:size], at) != binary.LittleEndian.Uint64(b[recordSum:]) {
			return fmt.Errorf("the record at %d does not verify", at)
		}
		r = record{at, binary.LittleEndian.Uint16(b[recordShard:]), binary.LittleEndian.Uint64(b[recordVersion:]),
			b[recordHead : recordHead+klen], b[recordHead+klen : size]}
		f(&r)
		next := min((size+7)/8*8, len(b))
		b, at = b[next:], at+next
	}
	return nil
}
