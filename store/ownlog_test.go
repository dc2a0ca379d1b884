package store

import (
	"fmt"
	"testing"
)

// pebbleLog are the tests that hold for stores with Pebble's log alone, as they are written
// now: those of its files, those that stop its syncs, and those that count what is in Pebble
// right behind a write.
var pebbleLog = []string{
	// Pebble shows what is not published; the base does not: TestBackupHasPublished.
	"^TestBackupIsPublished$",
	"^TestHeartbeat$", // counts records in Pebble; TestReachNoted
	"^TestLogBound$",  // of Pebble's log; TestOwnLogBound
	// Of Pebble's files: TestLogFlip.
	"^TestWALFlip$",
}

// TestManyShards: a store of many shards stops cleanly over its own log, and the next life
// knows how many keys there were.
func TestManyShards(t *testing.T) {
	fs := memFS()
	c := testConfig(fs)
	c.Shards = 300
	n := open(t, c)
	n.fill()
	for i := range 600 {
		n.put(i%300, fmt.Sprint(i), "v")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	total := uint64(0)
	for _, k := range n.disk.Keys() {
		total += k
	}
	if !n.disk.Clean() || total != 600 || len(n.disk.Keys()) != 300 {
		t.Errorf("clean %v, %d keys in %d shards, want 600 in 300", n.disk.Clean(), total, len(n.disk.Keys()))
	}
}
