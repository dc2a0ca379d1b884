package store

import (
	"fmt"
	"testing"
	"time"
)

// TestLogBound: while no checkpoint comes to its end the log fills up to its bound, and no
// further, so that a start after a crash replays no more. Writes are let in again behind it.
func TestLogBound(t *testing.T) {
	c := testConfig(memFS())
	c.Sync, c.LogBytes = Off, MinLogBytes
	n := open(t, c)
	done := make(chan struct{}, 1)
	write := func(i int) *Write {
		return &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i%2000), Value: make([]byte, 16<<10)}, Done: func(*Write) { done <- struct{}{} }}
	}
	n.ckpt.Leaving.Lock()
	i, full := 0, 0 // full: how often in a row there was no room
	for full < 100 && n.journal.Bytes() <= int64(c.LogBytes) {
		if n.Submit(write(i)) == nil {
			<-done
			i, full = i+1, 0
			continue
		}
		full++ // of the files, perhaps: the next one is on its way
		time.Sleep(time.Millisecond)
	}
	bytes := n.journal.Bytes()
	n.ckpt.Leaving.Unlock()
	t.Logf("the log had %d bytes after %d writes", bytes, i)
	if bytes > int64(c.LogBytes) || bytes < int64(c.LogBytes)/2 {
		t.Errorf("the log had %d bytes, at most %d are allowed", bytes, c.LogBytes)
	}
	for j := range 1000 { // 16 MiB
		n.submit(write(i + j))
		<-done
	}
}
