package format

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// The file LIFE has two copies, each in a block of MaxBlock bytes. They are written one
// after the other, so a write that is torn leaves one of them whole:
//
//	  0     8       16     20     24     40     48      56     64     72     80    88
//	+-----+-------+------+------+------+------+-------+------+------+------+-----+------
//	| sum | magic |format| flags| store| serial| life | seen | epoch| end  | made| zeros
//	| 64  | 64    | 32   | 32   | 128  | 64    | 64   | 64   | 64   | 64   | 64  |
//	+-----+-------+------+------+------+-------+------+------+------+------+-----+------
//
// The sum is xxh3-64 over everything behind it, up to the end of the numbers.
const (
	offLifeSum    = 0
	offLifeMagic  = offLifeSum + 8
	offLifeFormat = offLifeMagic + 8
	offLifeFlags  = offLifeFormat + 4
	offLifeStore  = offLifeFlags + 4
	offLifeSerial = offLifeStore + 16
	offLifeLife   = offLifeSerial + 8
	offLifeSeen   = offLifeLife + 8
	offLifeEpoch  = offLifeSeen + 8
	offLifeEnd    = offLifeEpoch + 8
	offLifeMade   = offLifeEnd + 8

	// LifeLen is the length of a copy without its zeros.
	LifeLen = offLifeMade + 8
	// LifeSize is the size of the file.
	LifeSize = 2 * MaxBlock

	lifeMagic = 0x65666c766b6d6472 // the bytes "rdmkvlfe"

	flagClean = 1 << 0
)

// A Life is what the file LIFE says of the newest opening of a log.
type Life struct {
	Store  [16]byte
	Serial uint64 // of the copy, from 1: the higher one counts
	Life   uint64 // the newest life; 0: none began yet
	// Seen is the newest life that had a segment when this one was written down. A log
	// whose newest segment is of an older one has lost something.
	Seen  uint64
	Epoch uint64 // the store's, at least that of any segment
	// End is up to where the log was durable when this was written. Clean: the life has
	// ended by a clean stop, and the log ended right there.
	Clean bool
	End   Position
	Made  uint64 // microseconds since 1970, for people
}

// PutLife writes a copy into b, which has at least LifeLen bytes.
func PutLife(b []byte, l Life) {
	le := binary.LittleEndian
	clear(b)
	le.PutUint64(b[offLifeMagic:], lifeMagic)
	le.PutUint32(b[offLifeFormat:], Version)
	if l.Clean {
		le.PutUint32(b[offLifeFlags:], flagClean)
	}
	copy(b[offLifeStore:offLifeSerial], l.Store[:])
	le.PutUint64(b[offLifeSerial:], l.Serial)
	le.PutUint64(b[offLifeLife:], l.Life)
	le.PutUint64(b[offLifeSeen:], l.Seen)
	le.PutUint64(b[offLifeEpoch:], l.Epoch)
	le.PutUint64(b[offLifeEnd:], uint64(l.End))
	le.PutUint64(b[offLifeMade:], l.Made)
	le.PutUint64(b[offLifeSum:], xxh3.Hash(b[offLifeMagic:LifeLen]))
}

// ParseLife verifies a copy. The error's text is a detail; it is a *NewerError if the
// bytes are of a newer version.
func ParseLife(b []byte) (Life, error) {
	le := binary.LittleEndian
	if len(b) < LifeLen {
		return Life{}, fmt.Errorf("%d bytes, at least %d expected", len(b), LifeLen)
	}
	if m := le.Uint64(b[offLifeMagic:]); m != lifeMagic {
		return Life{}, fmt.Errorf("magic %016x, expected %016x", m, uint64(lifeMagic))
	}
	if v := le.Uint32(b[offLifeFormat:]); v > Version {
		return Life{}, &NewerError{Version: v}
	} else if v != Version {
		return Life{}, fmt.Errorf("format %d, expected %d", v, Version)
	}
	if got, want := xxh3.Hash(b[offLifeMagic:LifeLen]), le.Uint64(b[offLifeSum:]); got != want {
		return Life{}, fmt.Errorf("checksum %016x, expected %016x", got, want)
	}
	flags := le.Uint32(b[offLifeFlags:])
	if flags&^flagClean != 0 {
		return Life{}, fmt.Errorf("flags %#x: %w", flags, ErrNewer)
	}
	l := Life{
		Serial: le.Uint64(b[offLifeSerial:]), Life: le.Uint64(b[offLifeLife:]), Seen: le.Uint64(b[offLifeSeen:]),
		Epoch: le.Uint64(b[offLifeEpoch:]), Clean: flags&flagClean != 0, End: Position(le.Uint64(b[offLifeEnd:])), Made: le.Uint64(b[offLifeMade:]),
	}
	copy(l.Store[:], b[offLifeStore:offLifeSerial])
	if l.Serial == 0 || l.Seen > l.Life {
		return Life{}, fmt.Errorf("copy %d of life %d, which saw life %d", l.Serial, l.Life, l.Seen)
	}
	if l.Clean && l.End == 0 || l.End != 0 && !l.End.inSegment() {
		return Life{}, fmt.Errorf("life %d ended at %v, cleanly: %t", l.Life, l.End, l.Clean)
	}
	return l, nil
}
