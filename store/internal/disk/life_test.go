package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

const testDir = "/store"

// testConfig is of a store of format 3 in fsys.
func testConfig(fsys vfs.FS) Config {
	return Config{Dir: testDir, FS: fsys, Shards: 2, CacheBytes: 1 << 20, MaxOpenFiles: 100}
}

// A testLog is the log of a store as a FactLog.
type testLog struct {
	l     *log.Log
	facts map[string][]byte
}

// openTestLog opens the log of d and replays it.
func openTestLog(d *Disk) (*testLog, error) {
	dir, err := d.LogDir()
	if err != nil {
		return nil, err
	}
	l, err := log.Open(log.Config{
		Dir: dir, Store: d.ID(), Create: d.NewLog(), Reach: d.Reach(), SegmentSize: 1 << 20, Sync: log.Always,
	})
	if err != nil {
		return nil, err
	}
	j, names := &testLog{l, make(map[string][]byte)}, FactNames()
	err = l.Replay(func(r *log.Record) error {
		if r.Kind == log.Fact && r.Stream == 1 {
			j.facts[names[r.Name]] = slices.Clone(r.Body)
		}
		return nil
	})
	return j, err
}

func (j *testLog) Found() (uint64, bool) { f := j.l.Found(); return f.Epoch, f.Clean }
func (j *testLog) Fact(name string) ([]byte, bool) {
	value, ok := j.facts[name]
	return value, ok
}
func (j *testLog) Start(epoch uint64) error    { return j.l.Start(epoch) }
func (j *testLog) SetEpoch(epoch uint64) error { return j.l.SetEpoch(epoch) }
func (j *testLog) Durable() log.Position       { return j.l.Durable() }
func (j *testLog) Note(name string, value []byte, _ bool) error {
	for number, n := range FactNames() {
		if n == name {
			_, err := j.l.Append(log.Record{Kind: log.Fact, Stream: 1, Name: number, Body: value})
			return err
		}
	}
	return fmt.Errorf("no fact %q", name)
}

// A life is an opening of a store of format 3.
type life struct {
	*Disk
	log *testLog
}

// begin opens a store and begins its next life. What fails leaves nothing open.
func begin(c Config) (_ *life, fresh bool, err error) {
	d := New(c, base.NewFence(c.WithDefaults().Logger, func(error) {}), new(base.Counters))
	l := &life{Disk: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.crash())
		}
	}()
	if fresh, _, err = d.Open(); err != nil {
		return nil, fresh, err
	}
	if l.log, err = openTestLog(d); err != nil {
		return nil, fresh, err
	}
	if err = d.Join(l.log); err != nil {
		return nil, fresh, err
	}
	return l, fresh, d.Begin(func() uint64 { return 1000 })
}

func mustBegin(t *testing.T, c Config) *life {
	t.Helper()
	l, _, err := begin(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// crash ends a life without a word. Of one that was fenced while it began, somebody may be
// at work in the log still.
func (l *life) crash() (err error) {
	if l.log != nil && !l.stuck {
		err = l.log.l.Close(false)
	}
	return errors.Join(err, l.Disk.Close(nil))
}

// stop ends a life cleanly.
func (l *life) stop(e *End) error {
	err := l.MarkClean(e)
	if err == nil {
		err = l.log.l.Close(true)
	}
	return errors.Join(err, l.Disk.Close(e))
}

// cuts calls at with what the disk has before calls that change something: what was not
// synced is there in part. One call in every is cut at. known is what the world knew
// before.
func cuts(mem *crashfs.Disk, r *rand.Rand, every int, know *atomic.Int64, at func(what string, disk *crashfs.Disk, known int)) vfs.FS {
	var mu sync.Mutex
	n := 0
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		if r.IntN(every) != 0 {
			return nil
		}
		known := int(know.Load())
		clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(3) * 50, RNG: rand.New(rand.NewPCG(r.Uint64(), 3))})
		at(fmt.Sprintf("call %d, %v of %s", n, op.Kind, op.Path), clone, known)
		return nil
	}))
}

var (
	seedFlag  = flag.Uint64("seed", 0, "of the tests that take chances; 0: a new one")
	everyFlag = flag.Int("cuts", 24, "one power cut in so many is looked at; 1: all")
)

// seed returns a source of chance, which it prints.
func seed(t *testing.T) *rand.Rand {
	n := cmp.Or(*seedFlag, uint64(time.Now().UnixNano()))
	t.Logf("again: -run '^%s$' -seed %d", t.Name(), n)
	return rand.New(rand.NewPCG(n, 1))
}

// TestLifeFacts: what a life notes, the next one knows, from the log alone.
func TestLifeFacts(t *testing.T) {
	c := testConfig(vfs.NewMem())
	l, fresh, err := begin(c)
	if err != nil || !fresh || l.Clean() || l.Keys() != nil || l.Epoch() != 2 {
		t.Fatalf("a new store: fresh %v, clean %v, keys %v, epoch %d, %v", fresh, l.Clean(), l.Keys(), l.Epoch(), err)
	}
	id := l.ID()
	if err := errors.Join(l.BoundClock(77), l.NoteShort(func() bool { return true })); err != nil {
		t.Fatal(err)
	}
	l.NoteKeys([]uint64{noteLeast, 7})
	if !l.RaiseEpoch(5) {
		t.Fatal("the epoch is not raised")
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if l.Clean() || l.ClockBound() != 77 || !l.Short() || !slices.Equal(l.Keys(), []uint64{noteLeast, 7}) || l.Epoch() != 6 || l.ID() != id || l.Began() != 1001 {
		t.Errorf("after a crash: clean %v, clock %d, short %v, keys %v, epoch %d, began %d", l.Clean(), l.ClockBound(), l.Short(), l.Keys(), l.Epoch(), l.Began())
	}
	if err := l.NoteShort(func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	if err := l.stop(&End{Keys: []uint64{1, 2}, Clock: 99, Watched: true, Incarnation: 8, Newest: 9}); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	incarnation, newest, err := l.Watched()
	if !l.Clean() || l.ClockBound() != 99 || l.Short() || !slices.Equal(l.Keys(), []uint64{1, 2}) || incarnation != 8 || newest != 9 || err != nil {
		t.Errorf("after a clean stop: clean %v, clock %d, short %v, keys %v, watched %d %d, %v",
			l.Clean(), l.ClockBound(), l.Short(), l.Keys(), incarnation, newest, err)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if incarnation, _, _ := l.Watched(); l.Clean() || incarnation != 0 {
		t.Errorf("clean %v, watched %d: the mark of the life before is believed", l.Clean(), incarnation)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
}

// TestLifeNewest: of a fact that log and base have the log's counts, also one that says that
// it holds no more; and the base counts where the log says nothing.
func TestLifeNewest(t *testing.T) {
	c := testConfig(vfs.NewMem())
	l := mustBegin(t, c)
	into, err := l.Tables(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	old := Refusal{Cause: "of the base", Other: 1}
	for _, f := range []struct {
		name  string
		value []byte
	}{ // in the order of their names
		{metaClock, binary.LittleEndian.AppendUint64(nil, 50)},
		{metaKeys, encodeKeys([]uint64{3, 4})},
		{metaRefused, old.encode()},
		{metaShort, []byte{1}},
		{metaWatch, (&End{Incarnation: 5, Newest: 6}).watch(l.Epoch())},
	} {
		rec := make([]byte, RecordSize(len(f.value), false))
		PutRecord(rec, metaKey(f.name), Record{Value: f.value})
		if err := into.Set(metaKey(f.name), rec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := into.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.facts.short = true
	err = errors.Join(l.BoundClock(77), l.NoteShort(func() bool { return false }), l.note(metaRefused, denied(), true), l.crash())
	if err != nil {
		t.Fatal(err)
	}
	l, _, err = begin(c)
	if err != nil {
		t.Fatalf("a refusal that was taken back: %v", err)
	}
	if l.ClockBound() != 77 || l.Short() || !slices.Equal(l.Keys(), []uint64{3, 4}) {
		t.Errorf("clock %d, short %v, keys %v", l.ClockBound(), l.Short(), l.Keys())
	}
	if f, err := readFacts(l.db); err != nil || f.clock != 50 || !f.short || f.refused == nil || f.refused.Cause != old.Cause {
		t.Errorf("the base has %+v, %v: this proves nothing", f, err)
	}
	if err := l.stop(&End{Watched: true, Incarnation: 8, Newest: 9}); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if incarnation, newest, err := l.Watched(); incarnation != 8 || newest != 9 || err != nil {
		t.Errorf("watched %d up to %d, %v", incarnation, newest, err)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
}

// TestLifeWithoutLog: a log that was in force and is missing is damage, and so is one that
// ends before where the ledger says that it was durable.
func TestLifeWithoutLog(t *testing.T) {
	mem := vfs.NewMem()
	c := testConfig(mem)
	l := mustBegin(t, c)
	if err := errors.Join(l.BoundClock(4), l.stop(&End{})); err != nil {
		t.Fatal(err)
	}
	text, err := readFile(mem, "/store/LEDGER")
	if err != nil {
		t.Fatal(err)
	}
	if book, err := parseLedger(text); err != nil || book.state != ledgerWhole || book.reach != l.log.l.Durable() {
		t.Errorf("after a clean stop at %v: %v in %s, %v", l.log.l.Durable(), book.reach, text, err)
	}
	l = mustBegin(t, c)
	if err := l.BoundClock(5); err != nil {
		t.Fatal(err)
	}
	l.Heartbeat()
	if got := l.ledger.reached(); got != l.log.l.Durable() || got == 0 {
		t.Errorf("the ledger says %v, the log is durable up to %v", got, l.log.l.Durable())
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	if text, err = readFile(mem, "/store/LEDGER"); err != nil {
		t.Fatal(err)
	}
	book, err := parseLedger(text)
	if err != nil || book.reach == 0 {
		t.Fatalf("%v in %s: %v", book.reach, text, err)
	}
	book.reach += 1 << 16
	if err := writeLedger(c, book); err != nil {
		t.Fatal(err)
	}
	_, _, err = begin(c)
	fault := openFault(c.Dir, err)
	if !errors.Is(fault, log.ErrDamaged) || !errors.Is(fault, base.ErrCorrupt) || !strings.Contains(fault.Error(), "restore a backup") {
		t.Errorf("a log that has lost its end: %v", fault)
	}
	if err := mem.RemoveAll("/store/log"); err != nil {
		t.Fatal(err)
	}
	_, _, err = begin(c)
	if fault = openFault(c.Dir, err); !errors.Is(fault, base.ErrCorrupt) || !strings.Contains(fault.Error(), "restore a backup") {
		t.Errorf("a log that is gone: %v", fault)
	}
}

// TestLifeUnused: an opening that was refused and gave out no version leaves the epoch; the
// same epoch is begun again, and once it is used, no more.
func TestLifeUnused(t *testing.T) {
	c := testConfig(vfs.NewMem())
	for range 2 { // the second time over a mark that was taken back
		l := mustBegin(t, c)
		first := l.Epoch()
		if err := l.Refuse(Refusal{Cause: "another one", Other: 7}); err != nil {
			t.Fatal(err)
		}
		if err := l.stop(&End{Unused: true}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := begin(c); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "another one") {
			t.Fatalf("it is served: %v", err)
		}
		c.EpochAbove = first
		l = mustBegin(t, c)
		if l.Epoch() != first+EpochsPerRestore+1 {
			t.Errorf("epoch %d, %d is accepted to be gone", l.Epoch(), first)
		}
		c.EpochAbove = 0
		if err := l.crash(); err != nil {
			t.Fatal(err)
		}
		l = mustBegin(t, c) // once is enough
		if err := l.stop(&End{Watched: true, Incarnation: 8}); err != nil {
			t.Fatal(err)
		}
		l = mustBegin(t, c)
		used := l.Epoch()
		if err := l.stop(&End{Unused: true, Watched: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l = mustBegin(t, c)
			if l.Epoch() != used {
				t.Errorf("epoch %d, and %d was not used", l.Epoch(), used)
			}
			if inc, _, _ := l.Watched(); inc != 0 {
				t.Error("watchers are told of a life that is not the one before")
			}
			if err := l.stop(&End{Unused: true}); err != nil {
				t.Fatal(err)
			}
		}
		l = mustBegin(t, c)
		if err := l.crash(); err != nil { // it may have given out versions
			t.Fatal(err)
		}
		l = mustBegin(t, c)
		if l.Epoch() != used+1 {
			t.Errorf("epoch %d, after versions of %d", l.Epoch(), used)
		}
		if err := l.stop(&End{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLifeUnusedOff: a store that waits for no disk does not take an epoch twice.
func TestLifeUnusedOff(t *testing.T) {
	c := testConfig(vfs.NewMem())
	c.Sync = Off
	l := mustBegin(t, c)
	used := l.Epoch()
	if err := l.stop(&End{Unused: true}); err != nil {
		t.Fatal(err)
	}
	if l = mustBegin(t, c); l.Epoch() != used+1 {
		t.Errorf("epoch %d after %d", l.Epoch(), used)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
}

// TestLifeCreation cuts the power before every call of the making of a store and of two
// lives. A start is always possible, it makes the store anew only where no Begin had
// returned, and no epoch is begun twice.
func TestLifeCreation(t *testing.T) {
	r := seed(t)
	var newest atomic.Int64 // epoch that a Begin has returned with
	crashes := 0
	fsys := cuts(crashfs.New(), r, min(4, *everyFlag), &newest, func(what string, disk *crashfs.Disk, was int) {
		crashes++
		l, fresh, err := begin(testConfig(disk))
		if err != nil {
			t.Errorf("crash before %s: %v", what, err)
			return
		}
		if was != 0 && (fresh || int(l.Epoch()) <= was) {
			t.Errorf("crash before %s: made anew %v, epoch %d, %d was begun", what, fresh, l.Epoch(), was)
		}
		if err := l.stop(&End{}); err != nil {
			t.Errorf("crash before %s: %v", what, err)
		}
	})
	for range 2 {
		l, _, err := begin(testConfig(fsys))
		if err != nil {
			t.Fatal(err)
		}
		newest.Store(int64(l.Epoch()))
		if err := l.BoundClock(7); err != nil {
			t.Fatal(err)
		}
		l.Heartbeat()
		if err := l.stop(&End{Keys: []uint64{1, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	if crashes < 10 {
		t.Errorf("%d crashes", crashes)
	}
}

// TestPlaceEpoch: the epoch of a base is not below that of its position.
func TestPlaceEpoch(t *testing.T) {
	c := testConfig(vfs.NewMem())
	l := mustBegin(t, c)
	ingest := func(value []byte) {
		t.Helper()
		into, err := l.Tables(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		key := metaKey(metaPosition)
		rec := make([]byte, RecordSize(len(value), false))
		PutRecord(rec, key, Record{Value: value})
		if err := into.Set(key, rec); err != nil {
			t.Fatal(err)
		}
		if _, err := into.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := l.Place(); raw != nil || err != nil {
		t.Errorf("position %x of a new base, %v", raw, err)
	}
	place := make([]byte, positionLen)
	binary.LittleEndian.PutUint64(place[positionEpoch:], 40)
	ingest(place)
	if raw, err := l.Place(); raw == nil || err != nil {
		t.Errorf("position %x, %v", raw, err)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if l.Epoch() != 41 {
		t.Errorf("epoch %d after 40", l.Epoch())
	}
	binary.LittleEndian.PutUint64(place[positionEpoch:], 1<<16)
	ingest(place)
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := begin(c); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("an epoch that cannot be: %v", err)
	}
}

// TestLifeMemtables: a base has nothing in memory after it was opened, because an ingest
// into one that has would be lost with a crash.
func TestLifeMemtables(t *testing.T) {
	mem := crashfs.New()
	c := testConfig(mem)
	for range 2 {
		l := mustBegin(t, c)
		into, err := l.Tables(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(into.Abort(), l.crash()); err != nil {
			t.Fatal(err)
		}
		names, err := mem.List("/store/data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			// Pebble makes the file, ends it with a trailer, and must not use it otherwise.
			if info, err := mem.Stat("/store/data/" + name); err != nil || strings.HasSuffix(name, ".log") && info.Size() > 11 {
				t.Errorf("a base has %d bytes in the log of Pebble's %s, %v", info.Size(), name, err)
			}
		}
	}
	if desc, err := pebble.Peek("/store/data", mem); err != nil || !desc.Exists {
		t.Errorf("%+v, %v", desc, err)
	}
}
