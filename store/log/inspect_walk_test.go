package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// files is the log in memory, as a Dir.
func (m *madeLog) files(segs ...*madeSegment) bytesDir {
	d := bytesDir{files: map[string][]byte{lifeFile: madeLife(format.Life{Life: 9})}}
	for _, s := range segs {
		format.PutHeader(s.b[:s.Block], s.Header)
		d.files[fmt.Sprintf("%08x.seg", s.Number)] = s.b
	}
	m.dev = d
	return d
}

// TestInspectNewer: what a newer version has written is no end of the log, although this
// one knows nothing of it.
func TestInspectNewer(t *testing.T) {
	m := &madeLog{t: t}
	a := m.segment(1, 1, nil)
	a.frame(0, "a")
	f := a.frame(0, "b")
	head := a.b[f.Position.Offset():][:format.FrameHead]
	head[format.FrameHead-1] = 1 // flags that mean nothing yet
	binary.LittleEndian.PutUint64(head, xxh3.HashSeed(head[8:], a.Salt))
	m.files(a)
	in, segs, _ := m.inspect()
	if endings(segs) != "damaged" || in.ProblemCount != 1 || !strings.Contains(in.Problems[0].Error(), "newer version") {
		t.Errorf("%s, %v", endings(segs), in.Problems)
	}
	b := m.segment(2, 1, nil)
	d := m.files(b)
	binary.LittleEndian.PutUint32(d.files["00000002.seg"][16:], format.Version+1)
	in, segs, _ = m.inspect()
	if endings(segs) != "unreadable" || !errors.Is(in.Problems[0], format.ErrNewer) || errors.Is(in.Problems[0], ErrDamaged) {
		t.Errorf("%s, %v", endings(segs), in.Problems)
	}
}

// TestInspectLonger: a file that is longer than its header says is none that a log made.
func TestInspectLonger(t *testing.T) {
	m := &madeLog{t: t}
	a := m.segment(1, 1, nil)
	d := m.files(a)
	d.files["00000001.seg"] = append(bytes.Clone(a.b), 0)
	if in, segs, _ := m.inspect(); endings(segs) != "unreadable" || in.ProblemCount != 1 {
		t.Errorf("%s, %v", endings(segs), in.Problems)
	}
}

// TestInspectLife: what LIFE says is compared with the segments, as a start does.
func TestInspectLife(t *testing.T) {
	end := func(m *madeLog) Position { _, segs, _ := m.inspect(); return segs[0].End }
	for name, c := range map[string]struct {
		life format.Life
		want string // of the one problem; "": there is none
	}{
		"serving, or killed":        {format.Life{Life: 3, Seen: 2}, ""},
		"a start was cut short":     {format.Life{Life: 4, Seen: 3}, ""},
		"ended cleanly":             {format.Life{Life: 3, Seen: 3, Clean: true}, ""},
		"ended elsewhere":           {format.Life{Life: 3, Seen: 3, Clean: true, End: format.At(1, 8192)}, "it ends at 1+1070, but ended at 1+2000 when it was stopped"},
		"older than the log":        {format.Life{Life: 2}, "it says life 2, but a segment is of life 3"},
		"it saw segments of a life": {format.Life{Life: 4, Seen: 4}, "it saw segments of life 4, and the newest is of life 3"},
	} {
		m := &madeLog{t: t}
		a := m.segment(1, 3, nil)
		a.frame(0, "a")
		d := m.files(a)
		if c.life.Clean && c.life.End == 0 {
			c.life.End = end(m)
		}
		d.files[lifeFile] = madeLife(c.life)
		in, segs, _ := m.inspect()
		if want := (InspectedLife{c.life.Life, c.life.Epoch, c.life.Seen, c.life.Clean, c.life.End, [16]byte{1}}); in.Life != want || endings(segs) != "last" {
			t.Errorf("%s: %+v, expected %+v, %s", name, in.Life, want, endings(segs))
		}
		if c.want == "" && in.ProblemCount != 0 || c.want != "" && (in.ProblemCount != 1 || !strings.Contains(in.Problems[0].Error(), c.want)) {
			t.Errorf("%s: %v", name, in.Problems)
		}
	}
	m := &madeLog{t: t}
	d := m.files(m.segment(1, 3, nil))
	whole := madeLife(format.Life{Life: 3})
	copy(whole, whole[format.MaxBlock:])
	for name, bad := range map[string][]byte{"empty": nil, "zeros": make([]byte, format.LifeSize), "of another format": whole} {
		d.files[lifeFile] = bad
		if bad != nil && bad[8] != 0 {
			binary.LittleEndian.PutUint32(bad[16:], format.Version+1)
		}
		in, segs, _ := m.inspect()
		if in.Life != (InspectedLife{}) || in.ProblemCount != 1 || errors.Is(in.Problems[0], format.ErrNewer) != (name == "of another format") || endings(segs) != "last" {
			t.Errorf("%s: %+v, %v", name, in.Life, in.Problems)
		}
	}
}

// A badDir has a file of a length of its own, of which what is behind the bytes reads as
// zeros, and a range that cannot be read.
type badDir struct {
	bytesDir
	size   int64
	lo, hi int64
	most   int // the longest read
}

func (d *badDir) Open(name string, a Access) (File, error) {
	f, err := d.bytesDir.Open(name, a)
	if err != nil {
		return nil, err
	}
	return badFile{f, d}, nil
}

type badFile struct {
	File
	d *badDir
}

var errBadSector = errors.New("bad sector")

func (f badFile) Size() (int64, error) {
	n, err := f.File.Size()
	return max(n, f.d.size), err
}

func (f badFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.most = max(f.d.most, len(p))
	if off < f.d.hi && off+int64(len(p)) > f.d.lo {
		return 0, errBadSector
	}
	clear(p)
	n, err := f.File.ReadAt(p, off)
	if off+int64(n) < f.d.size {
		return len(p), nil
	}
	return n, err
}

// TestInspectBadSector: a part that cannot be read is damage, and not the end of the log.
func TestInspectBadSector(t *testing.T) {
	m := &madeLog{t: t}
	a := m.segment(1, 1, nil)
	a.frame(0, "a")
	for range 60 {
		a.frame(0, strings.Repeat("b", 3000))
	}
	d := &badDir{bytesDir: m.files(a), lo: 140 << 10, hi: 141 << 10}
	m.dev = d
	in, segs, _ := m.inspect()
	// Frames are told up to the bad sector, which stands in the 35th block.
	if endings(segs) != "damaged" || segs[0].Frames != 34 || in.ProblemCount != 1 || !strings.Contains(in.Problems[0].Error(), errBadSector.Error()) {
		t.Errorf("%s behind %d frames, %v", endings(segs), segs[0].Frames, in.Problems)
	}
}

// TestInspectHugeFrame: a head that verifies and claims more than any log writes costs no
// memory.
func TestInspectHugeFrame(t *testing.T) {
	m := &madeLog{t: t}
	a := m.segment(1, 1, nil)
	a.Size, a.Ahead = 2<<30, 64<<10
	a.frame(0, "a")
	f := a.frame(0, "b")
	head := a.b[f.Position.Offset():][:format.FrameHead]
	binary.LittleEndian.PutUint32(head[48:], 3<<29)
	binary.LittleEndian.PutUint64(head, xxh3.HashSeed(head[8:], a.Salt))
	d := &badDir{bytesDir: m.files(a), size: a.Size}
	m.dev = d
	_, segs, bodies := m.inspect()
	if endings(segs) != "torn" || bodies != "a" || d.most > 2<<20 || !strings.Contains(segs[0].Detail, "no log writes such") {
		t.Errorf("%s with records %q, %d bytes read at once: %s", endings(segs), bodies, d.most, segs[0].Detail)
	}
}

// TestInspectManyStreams: the counts of streams are bounded, and nothing is left out of
// their sum.
func TestInspectManyStreams(t *testing.T) {
	streams := make(map[uint64]*InspectedStream)
	for i := range uint64(2 * maxInspected) {
		count(streams, Record{Stream: i, Kind: Write, Body: []byte{1}})
	}
	if len(streams) != maxInspected+1 || streams[OtherStreams].Records[Write] != maxInspected || streams[OtherStreams].Bytes != maxInspected {
		t.Errorf("%d streams, others %+v", len(streams), streams[OtherStreams])
	}
}

// openMade opens and replays a log that was made byte by byte, and returns the bodies of
// its records.
func openMade(t *testing.T, m *madeLog, segs ...*madeSegment) (string, error) {
	t.Helper()
	for _, s := range segs {
		m.put(s)
	}
	l, err := Open(Config{Dir: m.dev, Store: [16]byte{1}, SegmentSize: minSegment})
	if err != nil {
		return "", err
	}
	var bodies []string
	err = l.Replay(func(r *Record) error { bodies = append(bodies, string(r.Body)); return nil })
	return strings.Join(bodies, " "), errors.Join(err, l.Close(false))
}

// TestReplayNewer: a start refuses a log in which a newer version has written, and does not
// cut it; the same frame with bytes that nobody wrote is a torn end.
func TestReplayNewer(t *testing.T) {
	for _, at := range []int{format.FrameHead - 1, format.FrameHead + 13} { // flags of the head, of the record
		for _, sealed := range []bool{true, false} {
			m := newMadeLog(t)
			a := m.segment(1, 1, nil)
			a.frame(0, "a")
			f := a.frame(0, "b")
			b := a.b[f.Position.Offset():]
			b[at] = 1
			if sealed {
				record := b[format.FrameHead : format.FrameHead+format.RecordSize(1)]
				if at >= format.FrameHead {
					sealRecord(record, a.Salt, f.Position.Add(format.FrameHead))
				}
				binary.LittleEndian.PutUint64(b, xxh3.HashSeed(b[8:format.FrameHead], a.Salt))
			}
			got, err := openMade(t, m, a)
			if got != "a" || sealed != errors.Is(err, format.ErrNewer) || !sealed && err != nil {
				t.Errorf("flag at %d, sealed %t: records %q, %v", at, sealed, got, err)
			}
		}
	}
}

// sealRecord gives a record that was changed a checksum that holds: a frame of this one
// record tells which that is.
func sealRecord(b []byte, salt uint64, at Position) {
	frame := append(make([]byte, format.FrameHead), b...)
	format.SealFrame(frame, &format.Frame{Position: at.Add(-format.FrameHead)}, salt)
	copy(b, frame[format.FrameHead:])
}

// TestReplayNumber: no record of a frame is told that has a number of its own.
func TestReplayNumber(t *testing.T) {
	m := newMadeLog(t)
	a := m.segment(1, 1, nil)
	a.frame(0, "a")
	a.number++
	a.frame(0, "b")
	if got, err := openMade(t, m, a); got != "a" || err != nil {
		t.Errorf("records %q, %v", got, err)
	}
}
