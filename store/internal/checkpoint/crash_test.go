package checkpoint

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/log"
)

// TestCrashInRun cuts the power before a call of the base's file system while a
// checkpoint runs: for the log and for the base at the same moment. The base is then
// exactly the state at the position that it names, the log reaches that far, and
// checkpoints that go on from there end where they would have ended.
func TestCrashInRun(t *testing.T) {
	worlds(t, 6, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		defer func() { w.close() }()
		for life := range 6 {
			var after *world
			calls, at := 0, 1+w.rng.IntN(60)
			cut := func() { after = w.crash(w.rng.Uint64(), w.rng.IntN(101)) }
			trap := w.trap(func() bool {
				if calls++; calls == at {
					cut()
				}
				return calls < at
			})
			if err := w.open(); err != nil {
				t.Fatalf("life %d: %v", life, err)
			}
			w.forgetLost()
			w.compare(fmt.Sprintf("life %d", life))
			for range 3 {
				if err := w.append(1 + w.rng.IntN(20)); err != nil {
					t.Fatal(err)
				}
				bound := w.anyBound()
				trap.arm(after == nil && w.rng.IntN(2) == 0)
				done, err := w.run(0, bound)
				trap.arm(false)
				if err != nil {
					t.Fatal(err)
				}
				w.from = done.Place
			}
			if after == nil {
				cut()
			}
			w.close()
			w = after
		}
	})
}

// forgetLost drops what a power cut has taken from the end of a log that is not synced.
func (w *world) forgetLost() {
	end := w.log.Found().End
	for i, s := range w.said {
		if s.at >= end {
			w.said = w.said[:i:i]
			break
		}
	}
}

// A trap is called before each call that changes something on the base's disk, as long as
// it is armed and wants to be. Pebble's own goroutines make such calls as well, beside Run.
type trap struct {
	mu     sync.Mutex
	armed  bool
	sprung func() (again bool)
}

// trap puts a trap into the base's disk.
func (w *world) trap(sprung func() bool) *trap {
	t := &trap{sprung: sprung}
	w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.armed && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			t.armed = t.sprung()
		}
		return nil
	}))
	return t
}

// arm arms a trap, or not.
func (t *trap) arm(armed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = armed
}

// crash is the world after a power cut at this moment: of the log's disk by a seed, and
// with so many percent of what the base's disk had not synced.
func (w *world) crash(seed uint64, percent int) *world {
	after := &world{
		t: w.t, rng: w.rng, next: w.next, keys: w.keys, said: w.said, sync: w.sync, plain: w.plain, most: w.most, disk: w.disk.Clone().Crash(seed),
		mem: w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.rng}),
	}
	after.fs = after.mem
	return after
}

// TestCrashBeforeEachCall: the same, before each call of one checkpoint behind another, of
// a log that nobody has synced and of which the power cut leaves nothing else.
func TestCrashBeforeEachCall(t *testing.T) {
	plain := false
	worlds(t, 2, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		plain = !plain
		w.sync, w.plain = log.Off, plain
		var after []*world
		cut := func() bool {
			after = append(after, w.crash(0, []int{0, 100, 50}[len(after)%3]))
			return true
		}
		trap := w.trap(cut)
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.append(20); err != nil {
				t.Fatal(err)
			}
			trap.arm(w.from.At != 0)
			done, err := w.run(0, Bound{})
			trap.arm(false)
			if err != nil {
				t.Fatal(err)
			}
			w.from = done.Place
		}
		cut()
		w.close()
		old, young := 0, 0
		for i, a := range after {
			if err := a.open(); err != nil {
				t.Fatalf("crash %d of %d: %v", i, len(after), err)
			}
			if a.from == w.from {
				young++
			} else {
				old++
			}
			a.compare(fmt.Sprintf("crash %d of %d", i, len(after)))
			if _, err := a.run(0, Bound{}); err != nil {
				t.Fatalf("crash %d of %d: going on: %v", i, len(after), err)
			}
			a.forgetLost()
			a.compare(fmt.Sprintf("crash %d of %d, gone on", i, len(after)))
			a.close()
		}
		if old < 5 || young < 1 {
			t.Errorf("%d crashes before the ingest and %d behind it: the test looks at nothing", old, young)
		}
	})
}

// TestOnlyWhatHasPassed: a frame that is written and has not passed is not in the base.
func TestOnlyWhatHasPassed(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	if err := w.append(3); err != nil {
		t.Fatal(err)
	}
	passed := w.log.Stats().Passed
	f := w.log.Begin()
	if err := f.AddFact(ours, 1, []byte("later")); err != nil {
		t.Fatal(err)
	}
	if err := f.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	done, err := w.run(0, Bound{})
	if err != nil || done.Place.At < passed || done.Place.At > f.PositionOf(0) {
		t.Errorf("the base is at %v (%v), what has passed ends at %v, and %v has not", done.Place.At, err, passed, f.PositionOf(0))
	}
	w.compare("beside a frame that is on its way")
	if err := f.Turn(); err != nil {
		t.Error(err)
	}
	f.Pass()
}
