package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// The header of a segment is its first block:
//
//	  0        8        16     20      24               40       48       56       64
//	+--------+--------+------+-------+----------------+--------+--------+--------+
//	| sum    | magic  |format| block | store          | number | life   | epoch  |
//	| 64     | 64     | 32   | 32    | 128            | 64     | 64     | 64     |
//	+--------+--------+------+-------+----------------+--------+--------+--------+
//	  64       72       80      88       96        104      112      120
//	+--------+--------+--------+---------+---------+--------+--------+-----------
//	| salt   | size   | cut    | chain   | durable | ahead  | made   | zeros up to
//	| 64     | 64     | 64     | 64      | 64      | 64     | 64     | one block
//	+--------+--------+--------+---------+---------+--------+--------+-----------
//
// The sum is xxh3-64 over everything behind it in the block. It has no salt: the header is
// what tells the salt.
const (
	offSum     = 0
	offMagic   = offSum + 8
	offFormat  = offMagic + 8
	offBlock   = offFormat + 4
	offStore   = offBlock + 4
	offNumber  = offStore + 16
	offLife    = offNumber + 8
	offEpoch   = offLife + 8
	offSalt    = offEpoch + 8
	offSize    = offSalt + 8
	offCut     = offSize + 8
	offChain   = offCut + 8
	offDurable = offChain + 8
	offAhead   = offDurable + 8
	offMade    = offAhead + 8

	headerLen = offMade + 8

	magic = 0x676c766b616d6472 // the bytes "rdmakvlg"
	// Version of the bytes that this package writes and reads.
	Version = 1

	// MinBlock and MaxBlock bound the block of a segment: what its file system writes
	// as a whole or not at all in a direct write, a power of two.
	MinBlock = 4096
	MaxBlock = 64 << 10

	// maxAhead bounds Header.Ahead, far above what any window of frames comes to.
	maxAhead = 64 * MaxSize
)

// A Header is what the first block of a segment says.
type Header struct {
	Block  int      // bytes; frames that follow a sync begin at a multiple of it
	Store  [16]byte // the id of the store
	Number uint64   // of the segment, from 1
	Life   uint64   // the opening of the log that wrote the segment, from 1
	Epoch  uint64   // the store's epoch at that opening
	Salt   uint64   // random, of this use of the file
	Size   int64    // of the file, in bytes

	// Cut is where the log before this segment ends, and Chain is the sum of the frames
	// of the segment in which that is (function Chain). What stands behind Cut is not
	// the log's. In the first segment of all both are 0.
	Cut   Position
	Chain uint64
	// Durable: everything before it was durable when the header was written.
	Durable Position
	// Ahead bounds the bytes that can have been written behind a byte that is not
	// durable, in this life. 0: there is no bound.
	Ahead int64
	Made  uint64 // microseconds since 1970, for people
}

// PutHeader writes a header into b, which is one block.
func PutHeader(b []byte, h Header) {
	clear(b)
	le := binary.LittleEndian
	le.PutUint64(b[offMagic:], magic)
	le.PutUint32(b[offFormat:], Version)
	le.PutUint32(b[offBlock:], uint32(h.Block))
	copy(b[offStore:offNumber], h.Store[:])
	le.PutUint64(b[offNumber:], h.Number)
	le.PutUint64(b[offLife:], h.Life)
	le.PutUint64(b[offEpoch:], h.Epoch)
	le.PutUint64(b[offSalt:], h.Salt)
	le.PutUint64(b[offSize:], uint64(h.Size))
	le.PutUint64(b[offCut:], uint64(h.Cut))
	le.PutUint64(b[offChain:], h.Chain)
	le.PutUint64(b[offDurable:], uint64(h.Durable))
	le.PutUint64(b[offAhead:], uint64(h.Ahead))
	le.PutUint64(b[offMade:], h.Made)
	le.PutUint64(b[offSum:], xxh3.Hash(b[offMagic:h.Block]))
}

// ErrNewer says that a checksum holds, and that what it sums up is unknown here: a newer
// version of this program wrote it. It is no damage, and no torn end either; a reader that
// took it for one would cut off what was acknowledged. It is wrapped in what ParseHeader,
// ParseFrame and ParseRecord return.
var ErrNewer = errors.New("written by a newer version of this program: use that one")

// A NewerError says that a segment was written by a newer version of this program.
// errors.Is(e, ErrNewer) holds.
type NewerError struct{ Version uint32 }

// Is makes errors.Is(e, ErrNewer) hold.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// Error says what to do.
func (e *NewerError) Error() string {
	return fmt.Sprintf("written in format %d, this program knows %d: use a newer one", e.Version, Version)
}

// HeaderMagic reports whether b begins like a header of some format, good or not.
func HeaderMagic(b []byte) bool {
	return len(b) >= headerLen && binary.LittleEndian.Uint64(b[offMagic:]) == magic
}

// ParseHeader verifies the header at the start of b, which has at least one block, and
// MaxBlock bytes if the file has them. Every field of the result is within its bounds. The
// error's text is a detail; it is a *NewerError if the bytes are of a newer version.
func ParseHeader(b []byte) (Header, error) {
	le := binary.LittleEndian
	if len(b) < MinBlock {
		return Header{}, fmt.Errorf("a header of %d bytes is shorter than a block", len(b))
	}
	if m := le.Uint64(b[offMagic:]); m != magic {
		return Header{}, fmt.Errorf("magic %016x, expected %016x", m, uint64(magic))
	}
	if v := le.Uint32(b[offFormat:]); v > Version {
		// What a newer version sums up is unknown, so its word is all that there is.
		return Header{}, &NewerError{Version: v}
	} else if v != Version {
		return Header{}, fmt.Errorf("format %d, expected %d", v, Version)
	}
	block := int(le.Uint32(b[offBlock:]))
	if block < MinBlock || block > MaxBlock || block&(block-1) != 0 || block > len(b) {
		return Header{}, fmt.Errorf("a block of %d bytes", block)
	}
	if xxh3.Hash(b[offMagic:block]) != le.Uint64(b[offSum:]) {
		return Header{}, errSum
	}
	h := Header{
		Block: block, Number: le.Uint64(b[offNumber:]), Life: le.Uint64(b[offLife:]), Epoch: le.Uint64(b[offEpoch:]),
		Salt: le.Uint64(b[offSalt:]), Size: int64(le.Uint64(b[offSize:])),
		Cut: Position(le.Uint64(b[offCut:])), Chain: le.Uint64(b[offChain:]),
		Durable: Position(le.Uint64(b[offDurable:])), Ahead: int64(le.Uint64(b[offAhead:])), Made: le.Uint64(b[offMade:]),
	}
	copy(h.Store[:], b[offStore:offNumber])
	// One header has one encoding. What this version leaves zero has a meaning in another
	// one, or the writer is wrong.
	for _, c := range b[headerLen:block] {
		if c != 0 {
			return Header{}, fmt.Errorf("unknown fields behind byte %d: %w", headerLen, ErrNewer)
		}
	}
	switch {
	case h.Number == 0 || h.Number > MaxSegment:
		return Header{}, fmt.Errorf("segment number %d", h.Number)
	case h.Life == 0:
		return Header{}, fmt.Errorf("life 0")
	case h.Size < 2*int64(block) || h.Size > MaxSize || h.Size%int64(block) != 0:
		return Header{}, fmt.Errorf("a size of %d bytes", h.Size)
	case h.Ahead < 0 || h.Ahead > maxAhead:
		return Header{}, fmt.Errorf("%d bytes ahead", h.Ahead)
	case h.Cut == 0 && h.Chain != 0, h.Cut != 0 && !h.Cut.inSegment():
		return Header{}, fmt.Errorf("cut at %v with chain %016x", h.Cut, h.Chain)
	case h.Cut != 0 && h.Cut.Segment() >= h.Number, h.Durable > At(h.Number, int64(block)):
		return Header{}, fmt.Errorf("segment %d begins behind %v, durable to %v", h.Number, h.Cut, h.Durable)
	}
	return h, nil
}
