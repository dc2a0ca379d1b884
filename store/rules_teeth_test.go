//go:build teeth

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Each test here runs a scenario of the design review twice: with the rule
// obeyed it must find nothing, with the rule pulled it must find the violation.

// violations collects what a scenario finds.
type violations struct {
	mu   sync.Mutex
	list []string
}

func (v *violations) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, fmt.Sprintf(format, args...))
}

// bites runs scenario with rule obeyed and with rule pulled.
func bites(t *testing.T, rule teeth.Rule, scenario func(t *testing.T, found *violations)) {
	t.Run("obeyed", func(t *testing.T) {
		var found violations
		scenario(t, &found)
		if len(found.list) > 0 {
			t.Errorf("violations of %v:\n%s", rule, strings.Join(found.list, "\n"))
		}
	})
	t.Run("pulled", func(t *testing.T) {
		restore := teeth.Pull(rule)
		defer restore()
		var found violations
		scenario(t, &found)
		if len(found.list) == 0 {
			t.Errorf("%v was pulled and nothing noticed", rule)
		}
		for _, text := range found.list {
			t.Log("found, as it should be: ", text)
		}
	})
}

// hook sets the teeth hook for a test.
func hook(t *testing.T, f func(point string, args ...uint64)) {
	teeth.SetHook(f)
	t.Cleanup(func() { teeth.SetHook(nil) })
}

// TestF1PutOrder: k lived at B, then at A; one client remembers B, another A.
// The next put of k gets B again. Between any two of its steps the first
// client reads, then the second: the second must not see an older state.
func TestF1PutOrder(t *testing.T) {
	bites(t, teeth.F1PutOrder, func(t *testing.T, found *violations) {
		n := open(t, testConfig(memFS()))
		n.fill()
		first, second := n.reader(), n.reader()
		n.put(0, "k", "version 0")
		first.want(0, "k", "version 0")
		n.put(0, "k", "version 1")
		second.want(0, "k", "version 1")
		if first.loc["k"].Place == second.loc["k"].Place {
			t.Fatal("both puts at one place")
		}
		look := func(point string) {
			v1, _, found1, ask1 := first.get(0, "k")
			v2, _, found2, ask2 := second.get(0, "k")
			if !ask1 && !ask2 && found1 && (!found2 || v2 < v1) {
				found.add("at %s: %v was read, after it %v (found %v)", point, v1, v2, found2)
			}
		}
		b := first.loc["k"].Place
		reused := false
		hook(t, func(point string, args ...uint64) {
			if strings.HasPrefix(point, "publish.") {
				reused = reused || layout.Place(args[1]) == b
				// The remembered places must stay what they are.
				locs := [2]layout.Loc{first.loc["k"], second.loc["k"]}
				look(point)
				first.loc["k"], second.loc["k"] = locs[0], locs[1]
			}
		})
		n.put(0, "k", "version 2")
		if !reused {
			t.Fatal("the place was not used again: the scenario does not happen")
		}
	})
}

// TestF1Insert: k lived at B and was deleted. It is put again, at B. A client
// that remembers B sees it; another that looks in the index must, too.
func TestF1Insert(t *testing.T) {
	bites(t, teeth.F1PutOrder, func(t *testing.T, found *violations) {
		n := open(t, testConfig(memFS()))
		n.fill()
		remembers, looks := n.reader(), n.reader()
		n.put(0, "k", "one")
		remembers.want(0, "k", "one")
		n.del(0, "k")
		loc := remembers.loc["k"]
		hook(t, func(point string, args ...uint64) {
			if !strings.HasPrefix(point, "publish.") {
				return
			}
			if layout.Place(args[1]) != loc.Place {
				t.Error("the place was not used again: the scenario does not happen")
			}
			remembers.loc["k"] = loc
			delete(looks.loc, "k")
			v, _, found1, _ := remembers.get(0, "k")
			if _, _, found2, ask2 := looks.get(0, "k"); found1 && !found2 && !ask2 {
				found.add("at %s: %v was read, after it nothing", point, v)
			}
		})
		n.put(0, "k", "two")
	})
}

// TestF5Published: a write is in Pebble and not yet on the disk. Whatever is
// said of it could be taken back by a crash.
func TestF5Published(t *testing.T) {
	bites(t, teeth.F5Published, func(t *testing.T, found *violations) {
		fs := newStalledFS()
		c := testConfig(fs)
		c.Memory.(*heapMemory).limit = 1 << 20 // no items: everything is answered by Pebble
		n := open(t, c)
		n.put(0, "k", "old")
		release := fs.stall()
		defer release()
		var acked atomic.Bool
		if err := n.Submit(&Write{Key: []byte("k"), Value: []byte("new"), Done: func(*Write) { acked.Store(true) }}); err != nil {
			t.Fatal(err)
		}
		n.inPebble(0, "k", "new")
		say := func(what string, get func(ctx context.Context) (string, error)) {
			patience := 20 * time.Millisecond // spent to the end if the rule holds
			if teeth.Off(teeth.F5Published) {
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
				found.add("%s said %q; a crash now leaves %q", what, said, left)
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
			return map[int]string{3: "new"}[info.ValLen], err
		})
		if acked.Load() {
			t.Error("acknowledged before the sync")
		}
		release()
		waitFor(t, "the acknowledgement", acked.Load)
		n.want(0, "k", "new")
	})
}

// restarted is a store with one key per shard that was just opened again, with
// the fill about to judge the key of shard 0: atJudge runs at that moment, on
// the fill's goroutine.
func restarted(t *testing.T, fs vfs.FS, atJudge func(n *node)) *node {
	return restartedWith(t, func() Config { return testConfig(fs) }, Write{Value: []byte("old")}, atJudge)
}

// restartedWith is restarted with other stores, and another put of each key.
func restartedWith(t *testing.T, config func() Config, put Write, atJudge func(n *node)) *node {
	n := open(t, config())
	for shard := range uint16(4) {
		w := put
		w.Shard, w.Key = shard, []byte("k")
		n.do(w)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *node, 1)
	var once sync.Once
	hook(t, func(point string, args ...uint64) {
		if point == "fill.judge" && args[0] == 0 {
			once.Do(func() { atJudge(<-opened) })
		}
	})
	c := config()
	c.FillWorkers = 1
	n = open(t, c)
	opened <- n
	return n
}

// TestF6Delete: the fill has read k; k is deleted, which finds no slot to
// clear; then the fill brings k in.
func TestF6Delete(t *testing.T) {
	bites(t, teeth.F6FillVersion, func(t *testing.T, found *violations) {
		n := restarted(t, memFS(), func(n *node) { n.del(0, "k") })
		n.fill()
		if value, ok := n.get(0, "k"); ok {
			found.add("a deleted key is back: %q", value)
		}
		n.want(1, "k", "old")
	})
}

// TestF6Put: the fill has read k; k is put; then the fill brings the old value.
func TestF6Put(t *testing.T) {
	bites(t, teeth.F6FillVersion, func(t *testing.T, found *violations) {
		n := restarted(t, memFS(), func(n *node) { n.put(0, "k", "new") })
		n.fill()
		if value, _ := n.get(0, "k"); value != "new" {
			found.add("the old value is back: %q", value)
		}
		if _, value, ok, _ := n.reader().get(0, "k"); ok && value != "new" {
			found.add("a reader sees the old value: %q", value)
		}
	})
}

// TestF6Unpublished: the fill's snapshot has a write that is not durable yet.
func TestF6Unpublished(t *testing.T) {
	bites(t, teeth.F6FillVersion, func(t *testing.T, found *violations) {
		fs := newStalledFS()
		release := func() {}
		n := restarted(t, fs, func(n *node) {
			// The one worker stands in shard 0; shard 1 comes next.
			release = fs.stall()
			if err := n.Submit(&Write{Shard: 1, Key: []byte("k"), Value: []byte("new"), Done: func(*Write) {}}); err != nil {
				panic(err)
			}
			n.inPebble(1, "k", "new")
		})
		defer func() { release() }()
		waitFor(t, "the fill", func() bool { return n.Stats().FillKeys == 4 })
		if _, value, ok, _ := n.reader().get(1, "k"); ok && value == "new" {
			if left, _ := fs.afterCrash(t, 1, "k"); left != value {
				found.add("a reader sees %q; a crash now leaves %q", value, left)
			}
		}
		release()
		n.fill()
		n.want(1, "k", "new")
		n.want(2, "k", "old")
	})
}

// TestF7NoMemory: a key is put for which there is no memory.
func TestF7NoMemory(t *testing.T) {
	bites(t, teeth.F7CountSlotless, func(t *testing.T, found *violations) {
		c := testConfig(memFS())
		c.Memory.(*heapMemory).limit = 1 << 20
		n := open(t, c)
		n.fill()
		n.put(0, "k", "v")
		if _, _, ok, ask := n.reader().get(0, "k"); !ok && !ask {
			found.add("a reader says that a key that was put is absent")
		}
	})
}

// TestF7SlotDropped: a key loses its slot, because its new value finds no
// memory.
func TestF7SlotDropped(t *testing.T) {
	bites(t, teeth.F7CountSlotless, func(t *testing.T, found *violations) {
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
				found.add("a reader says that a key that was put is absent")
			}
			n.lease()
		}
	})
}

// afterCrash is what a crash now would leave of a key.
func (s *stalledFS) afterCrash(t *testing.T, shard int, key string) (string, bool) {
	c := testConfig(s.mem.CrashClone(vfs.CrashCloneCfg{}))
	c.PredecessorGone = true
	n := open(t, c)
	defer n.Close()
	return n.get(shard, key)
}
