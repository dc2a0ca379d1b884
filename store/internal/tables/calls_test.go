package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// Two batches one after the other, and the three states that a crash may leave.
var (
	first  = []string{"a", "1", "b", "1", "d", "1", "position", "1"}
	second = []string{"a", "-", "c", "2", "d", "2", "position", "2"}
	states = []map[string]string{
		{},
		{"a": "1", "b": "1", "d": "1", "position": "1"},
		{"b": "1", "c": "2", "d": "2", "position": "2"},
	}
)

// writes reports whether a call changes a disk.
func writes(op errorfs.Op) bool {
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpLock
}

// TestCrashAtEveryCall cuts the power at every call of two batches that changes
// the disk, with none, some or all of what is not synced, and again at the next
// start: the base has exactly a state between batches, and one that is not
// older than the last Commit that returned.
func TestCrashAtEveryCall(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	type crash struct {
		what      string
		disk      *crashfs.Disk
		committed int
	}
	var mu sync.Mutex
	var crashes []crash
	committed, begun := 0, false
	disk := crashfs.New()
	w := newWorld(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if begun && writes(op) {
			for _, percent := range []int{0, 50, 100} {
				crashes = append(crashes, crash{fmt.Sprintf("call %d (%v of %s), %d %%", len(crashes)/3+1, op.Kind, op.Path, percent),
					disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), committed})
			}
		}
		return nil
	})))
	w.cfg.TableBytes = 1
	mu.Lock()
	begun = true
	mu.Unlock()
	for i, pairs := range [][]string{first, second} {
		w.must(w.change(pairs...))
		mu.Lock()
		committed = i + 1
		mu.Unlock()
	}
	w.must(w.db.Close())
	for _, c := range crashes {
		at := -1
		for round := range 2 {
			again, err := opened(t, c.disk, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			got := again.all()
			now := state(got)
			if now < c.committed || at >= 0 && now != at {
				t.Errorf("%s, start %d: after %d commits the base has %v", c.what, round, c.committed, got)
			}
			at = now
			next := c.disk.CrashClone(vfs.CrashCloneCfg{})
			w.must(again.db.Close())
			c.disk = next
		}
		// The batches that are missing come again, whatever lies in the directory.
		again := newWorld(t, c.disk)
		for i := max(at, 0); i < 2; i++ {
			if err := again.change([][]string{first, second}[i]...); err != nil {
				t.Errorf("%s, going on: %v", c.what, err)
			}
		}
		if state(again.all()) != 2 {
			t.Errorf("%s, going on: the base has %v", c.what, again.all())
		}
		w.must(again.db.Close())
	}
	if len(crashes) < 100 {
		t.Errorf("only %d crashes", len(crashes))
	}
}

// state returns which of states m is, or -1.
func state(m map[string]string) int {
	for i, s := range states {
		if maps.Equal(m, s) {
			return i
		}
	}
	return -1
}

// TestFaultAtEveryCall lets each call of the second batch fail once: it is
// committed or not, in memory and on the disk, it comes back, and where the base
// is not fenced it can be tried again.
func TestFaultAtEveryCall(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		tried := 0
		for n := int64(1); ; n++ {
			var left atomic.Int64
			var what atomic.Value
			disk := crashfs.New()
			w := newWorld(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if writes(op) && left.Load() > 0 && left.Add(-1) == 0 {
					what.Store(fmt.Sprintf("%v of %s", op.Kind, op.Path))
					return &fs.PathError{Op: "write", Path: op.Path, Err: fault}
				}
				return nil
			})))
			w.cfg.TableBytes = 1
			w.must(w.change(first...))
			left.Store(n)
			err := within(t, func() error { return w.change(second...) })
			left.Store(0)
			if what.Load() == nil {
				w.must(err)
				w.must(w.db.Close())
				break
			}
			tried++
			name := fmt.Sprintf("call %d (%v), %v", n, what.Load(), fault)
			checkFault(w, disk, name, fault, err)
		}
		if tried < 20 {
			t.Errorf("%v: only %d calls", fault, tried)
		}
	}
}

// checkFault looks at a base after one fault in its second batch.
func checkFault(w *world, disk *crashfs.Disk, name string, fault, err error) {
	w.Helper()
	c := crashed(w, disk)
	at := state(c.all())
	w.must(c.db.Close())
	switch {
	case err == nil && at != 2, err != nil && !errors.Is(err, ErrFence) && at != 1, at < 1:
		w.Errorf("%s: %v, and after a crash state %d", name, err, at)
	case err != nil && !errors.Is(err, ErrFence) && !errors.Is(err, fault):
		w.Errorf("%s: the error does not say so: %v", name, err)
	}
	if errors.Is(err, ErrFence) {
		return // Pebble holds its locks: it cannot even be closed
	}
	if err != nil {
		if at := state(w.all()); at != 1 {
			w.Errorf("%s: state %d in memory", name, at)
		}
		w.must(w.change(second...))
	}
	if at := state(w.all()); at != 2 {
		w.Errorf("%s: tried again, state %d in memory", name, at)
	}
	w.must(w.db.Close())
}

// within fails the test when f hangs.
func within(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
		return nil
	}
}

// TestGivenUp lets Pebble give up while it ingests, and panic: neither hangs or
// takes the caller along, and no later batch begins.
func TestGivenUp(t *testing.T) {
	var stop atomic.Bool
	down, met := make(chan struct{}), make(chan struct{})
	w := newWorld(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpLink && stop.CompareAndSwap(true, false) {
			close(met)
			select {}
		}
		return nil
	})))
	w.cfg.Down = down
	w.must(w.change(first...))
	stop.Store(true)
	go func() { <-met; close(down) }()
	if err := within(t, func() error { return w.change(second...) }); !errors.Is(err, ErrFence) {
		t.Errorf("commit: %v", err)
	}
	if err := within(t, func() error { return w.change(second...) }); !errors.Is(err, ErrFence) {
		t.Errorf("begin: %v", err)
	}
	closed := newWorld(t, vfs.NewMem())
	w.must(closed.db.Close())
	if err := within(t, func() error { return closed.change(first...) }); !errors.Is(err, ErrFence) {
		t.Errorf("a closed base: %v", err)
	}
}

// TestLeftovers puts files into the directory: Begin removes those of earlier
// batches alone.
func TestLeftovers(t *testing.T) {
	fsys := vfs.NewMem()
	w := newWorld(t, fsys)
	defer func() { w.must(w.db.Close()) }()
	w.must(fsys.MkdirAll("way/000009.table.d", 0o755))
	for _, name := range []string{"000001.table", "123456789.table", "000001.sst", "x000001.table", "MANIFEST-000001"} {
		f, err := fsys.Create("way/"+name, vfs.WriteCategoryUnspecified)
		w.must(err)
		w.must(f.Close())
	}
	w.must(w.change("a", "1"))
	names, err := fsys.List("way")
	w.must(err)
	if len(names) != 4 {
		t.Errorf("left are %v", names)
	}
	w.has("a", "1")
}
