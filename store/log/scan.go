package log

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A scanner reads the frames of one segment, one after the other. It is used by one
// goroutine.
type scanner struct {
	name   string
	f      File
	header format.Header
	size   int64 // of the file
	buf    []byte
	lo, hi int64 // buf holds these bytes of the file

	at     int64  // where the next frame begins, or at the block behind
	number uint64 // of the frame before; 0: not known
	chain  uint64 // of the frames before
	raw    []byte // the newest frame, head and records; good until the next call
}

// maxFrame bounds the bytes of a frame, and so the memory of whoever reads it. It is the
// bound of Config.MaxFrame for the largest segments.
const maxFrame = format.MaxSize / 4

// scanChunk is how much a scanner reads at once, if the frames are not larger.
const scanChunk = 2 << 20

// newScanner begins behind the header.
func newScanner(name string, f File, h format.Header, size int64, buf []byte) *scanner {
	if buf == nil {
		buf = aligned(scanChunk, format.MaxBlock)
	}
	return &scanner{name: name, f: f, header: h, size: size, buf: buf, at: int64(h.Block)}
}

// bytes returns the n bytes at an offset, or what the file has of them. They are good
// until the next call.
func (s *scanner) bytes(off, n int64) ([]byte, error) {
	n = min(n, s.size-off)
	if n <= 0 {
		return nil, nil
	}
	if off >= s.lo && off+n <= s.hi {
		return s.buf[off-s.lo:][:n], nil
	}
	lo := off &^ (format.MaxBlock - 1)
	hi := min(max(lo+int64(len(s.buf)), format.Pad(off+n, format.MaxBlock)), s.size)
	if hi-lo > int64(len(s.buf)) {
		s.buf = aligned(int(format.Pad(hi-lo, format.MaxBlock)), format.MaxBlock)
	}
	s.lo, s.hi = 0, 0
	if _, err := s.f.ReadAt(s.buf[:hi-lo], lo); err != nil {
		return nil, fmt.Errorf("log: read %s at offset %d: %w", s.name, lo, err)
	}
	s.lo, s.hi = lo, hi
	return s.buf[off-lo:][:n], nil
}

// position is where an offset of this segment is in the log.
func (s *scanner) position(off int64) Position { return format.At(s.header.Number, off) }

// A brokenError says that no good frame begins where one is looked for.
type brokenError struct{ cause error }

// Error tells the cause.
func (e *brokenError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *brokenError) Unwrap() error { return e.cause }

// next verifies the next frame, calls visit for its records, and goes on behind it. A
// frame begins right behind the one before, or at the next block. A *brokenError says that
// there is none; any other error is the disk's or visit's.
func (s *scanner) next(visit func(Record) error) (format.Frame, error) {
	at := s.at
	head, err := s.head(at)
	if block := format.Pad(at, int64(s.header.Block)); errors.Is(err, format.ErrNoFrame) && block != at {
		at = block
		head, err = s.head(at)
	}
	if err != nil {
		return format.Frame{}, err
	}
	if s.number != 0 && head.Number != s.number+1 {
		// Before its records are told: what is not the log's next frame is none of it.
		return format.Frame{}, &brokenError{fmt.Errorf("frame %d follows frame %d", head.Number, s.number)}
	}
	if head.Bytes > maxFrame {
		return format.Frame{}, &brokenError{fmt.Errorf("a frame of %d bytes", head.Bytes)}
	}
	b, err := s.bytes(at, int64(format.FrameHead+head.Bytes))
	if err != nil {
		return format.Frame{}, err
	}
	var visited error
	f, err := format.ParseFrame(b, s.header.Salt, s.position(at), s.header.Life, func(r Record) error {
		if visit != nil {
			visited = visit(r)
		}
		return visited
	})
	switch {
	case visited != nil:
		return format.Frame{}, visited
	case err != nil:
		return format.Frame{}, s.broken(at, err)
	}
	s.raw = b[:format.FrameHead+f.Bytes]
	s.number, s.chain, s.at = f.Number, format.Chain(s.chain, f.Sum), f.End().Offset()
	return f, nil
}

// head verifies the head of a frame at an offset.
func (s *scanner) head(off int64) (format.Frame, error) {
	b, err := s.bytes(off, format.FrameHead)
	if err != nil {
		return format.Frame{}, err
	}
	f, err := format.ParseHead(b, s.header.Salt, s.position(off), s.header.Life)
	if err != nil {
		return format.Frame{}, s.broken(off, err)
	}
	return f, nil
}

// broken is the error of a frame at an offset that is not good. What a newer version wrote
// is none: if it were taken for the end of the log, what was acknowledged would be cut off.
func (s *scanner) broken(off int64, cause error) error {
	if errors.Is(cause, format.ErrNewer) {
		return fmt.Errorf("log: %s at offset %d: %w", s.name, off, cause)
	}
	return &brokenError{cause}
}

// proves looks for a good head of a frame at or behind an offset that says that the log
// was durable beyond a position, and returns where it is. Frames whose bodies are not good
// prove it as well: their heads were made when it was so.
func (s *scanner) proves(off int64, beyond Position) (witness Position, err error) {
	step, end := int64(format.Align), s.size
	if s.header.Ahead > 0 {
		// Each frame of this life has blocks of its own, and only so many bytes can have
		// been written behind one that was not durable.
		step = int64(s.header.Block)
		end = min(end, format.Pad(off, step)+s.header.Ahead+step)
	}
	const piece = scanChunk / 2
	for off = format.Pad(max(off, int64(s.header.Block)), step); off+format.FrameHead <= end; {
		b, err := s.bytes(off, min(piece, end-off))
		if err != nil {
			return 0, err
		}
		from := off
		for ; off+format.FrameHead <= from+int64(len(b)); off += step {
			// Hardly any place has its own position in it, so most cost one comparison.
			at := s.position(off)
			if !format.MayBeHead(b[off-from:], at) {
				continue
			}
			f, err := format.ParseHead(b[off-from:], s.header.Salt, at, s.header.Life)
			if err == nil && f.Durable > beyond {
				return f.Position, nil
			}
		}
	}
	return 0, nil
}
