package machine

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdle(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		name      string
		last, now heap
		want      bool
	}{
		{"nothing to spare", heap{}, heap{objects: 100 * MiB, live: 100 * MiB}, false},
		{"garbage, at rest", heap{allocated: 900 * MiB}, heap{allocated: 901 * MiB, objects: 200 * MiB, live: 100 * MiB}, true},
		{"pages kept, at rest", heap{}, heap{objects: 100 * MiB, live: 100 * MiB, free: 60 * MiB}, true},
		{"little of it", heap{}, heap{objects: 4 * MiB, live: 1 * MiB, free: 8 * MiB}, false},
		{"little beside what is in use", heap{}, heap{objects: 1000 * MiB, live: 900 * MiB, free: 100 * MiB}, false},
		{"it allocates", heap{allocated: 900 * MiB}, heap{allocated: 950 * MiB, objects: 200 * MiB, live: 100 * MiB}, false},
		{"more found in use than there is now", heap{}, heap{objects: 90 * MiB, live: 100 * MiB}, false},
	} {
		if got := c.now.idle(c.last); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestGiveBack makes garbage, and waits until the runtime has none of it.
func TestGiveBack(t *testing.T) {
	burst := make([][]byte, 64)
	for i := range burst {
		burst[i] = make([]byte, 1<<20)
	}
	runtime.GC() // it counts as in use
	before := readHeap()
	runtime.KeepAlive(burst)
	if before.live < 64<<20 {
		t.Fatalf("%d bytes are in use, want 64 MiB", before.live)
	}
	burst = nil
	runtime.GC() // pages are kept
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go GiveBack(ctx)
		for range 100 {
			time.Sleep(giveBackEvery)
			if readHeap().free < leastSpare {
				break
			}
		}
		cancel()
		synctest.Wait()
	})
	if after := readHeap(); after.free >= leastSpare {
		t.Errorf("%d bytes were freed and are kept", after.free)
	}
}
