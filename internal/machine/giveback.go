package machine

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A program of bursts keeps the memory of the last one. The runtime collects garbage when the
// heap has doubled, or after two minutes, and gives back what lies above that goal. A node that
// has taken a load and rests would have, for good, twice what its largest checkpoint took.

const (
	giveBackEvery = 5 * time.Second
	// leastSpare is how much must be to spare before it is given back, beside half of what is in use.
	leastSpare = 16 << 20
)

// GiveBack returns to the machine what the Go heap does not need, whenever the program rests,
// until ctx ends. What is to spare is garbage, and pages that were freed and kept. It costs a
// collection of garbage. While the program allocates it is left alone, because pages that are
// given back are taken again at the price of a fault each.
func GiveBack(ctx context.Context) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	last := readHeap()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := readHeap()
		if now.idle(last) {
			debug.FreeOSMemory()
			now = readHeap()
		}
		last = now
	}
}

// A heap is what the runtime says of its heap, in bytes.
type heap struct {
	allocated uint64 // since the program began
	objects   uint64 // those in use and those that are garbage
	live      uint64 // those that the last collection found in use
	free      uint64 // pages that were freed and kept
}

// idle says that there is much to spare, and that little of it would be taken again at once:
// since the last look the program has allocated less than a quarter of it.
func (h heap) idle(last heap) bool {
	garbage := h.objects - min(h.objects, h.live)
	spare := garbage + h.free
	return spare >= max(leastSpare, h.live/2) && h.allocated-last.allocated < spare/4
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	at := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0 // a runtime that does not tell: nothing is to spare
		}
		return samples[i].Value.Uint64()
	}
	return heap{at(0), at(1), at(2), at(3)}
}
