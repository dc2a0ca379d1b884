package log

import (
	"errors"
	"testing"
	"time"
)

// TestWritersEndFirst: while the log is closed, what still writes frames in the background
// goes on to the next segment as always: maker and syncer are there until it has ended.
// Otherwise a Close beside a fact that is written again never returns.
func TestWritersEndFirst(t *testing.T) {
	for _, policy := range []Sync{Always, Interval, Off} {
		t.Run(policy.String(), func(t *testing.T) {
			dir, err := OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(Config{Dir: dir, Create: true, Sync: policy, Interval: time.Hour, SegmentSize: 1 << 20, MaxFrame: 128 << 10})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Replay(nil), l.Start(1)); err != nil {
				t.Fatal(err)
			}
			close(l.upkeep.stop) // the first step of Close
			l.upkeep.tasks.Wait()
			ended := make(chan error, 1)
			go func() {
				var err error
				for i := 0; i < 60 && err == nil; i++ {
					_, err = l.Append(Record{Kind: Write, Stream: 1, Body: make([]byte, 100<<10)})
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("a frame waits for a segment for ever")
			}
			l.upkeep.stop = make(chan struct{}) // Close closes it
			if err := l.Close(true); err != nil {
				t.Fatal(err)
			}
		})
	}
}
