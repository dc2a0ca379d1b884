package store

import (
	"fmt"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/log"
)

// TestLogBound: while no checkpoint comes to its end the log fills up to its bound, and no
// further, so that a start after a crash replays no more. Writes are let in again behind it.
func TestLogBound(t *testing.T) {
	c := testConfig(memFS())
	c.Sync, c.LogBytes, c.bytesFrom = Off, MinLogBytes, 0 // values in the log
	n := open(t, c)
	done := make(chan struct{}, 1)
	write := func(i int) *Write {
		return &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i%2000), Value: make([]byte, 16<<10)}, Done: func(*Write) { done <- struct{}{} }}
	}
	n.lookedForParts()
	n.ckpt.Leaving.Lock()
	i, full := 0, 0 // full: how often in a row there was no room
	// A slow disk keeps writes out for a while long before the log is full: less than half of it is
	// not taken for that.
	for end := time.Now().Add(testPatience); (full < 100 || n.journal.Bytes() < int64(c.LogBytes)/2 && time.Now().Before(end)) && n.journal.Bytes() <= int64(c.LogBytes); {
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

// fillLog writes until the log has no room, while nobody makes any, and returns how
// many keys there are. No table can be made meanwhile.
func fillLog(n *node) int {
	n.life.End() // checkpoints, too
	done := make(chan struct{}, 1)
	i := 0
	puts := func() {
		for full := 0; full < 100; full++ {
			w := &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i), Value: make([]byte, 16<<10)}, Done: func(*Write) { done <- struct{}{} }}
			if n.Submit(w) == nil {
				<-done
				i, full = i+1, 0
				continue
			}
			time.Sleep(time.Millisecond)
		}
	}
	puts()
	// A round that was under way may be through only now, and has made room: one that fails comes
	// behind it.
	if err := n.ckpt.Last(n.t.Context()); err == nil {
		n.t.Fatal("a checkpoint without tables")
	}
	puts()
	// Facts have room where puts have none. Room that is short at one moment may come: the next segment is on its way.
	for full := 0; full < 100; {
		if room, _ := n.journal.Log().Room(log.Facts); room < n.journal.Log().Cost(8) {
			full++
			time.Sleep(time.Millisecond)
			continue
		}
		full = 0
		if err := n.disk.BoundClock(n.clock.Now()); err != nil {
			n.t.Fatal(err)
		}
	}
	return i
}

// TestStopOverFullLog: a store whose log is full stops cleanly, although checkpoints have ended
// with it. If the disk has no room for one either, it stops as if it had been killed, and
// nothing is lost.
func TestStopOverFullLog(t *testing.T) {
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprint("broken=", broken), func(t *testing.T) {
			var full atomic.Bool
			c := testConfig(errorfs.Wrap(memFS(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind == errorfs.OpCreate && path.Base(path.Dir(op.Path)) == "tables" {
					return syscall.ENOSPC
				}
				return nil
			})))
			c.Sync, c.LogBytes, c.PredecessorGone = Off, MinLogBytes, true
			n := open(t, c)
			full.Store(true)
			keys := fillLog(n)
			full.Store(broken)
			if err := n.Close(); err != nil || n.fence.Failed() != nil {
				t.Fatalf("Close: %v, fenced by %v", err, n.fence.Failed())
			}
			full.Store(false)
			c.Memory = newHeapMemory()
			n = open(t, c)
			if n.disk.Clean() == broken {
				t.Errorf("it found a clean stop: %v", n.disk.Clean())
			}
			for i := range keys {
				n.want(i%4, fmt.Sprintf("%08d", i), string(make([]byte, 16<<10)))
			}
			if keys < 100 {
				t.Errorf("only %d keys were written", keys)
			}
		})
	}
}
