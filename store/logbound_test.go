package store

import (
	"fmt"
	"testing"
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

// TestOwnLogBound: however fast the writers are, the log keeps its bound, so that a start after
// a crash replays no more; and what could not be let in at once is let in when a checkpoint
// has made room, which nobody has asked for.
func TestOwnLogBound(t *testing.T) {
	if !*ownLog {
		return
	}
	total := 32 << 20
	if underRace {
		total = 12 << 20
	}
	c := testConfig(memFS())
	c.Sync, c.BatchBytes, c.LogBytes = Off, 256<<10, MinLogBytes
	n := open(t, c)
	most := int64(0)
	done := make(chan struct{}, total/1024)
	for i := range total / 1024 {
		n.submit(&Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i%20_000), Value: make([]byte, 1000)}, Done: func(*Write) { done <- struct{}{} }})
		if i%64 == 0 {
			most = max(most, n.journal.Bytes())
		}
	}
	for range total / 1024 {
		<-done
	}
	t.Logf("the log had %d bytes at most, %d were written", most, total)
	if most > int64(c.LogBytes) || most < int64(c.LogBytes)/8 {
		t.Errorf("the log had %d bytes, at most %d are allowed", most, c.LogBytes)
	}
}
