package layout

import "fmt"

// A Place is a position in the store's place space, in 8-byte units. Regions
// are laid into that space one behind the other, and a range that was given to
// a region is not given to another one within an incarnation: a place that a
// client remembers means the same memory or none.
type Place uint64

const (
	placeBits = 40 // 2^40 words: 8 TiB
	placeMask = 1<<placeBits - 1
	// MaxPlace is the last place there is.
	MaxPlace Place = placeMask
	// Nowhere is the place of an item that stands in no region: no READ finds it.
	// No region reaches so far.
	Nowhere = MaxPlace
)

// Byte is the place as a byte address in the place space.
func (p Place) Byte() uint64 { return uint64(p) * wordSize }

// PlaceOfByte is the inverse of Place.Byte. The offset is rounded down to a
// word; everything that has a place begins on one.
func PlaceOfByte(off uint64) Place { return Place(off / wordSize) }

func (p Place) String() string { return fmt.Sprintf("@%#x", p.Byte()) }

// A Version numbers a write: epoch (16 bits) in front of a sequence number (40
// bits), together 56 bits. 0 means none.
//
// Within an incarnation no two writes have the same version, *whatever their
// shards*: shards share the slabs, and the state word of one shard's item with
// the body of the next shard's item at the same place must not verify together.
// Versions of one key rise.
type Version uint64

const (
	versionBits = 56
	sequenceBit = 40
	// MaxVersion is the last version there is.
	MaxVersion Version = 1<<versionBits - 1
)

// MakeVersion joins an epoch and a sequence number (below 2^40).
func MakeVersion(epoch uint16, sequence uint64) Version {
	if sequence >= 1<<sequenceBit {
		panic(fmt.Sprintf("layout: sequence number %d needs more than %d bits", sequence, sequenceBit))
	}
	return Version(epoch)<<sequenceBit | Version(sequence)
}

// A write of a replicated group has a number instead of an epoch and a sequence number, because
// all replicas give it the same version, and none of them knows how often the others have
// started. The shard is the low part: groups number each for themselves, and a version must be
// unique among all shards of a store.
//
//	55                    12 11      0
//	+-----------------------+---------+
//	| number in its group   | shard   |
//	+-----------------------+---------+
const shardBits = 12

var _ = [1]struct{}{}[MaxShards-1<<shardBits]

// MaxNumber is the last number there is in a group.
const MaxNumber uint64 = 1<<(versionBits-shardBits) - 1

// NumberedVersion is the version of the write with a number in its group.
func NumberedVersion(number uint64, shard uint16) Version {
	if number > MaxNumber || shard >= MaxShards {
		panic(fmt.Sprintf("layout: number %d of shard %d: numbers end at %d, shards at %d", number, shard, MaxNumber, MaxShards-1))
	}
	return Version(number)<<shardBits | Version(shard)
}

// Number is the number that NumberedVersion was given.
func (v Version) Number() uint64 { return uint64(v) >> shardBits }

// NumberedShard is the shard that NumberedVersion was given.
func (v Version) NumberedShard() uint16 { return uint16(v) & (MaxShards - 1) }

// Epoch is the high part of the version.
func (v Version) Epoch() uint16 { return uint16(v >> sequenceBit) }

// Sequence is the low part of the version.
func (v Version) Sequence() uint64 { return uint64(v) & (1<<sequenceBit - 1) }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Epoch(), v.Sequence()) }

// State is the life of an item, the low 8 bits of its first word. Everything
// but a live item makes a reader read again or ask.
type State uint8

const (
	// StateInvalid is what zeroed memory shows.
	StateInvalid State = 0
	// Pending: written, its put has not taken effect.
	Pending State = 1
	// Live: the store of this state is the instant at which the put took effect.
	Live State = 2
	// Dead: superseded or deleted; the place may be reused at once.
	Dead State = 3
	// Held: an answer of the SEND path kept for one caller. It verifies like an
	// item, and no slot ever points to it.
	Held State = 4
)

func (s State) valid() bool { return s >= Pending && s <= Held }

func (s State) String() string {
	switch s {
	case StateInvalid:
		return "invalid"
	case Pending:
		return "pending"
	case Live:
		return "live"
	case Dead:
		return "dead"
	case Held:
		return "held"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// RegionKind says what a region holds. Memory never changes its kind.
type RegionKind uint8

const (
	// KindIndex: root table, reclaim ring, directories, segments.
	KindIndex RegionKind = 1
	// KindItems: slabs.
	KindItems RegionKind = 2
)

func (k RegionKind) valid() bool { return k == KindIndex || k == KindItems }

func (k RegionKind) String() string {
	switch k {
	case KindIndex:
		return "index"
	case KindItems:
		return "items"
	}
	return fmt.Sprintf("RegionKind(%d)", uint8(k))
}

// A Region is one piece of registered memory: the unit of registration.
// Region 0 is the root region (RegionHeader).
type Region struct {
	ID   uint32
	Kind RegionKind
	// Base is where it begins in the place space; Length is in bytes. Both
	// are multiples of RegionGranule.
	Base   Place
	Length uint64
}

// End is the byte address in the place space behind the region.
func (r Region) End() uint64 { return r.Base.Byte() + r.Length }

// Contains reports whether n bytes at p lie inside the region.
func (r Region) Contains(p Place, n uint64) bool {
	off := p.Byte()
	return off >= r.Base.Byte() && off < r.End() && n <= r.End()-off
}

// check verifies kind, base and length of a region.
func (r Region) check() error {
	switch {
	case !r.Kind.valid():
		return fmt.Errorf("%w: region %d: kind %d", ErrFormat, r.ID, uint8(r.Kind))
	case r.Base > MaxPlace, r.Base.Byte()%RegionGranule != 0:
		return fmt.Errorf("%w: region %d: base %v", ErrFormat, r.ID, r.Base)
	case r.Length == 0, r.Length%RegionGranule != 0, r.Length > (placeMask+1)*wordSize-r.Base.Byte():
		return fmt.Errorf("%w: region %d: length %d at %v", ErrFormat, r.ID, r.Length, r.Base)
	}
	return nil
}
