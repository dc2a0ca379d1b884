package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// An Ending says why the frames of a segment end where they do.
type Ending uint8

// The endings of a segment.
const (
	// Unreadable: its header is not good, so nothing is known of its frames.
	Unreadable Ending = iota
	// Last: the log ends here, and behind it stands nothing of this life.
	Last
	// Torn: the log ends here, within frames of which nobody knew that they were durable.
	Torn
	// Damaged: what stood here was durable, and does not verify.
	Damaged
	// Full: the log goes on in the next segment.
	Full
	// Cut: a later life found the end of the log here, and went on in another segment.
	Cut
	// Void: the log was cut before this segment, which counts for nothing.
	Void
)

// String names the ending.
func (e Ending) String() string {
	names := [...]string{"unreadable", "last", "torn", "damaged", "full", "cut", "void"}
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("ending(%d)", uint8(e))
}

// An InspectedSegment is what Inspect tells of a segment. The salt is not in it: whoever
// knows it can make a value that passes for a frame.
type InspectedSegment struct {
	File   string
	Number uint64 // that of its name; what else a header says counts only if Err is nil
	Bytes  int64  // of the file
	Err    error  // why the header is not good, or what could not be read

	Store   [16]byte
	Life    uint64
	Epoch   uint64
	Made    time.Time
	Size    int64    // of the file, when the segment began
	Cut     Position // where the log before it ends
	Durable Position // everything before it was durable, as its header and its frames say

	Ending Ending
	End    Position // behind the last good frame
	ByLife uint64   // Cut, Void: the life that says so
	Detail string   // why it ends here, if it is no usual end

	Frames, Empty int   // good frames; those of them that have no records
	Used          int64 // bytes of frames, without what is left of their blocks
	Streams       []InspectedStream
}

// An InspectedStream is what a segment has of a stream.
type InspectedStream struct {
	Stream  uint64 // OtherStreams: all that are not listed
	Records [Fact + 1]int
	Bytes   int64 // of bodies
}

const (
	// OtherStreams stands for the streams beyond the first maxInspected of a segment.
	OtherStreams = ^uint64(0)
	maxInspected = 65536

	// maxProblems bounds Inspection.Problems; all are counted.
	maxProblems = 100
)

// An Inspection is what Inspect tells of a log as a whole.
type Inspection struct {
	Segments     int // files that have the name of one
	Free         int // files that are kept for later segments
	Life         InspectedLife
	End          Position
	Problems     []error // the first of them
	ProblemCount int
}

// An InspectedLife is what the file LIFE says of the newest opening of a log.
type InspectedLife struct {
	Life  uint64 // 0: none began, or the file is not good
	Epoch uint64
	Seen  uint64   // the newest life of which there was a segment before
	Clean bool     // it ended by a clean stop
	End   Position // up to where the log was durable then
	Store [16]byte
}

// InspectOptions say what Inspect is to tell.
type InspectOptions struct {
	// Only is the number of the one segment to tell of; 0: all.
	Only uint64
	// Segment is called for each segment, in the order of their numbers.
	Segment func(InspectedSegment) error
	// Record, if it is not nil, is called before that for each record of a good frame.
	// The body is good until it returns.
	Record func(Record) error
}

// Inspect reads the segments of a directory, without changing anything and without a log
// that is open: also where Open refuses, because the log is damaged, half made, or another
// store's. It finds the end of the log as a start does. Damage is told in the segments and
// in Problems; an error is that of a callback, of ctx, or of a directory that has no log
// or cannot be listed.
func Inspect(ctx context.Context, d Dir, opt InspectOptions) (Inspection, error) {
	var in Inspection
	names, err := d.List()
	if err != nil {
		return in, fmt.Errorf("log: list the directory: %w", err)
	}
	w := &walker{ctx: ctx, dir: d}
	life := false
	for _, name := range names {
		number, ok := segmentNumber(name)
		_, free := freeSerial(name)
		switch {
		case ok && number <= format.MaxSegment:
			w.segs = append(w.segs, &walked{told: InspectedSegment{File: name, Number: number}})
		case free:
			in.Free++
		case name == lifeFile:
			life = true
		}
	}
	if len(w.segs) == 0 && !life {
		return in, ErrNoLog
	}
	in.Segments = len(w.segs)
	slices.SortFunc(w.segs, func(a, b *walked) int { return cmp.Compare(a.told.Number, b.told.Number) })
	problem := func(err error) {
		if in.ProblemCount++; in.ProblemCount <= maxProblems {
			in.Problems = append(in.Problems, err)
		}
	}
	if !life {
		problem(&DamageError{File: lifeFile, Detail: "it is missing, and there are segments"})
	} else if in.Life, err = w.life(); err != nil {
		problem(err)
	}
	for _, s := range w.segs {
		if err := w.header(s); err != nil {
			return in, err
		}
	}
	w.link(problem)
	for _, s := range w.segs {
		// All are read, whichever is asked for: where a segment ends, or that it is void,
		// follows from those before it too.
		shown := opt.Only == 0 || s.told.Number == opt.Only
		if w.visit = nil; shown {
			w.visit = opt.Record
		}
		if s.told.Err == nil {
			if err := w.frames(s); err != nil {
				return in, err
			}
		}
		t := &s.told
		switch {
		case t.Ending == Last, t.Ending == Torn:
			in.End = t.End
		case t.Ending == Damaged:
			problem(&DamageError{File: t.File, At: t.End, Detail: t.Detail})
		case errors.Is(t.Err, format.ErrNewer):
			problem(fmt.Errorf("log: %s: %w", t.File, t.Err))
		case t.Ending == Unreadable:
			problem(&DamageError{File: t.File, Err: t.Err})
		}
		if opt.Segment != nil && shown {
			if err := opt.Segment(*t); err != nil {
				return in, err
			}
		}
	}
	if in.Life.Life != 0 {
		for _, err := range w.compare(in) {
			problem(err)
		}
	}
	if opt.Only != 0 && !slices.ContainsFunc(w.segs, func(s *walked) bool { return s.told.Number == opt.Only }) {
		return in, fmt.Errorf("log: there is no segment %s: the log has %s", segmentName(opt.Only), w.span())
	}
	return in, nil
}

// span says which segments there are.
func (w *walker) span() string {
	if len(w.segs) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s to %s", w.segs[0].told.File, w.segs[len(w.segs)-1].told.File)
}

// header reads and verifies the header of a segment. An error is that of ctx.
func (w *walker) header(s *walked) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	t := &s.told
	f, err := w.dir.Open(t.File, Access{})
	if err != nil {
		t.Err = fmt.Errorf("open: %w", err)
		if errors.Is(err, fs.ErrNotExist) {
			t.Err = fmt.Errorf("the file has gone since the directory was listed: a server runs on this log: %w", err)
		}
		return nil
	}
	t.Err = func() error {
		if t.Bytes, err = f.Size(); err != nil {
			return err
		}
		b := make([]byte, max(0, min(format.MaxBlock, t.Bytes)))
		if _, err := f.ReadAt(b, 0); err != nil {
			return fmt.Errorf("read the header: %w", err)
		}
		h, err := format.ParseHeader(b)
		if err != nil {
			return fmt.Errorf("its header: %w", err)
		}
		if h.Number != t.Number {
			return fmt.Errorf("its header says number %d", h.Number)
		}
		if t.Bytes > h.Size {
			return fmt.Errorf("%d bytes, its header says %d", t.Bytes, h.Size)
		}
		s.head = h
		t.Store, t.Life, t.Epoch, t.Made = h.Store, h.Life, h.Epoch, time.UnixMicro(int64(h.Made)).UTC()
		t.Size, t.Cut, t.Durable = h.Size, h.Cut, h.Durable
		t.Ending, t.End = Last, format.At(h.Number, int64(h.Block))
		return nil
	}()
	if err := f.Close(); t.Err == nil && err != nil {
		t.Err, t.Ending = err, Unreadable
	}
	return nil
}

// link follows the cuts from the newest segment back, as a start does: each says which
// segment the log before it ends in, and those between are void. A segment that cannot be
// read stops the way back; the one before it then has nobody who says where it ends.
func (w *walker) link(problem func(error)) {
	var next, lost *walked // the segment behind in the chain, and one that cannot be read
	for i := len(w.segs) - 1; i >= 0; i-- {
		s := w.segs[i]
		switch {
		case s.told.Err != nil:
			next, lost = nil, s
			continue
		case next == nil && lost != nil:
			s.told.Detail = fmt.Sprintf("nobody knows whether it is the end: %s cannot be read", lost.told.File)
			lost = nil
		case next == nil:
		case next.head.Cut.Segment() < s.told.Number:
			s.void(next.head.Life, fmt.Sprintf("life %d found the end of the log at %v", next.head.Life, next.head.Cut))
			continue
		case next.head.Cut.Segment() > s.told.Number:
			problem(&DamageError{File: segmentName(next.head.Cut.Segment()), Detail: fmt.Sprintf("it is missing: %s and %s are there", s.told.File, next.told.File)})
		case next.head.Store != s.head.Store:
			problem(&DamageError{File: s.told.File, Detail: fmt.Sprintf("it is of another store than %s", next.told.File), Err: ErrForeign})
		case s.head.Life > next.head.Life || s.head.Epoch > next.head.Epoch:
			problem(&DamageError{File: next.told.File, Detail: fmt.Sprintf("it is of life %d and epoch %d, and %s before it of life %d and epoch %d",
				next.head.Life, next.head.Epoch, s.told.File, s.head.Life, s.head.Epoch)})
			s.next = next
		default:
			s.next = next
		}
		next = s
	}
}
