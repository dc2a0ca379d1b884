package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// The head of a frame:
//
//	  0       8       16         24     32        40      48       52        56        64
//	+-------+-------+----------+------+---------+--------+--------+---------+---------+
//	| sum   | body  | position | life | durable | number | bytes  | records | zero    |
//	| 64    | 64    | 64       | 64   | 64      | 64     | 32     | 32      | 64      |
//	+-------+-------+----------+------+---------+--------+--------+---------+---------+
//
// The sum is xxh3-64, seeded with the segment's salt, over the head behind it. Body is the
// sum of the sums of the records (fold), so a frame is good only as a whole: all of its
// records are there, in their order.
const (
	offFrameSum      = 0
	offFrameBody     = offFrameSum + 8
	offFramePosition = offFrameBody + 8
	offFrameLife     = offFramePosition + 8
	offFrameDurable  = offFrameLife + 8
	offFrameNumber   = offFrameDurable + 8
	offFrameBytes    = offFrameNumber + 8
	offFrameRecords  = offFrameBytes + 4
	offFrameZero     = offFrameRecords + 4

	// FrameHead is the length of a frame's head.
	FrameHead = offFrameZero + 8

	// Align is where frames and records may begin.
	Align = 8
)

// A Frame is what the head of a frame says.
type Frame struct {
	Position Position
	Life     uint64
	// Durable: everything before it was durable when the frame was made. It is how a
	// reader tells a torn end from damage (package log), by comparing it with the end of
	// the last good frame. So it is the End of a frame, or where the first one of a
	// segment may begin, and never the end of a block: what is between the two would read
	// as a frame that is lost.
	Durable Position
	Number  uint64 // in its life, from 1, rising by one
	Bytes   int    // of its records, with their padding
	Records int    // 0: it says only what is durable
	Sum     uint64 // over the head; set by SealFrame and ParseFrame
}

// End is the position behind the last record.
func (f *Frame) End() Position { return f.Position.Add(int64(FrameHead + f.Bytes)) }

// SealFrame completes a frame: b is its head, still to be written, and the records, as
// PutRecord left them. It writes the checksum of each record, then the head, and sets
// f.Bytes, f.Records and f.Sum. It needs the position, so it comes when that is known. It
// changes nothing but b and f.
func SealFrame(b []byte, f *Frame, salt uint64) {
	le := binary.LittleEndian
	f.Bytes, f.Records = len(b)-FrameHead, 0
	body := uint64(0)
	for at := FrameHead; at < len(b); f.Records++ {
		n := recordLen(int(le.Uint32(b[at+offRecordSize:])))
		sum := recordSum(b[at:at+n], salt, f.Position.Add(int64(at)))
		le.PutUint64(b[at+offRecordSum:], sum)
		body = fold(body, sum)
		at += n
	}
	le.PutUint64(b[offFrameBody:], body)
	le.PutUint64(b[offFramePosition:], uint64(f.Position))
	le.PutUint64(b[offFrameLife:], f.Life)
	le.PutUint64(b[offFrameDurable:], uint64(f.Durable))
	le.PutUint64(b[offFrameNumber:], f.Number)
	le.PutUint32(b[offFrameBytes:], uint32(f.Bytes))
	le.PutUint32(b[offFrameRecords:], uint32(f.Records))
	le.PutUint64(b[offFrameZero:], 0)
	f.Sum = xxh3.HashSeed(b[offFrameBody:FrameHead], salt)
	le.PutUint64(b[offFrameSum:], f.Sum)
}

// ErrNoFrame says that there is no head of a frame of this life at a position. A reader
// meets it at every end of a log, so it is made once and tells nothing more.
var ErrNoFrame = errors.New("no frame begins here")

// MayBeHead reports whether b, which has at least FrameHead bytes, names a position where a
// head does. It is for those who look for a head at every place of a segment.
func MayBeHead(b []byte, at Position) bool {
	return binary.LittleEndian.Uint64(b[offFramePosition:]) == uint64(at)
}

// ParseHead verifies the head of a frame at the start of b, which stood at a position. A
// position of 0, or a life of 0, fits every frame. It does not look at the records.
func ParseHead(b []byte, salt uint64, at Position, life uint64) (Frame, error) {
	le := binary.LittleEndian
	if len(b) < FrameHead {
		return Frame{}, ErrNoFrame
	}
	f := Frame{
		Position: Position(le.Uint64(b[offFramePosition:])), Life: le.Uint64(b[offFrameLife:]),
		Durable: Position(le.Uint64(b[offFrameDurable:])), Number: le.Uint64(b[offFrameNumber:]),
		Bytes: int(le.Uint32(b[offFrameBytes:])), Records: int(le.Uint32(b[offFrameRecords:])), Sum: le.Uint64(b[offFrameSum:]),
	}
	if at != 0 && f.Position != at || life != 0 && f.Life != life || f.Sum != xxh3.HashSeed(b[offFrameBody:FrameHead], salt) {
		return Frame{}, ErrNoFrame
	}
	// The sum holds, so this program or a newer one wrote it.
	if z := le.Uint64(b[offFrameZero:]); z != 0 {
		return Frame{}, fmt.Errorf("frame flags %#x: %w", z, ErrNewer)
	}
	if !f.Position.inSegment() || f.Position.Offset()+int64(FrameHead)+int64(f.Bytes) > MaxSize || f.Durable > f.Position || f.Life == 0 || f.Number == 0 {
		return Frame{}, fmt.Errorf("frame %d of life %d at %v: %d bytes, durable to %v", f.Number, f.Life, f.Position, f.Bytes, f.Durable)
	}
	if f.Bytes%Align != 0 || f.Records > f.Bytes/RecordHead || (f.Records == 0) != (f.Bytes == 0) {
		return Frame{}, fmt.Errorf("frame %d at %v: %d records in %d bytes", f.Number, f.Position, f.Records, f.Bytes)
	}
	return f, nil
}

// ParseFrame verifies the whole frame at the start of b, which has everything up to where
// the frame can reach, and calls visit for each record once the whole frame is known to be
// good. The bodies alias b. An error of visit ends it and is returned as it is; any other
// error says why there is no good frame.
func ParseFrame(b []byte, salt uint64, at Position, life uint64, visit func(Record) error) (Frame, error) {
	f, err := ParseHead(b, salt, at, life)
	if err != nil {
		return Frame{}, err
	}
	if f.Bytes > len(b)-FrameHead {
		return Frame{}, fmt.Errorf("a frame of %d bytes where %d are left", f.Bytes, len(b)-FrameHead)
	}
	records, body, n := b[FrameHead:FrameHead+f.Bytes], uint64(0), 0
	for off := 0; off < len(records); n++ {
		size, sum, err := checkRecord(records[off:], salt, f.Position.Add(int64(FrameHead+off)))
		if err != nil {
			return Frame{}, fmt.Errorf("record %d of %d: %w", n+1, f.Records, err)
		}
		body = fold(body, sum)
		off += size
	}
	if want := binary.LittleEndian.Uint64(b[offFrameBody:]); n != f.Records || body != want {
		return Frame{}, fmt.Errorf("%d good records, expected %d, whose sums together do not hold", n, f.Records)
	}
	if visit == nil {
		return f, nil
	}
	for off := 0; off < len(records); {
		r, size := ViewRecord(records[off:], f.Position.Add(int64(FrameHead+off)))
		if err := visit(r); err != nil {
			return f, err
		}
		off += size
	}
	return f, nil
}
