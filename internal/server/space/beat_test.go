package space

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
)

// TestNoBeatOnceFenced: a tick that comes with the fence is no beat, which would
// give every client a lease more on a node that may not serve.
func TestNoBeatOnceFenced(t *testing.T) {
	for range 200 {
		sp := &Space{Fence: base.NewFence(), beats: newBeats(), Counters: new(base.Counters)}
		sp.Config.Store.BeatInterval, sp.Config.Store.Lease = time.Nanosecond, time.Hour
		sp.Fence.Fail(errors.New("fenced"))
		func() {
			defer func() {
				if recover() != nil { // there is no store to write it
					t.Fatal("a beat was written")
				}
			}()
			runtime.Gosched()
			sp.beatLoop(t.Context())
		}()
	}
}
