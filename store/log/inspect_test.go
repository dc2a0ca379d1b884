package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

const inspectedSize = 256 << 10

// A madeLog makes the segments of a log byte by byte, as no log would leave them.
type madeLog struct {
	t   testing.TB
	dir string
	dev Dir
}

// A madeSegment is one of its segments, under construction.
type madeSegment struct {
	format.Header
	b      []byte
	end    int64
	chain  uint64
	number uint64
}

func newMadeLog(t testing.TB) *madeLog {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, lifeFile), madeLife(format.Life{Life: 9, Epoch: 9}), fileMode); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &madeLog{t, dir, d}
}

// madeLife is the file LIFE, of which one copy is whole.
func madeLife(l format.Life) []byte {
	b := make([]byte, format.LifeSize)
	l.Store, l.Serial = [16]byte{1}, 1
	format.PutLife(b[format.MaxBlock:][:format.LifeLen], l)
	return b
}

// segment begins one behind another, which it cuts at its end.
func (m *madeLog) segment(number, life uint64, before *madeSegment) *madeSegment {
	s := &madeSegment{Header: format.Header{
		Block: 4096, Store: [16]byte{1}, Number: number, Life: life, Epoch: life, Salt: 1000 + number, Size: inspectedSize, Ahead: 64 << 10, Made: 1e15,
	}, b: bytes.Repeat([]byte{0x5a}, inspectedSize), end: 4096}
	if before != nil {
		s.Cut, s.Chain = format.At(before.Number, before.end), before.chain
		s.Durable = s.Cut
		if before.Life == life {
			s.number = before.number
		}
	}
	return s
}

// frame adds a frame of writes of stream 1 at the next block.
func (s *madeSegment) frame(durable Position, bodies ...string) format.Frame {
	f := format.Frame{Position: format.At(s.Number, format.Pad(s.end, int64(s.Block))), Life: s.Life, Durable: durable, Number: s.number + 1}
	b := make([]byte, format.FrameHead)
	for i, body := range bodies {
		at := len(b)
		b = append(b, make([]byte, format.RecordSize(len(body)))...)
		copy(format.PutRecord(b[at:], &Record{Kind: Kind(1 + i%3), Stream: 1 + uint64(i), Index: s.number, Name: 7}, len(body)), body)
	}
	format.SealFrame(b, &f, s.Salt)
	copy(s.b[f.Position.Offset():], b)
	s.number, s.chain, s.end = f.Number, format.Chain(s.chain, f.Sum), f.End().Offset()
	return f
}

// put writes the segment to the disk under its name.
func (m *madeLog) put(s *madeSegment) string {
	format.PutHeader(s.b[:s.Block], s.Header)
	name := fmt.Sprintf("%08x.seg", s.Number)
	if err := os.WriteFile(filepath.Join(m.dir, name), s.b, fileMode); err != nil {
		m.t.Fatal(err)
	}
	return name
}

// inspect returns what Inspect tells, and the bodies of all records.
func (m *madeLog) inspect() (Inspection, []InspectedSegment, string) {
	m.t.Helper()
	var segs []InspectedSegment
	var bodies []string
	in, err := Inspect(m.t.Context(), m.dev, InspectOptions{
		Segment: func(s InspectedSegment) error { segs = append(segs, s); return nil },
		Record:  func(r Record) error { bodies = append(bodies, string(r.Body)); return nil },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return in, segs, strings.Join(bodies, " ")
}

// endings are the endings of segments, by name.
func endings(segs []InspectedSegment) string {
	var out []string
	for _, s := range segs {
		out = append(out, s.Ending.String())
	}
	return strings.Join(out, " ")
}

// usual is a log of two lives: segments 1 and 2 of life 1, 3 of life 2, which cut 2.
func usual(t testing.TB) (m *madeLog, segs []*madeSegment) {
	m = newMadeLog(t)
	a := m.segment(1, 1, nil)
	a.frame(0, "a", "b")
	a.frame(0)
	a.frame(0, "c")
	b := m.segment(2, 1, a)
	b.frame(0, "d")
	c := m.segment(3, 2, b)
	c.frame(c.Cut, "e", "f", "g")
	c.frame(format.At(3, 4096), "h")
	segs = []*madeSegment{a, b, c}
	for _, s := range segs {
		m.put(s)
	}
	return m, segs
}

// TestInspect: what is told of a log in which nothing is wrong.
func TestInspect(t *testing.T) {
	m, made := usual(t)
	if err := os.WriteFile(filepath.Join(m.dir, "4.free"), nil, fileMode); err != nil {
		t.Fatal(err)
	}
	before := read(t, m.dir)
	in, segs, bodies := m.inspect()
	if in.ProblemCount != 0 || in.Segments != 3 || in.Free != 1 || in.End != format.At(3, made[2].end) {
		t.Errorf("%+v", in)
	}
	if got := endings(segs); got != "full cut last" || segs[1].ByLife != 2 {
		t.Errorf("%s by %+v", got, segs)
	}
	if want := "a b c d e f g h"; bodies != want {
		t.Errorf("records %q, expected %q", bodies, want)
	}
	s := segs[0]
	if s.Number != 1 || s.Life != 1 || s.Frames != 3 || s.Empty != 1 || s.Bytes != inspectedSize || s.Made.Unix() != 1e9 || s.End != format.At(1, made[0].end) ||
		s.Used != 3*format.FrameHead+3*int64(format.RecordSize(1)) {
		t.Errorf("%+v", s)
	}
	want := []InspectedStream{{Stream: 1, Records: [4]int{Write: 2}, Bytes: 2}, {Stream: 2, Records: [4]int{Entry: 1}, Bytes: 1}}
	if !slices.Equal(s.Streams, want) {
		t.Errorf("streams %+v, expected %+v", s.Streams, want)
	}
	if segs[2].Durable != format.At(3, 4096) {
		t.Errorf("durable to %v", segs[2].Durable)
	}
	if after := read(t, m.dir); !bytes.Equal(before, after) {
		t.Error("Inspect has changed something")
	}
}

// read returns all names and bytes of a directory.
func read(t *testing.T, dir string) (all []byte) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, e.Name()...), b...)
	}
	return all
}

// TestInspectOnly: one segment is told of, and its ending is what it is in the whole log.
func TestInspectOnly(t *testing.T) {
	m, _ := usual(t)
	var got []InspectedSegment
	records := 0
	opt := InspectOptions{
		Only: 2, Segment: func(s InspectedSegment) error { got = append(got, s); return nil },
		Record: func(Record) error { records++; return nil },
	}
	if _, err := Inspect(t.Context(), m.dev, opt); err != nil || endings(got) != "cut" || records != 1 {
		t.Errorf("%+v with %d records, %v", got, records, err)
	}
	opt.Only = 9
	if _, err := Inspect(t.Context(), m.dev, opt); err == nil || !strings.Contains(err.Error(), "no segment 00000009.seg: the log has 00000001.seg to 00000003.seg") {
		t.Error(err)
	}
}

// TestInspectEndings changes the usual log in one way each, and says what is found.
func TestInspectEndings(t *testing.T) {
	bodyOf := func(f format.Frame) int64 { return f.Position.Offset() + format.FrameHead + format.RecordHead }
	for name, c := range map[string]struct {
		change   func(m *madeLog, s []*madeSegment)
		endings  string
		problems int
		detail   string // of the segment that ends so, or of the first problem
		records  string
	}{
		"a frame is damaged that a later life has read": {func(_ *madeLog, s []*madeSegment) { s[0].b[8192+8]++ }, "damaged cut last", 1, "00000002.seg says that the log went on", "a b d e f g h"},
		"the last frame is torn": {func(_ *madeLog, s []*madeSegment) {
			f := s[2].frame(0, "torn")
			s[2].b[bodyOf(f)]++
		}, "full cut torn", 0, "record 1 of 1", "a b c d e f g h"},
		"a hole, and nobody says that it was durable": {func(_ *madeLog, s []*madeSegment) {
			was := format.At(3, s[2].end)
			f := s[2].frame(0, "lost")
			s[2].frame(was, "late")
			clear(s[2].b[f.Position.Offset():][:4096])
		}, "full cut torn", 0, "frames behind a place that has none", "a b c d e f g h"},
		"a hole that was durable": {func(_ *madeLog, s []*madeSegment) {
			f := s[2].frame(0, "lost")
			s[2].frame(f.End(), "late")
			clear(s[2].b[f.Position.Offset():][:4096])
		}, "full cut damaged", 1, "3+4000 says that it was durable", "a b c d e f g h"},
		"a proof too far ahead is none": {func(_ *madeLog, s []*madeSegment) {
			f := s[2].frame(0, "lost")
			s[2].end += 128 << 10
			s[2].frame(f.End(), "impossible")
			clear(s[2].b[f.Position.Offset():][:4096])
		}, "full cut last", 0, "", "a b c d e f g h"},
		"without a bound a proof is looked for everywhere": {func(_ *madeLog, s []*madeSegment) {
			s[2].Ahead = 0
			f := s[2].frame(0, "lost")
			s[2].end += 128 << 10
			s[2].frame(f.End(), "far")
			clear(s[2].b[f.Position.Offset():][:4096])
		}, "full cut damaged", 1, "says that it was durable", "a b c d e f g h"},
		"a frame number is missing": {func(_ *madeLog, s []*madeSegment) { s[2].number++; s[2].frame(0, "late") }, "full cut torn", 0, "frame 4 follows frame 2", "a b c d e f g h"},
		"a torn segment in its life": {func(m *madeLog, s []*madeSegment) {
			os.Remove(filepath.Join(m.dir, "00000003.seg"))
			s[0].b[8192+8]++
			s[1].Durable = 0
			*s[2] = *s[1]
		}, "torn void", 0, "the log ends before it", "a b d"},
		"a header is damaged":   {func(_ *madeLog, s []*madeSegment) { s[1].Block = 0 }, "last unreadable last", 1, "block", "a b c e f g h"},
		"a chain that is wrong": {func(_ *madeLog, s []*madeSegment) { s[2].Chain++ }, "full damaged last", 1, "another sum", "a b c d e f g h"},
		"a cut in the middle":   {func(_ *madeLog, s []*madeSegment) { s[2].Cut = s[2].Cut.Add(-8) }, "full damaged last", 1, "another sum", "a b c d e f g h"},
		"a later life cut before": {func(_ *madeLog, s []*madeSegment) {
			s[2].Cut, s[2].Chain = format.At(1, s[0].end), s[0].chain
		}, "cut void last", 0, "life 2 found the end", "a b c d e f g h"},
		"another store's":   {func(_ *madeLog, s []*madeSegment) { s[0].Store[0]++ }, "last cut last", 2, "another store", "a b c d e f g h"},
		"a life that falls": {func(_ *madeLog, s []*madeSegment) { s[0].Epoch = 5 }, "full cut last", 1, "epoch 5", "a b c d e f g h"},
	} {
		t.Run(name, func(t *testing.T) {
			m, segs := usual(t)
			c.change(m, segs)
			for _, s := range segs {
				if s.Block == 0 {
					s.Block = 4096
					format.PutHeader(s.b[:4096], s.Header)
					binary.LittleEndian.PutUint32(s.b[20:], 0)
					if err := os.WriteFile(filepath.Join(m.dir, "00000002.seg"), s.b, fileMode); err != nil {
						t.Fatal(err)
					}
					continue
				}
				m.put(s)
			}
			in, got, bodies := m.inspect()
			said := fmt.Sprint(in.Problems)
			for _, s := range got {
				said += s.Detail
			}
			if endings(got) != c.endings || in.ProblemCount != c.problems || !strings.Contains(said, c.detail) || bodies != c.records {
				t.Errorf("%s with %d problems, records %q: %s", endings(got), in.ProblemCount, bodies, said)
			}
		})
	}
}

// TestInspectFiles: segments that are missing, or have another's name.
func TestInspectFiles(t *testing.T) {
	m, _ := usual(t)
	path := func(name string) string { return filepath.Join(m.dir, name) }
	if err := os.Rename(path("00000002.seg"), path("0000000a.seg")); err != nil {
		t.Fatal(err)
	}
	in, got, _ := m.inspect()
	if endings(got) != "last last unreadable" || in.ProblemCount != 2 || !strings.Contains(fmt.Sprint(in.Problems), "0000000a.seg: its header says number 2") {
		t.Errorf("%s, %v", endings(got), in.Problems)
	}
	// Names that no log gives its segments are not read.
	for _, name := range []string{"2.seg", "00000000.seg", "0000000B.seg", "100000001.seg", "x.seg", ".seg"} {
		if err := os.WriteFile(path(name), nil, fileMode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"0000000a.seg", "LIFE"} {
		if err := os.Remove(path(name)); err != nil {
			t.Fatal(err)
		}
	}
	in, got, _ = m.inspect()
	if said := fmt.Sprint(in.Problems); endings(got) != "last last" || in.ProblemCount != 2 ||
		!strings.Contains(said, "00000002.seg: it is missing") || !strings.Contains(said, "LIFE: it is missing") {
		t.Errorf("%s, %s", endings(got), said)
	}
}

// TestInspectNothing: a directory without a log, and callbacks that end it.
func TestInspectNothing(t *testing.T) {
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), d, InspectOptions{}); !errors.Is(err, ErrNoLog) {
		t.Error(err)
	}
	m, _ := usual(t)
	stop := errors.New("stop")
	if _, err := Inspect(t.Context(), m.dev, InspectOptions{Record: func(Record) error { return stop }}); err != stop {
		t.Error(err)
	}
	if _, err := Inspect(t.Context(), m.dev, InspectOptions{Segment: func(InspectedSegment) error { return stop }}); err != stop {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Inspect(ctx, m.dev, InspectOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
