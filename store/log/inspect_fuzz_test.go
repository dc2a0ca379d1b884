package log

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A bytesDir is a directory of which the files are bytes, for reading alone.
type bytesDir struct {
	Dir
	files map[string][]byte
}

func (d bytesDir) List() (names []string, err error) {
	for name := range d.files {
		names = append(names, name)
	}
	return names, nil
}

func (d bytesDir) Open(name string, a Access) (File, error) {
	b, ok := d.files[name]
	if !ok || a.Write {
		return nil, fs.ErrNotExist
	}
	return bytesFile{b: b}, nil
}

type bytesFile struct {
	File
	b []byte
}

func (f bytesFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := bytes.NewReader(f.b).ReadAt(p, off)
	if n == len(p) {
		err = nil
	}
	return n, err
}
func (f bytesFile) Size() (int64, error) { return int64(len(f.b)), nil }
func (f bytesFile) Close() error         { return nil }

var _ io.ReaderAt = bytesFile{}

// FuzzInspect gives Inspect a log of two segments: of the first the fuzzer chooses what the
// header says, and lays its bytes over the frames; the second it makes as a whole. Inspect
// ends, needs no more memory than there is file, and tells only records that were written.
func FuzzInspect(f *testing.F) {
	f.Add(uint64(0), int64(64<<10), uint64(0), uint64(0), uint32(8200), []byte{1}, []byte("not a header"))
	f.Add(uint64(1<<63), int64(0), uint64(2<<32|4096), uint64(5), uint32(4096), []byte{}, []byte{})
	f.Add(uint64(1), int64(1<<62), uint64(1<<32|8192), uint64(0), uint32(4096+48), bytes.Repeat([]byte{0xff}, 16), bytes.Repeat([]byte{0}, 8192))
	f.Fuzz(func(t *testing.T, durable uint64, ahead int64, cut, chain uint64, at uint32, over, other []byte) {
		m := &madeLog{t: t}
		a := m.segment(1, 1, nil)
		a.b, a.Ahead = a.b[:64<<10], ahead
		wrote := map[string]bool{}
		for i := range 5 {
			body := fmt.Sprintf("body %d", i)
			wrote[body] = true
			a.frame(Position(durable), body, "second")
		}
		wrote["second"] = true
		a.Size = int64(len(a.b))
		copy(a.b[a.Block+int(at)%(len(a.b)-a.Block):], over)
		b := m.segment(2, 2, a)
		b.b, b.Size = b.b[:16<<10], 16<<10
		b.Cut, b.Chain, b.Durable = Position(cut), chain, Position(durable)
		b.frame(Position(durable), "second")
		for _, s := range []*madeSegment{a, b} {
			format.PutHeader(s.b[:s.Block], s.Header)
		}
		d := bytesDir{files: map[string][]byte{"00000001.seg": a.b, "00000002.seg": b.b, "00000003.seg": other, lifeFile: other}}
		told := 0
		in, err := Inspect(t.Context(), d, InspectOptions{
			Segment: func(s InspectedSegment) error {
				told++
				if s.End.Offset() > s.Bytes || s.Used > s.Bytes || s.Ending > Void {
					t.Fatalf("%+v", s)
				}
				return nil
			},
			Record: func(r Record) error {
				if !wrote[string(r.Body)] {
					t.Fatalf("record at %v says %q, which nobody wrote", r.Position, r.Body)
				}
				return nil
			},
		})
		if err != nil || told != 3 || in.ProblemCount == 0 {
			t.Fatalf("%+v, %v: %d segments, and the third is none", in, err, told)
		}
	})
}
