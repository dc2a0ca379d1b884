package store

import (
	"fmt"
	"testing"
	"time"
)

// TestLogBound: however fast the writers are, a start after a crash replays no
// more than two and a half memtables and a batch.
func TestLogBound(t *testing.T) {
	total := 24 << 20
	if underRace {
		total = 10 << 20
	}
	c := testConfig(memFS())
	c.Sync, c.BatchBytes = Off, 256<<10
	n := open(t, c)
	done := make(chan struct{}, 1<<16)
	bound, most, in := 5*c.MemTableBytes/2+uint64(c.BatchBytes), uint64(0), 0
	for i := range total / 1024 {
		w := &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i%20_000), Value: make([]byte, 1000)}, Done: func(*Write) { done <- struct{}{} }}
		for n.Submit(w) != nil {
			<-done
			in--
		}
		if in++; i%64 == 0 {
			most = max(most, n.Stats().Pebble.WALBytes)
		}
	}
	for range in {
		<-done
	}
	t.Logf("the log had %d bytes at most, %d were written", most, total)
	if most > bound || most < c.MemTableBytes/2 {
		t.Errorf("the log had %d bytes, at most %d are allowed", most, bound)
	}
}

// TestOwnLogBound: while no checkpoint comes to its end the log fills up to its bound, and no
// further, so that a start after a crash replays no more. Writes are let in again behind it.
func TestOwnLogBound(t *testing.T) {
	if !*ownLog {
		return
	}
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
