package server

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// TestNoBeatOnceFenced: a tick that comes with the fence is no beat, which would
// give every client a lease more on a node that may not serve.
func TestNoBeatOnceFenced(t *testing.T) {
	for range 200 {
		srv := &Server{fenced: make(chan struct{}), beatDone: make(chan struct{}), met: new(metrics), fenceErr: errors.New("fenced")}
		srv.cfg.Beat, srv.cfg.Lease = time.Nanosecond, time.Hour
		close(srv.fenced)
		func() {
			defer func() {
				if recover() != nil { // there is no store to write it
					t.Fatal("a beat was written")
				}
			}()
			runtime.Gosched()
			srv.beatLoop(t.Context())
		}()
	}
}
