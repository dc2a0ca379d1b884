package format

import (
	"fmt"
	"testing"
)

// benchFrame is a frame of n writes with bodies of one size.
func benchFrame(n, body int) []byte {
	b := make([]byte, FrameHead)
	for i := range n {
		b = appendRecord(b, Record{Kind: Write, Stream: 1, Index: uint64(i)}, make([]byte, body))
	}
	return b
}

// TestNoAllocations: the paths that run for each frame allocate nothing, neither for a good
// frame, nor where there is none: a reader that looks for one behind the end of a log asks
// at each block.
func TestNoAllocations(t *testing.T) {
	b := benchFrame(16, 100)
	f := Frame{Position: At(7, 4096), Life: 3, Number: 1}
	other := make([]byte, len(b))
	sum := 0
	visit := func(r Record) error { sum += len(r.Body); return nil }
	for name, run := range map[string]func(){
		"SealFrame":  func() { SealFrame(b, &f, testSalt) },
		"ParseFrame": func() { mustParse(t, b, visit) },
		"ParseHead of none": func() {
			if _, err := ParseHead(other, testSalt, f.Position, f.Life); err != ErrNoFrame {
				t.Error(err)
			}
		},
	} {
		SealFrame(b, &f, testSalt)
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if sum == 0 {
		t.Error("no record was told")
	}
}

func mustParse(tb testing.TB, b []byte, visit func(Record) error) {
	if _, err := ParseFrame(b, testSalt, At(7, 4096), 3, visit); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkSealFrame and BenchmarkParseFrame tell the cost of a record.
func BenchmarkSealFrame(b *testing.B) {
	benchFrames(b, func(buf []byte, f *Frame) { SealFrame(buf, f, testSalt) })
}

func BenchmarkParseFrame(b *testing.B) {
	visit := func(Record) error { return nil }
	benchFrames(b, func(buf []byte, _ *Frame) { mustParse(b, buf, visit) })
}

func benchFrames(b *testing.B, run func([]byte, *Frame)) {
	for _, body := range []int{100, 1024, 16 << 10} {
		for _, n := range []int{1, 32} {
			b.Run(fmt.Sprintf("records=%d/body=%d", n, body), func(b *testing.B) {
				buf := benchFrame(n, body)
				f := Frame{Position: At(7, 4096), Life: 3, Number: 1}
				SealFrame(buf, &f, testSalt)
				b.ReportAllocs()
				b.SetBytes(int64(len(buf)))
				for b.Loop() {
					run(buf, &f)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
			})
		}
	}
}
