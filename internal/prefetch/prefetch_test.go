package prefetch

import (
	"sync/atomic"
	"testing"
)

// TestLine: any pointer will do, and what it points to stays as it is.
func TestLine(t *testing.T) {
	Line((*byte)(nil))
	b := make([]byte, 3*LineSize)
	for i := range b {
		b[i] = byte(i)
	}
	for i := range b {
		Line(&b[i])
	}
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
	if n := testing.AllocsPerRun(100, func() { Line(&b[7]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRandom reads words of a large table in a random order, each under a lock's cost of
// order, asked for before and not.
func BenchmarkRandom(b *testing.B) {
	const n = 1 << 23 // 64 MiB
	table := make([]uint64, n)
	at := make([]uint32, 16)
	for name, ask := range map[string]bool{"Plain": false, "Asked": true} {
		b.Run(name, func(b *testing.B) {
			x, sum := uint64(1), uint64(0)
			for b.Loop() {
				for i := range at {
					x ^= x << 13
					x ^= x >> 7
					x ^= x << 17
					at[i] = uint32(x % n)
					if ask {
						Line(&table[at[i]])
					}
				}
				for _, i := range at {
					sum += order(&table[i])
				}
			}
			_ = sum
		})
	}
}

// order reads a word by an instruction that no later load passes.
func order(p *uint64) uint64 { return atomic.AddUint64(p, 0) }
