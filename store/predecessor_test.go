package store

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestCleanMarkIsSpent: a mark of a clean stop says nothing of the incarnation
// that found it: when that one is killed, its successor has to wait.
func TestCleanMarkIsSpent(t *testing.T) { virtual(cleanMarkIsSpent)(t) }

func cleanMarkIsSpent(t *testing.T) {
	fsys := crashfs.New()
	n := open(t, testConfig(fsys))
	n.put(0, "key", "first life")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fsys))
	n.put(0, "key", "second life") // the crash comes after this
	c := testConfig(fsys.CrashClone(vfs.CrashCloneCfg{}))
	c.Lease, c.BeatInterval = 200*time.Millisecond, 10*time.Millisecond
	before := time.Now()
	n = open(t, c)
	n.put(0, "key", "third life")
	if waited := time.Since(before); waited < c.predecessorWait() {
		t.Errorf("acknowledged %v after the start, the killed one's leases last %v", waited, c.predecessorWait())
	}
}

// TestCleanStopOutlastsPredecessor: one incarnation is killed, the next is
// stopped at once, and leaves its mark. The third does not wait, so the second
// must have: until the leases of the first were over.
func TestCleanStopOutlastsPredecessor(t *testing.T) { virtual(cleanStopOutlastsPredecessor)(t) }

func cleanStopOutlastsPredecessor(t *testing.T) {
	fsys := crashfs.New()
	n := open(t, testConfig(fsys))
	n.put(0, "key", "first life")
	fsys = fsys.CrashClone(vfs.CrashCloneCfg{})
	c := testConfig(fsys)
	c.Lease, c.BeatInterval = 300*time.Millisecond, 10*time.Millisecond
	before := time.Now()
	n = open(t, c)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fsys))
	if !n.disk.Clean() {
		t.Fatal("no mark: this proves nothing")
	}
	n.put(0, "key", "third life")
	if waited := time.Since(before); waited < c.predecessorWait() {
		t.Errorf("acknowledged %v after the first was killed, its leases last %v", waited, c.predecessorWait())
	}
}

// TestVersionsAfterCrash: a write that a crash took back may have been seen in
// memory that still can be read; no other write is given its version.
func TestVersionsAfterCrash(t *testing.T) {
	fsys := crashfs.New()
	n := open(t, testConfig(fsys))
	lost := fsys.CrashClone(vfs.CrashCloneCfg{})
	version := n.put(0, "key", "lost")
	n = open(t, testConfig(lost))
	if other := n.put(0, "key", "other"); other <= version {
		t.Errorf("version %v was given out twice, or %v is not after it", version, other)
	}
}
