package store

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestFillWaitsForRoom: after a crash nothing says how large the index is going
// to be, and the fill outgrows segments faster than leases let them go. It
// waits for them instead of leaving keys without a slot.
func TestFillWaitsForRoom(t *testing.T) {
	keys := 120_000
	if underRace { // the race detector makes each put a hundred times slower
		keys = 15_000
	}
	fs := crashfs.New()
	c := testConfig(fs)
	c.Shards, c.Sync, c.MemoryLimit = 1, Off, 32<<20
	n := open(t, c)
	done := make(chan struct{}, keys)
	for i := range keys {
		w := &Write{Op: Op{Key: fmt.Appendf(nil, "%08d", i)}, Done: func(*Write) { done <- struct{}{} }}
		n.submit(w)
	}
	waitFor(t, "the puts", func() bool { return n.Stats().Published == uint64(keys) })
	n.intoTables() // sync is off: this is what makes them durable

	c.FS, c.Memory = fs.CrashClone(vfs.CrashCloneCfg{}), newHeapMemory()
	c.PredecessorGone = true
	c.Lease, c.BeatInterval = 2*time.Second, 5*time.Millisecond
	again := open(t, c)
	// No lease passes while the fill gets on; only its pauses bring one.
	var before uint64
	pauses := 0
	waitFor(t, "the fill", func() bool {
		if now := again.Stats().FillKeys; now != before {
			before = now
			return false
		}
		if before < uint64(keys) {
			pauses++
		}
		again.lease()
		return again.Filled()
	})
	s := again.Stats()
	if s.Keys != uint64(keys) || s.Slotless != 0 {
		t.Errorf("%d keys have a slot and %d none; %d were stored", s.Keys, s.Slotless, keys)
	}
	t.Logf("%d pauses", pauses)
}

// TestFillBesideDamage: a key was written since the snapshot of the fill, and its
// item is damaged. It has no slot that says so, and what the fill has is old.
func TestFillBesideDamage(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.holdFill = true, make(chan struct{})
	n := open(t, c)
	defer close(c.holdFill)
	n.put(0, "k", "old")
	n.checkpoint()
	pkey := disk.AppendKey(nil, 0, disk.KindData, []byte("k"))
	b, closer, err := n.disk.ForTests().DB().Get(pkey)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Clone(b)
	closer.Close()
	sh := n.shard(0)
	sh.BeginChunk(false, false)
	n.put(0, "k", "new")
	n.damage(0, "k", layout.ItemHeaderSize) // its key
	if fate := n.filler.LinkOneForTests(sh, pkey, []byte("k"), old); fate != shard.FillLinked {
		t.Fatalf("the batch ended early: %d", fate)
	}
	n.want(0, "k", "new")
	if _, got, found, _ := n.reader().get(0, "k"); found && got != "new" {
		t.Errorf("a reader finds %q", got)
	}
}

// TestKeysNoted: after a crash the index is as large as after a clean stop, by a
// note of the keeper, and is not in the way of a store that has shrunk since.
func TestKeysNoted(t *testing.T) {
	if underRace && testing.Short() {
		t.Skip("tens of thousands of puts; TestFillBesideEverything runs, and make race-full has this")
	}
	const keys = 40_000 // more than noteLeast
	fs := crashfs.New()
	c := testConfig(fs)
	c.Sync, c.noKeeper = Off, true
	n := open(t, c)
	n.fill()
	done := make(chan struct{}, keys)
	for i := range keys {
		w := &Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "%08d", i)}, Done: func(*Write) { done <- struct{}{} }}
		n.submit(w)
	}
	waitFor(t, "the puts", func() bool { return n.Stats().Published == keys })
	n.disk.NoteKeys(n.filler.Keys())
	noted := n.disk.ForTests().Noted()
	n.put(0, "one more", "")
	if n.disk.NoteKeys(n.filler.Keys()); noted != keys || n.disk.ForTests().Noted() != noted {
		t.Errorf("noted %d keys, then %d: want %d, and no note of one more", noted, n.disk.ForTests().Noted(), keys)
	}
	n.intoTables() // sync is off: this is what makes them durable
	for _, end := range []string{"crash", "clean stop"} {
		c.FS, c.Memory, c.PredecessorGone = fs.CrashClone(vfs.CrashCloneCfg{}), newHeapMemory(), true
		c.holdFill = make(chan struct{})
		if end == "clean stop" {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			c.FS = fs
		}
		again := open(t, c)
		before := again.Stats().IndexBytes
		close(c.holdFill)
		again.fill()
		s := again.Stats()
		if s.Keys < keys || s.Slotless != 0 || s.IndexBytes > before+before/20 {
			t.Errorf("%s: %d keys in %d bytes of index, which was made with %d; %d without slot", end, s.Keys, s.IndexBytes, before, s.Slotless)
		}
		if c.FS == fs {
			continue
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
