package layout

import (
	"errors"
	"fmt"
)

// These say what can be wrong with bytes that were READ. The parsers of single
// items, beats and ring entries return these values themselves, so that a get
// that meets a torn item allocates nothing; ParseRegionHeader wraps them with
// detail. None of them says anything about a key: the reader reads again, and
// then asks.
var (
	// ErrTorn: the checksum does not hold. The item was overwritten between
	// two words of the READ, or the place holds something else by now.
	ErrTorn = errors.New("layout: checksum does not hold (torn or reused memory)")
	// ErrShort: more bytes are needed than were given; ItemView.Need says how
	// many. The lengths that say so are not verified.
	ErrShort = errors.New("layout: more bytes needed")
	// ErrFormat: the bytes are not such a structure at all.
	ErrFormat = errors.New("layout: not the expected structure")
	// ErrFormatVersion: written in another format version. The text names both.
	ErrFormatVersion = errors.New("layout: other format version")
	// ErrIncarnation: written by another incarnation of the server.
	ErrIncarnation = errors.New("layout: other incarnation")
)

// An item:
//
//	 0 │ version 56                                      │ state 8 │
//	 8 │ key length 13 │ value length 27 │ shard 12 │ flags 12     │
//	16 │ checksum                                                  │
//	24 │ expiry, microseconds since 1970         only if flagged   │
//	   │ checksum of chunk 0, chunk 1, …         only if chunked   │
//	   │ key                                                       │
//	   │ value, directly behind the key                            │
//	   │ zero to a multiple of 8                                   │
//
// A value above 64 KiB is chunked: every 64 KiB of it has a checksum of its
// own, so that ranges can be read and verified; the key is then padded so that
// the value begins on a word.
//
// The checksum is XXH3-64 over everything behind it (of a chunked item: up to
// the value), seeded with incarnation, place, version and the second word. Only
// the state is outside. So a body verifies at its own place, in its own
// incarnation, under its own version, and nowhere else: not after the place was
// reused, and not when its state word was sampled from the item before it. Zero
// stands for no checksum; a sum of zero is written as one.
//
// XXH3 is no cipher. It tells whether an item was torn or its place reused; it
// does not keep a client from making bytes that look like an item. The rules
// for reuse (docs/correctness.md) decide which bytes may stand at a place.
const (
	offItemWord0 = 0
	offItemWord1 = offItemWord0 + wordSize
	offItemSum   = offItemWord1 + wordSize
	// ItemHeaderSize is the part that every item has, in bytes.
	ItemHeaderSize = offItemSum + wordSize

	stateBits = 8
	stateMask = 1<<stateBits - 1

	valLenBits = 27
	keyLenPos  = 24 + valLenBits
	valLenPos  = 24
	shardPos   = 12
	flagsMask  = 1<<shardPos - 1

	flagExpiry  = 1 << 0
	flagChunked = 1 << 1
	flagHead    = 1 << 2 // the value is the head of one in parts (head.go)

	maxChunks = MaxValueLen / ChunkSize
	// MaxItemSize is the size of the largest item, in bytes.
	MaxItemSize = ItemHeaderSize + wordSize + maxChunks*wordSize + MaxKeyLen + MaxValueLen
	// MaxWholeItemSize is the size of the largest item that is not chunked:
	// it can only be verified as a whole.
	MaxWholeItemSize = ItemHeaderSize + wordSize + MaxKeyLen + ChunkSize
)

// The lengths must fit their fields.
var _ [1<<13 - 1 - MaxKeyLen]struct{}
var _ [1<<valLenBits - 1 - MaxValueLen]struct{}
var _ [1<<(valLenPos-shardPos) - MaxShards]struct{}

// An Item is what WriteItem writes. Key and Value are only read.
type Item struct {
	Version    Version
	Key, Value []byte
	Expiry     uint64 // microseconds since 1970, server time; 0: never
	// Shard is the shard that the item belongs to. Memory is shared by the
	// shards, and code that finds an item there (eviction does) must know which
	// shard's lock to take.
	Shard uint16
}

// A shape is where things are in an item of given lengths.
type shape struct {
	keyLen, valLen          int
	expiry                  bool
	chunks                  int // 0: not chunked
	sumsOff, keyOff, valOff int
	size                    int // multiple of 8
}

// shapeOf computes the offsets of an item. The lengths must be in range.
func shapeOf(keyLen, valLen int, expiry bool) shape {
	s := shape{keyLen: keyLen, valLen: valLen, expiry: expiry, sumsOff: ItemHeaderSize}
	if expiry {
		s.sumsOff += wordSize
	}
	s.keyOff = s.sumsOff
	if valLen > ChunkSize {
		s.chunks = (valLen + ChunkSize - 1) / ChunkSize
		s.keyOff += s.chunks * wordSize
		s.valOff = roundUp(s.keyOff + keyLen)
	} else {
		s.valOff = s.keyOff + keyLen
	}
	s.size = roundUp(s.valOff + valLen)
	return s
}

func roundUp(n int) int { return (n + wordSize - 1) &^ (wordSize - 1) }

// sumEnd is where the part under the item's checksum ends.
func (s *shape) sumEnd() int {
	if s.chunks > 0 {
		return s.valOff
	}
	return s.size
}

// word1 is the second word of an item: lengths, shard and flags.
func (s *shape) word1(shard uint16) uint64 {
	w := uint64(s.keyLen)<<keyLenPos | uint64(s.valLen)<<valLenPos | uint64(shard)<<shardPos
	if s.expiry {
		w |= flagExpiry
	}
	if s.chunks > 0 {
		w |= flagChunked
	}
	return w
}

func checkLens(keyLen, valLen int) {
	if keyLen < 1 || keyLen > MaxKeyLen || valLen < 0 || valLen > MaxValueLen {
		panic(fmt.Sprintf("layout: item with a key of %d and a value of %d bytes; limits are 1 to %d and 0 to %d",
			keyLen, valLen, MaxKeyLen, MaxValueLen))
	}
}

// ItemSize is the size of an item with that key and value, in bytes, a
// multiple of 8. Lengths out of range panic.
func ItemSize(keyLen, valLen int, expiry bool) int {
	checkLens(keyLen, valLen)
	return shapeOf(keyLen, valLen, expiry).size
}

// HeadSize is the number of bytes that ParseItem needs of such an item: of a
// chunked one everything before the value, else all of it.
func HeadSize(keyLen, valLen int, expiry bool) int {
	checkLens(keyLen, valLen)
	s := shapeOf(keyLen, valLen, expiry)
	return s.sumEnd()
}

func word0(v Version, s State) uint64 { return uint64(v)<<stateBits | uint64(s) }

// mix folds four words into a seed. For each argument it is a bijection when
// the others are fixed, so that two items that differ in one of them never
// share a seed.
func mix(a, b, c, d uint64) uint64 {
	h := scramble(a ^ 0x9e3779b97f4a7c15)
	h = scramble(h ^ b)
	h = scramble(h ^ c)
	return scramble(h ^ d)
}

// scramble is the finalizer of SplitMix64, a bijection.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// itemSeed is the seed of an item's checksum.
func itemSeed(inc uint64, p Place, v Version, word1 uint64) uint64 {
	return mix(inc, uint64(p), uint64(v), word1)
}

// chunkSeed is the seed of the checksum of chunk i. The top bit keeps it apart
// from every item's seed: no key is that long.
func chunkSeed(inc uint64, p Place, v Version, i int) uint64 {
	return mix(inc, uint64(p), uint64(v), 1<<63|uint64(i))
}

// nonzero keeps zero free to mean "no checksum".
func nonzero(sum uint64) uint64 { return max(sum, 1) }
