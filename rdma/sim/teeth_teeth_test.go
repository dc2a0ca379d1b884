//go:build teeth

package sim

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// F15: with the rule pulled a word is put together from two loads, and a writer
// that comes between them shows.
func TestHalfWords(t *testing.T) {
	torn := func() (n int) {
		for seed := range uint64(40) {
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
						n++
					}
				}
			})
		}
		return n
	}
	if n := torn(); n != 0 {
		t.Fatalf("%d torn words with the rule", n)
	}
	defer teeth.Pull(teeth.F15CopyOnce)()
	if n := torn(); n == 0 {
		t.Error("pulled, and no word is torn")
	} else {
		t.Logf("%d torn words", n)
	}
}
