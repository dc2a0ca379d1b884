package iwarp

import (
	"runtime"
	"testing"

	"github.com/rdmakv/rdmakv/rdma/wait"
)

// TestAttendantLetsOthersRun: with one processor, which mode poll gives to the
// responder, the goroutine that makes the next READ comes to make it while the
// responder looks.
func TestAttendantLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, b, wr, _ := readPair(t, 8, Options{Wait: wait.Poll})
	for range 20 {
		a.send(wr)
		a.spinOne()
	}
	if s := b.dev.(*device).SpinStats(); s.Got == 0 {
		t.Errorf("the responder kept the processor to itself: %+v", s)
	}
}
