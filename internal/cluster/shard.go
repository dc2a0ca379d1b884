package cluster

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// MaxShards is the largest number of shards that a cluster may be born with:
// a shard number has 12 bits in a bucket header.
const MaxShards = 1 << 12

// ShardOf returns the shard of a key among shards shards: xxhash64 of the
// key's HashPart, modulo shards.
//
// xxhash64 is unseeded on purpose. The index inside a shard uses a hash with
// a random seed that is different at each start (package layout); placement
// must be the same everywhere and for ever. A writer who aims at one shard can
// therefore make it hot, but cannot make its index degenerate.
//
// It panics if shards is not in 1..MaxShards: the number comes from a
// handshake or a store that has been validated before.
func ShardOf(key []byte, shards int) uint16 {
	if shards < 1 || shards > MaxShards {
		panic("cluster: number of shards out of range")
	}
	return uint16(xxhash.Sum64(HashPart(key)) % uint64(shards))
}

// HashPart returns the part of the key that decides its shard: what stands
// between the first '{' and the first '}' after it, if that is not empty, and
// else the whole key. This is the rule of Redis Cluster, so keys such as
// "{user:7}:name" and "{user:7}:mail" share a shard, and a batch over them can
// be atomic. The result aliases key.
func HashPart(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := bytes.IndexByte(key[open+1:], '}')
	if length <= 0 { // no closing brace, or an empty tag
		return key
	}
	return key[open+1 : open+1+length]
}
