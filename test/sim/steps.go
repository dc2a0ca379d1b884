package sim

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// Interrupt lets others come in at the points that the code marks: the loads of
// READs that the fabric has put off by steps, and, so many of 256 times as asked,
// whole calls of other goroutines, as far as they need no time. The seed and the
// point's number decide at which points. A build that passes no points is not
// interrupted: then nothing comes between two stores that follow each other. undo ends that.
func Interrupt(net *sim.Network, seed uint64, often int) (undo func()) {
	if often == 0 {
		often = 16
	}
	var passed atomic.Uint64
	teeth.SetHook(func(point string, _ ...uint64) {
		net.Step()
		n := passed.Add(1)
		x := (seed ^ n) * 0x9e3779b97f4a7c15
		x ^= x >> 29
		if point == "fill.snapshot" { // no lock is held here: a slow disk
			time.Sleep(time.Duration(x>>8) % (3 * time.Second))
		}
		turns := 0
		switch k := int(x * 0xbf58476d1ce4e5b9 >> 56); {
		case k < often:
			turns = 400 // a few whole gets
		case k < 3*often:
			turns = 40
		case k < 6*often:
			turns = 6
		}
		for range turns {
			runtime.Gosched()
		}
	})
	return func() { teeth.SetHook(nil) }
}
