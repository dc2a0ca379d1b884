package sim

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// F15: a word is loaded at once. If it were put together from two loads, a writer
// that comes between them would show.
func TestHalfWords(t *testing.T) {
	seeds := uint64(10)
	if teeth.Mutant != "" {
		seeds = 40
	}
	torn := 0
	for seed := range seeds {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Delay: time.Millisecond, Late: 1, LateMost: time.Second, Torn: 1})
			src, sink := b.reg(512), a.reg(512)
			set(src, 0)
			a.read(1, sink, src, 512)
			var wc *rdma.WC
			for v := uint64(1); wc == nil && v < 100_000; v++ {
				set(src, v*0x100000001)
				wc = a.poll(0)
				time.Sleep(100 * time.Microsecond)
			}
			for _, w := range words(sink.Bytes()) {
				if w>>32 != w&(1<<32-1) {
					torn++
				}
			}
		})
	}
	if torn != 0 {
		t.Errorf("%d torn words", torn)
	}
}
