package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// TestAnswersWaitForPublished: a write is in the log and not yet on the disk. Whatever is
// said of it could be taken back by a crash.
func TestAnswersWaitForPublished(t *testing.T) {
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
	n.inPebble(0, "k", "newer")
	say := func(what string, get func(ctx context.Context) (string, error)) {
		patience := 20 * time.Millisecond // it is spent to the end where nothing is wrong
		if teeth.Mutant != "" {
			patience = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		said, err := get(ctx)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		if left, _ := fs.afterCrash(t, 0, "k"); left != said {
			t.Errorf("%s said %q; a crash now leaves %q", what, said, left)
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

// TestProbeLosesToBatch: a put on the condition of a version reads an evicted
// key from Pebble. Meanwhile a batch puts that key: the version that was read is
// not the key's any more.
func TestProbeLosesToBatch(t *testing.T) {
	for range 10 { // something else may have read the block into Pebble's cache before
		if probeLosesToBatch(t) {
			return
		}
	}
	t.Fatal("no put read the disk: the scenario does not happen")
}

// probeLosesToBatch returns whether the put has read the disk.
func probeLosesToBatch(t *testing.T) bool {
	var atRead atomic.Pointer[func()]
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f := atRead.Load(); f != nil && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			(*f)()
		}
		return nil
	}))
	c := testConfig(fs)
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	v := n.put(0, "k", "old")
	n.evictKey(0, "k")
	n.checkpoint()
	if err := n.disk.ForTests().DB().Flush(); err != nil { // so that a look at the key reads the disk
		t.Fatal(err)
	}
	sh := n.shard(0)
	var once sync.Once
	f := func() {
		sh.Mu.Lock()
		probed := sh.Probing() > 0
		sh.Mu.Unlock()
		if probed { // else it is Pebble's own affair
			once.Do(func() {
				atRead.Store(nil)
				n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("k"), Value: []byte("of the batch")}}}})
			})
		}
	}
	atRead.Store(&f)
	w := n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("new"), If: CondVersion, IfVersion: v}})
	if atRead.Load() != nil {
		return false
	}
	if w.Err == nil {
		t.Errorf("a put on the condition of version %v was applied after a batch had put the key", v)
	}
	if value, _ := n.get(0, "k"); value != "of the batch" {
		t.Errorf("the batch is undone: %q", value)
	}
	return true
}

// afterCrash is what a crash now would leave of a key.
func (s *stalledFS) afterCrash(t *testing.T, shard int, key string) (string, bool) {
	c := testConfig(s.mem.CrashClone(vfs.CrashCloneCfg{}))
	c.PredecessorGone = true
	n := open(t, c)
	defer n.Close()
	return n.get(shard, key)
}
