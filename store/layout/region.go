package layout

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// The header page, first 4096 bytes of each region:
//
//	    0                                  8                                16
//	  0 │ magic "RKVREGN1"                 │ version 2│kind 1│0│ region id 4  │
//	 16 │ incarnation                      │ base (place)                     │
//	 32 │ length, bytes                    │ hash seed                        │
//	 48 │ shards 4      │ root offset 4    │ reclaim offset 4 │ its entries 4 │
//	 64 │ reserved, zero                                                      │
//	112 │ reserved, zero                   │ checksum of bytes 0 to 119       │
//	128 │ region 0: the beat, 64 bytes (beat.go)                              │
//	192 │ reserved, zero, to 4096                                             │
//
// Region 0, the root region, holds behind that page the root table (one word
// per shard, rounded up to whole pages), then the reclaim ring, and then, in a store
// that may have replicas, their cells (cell.go); the rest of it is index memory like
// that of any region of kind index. Where a cell is, its replica tells. The last four
// fields speak of region 0 and stand in every header alike.
//
// The header is written once, before the region is registered, and never
// changed: it tells people and tools what they look at. A client's own table
// comes with its session and is not read from here.
const (
	regionMagic = 0x314e474552564b52 // "RKVREGN1" as a little-endian word

	offMagic       = 0
	offKind        = offMagic + wordSize
	offIncarnation = offKind + wordSize
	offBase        = offIncarnation + wordSize
	offLength      = offBase + wordSize
	offSeed        = offLength + wordSize
	offShards      = offSeed + wordSize
	offReclaim     = offShards + wordSize
	offReserved    = offReclaim + wordSize
	offHeaderSum   = 120
	// RegionHeaderSize is what ParseRegionHeader needs, in bytes.
	RegionHeaderSize = offHeaderSum + wordSize

	// headerSumSeed keeps the checksum of other structures from passing here.
	headerSumSeed = 0x72656769_6f6e3031
)

// The header must end where the beat begins.
var _ [0]struct{} = [BeatOffset - RegionHeaderSize]struct{}{}
var _ [offHeaderSum - offReserved - 56]struct{} = [0]struct{}{}

// A RegionHeader is the content of a header page.
type RegionHeader struct {
	Incarnation uint64
	Region
	Seed   uint64 // of HashKey
	Shards uint32 // 1 … MaxShards
	// RootOffset and ReclaimOffset are byte offsets in region 0.
	RootOffset, ReclaimOffset, ReclaimEntries uint32
}

// RootTableSize is the size of the root table of that many shards, in bytes:
// whole pages.
func RootTableSize(shards int) int {
	return (shards*wordSize + PageSize - 1) / PageSize * PageSize
}

// ReclaimRingSize is the size of a reclaim ring of that many entries, in
// bytes: whole pages.
func ReclaimRingSize(entries int) int {
	return (entries*RetiredSize + PageSize - 1) / PageSize * PageSize
}

func (h RegionHeader) check() error {
	if err := h.Region.check(); err != nil {
		return err
	}
	if err := checkRoot(h.Shards, h.RootOffset, h.ReclaimOffset, h.ReclaimEntries); err != nil {
		return err
	}
	if h.ID != 0 {
		return nil
	}
	if end := uint64(h.ReclaimOffset) + uint64(h.ReclaimEntries)*RetiredSize; h.Kind != KindIndex || end > h.Length {
		return fmt.Errorf("%w: region 0 is of kind %v and %d bytes long; it must be an index region of at least %d",
			ErrFormat, h.Kind, h.Length, end)
	}
	return nil
}

// checkRoot checks what a header and a View say of region 0.
func checkRoot(shards, root, reclaim, entries uint32) error {
	switch {
	case shards == 0 || shards > MaxShards:
		return fmt.Errorf("%w: %d shards, must be 1 to %d", ErrFormat, shards, MaxShards)
	case root < PageSize || root%PageSize != 0:
		return fmt.Errorf("%w: root table at %d", ErrFormat, root)
	case reclaim%PageSize != 0 || uint64(reclaim) < uint64(root)+uint64(shards)*wordSize:
		return fmt.Errorf("%w: reclaim ring at %d, root table of %d shards at %d", ErrFormat, reclaim, shards, root)
	case entries == 0:
		return fmt.Errorf("%w: reclaim ring without entries", ErrFormat)
	}
	return nil
}

// PutRegionHeader writes the header into mem, the region's memory, of which
// the rest of the header page stays as it is. Call it before the memory is
// registered. A header that ParseRegionHeader would refuse panics.
func PutRegionHeader(mem []byte, h RegionHeader) {
	if err := h.check(); err != nil {
		panic(err)
	}
	var b [RegionHeaderSize]byte
	for off, w := range [...]uint64{
		offMagic / wordSize:       regionMagic,
		offKind / wordSize:        uint64(FormatVersion) | uint64(h.Kind)<<16 | uint64(h.ID)<<32,
		offIncarnation / wordSize: h.Incarnation,
		offBase / wordSize:        uint64(h.Base),
		offLength / wordSize:      h.Length,
		offSeed / wordSize:        h.Seed,
		offShards / wordSize:      uint64(h.Shards) | uint64(h.RootOffset)<<32,
		offReclaim / wordSize:     uint64(h.ReclaimOffset) | uint64(h.ReclaimEntries)<<32,
	} {
		setWord(b[:], off*wordSize, w)
	}
	setWord(b[:], offHeaderSum, headerSum(b[:]))
	putBytes(mem, 0, b[:])
}

// ParseRegionHeader reads a header from the first RegionHeaderSize bytes or
// more of a region. It fails with ErrShort, ErrFormat, ErrFormatVersion or
// ErrTorn.
func ParseRegionHeader(b []byte) (RegionHeader, error) {
	if len(b) < RegionHeaderSize {
		return RegionHeader{}, fmt.Errorf("%w: region header of %d bytes, need %d", ErrShort, len(b), RegionHeaderSize)
	}
	if m := getWord(b, offMagic); m != regionMagic {
		return RegionHeader{}, fmt.Errorf("%w: region header begins with %#x", ErrFormat, m)
	}
	kind := getWord(b, offKind)
	if v := uint16(kind); v != FormatVersion {
		return RegionHeader{}, fmt.Errorf("%w: region written as version %d, this program reads %d", ErrFormatVersion, v, FormatVersion)
	}
	if getWord(b, offHeaderSum) != headerSum(b) {
		return RegionHeader{}, fmt.Errorf("region header: %w", ErrTorn)
	}
	if uint8(kind>>24) != 0 {
		return RegionHeader{}, fmt.Errorf("%w: reserved byte %#x in region header", ErrFormat, uint8(kind>>24))
	}
	h := RegionHeader{
		Incarnation: getWord(b, offIncarnation),
		Region: Region{
			ID:     uint32(kind >> 32),
			Kind:   RegionKind(kind >> 16),
			Base:   Place(getWord(b, offBase)),
			Length: getWord(b, offLength),
		},
		Seed:           getWord(b, offSeed),
		Shards:         uint32(getWord(b, offShards)),
		RootOffset:     uint32(getWord(b, offShards) >> 32),
		ReclaimOffset:  uint32(getWord(b, offReclaim)),
		ReclaimEntries: uint32(getWord(b, offReclaim) >> 32),
	}
	if err := h.check(); err != nil {
		return RegionHeader{}, err
	}
	return h, nil
}

func headerSum(b []byte) uint64 { return xxh3.HashSeed(b[:offHeaderSum], headerSumSeed) }
