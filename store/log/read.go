package log

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// firstRead is how much is read at once of a record whose size is not known.
const firstRead = 4096

// ReadAt reads the record at a position and verifies it. The body is in memory of its own.
// It waits until the frame is written, if it was sealed just now. A record whose segment
// was freed, and a position where no record begins, are a *DamageError: whoever keeps a
// position must keep what stands there (Hold, Release).
func (l *Log) ReadAt(at Position) (Record, error) {
	seg, err := l.segmentFor(at)
	if err != nil {
		return Record{}, err
	}
	b, err := seg.read(l, at.Offset(), firstRead)
	if err == nil && len(b) >= format.RecordHead {
		if size := format.RecordAt(b); size > int64(len(b)) {
			b, err = seg.read(l, at.Offset(), size)
		}
	}
	if err != nil {
		return Record{}, err
	}
	return parseRecord(seg, b, at)
}

// parseRecord verifies the record of a segment that stands at a position.
func parseRecord(seg *segment, b []byte, at Position) (Record, error) {
	r, err := format.ParseRecord(b, seg.header.Salt, at)
	if err != nil {
		return Record{}, &DamageError{File: seg.name, At: at, Detail: "no good record", Err: err}
	}
	return r, nil
}

// segmentFor returns the segment of a position whose bytes are written.
func (l *Log) segmentFor(at Position) (*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.state == running && l.err == nil && at >= l.w.written && at < l.w.end {
		l.cond.Wait()
	}
	switch {
	case l.state == closed:
		return nil, ErrClosed
	case l.err != nil && at >= l.w.written:
		return nil, l.err
	}
	seg := l.segs.find(at.Segment())
	switch {
	case seg == nil:
		return nil, &DamageError{File: segmentName(at.Segment()), At: at, Detail: "the segment was freed"}
	case at.Offset() < int64(seg.header.Block) || at >= seg.end:
		return nil, &DamageError{File: seg.name, At: at, Detail: "the log has nothing there"}
	}
	return seg, nil
}

// read reads n bytes at an offset, or what the file has of them.
func (s *segment) read(l *Log, off, n int64) ([]byte, error) {
	lo, hi := s.blocks(l, off, n)
	return s.readInto(l, aligned(int(hi-lo), format.MaxBlock), off, n)
}

// blocks says from where to where must be read for n bytes at an offset.
func (s *segment) blocks(l *Log, off, n int64) (lo, hi int64) {
	return off &^ (l.block - 1), min(format.Pad(off+min(n, s.size-off), l.block), s.size)
}

// readInto is read into aligned memory, which has room for the blocks.
func (s *segment) readInto(l *Log, mem []byte, off, n int64) ([]byte, error) {
	lo, hi := s.blocks(l, off, n)
	f, done, err := s.openReader(l)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := f.ReadAt(mem[:hi-lo], lo); err != nil {
		return nil, fmt.Errorf("log: read %s at offset %d: %w", s.name, lo, err)
	}
	return mem[off-lo:][:min(n, s.size-off)], nil
}

// openReader returns the file for reading, which is opened by the first read; it stays
// open until done is called.
func (s *segment) openReader(l *Log) (f File, done func(), err error) {
	for {
		s.reading.RLock()
		if s.reader != nil {
			return s.reader, s.reading.RUnlock, nil
		}
		gone := s.gone
		s.reading.RUnlock()
		if gone {
			return nil, nil, &DamageError{File: s.name, Detail: "the segment was freed"}
		}
		s.reading.Lock()
		if s.reader == nil && !s.gone {
			s.reader, err = l.c.Dir.Open(s.name, Access{Direct: l.readsDirect})
		}
		s.reading.Unlock()
		if err != nil {
			return nil, nil, fmt.Errorf("log: open %s: %w", s.name, err)
		}
	}
}

// Scan reads the log from a position, which is where a frame begins or a segment, up to
// another, verifies every byte, and calls visit for every record in its order. Body is
// good until visit returns. What lies behind the newest frame that is done is not read; it
// returns where it has ended, from where a later Scan goes on. The caller has a Hold at
// from, or nothing may free it.
func (l *Log) Scan(from, to Position, visit func(*Record) error) (Position, error) {
	return l.ScanFrames(from, to, nil, visit)
}

// ScanFrames is Scan for a reader that may have to go back: before the records of a frame
// it calls begins with a position from which a later scan goes on with that frame.
func (l *Log) ScanFrames(from, to Position, begins func(Position), visit func(*Record) error) (Position, error) {
	var buf []byte
	for from < to {
		seg, end, next, err := l.segmentBehind(from)
		if err != nil || seg == nil {
			return from, err
		}
		if buf == nil {
			buf = aligned(scanChunk, format.MaxBlock)
		}
		if from, err = seg.scan(l, from, min(end, to), &buf, begins, visit); err != nil {
			return from, err
		}
		if from < end || next == 0 {
			break
		}
		from = next
	}
	return from, nil
}

// segmentBehind returns the segment in which a scan goes on, up to where it has frames
// that are done, and where the next segment begins; 0: there is none. seg is nil if there
// is nothing to read.
func (l *Log) segmentBehind(from Position) (seg *segment, end, next Position, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.segs.force {
		last := i == len(l.segs.force)-1
		if from >= s.end && !last {
			if from.Segment() == s.header.Number {
				from = format.At(from.Segment()+1, 0)
			}
			continue
		}
		if from < format.At(s.header.Number, 0) && i == 0 && from < s.header.Cut {
			return nil, 0, 0, &DamageError{File: segmentName(from.Segment()), At: from, Detail: "the segment was freed"}
		}
		if !last {
			n := l.segs.force[i+1].header
			next = format.At(n.Number, int64(n.Block))
		}
		return s, s.end, next, nil
	}
	return nil, 0, 0, nil
}

// scan reads one segment from a position, or its beginning, up to another.
func (s *segment) scan(l *Log, from, to Position, buf *[]byte, begins func(Position), visit func(*Record) error) (Position, error) {
	f, done, err := s.openReader(l)
	if err != nil {
		return from, err
	}
	defer done()
	// Nothing is read of blocks that are written now.
	frames := newScanner(s.name, f, s.header, min(s.size, format.Pad(to.Offset(), l.block)), *buf)
	if from.Segment() == s.header.Number {
		frames.at = max(frames.at, from.Offset())
	}
	for frames.position(frames.at) < to {
		if begins != nil {
			begins(frames.position(frames.at))
		}
		_, err := frames.next(func(r Record) error { return visit(&r) })
		var broken *brokenError
		if errors.As(err, &broken) {
			return frames.position(frames.at), &DamageError{File: s.name, At: frames.position(frames.at), Detail: "no good frame", Err: broken.cause}
		}
		if err != nil {
			return frames.position(frames.at), err
		}
	}
	*buf = frames.buf
	return frames.position(frames.at), nil
}
