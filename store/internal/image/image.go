// Package image is the state of a group's shards as one stream of bytes: what a replica that is far
// behind gets in the place of entries.
//
//	sender     base at one moment --Reader--> bytes --network--> Load --> tables that no base has yet --receiver
//
// An image has what the base of the sender had at one moment, so it holds exactly what its state
// says: a checkpoint brings entries and state into the base in one step. What the sender has in
// its log alone, and in memory, is behind the image, and comes as entries.
//
// The bytes (little endian):
//
//	 0        8      12      16
//	+--------+------+-------+-------+---------+---------+-----+-----+
//	| magic  | size | flags | state | record  | record  | ... | end |
//	| 64     | 32   | 32    |       |         |         |     |     |
//	+--------+------+-------+-------+---------+---------+-----+-----+
//
//	flags    1: short, the sender has forgotten results of requests before their time
//
//	record   +------+-------+-----+-------+     end   +----+----+--------+------+
//	         | key  | value | key | value |           | 0  | 0  | count  | sum  |
//	         | 32   | 32    |     |       |           | 32 | 32 | 64     | 64   |
//	         +------+-------+-----+-------+           +----+----+--------+------+
//
// Keys are the base's, rising strictly, of the group's shards alone. A record has a checksum of its own,
// chained under its key (package disk), so a receiver believes none that was altered; count and
// sum, of all bytes before them, say that none is missing.
package image

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	magic    = 0x3147_4d49_564b_4452 // "RDKVIMG1"
	headLen  = 16
	pairLen  = 8
	endLen   = pairLen + 16
	maxState = 64 << 10
	// maxKey and maxValue bound what stands in a base: a listed key has its second in front, and a
	// record its head and its checksum.
	maxKey   = 3 + 8 + layout.MaxKeyLen
	maxValue = layout.MaxValueLen + 64
)

const short uint32 = 1 // a flag

// ErrImage: the bytes are no image of these shards, or not all of it. Nothing of it is used.
var ErrImage = errors.New("image: not what a replica sends")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrImage, fmt.Sprintf(format, args...))
}

// kinds of keys that an image has, of each shard.
var kinds = []disk.Kind{disk.KindData, disk.KindDedup, disk.KindExpiry, disk.KindValue}

// appendPair appends the head of a record.
func appendPair(b []byte, key, value int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(key))
	return binary.LittleEndian.AppendUint32(b, uint32(value))
}
