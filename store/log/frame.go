package log

import (
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A Frame is the records that one write carries. It belongs to the caller of Begin until
// Seal, and what it holds is fixed from then on; Pass gives it back to the log. One
// goroutine at a time uses it.
type Frame struct {
	l   *Log
	buf []byte // aligned to a block; a head's room, then the records
	n   int    // bytes of buf in use
	// records are those of buf, from Seal on.
	records []Record
	// build fills the frame while it is sealed, under the log's lock; or nil.
	build func(*Frame)
	frees bool // it says that entries are not needed any more

	// Set by Seal.
	ord  uint64       // its turn, from 1
	head format.Frame // position 0: it has no records, and no place in the log
	seg  *segment
	done bool // written, and durable as far as the policy goes; under the log's lock
}

const (
	firstBuffer = 16 << 10 // bytes: what a frame begins with
	keptBuffer  = 1 << 20  // a frame with a larger buffer loses it when it passes
)

// Begin returns an empty frame. If it is not sealed, Drop it.
func (l *Log) Begin() *Frame {
	f, _ := l.frames.Get().(*Frame)
	if f == nil {
		f = &Frame{buf: aligned(firstBuffer, format.MaxBlock)}
	}
	f.l, f.n = l, format.FrameHead
	return f
}

// Drop gives back a frame that was not sealed.
func (f *Frame) Drop() {
	if len(f.buf) > keptBuffer {
		f.buf = aligned(firstBuffer, format.MaxBlock)
	}
	l := f.l
	clear(f.records)
	*f = Frame{buf: f.buf, records: f.records[:0]}
	l.frames.Put(f)
}

// Add adds a record with a body of so many bytes and returns the place of the body, which
// the caller fills before Seal. r.Body and r.Position do not count. It fails with
// ErrTooLarge, and with what the streams say of the record.
func (f *Frame) Add(r *Record, body int) ([]byte, error) {
	size := format.RecordSize(body)
	if body < 0 || int64(f.n)+int64(size) > f.l.c.MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes in a frame of %d, at most %d", ErrTooLarge, body, f.n, f.l.c.MaxFrame)
	}
	f.grow(size)
	at := f.n
	f.n += size
	return format.PutRecord(f.buf[at:f.n], r, body), nil
}

// AddFact adds the newest value of a name in a stream. An empty body removes it.
func (f *Frame) AddFact(stream uint64, name uint16, body []byte) error {
	b, err := f.Add(&Record{Kind: Fact, Stream: stream, Name: name}, len(body))
	copy(b, body)
	return err
}

// Left is how many bytes of records the frame takes still, with their heads.
func (f *Frame) Left() int64 { return f.l.c.MaxFrame - int64(f.n) }

// Bytes is how many bytes the frame takes in the log, without what is left of its last
// block.
func (f *Frame) Bytes() int {
	if f.n == format.FrameHead {
		return 0
	}
	return f.n
}

// grow makes room for so many bytes more. A buffer has room for the zeros up to the end of
// the last block.
func (f *Frame) grow(n int) {
	need := int(format.Pad(int64(f.n+n), format.MaxBlock))
	if need <= len(f.buf) {
		return
	}
	buf := aligned(max(need, min(2*len(f.buf), int(f.l.c.MaxFrame))), format.MaxBlock)
	copy(buf, f.buf[:f.n])
	f.buf = buf
}

// list collects the records of a frame, without positions.
func (f *Frame) list() {
	f.records = f.records[:0]
	for at := format.FrameHead; at < f.n; {
		r, n := format.ViewRecord(f.buf[at:f.n], 0)
		f.records = append(f.records, r)
		at += n
	}
}

// Append writes one frame with these records and returns when it is durable, as far as
// the policy goes. It returns the position of the first record. Records that depend on
// each other's order are appended by one goroutine.
func (l *Log) Append(records ...Record) (Position, error) {
	f := l.Begin()
	for i := range records {
		b, err := f.Add(&records[i], len(records[i].Body))
		if err != nil {
			f.Drop()
			return 0, err
		}
		copy(b, records[i].Body)
	}
	at, err := l.finish(f, len(records) > 0)
	if err != nil || at == 0 {
		return 0, err
	}
	return at.Add(format.FrameHead), nil
}

// finish takes a frame that is filled all the way and gives it back; it returns where the
// frame begins. A frame that is not placed has no records.
func (l *Log) finish(f *Frame, placed bool) (Position, error) {
	f.list()
	if err := f.seal(placed); err != nil {
		f.Drop()
		return 0, err
	}
	at := f.head.Position
	err := f.Write()
	if err == nil {
		err = f.Turn()
	}
	f.Pass()
	return at, err
}

// PositionOf returns the position of what stands at an offset of the frame: of a record,
// whose offset is what Bytes said before it was added, or of the end. The frame is sealed.
// An offset of 0 is the first record.
func (f *Frame) PositionOf(offset int) Position {
	return f.head.Position.Add(int64(max(offset, format.FrameHead)))
}
