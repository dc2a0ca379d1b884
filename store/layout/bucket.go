package layout

import "fmt"

// A segment is an array of 64-byte buckets in index memory, 4 KiB aligned. It
// grows by quarters, always by copying into a new one, and then splits in two
// of step 0:
//
//	step   bytes    buckets   groups
//	0      16 KiB   256        85
//	1      20 KiB   320       106
//	2      24 KiB   384       128
//	3      28 KiB   448       149      buckets behind the last group stay empty
const (
	// SegmentSteps is the number of sizes a segment has.
	SegmentSteps = 4
	// BucketSize is the size of a bucket in bytes, PairSize that of the two
	// neighbours that a reader takes in one READ.
	BucketSize = 64
	PairSize   = 2 * BucketSize
	// BucketSlots is the number of slots in a bucket.
	BucketSlots = BucketSize/wordSize - 1

	groupBuckets = 3
)

// SegmentBytes is the size of a segment of that step (0 … 3) in bytes.
func SegmentBytes(step uint8) int {
	if step >= SegmentSteps {
		panic(fmt.Sprintf("layout: segment step %d, must be below %d", step, SegmentSteps))
	}
	return (4 + int(step)) * PageSize
}

// SegmentBuckets is the number of buckets in a segment of that step.
func SegmentBuckets(step uint8) int { return SegmentBytes(step) / BucketSize }

// SegmentGroups is the number of whole groups in a segment of that step.
func SegmentGroups(step uint8) int { return SegmentBuckets(step) / groupBuckets }

// A BucketHeader is the first word of a bucket. From the top:
//
//	│ state 4 │ depth 6 │ bucket index 14 │ keys without slot 8 │ shard 12 │ prefix 20 │
//	   │
//	   └ 1 │ step 2 │ marked 1
//
// The top bit is always set, so that zeroed memory is no header. Depth and
// prefix say which part of the shard's hash space the segment holds; the
// prefix is the top depth bits, right-aligned. Marked: the segment is retired
// and its slots stay as they are.
//
// Within an incarnation the (depth, step) of the segment that holds a given
// key only grows, so a header that fits a key and has the depth and step of
// the directory entry is of that very segment, never of a later one in the
// same memory.
//
// *Keys without slot* counts the keys whose main bucket this is and that have
// no slot; 255 means 255 or more and is sticky. It is raised in place before
// such a key's put is acknowledged. It is lowered in place only a lease after
// the last slot was set for a key that it had counted: the words of a READ come
// in any order, so a reader may have an old slot beside a new header.
type BucketHeader uint64

const (
	hdrValid    = 1 << 63
	hdrStepPos  = 61
	hdrMarked   = 1 << 60
	hdrDepthPos = 54
	hdrDepthMax = 1<<6 - 1
	hdrIndexPos = 40
	hdrIndexMax = 1<<14 - 1
	hdrCountPos = 32
	hdrShardPos = 20
	hdrPrefix   = 1<<20 - 1

	// SlotlessMany is the count at which it sticks.
	SlotlessMany = 255

	// hdrLoose are the bits that Fits does not look at.
	hdrLoose = hdrMarked | 0xff<<hdrCountPos
)

// MakeBucketHeader makes an unmarked header.
func MakeBucketHeader(step, depth uint8, bucket int, slotless uint8, shard uint16, prefix uint32) BucketHeader {
	if step >= SegmentSteps || depth > MaxDepth || bucket < 0 || bucket > hdrIndexMax ||
		shard >= MaxShards || uint64(prefix)>>depth != 0 {
		panic(fmt.Sprintf("layout: bucket header out of range: step %d depth %d bucket %d shard %d prefix %#x",
			step, depth, bucket, shard, prefix))
	}
	return BucketHeader(hdrValid | uint64(step)<<hdrStepPos | uint64(depth)<<hdrDepthPos |
		uint64(bucket)<<hdrIndexPos | uint64(slotless)<<hdrCountPos | uint64(shard)<<hdrShardPos | uint64(prefix))
}

// Valid reports whether the word can be a header at all.
func (h BucketHeader) Valid() bool { return h&hdrValid != 0 && h.Depth() <= MaxDepth }

// Step is the segment's step, 0 to 3.
func (h BucketHeader) Step() uint8 { return uint8(h>>hdrStepPos) & (SegmentSteps - 1) }

// Marked reports whether the segment is retired.
func (h BucketHeader) Marked() bool { return h&hdrMarked != 0 }

// Depth is the number of hash bits that name the segment.
func (h BucketHeader) Depth() uint8 { return uint8(h>>hdrDepthPos) & hdrDepthMax }

// Bucket is the index of the bucket in its segment.
func (h BucketHeader) Bucket() int { return int(h>>hdrIndexPos) & hdrIndexMax }

// Slotless is the count of keys without slot.
func (h BucketHeader) Slotless() uint8 { return uint8(h >> hdrCountPos) }

// Shard is the shard that the segment belongs to.
func (h BucketHeader) Shard() uint16 { return uint16(h>>hdrShardPos) & (MaxShards - 1) }

// Prefix is the hash prefix of the segment: Depth bits, right-aligned.
func (h BucketHeader) Prefix() uint32 { return uint32(h) & hdrPrefix }

// WithSlotless is the header with another count.
func (h BucketHeader) WithSlotless(n uint8) BucketHeader {
	return h&^(0xff<<hdrCountPos) | BucketHeader(n)<<hdrCountPos
}

// WithMarked is the header of a segment that is retired.
func (h BucketHeader) WithMarked() BucketHeader { return h | hdrMarked }

// Fits reports whether the header is that of the given bucket of a segment of
// that step which holds the key, in that shard. Marked and the count are not
// looked at. The rest is the whole word: a segment of another prefix, another
// bucket offset, another shard or another step never passes, nor does memory
// that is no segment.
func (h BucketHeader) Fits(shard uint16, key Hash, bucket int, step uint8) bool {
	if !h.Valid() {
		return false
	}
	want := hdrValid | uint64(step)<<hdrStepPos | uint64(h.Depth())<<hdrDepthPos |
		uint64(bucket)<<hdrIndexPos | uint64(shard)<<hdrShardPos | uint64(key.Prefix(h.Depth()))
	return uint64(h)&^hdrLoose == want
}

// SameBucket says whether two headers are of the same bucket of the same segment. Marked and the counts are not looked at.
func SameBucket(h, o BucketHeader) bool { return h.Valid() && (h^o)&^hdrLoose == 0 }

func (h BucketHeader) String() string {
	if !h.Valid() {
		return fmt.Sprintf("no header (%#x)", uint64(h))
	}
	mark := ""
	if h.Marked() {
		mark = " MARKED"
	}
	return fmt.Sprintf("shard %d segment %0*b/%d step %d bucket %d slotless %d%s", h.Shard(),
		max(1, int(h.Depth())), h.Prefix(), h.Depth(), h.Step(), h.Bucket(), h.Slotless(), mark)
}

// A Slot is one of the seven words behind a bucket header. From the top:
//
//	│ fingerprint 16 │ class 8 │ place 40 │
//
// Class 0 is an empty slot. Class 255 is a key that is in Pebble only: the
// place bits then hold more hash bits for the server (PebbleSlot), and a reader
// whose fingerprint it shows asks. Any other class is the size class
// of the item at the place.
type Slot uint64

const (
	slotFingerprintPos = 48
	slotClassPos       = 40

	// ClassEmpty and ClassPebble are the classes of slots that hold no item.
	ClassEmpty  uint8 = 0
	ClassPebble uint8 = 255
)

// MakeSlot makes a slot. For class 255 the place is any 40 bits.
func MakeSlot(fp uint16, class uint8, p Place) Slot {
	if p > MaxPlace {
		panic(fmt.Sprintf("layout: place %#x exceeds %d bits", uint64(p), placeBits))
	}
	return Slot(uint64(fp)<<slotFingerprintPos | uint64(class)<<slotClassPos | uint64(p))
}

// Fingerprint is what the slot shows of its key.
func (s Slot) Fingerprint() uint16 { return uint16(s >> slotFingerprintPos) }

// Class is the size class, or ClassEmpty or ClassPebble.
func (s Slot) Class() uint8 { return uint8(s >> slotClassPos) }

// Place is where the item is.
func (s Slot) Place() Place { return Place(s & placeMask) }

// Empty reports whether the slot holds nothing.
func (s Slot) Empty() bool { return s.Class() == ClassEmpty }

func (s Slot) String() string {
	switch s.Class() {
	case ClassEmpty:
		return "empty"
	case ClassPebble:
		return s.pebbleString()
	}
	return fmt.Sprintf("%04x class %d %v", s.Fingerprint(), s.Class(), s.Place())
}

// A BucketView is a bucket as it was READ: any 64 bytes, nothing checked.
type BucketView []byte

// ParseBucket takes the bucket at the front of b. It fails with ErrShort only:
// whether the header is believed is for Fits to say.
func ParseBucket(b []byte) (BucketView, error) {
	if len(b) < BucketSize {
		return nil, ErrShort
	}
	return BucketView(b[:BucketSize:BucketSize]), nil
}

// Header is the first word.
func (v BucketView) Header() BucketHeader { return BucketHeader(getWord(v, 0)) }

// Slot is slot i, 0 ≤ i < BucketSlots.
func (v BucketView) Slot(i int) Slot { return Slot(getWord(v, (1+i)*wordSize)) }

// SlotOffset is the byte offset of slot i in its bucket.
func SlotOffset(i int) int { return (1 + i) * wordSize }
