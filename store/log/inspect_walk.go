package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A walker reads the segments of a log that nobody has opened. It trusts no length before
// it was compared with the file, and reads what a damaged log still has.
type walker struct {
	ctx   context.Context
	dir   Dir
	visit func(Record) error
	segs  []*walked
	buf   []byte
}

// A walked is a segment, and what is known of it.
type walked struct {
	told InspectedSegment
	head format.Header
	next *walked // the segment in which the log goes on; nil: the last one, or nobody knows
}

// void notes that a segment counts for nothing.
func (s *walked) void(life uint64, why string) {
	s.told.Ending, s.told.ByLife, s.told.Detail = Void, life, why
}

// errVisit marks the error of a callback, which ends the walk; other errors of a frame say
// that it is not good.
type errVisit struct{ error }

// errRead marks what the disk says. What cannot be read is not known to be torn.
type errRead struct{ error }

// frames reads the frames of a segment and finds out how they end. An error is that of a
// callback or of ctx.
func (w *walker) frames(s *walked) error {
	t := &s.told
	f, err := w.dir.Open(t.File, Access{})
	if err != nil {
		t.Err, t.Ending = err, Unreadable
		return nil
	}
	defer f.Close()
	streams := make(map[uint64]*InspectedStream)
	r := &segmentReader{File: f, size: t.Bytes, buf: w.buf}
	limit := int64(0) // where the next segment says that this one ends
	if s.next != nil {
		limit = s.next.head.Cut.Offset()
	}
	var chain, number uint64
	var broken error
	for broken == nil && (limit == 0 || t.End.Offset() < limit) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		g, err := s.frame(r, t.End.Offset(), number, func(rec Record) error {
			count(streams, rec)
			if w.visit == nil {
				return nil
			}
			if err := w.visit(rec); err != nil {
				return errVisit{err}
			}
			return nil
		})
		var visited errVisit
		if errors.As(err, &visited) {
			return visited.error
		}
		if broken = err; err != nil {
			break
		}
		t.Frames++
		if g.Records == 0 {
			t.Empty++
		}
		number, chain, t.End = g.Number, format.Chain(chain, g.Sum), g.End()
		t.Used += int64(format.FrameHead + g.Bytes)
		t.Durable = max(t.Durable, g.Durable)
	}
	w.buf = r.buf
	t.Streams = slices.SortedFunc(func(yield func(InspectedStream) bool) {
		for v := range maps.Values(streams) {
			if !yield(*v) {
				return
			}
		}
	}, func(a, b InspectedStream) int { return cmp.Compare(a.Stream, b.Stream) })
	return w.judge(s, r, broken, chain)
}

// count adds a record to the counts of its stream.
func count(streams map[uint64]*InspectedStream, r Record) {
	id := r.Stream
	c := streams[id]
	if c == nil && len(streams) >= maxInspected {
		id = OtherStreams
		c = streams[id]
	}
	if c == nil {
		c = &InspectedStream{Stream: id}
		streams[id] = c
	}
	c.Records[r.Kind]++
	c.Bytes += int64(len(r.Body))
}

// judge says why the frames of a segment end where they do.
func (w *walker) judge(s *walked, r *segmentReader, broken error, chain uint64) error {
	t := &s.told
	switch {
	case t.Ending == Void:
		return nil
	case broken == nil && (t.End != s.next.head.Cut || chain != s.next.head.Chain):
		t.Ending, t.Detail = Damaged, fmt.Sprintf("its frames end at offset %d with another sum, or elsewhere, than %s says", t.End.Offset(), s.next.told.File)
		return nil
	case broken == nil && s.next.head.Life != s.head.Life:
		t.Ending, t.ByLife = Cut, s.next.head.Life
		return nil
	case broken == nil:
		t.Ending = Full
		return nil
	}
	// Nothing good stands at the end. It is damage if anybody behind it knew that what
	// stood there was durable.
	for later := s.next; later != nil; later = later.next {
		if later.head.Life != s.head.Life || later.head.Durable > t.End {
			t.Ending, t.Detail = Damaged, fmt.Sprintf("%v, and %s says that the log went on", broken, later.told.File)
			return nil
		}
	}
	behind, proof, err := s.look(w.ctx, r, t.End.Offset(), t.End)
	if err != nil {
		return err
	}
	for later := s.next; later != nil && proof == 0; later = later.next {
		f, err := w.dir.Open(later.told.File, Access{})
		if err != nil {
			continue // it is told of that file
		}
		_, proof, err = later.look(w.ctx, &segmentReader{File: f, size: later.told.Bytes}, int64(later.head.Block), t.End)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	switch {
	case proof != 0:
		t.Ending, t.Detail = Damaged, fmt.Sprintf("%v, and the frame at %v says that it was durable", broken, proof)
	case !errors.Is(broken, format.ErrNoFrame):
		t.Ending, t.Detail = Torn, broken.Error()
	case behind:
		t.Ending, t.Detail = Torn, "there are frames behind a place that has none"
	}
	if errors.Is(broken, format.ErrNewer) || errors.As(broken, new(errRead)) {
		t.Ending, t.Detail = Damaged, broken.Error()
	}
	for later := s.next; later != nil; later = later.next {
		later.void(0, fmt.Sprintf("the log ends before it, at %v", t.End))
	}
	return nil
}

// frame verifies the frame at an offset of a segment, or where the next block begins, and
// calls visit for its records. A number of 0 is followed by any other.
func (s *walked) frame(r *segmentReader, off int64, number uint64, visit func(Record) error) (format.Frame, error) {
	g, err := s.headAt(r, off)
	if block := format.Pad(off, int64(s.head.Block)); errors.Is(err, format.ErrNoFrame) && block != off {
		off = block
		g, err = s.headAt(r, off)
	}
	if err != nil {
		return g, err
	}
	if number != 0 && g.Number != number+1 {
		return g, fmt.Errorf("frame %d follows frame %d", g.Number, number)
	}
	n := int64(format.FrameHead + g.Bytes)
	if n > maxFrame {
		return g, fmt.Errorf("a frame of %d bytes: no log writes such", n)
	}
	b, err := r.at(off, n)
	if err != nil {
		return g, err
	}
	return format.ParseFrame(b, s.head.Salt, format.At(s.head.Number, off), s.head.Life, visit)
}

// headAt verifies the head of a frame at an offset.
func (s *walked) headAt(r *segmentReader, off int64) (format.Frame, error) {
	b, err := r.at(off, format.FrameHead)
	if err != nil {
		return format.Frame{}, err
	}
	return format.ParseHead(b, s.head.Salt, format.At(s.head.Number, off), s.head.Life)
}

// look searches heads of frames of this use of the file from an offset on, as far as any
// can have been written. Behind says whether there is one; proof is the first that says
// that the log was durable beyond a position.
func (s *walked) look(ctx context.Context, r *segmentReader, off int64, beyond Position) (behind bool, proof Position, err error) {
	step, end := int64(format.Align), r.size
	if s.head.Ahead > 0 {
		step = int64(s.head.Block)
		end = min(end, off+s.head.Ahead+step)
	}
	for off, n := format.Pad(max(off, int64(s.head.Block)), step), 0; off+format.FrameHead <= end; off, n = off+step, n+1 {
		if n%4096 == 0 && ctx.Err() != nil {
			return false, 0, ctx.Err()
		}
		g, err := s.headAt(r, off)
		if errors.As(err, new(errRead)) {
			off = format.Pad(off+1, readAhead) - step // what cannot be read proves nothing
		}
		if err != nil {
			continue
		}
		behind = true
		if g.Durable > beyond {
			return true, g.Position, nil
		}
	}
	return behind, 0, nil
}

// A segmentReader gives parts of a file of a known length, out of a buffer.
type segmentReader struct {
	File
	size   int64
	buf    []byte
	lo, hi int64 // buf holds these bytes of the file
}

// readAhead is how much a segmentReader reads at once at least.
const readAhead = 1 << 20

// at returns n bytes at an offset, or fewer where the file ends. They are good until the
// next call.
func (r *segmentReader) at(off, n int64) ([]byte, error) {
	n = max(0, min(n, r.size-off))
	if off >= r.lo && off+n <= r.hi {
		return r.buf[off-r.lo:][:n], nil
	}
	want := max(n, min(readAhead, r.size-off))
	if want > int64(len(r.buf)) {
		r.buf = make([]byte, want)
	}
	r.lo, r.hi = 0, 0
	_, err := r.ReadAt(r.buf[:want], off)
	if err != nil && want > n {
		// What cannot be read may be behind what is asked for.
		want = n
		_, err = r.ReadAt(r.buf[:want], off)
	}
	if err != nil {
		return nil, errRead{fmt.Errorf("read %d bytes at offset %d: %w", want, off, err)}
	}
	r.lo, r.hi = off, off+want
	return r.buf[:n], nil
}
