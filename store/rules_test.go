package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// TestAnswersArePublished: a write is in the log and not yet on the disk. Whatever is said of it
// could be taken back by a crash; so what was there before is told, and nobody waits.
func TestAnswersArePublished(t *testing.T) {
	fs := newStalledFS()
	c := testConfig(fs)
	c.Memory.(*heapMemory).limit = 1 << 20 // no items: nothing is answered by memory
	n := open(t, c)
	n.put(0, "k", "old")
	release := fs.stall()
	defer release()
	var acked atomic.Bool
	if err := n.Submit(&Write{Op: Op{Key: []byte("k"), Value: []byte("newer")}, Done: func(*Write) { acked.Store(true) }}); err != nil {
		t.Fatal(err)
	}
	n.atSync()
	say := func(what string, get func(ctx context.Context) (string, error)) {
		// Nobody waits for the write.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		said, err := get(ctx)
		if left, _ := fs.afterCrash(t, 0, "k"); err != nil || left != said || left != "old" {
			t.Errorf("%s said %q, %v; a crash now leaves %q", what, said, err, left)
		}
	}
	say("Get", func(ctx context.Context) (string, error) {
		v, err := n.Get(ctx, 0, []byte("k"), nil)
		return string(v.Data), err
	})
	say("Scan", func(ctx context.Context) (string, error) {
		page, err := n.Scan(ctx, ScanRequest{})
		if err != nil || len(page.Entries) != 1 {
			return "", err
		}
		return string(page.Entries[0].Value), nil
	})
	say("Stat", func(ctx context.Context) (string, error) {
		info, err := n.Stat(ctx, 0, []byte("k"))
		return map[int]string{3: "old", 5: "newer"}[info.ValLen], err
	})
	if acked.Load() {
		t.Error("acknowledged before the sync")
	}
	release()
	waitFor(t, "the acknowledgement", acked.Load)
	n.want(0, "k", "newer")
}

// TestSlotlessIsCounted: a key is put for which there is no memory.
func TestSlotlessIsCounted(t *testing.T) {
	c := testConfig(memFS())
	c.Memory.(*heapMemory).limit = 1 << 20
	n := open(t, c)
	n.fill()
	n.put(0, "k", "v")
	if _, _, ok, ask := n.reader().get(0, "k"); !ok && !ask {
		t.Errorf("a reader says that a key that was put is absent")
	}
}

// TestDroppedSlotIsCounted: a key loses its slot, because its new value finds no
// memory.
func TestDroppedSlotIsCounted(t *testing.T) {
	c := testConfig(memFS())
	c.RegionSize, c.Memory.(*heapMemory).limit = 1<<20, 2<<20
	n := open(t, c)
	n.fill()
	r := n.reader()
	n.put(0, "k", "small")
	r.want(0, "k", "small")
	n.put(0, "k", pattern(2<<20, "large"))
	for range 2 {
		if _, _, ok, ask := r.get(0, "k"); !ok && !ask {
			t.Errorf("a reader says that a key that was put is absent")
		}
		n.lease()
	}
}

// TestProbeLosesToBatch: a put on the condition of a version reads an evicted key on the disk.
// Behind that read, and before the put is judged, a batch puts the key: the version that was
// read is not the key's any more.
func TestProbeLosesToBatch(t *testing.T) {
	for _, in := range []string{"log", "base"} {
		t.Run("read in the "+in, func(t *testing.T) {
			c := testConfig(memFS())
			c.noKeeper, c.checkpoints = true, time.Hour
			n := open(t, c)
			n.fill()
			v := n.put(0, "k", "old")
			n.evictKey(0, "k")
			if in == "base" {
				n.checkpoint()
			}
			asked := 0
			n.groups.alone = pipeline.NewOrderer(n.pipe, pipeline.OrderEnv{Memory: n.mem, Results: n.dedup, Reserve: n.evictor.Reserve,
				Read: func(sh *shard.Shard, key []byte, value bool) (flight.KeyState, error) {
					state, err := n.ask(sh, key, value)
					if asked++; asked == 1 {
						n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), Value: []byte("of the batch")}}}})
					}
					return state, err
				}})
			w := n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("new"), If: CondVersion, IfVersion: v}})
			if asked != 1 {
				t.Fatalf("the disk was read %d times, want once", asked)
			}
			if w.Err == nil {
				t.Errorf("a put on the condition of version %v was applied after a batch had put the key", v)
			}
			if value, _ := n.get(0, "k"); value != "of the batch" {
				t.Errorf("the batch is undone: %q", value)
			}
		})
	}
}

// afterCrash is what a crash now would leave of a key.
func (s *stalledFS) afterCrash(t *testing.T, shard int, key string) (string, bool) {
	c := testConfig(s.mem.CrashClone(vfs.CrashCloneCfg{}))
	c.PredecessorGone = true
	n := open(t, c)
	defer n.Close()
	return n.get(shard, key)
}
