package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// A tabled is a store with values in tables, and what its keys have.
type tabled struct {
	*node
	t   *testing.T
	rng *rand.Rand
	c   Config
	has map[string]string // by key; its shard is the last digit modulo 4
}

func newTabled(t *testing.T, fs vfs.FS, seed uint64) *tabled {
	c := testConfig(fs)
	c.noKeeper, c.PredecessorGone, c.LogBytes = true, true, MinLogBytes
	w := &tabled{t: t, rng: rand.New(rand.NewPCG(seed, 3)), c: c, has: map[string]string{}}
	w.start(fs)
	return w
}

// start opens the store on a disk.
func (w *tabled) start(fs vfs.FS) {
	w.t.Helper()
	w.c.FS, w.c.Memory = fs, newHeapMemory()
	w.node = open(w.t, w.c)
	if first := w.values.First(); first <= w.mark.Table {
		w.t.Fatalf("the next table has number %d, and the base has values of table %d", first, w.mark.Table)
	}
}

func shardOf(key string) int { return int(key[len(key)-1]-'0') % 4 }

// write writes a key, in any of the ways there are.
func (w *tabled) write(i int) {
	w.t.Helper()
	key := fmt.Sprintf("key-%02d", w.rng.IntN(20))
	value := pattern([]int{10, 1500, 2500, 4000, 30_000}[w.rng.IntN(5)], fmt.Sprint(key, i))
	switch w.rng.IntN(8) {
	case 0:
		w.del(shardOf(key), key)
		delete(w.has, key)
	case 1:
		other := fmt.Sprintf("key-%02d", (w.rng.IntN(5)*4+shardOf(key))%20)
		if shardOf(other) != shardOf(key) || other == key {
			return
		}
		wr := &Write{Op: Op{Kind: OpBatch, Shard: uint16(shardOf(key)), Parts: []Part{
			{Key: []byte(key), Value: []byte(value)}, {Key: []byte(other), Delete: true}}}}
		if err := w.Do(context.Background(), wr); err != nil {
			w.t.Fatal(err)
		}
		w.has[key] = value
		delete(w.has, other)
	case 2:
		wr := &Write{Op: Op{Shard: uint16(shardOf(key)), Key: []byte(key), Value: []byte("refused"), If: CondVersion, IfVersion: layout.Version(1)}}
		if err := w.Do(context.Background(), wr); !errors.Is(err, ErrCondition) {
			w.t.Fatal(err)
		}
	default:
		w.put(shardOf(key), key, value)
		w.has[key] = value
	}
}

// compare compares what readers are shown.
func (w *tabled) compare() {
	w.t.Helper()
	for i := range 20 {
		key := fmt.Sprintf("key-%02d", i)
		if value, there := w.has[key]; there {
			w.node.want(shardOf(key), key, value)
		} else {
			w.wantAbsent(shardOf(key), key)
		}
	}
}

// check compares what a stopped store has, and that no value takes room in vain.
func (w *tabled) check(fs vfs.FS, dir string) {
	w.t.Helper()
	n := 0
	in, err := Inspect(w.t.Context(), dir, InspectOptions{FS: fs, Each: func(e InspectEntry) error {
		if w.has[string(e.Key)] != string(e.Value) {
			w.t.Errorf("%s: key %s has %s", dir, e.Key, clip(string(e.Value)))
		}
		n++
		return nil
	}})
	if err != nil || in.ProblemCount > 0 || n != len(w.has) || in.Spare != 0 {
		w.t.Fatalf("%s: %d keys of %d, %d values in vain, %v, problems: %v", dir, n, len(w.has), in.Spare, err, in.Problems)
	}
}

// tables returns how many files of values there are.
func (w *tabled) tables(fs vfs.FS) int {
	w.t.Helper()
	names, err := fs.List("/store/values")
	if err != nil {
		w.t.Fatal(err)
	}
	return len(names)
}

// TestValuesInTables: over lives that end by a power cut, by a kill or by a stop, values in
// tables are what was put, no reader misses one, and none is left in the base to which no record
// leads. The files go when no record of the log leads to them.
func TestValuesInTables(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *crashSeed != 0 {
		seeds = []uint64{*crashSeed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			mem := crashfs.New()
			w := newTabled(t, mem, seed)
			for life := range 8 {
				for i := range 30 + w.rng.IntN(60) {
					w.write(life*1000 + i)
					if w.rng.IntN(12) == 0 {
						w.checkpoint()
					}
				}
				w.compare()
				fs := mem
				switch w.rng.IntN(3) {
				case 0: // nothing that was not synced is there
					fs = mem.CrashClone(vfs.CrashCloneCfg{})
				case 1: // any part of it is
					fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, uint64(life)))})
				default:
					if err := w.Close(); err != nil {
						t.Fatal(err)
					}
				}
				w.check(fs, "/store")
				mem = fs
				w.start(mem)
				w.compare()
				if w.rng.IntN(2) == 0 {
					w.checkpoint()
					w.compare()
				}
			}
			w.put(0, "key-00", "small")
			w.has["key-00"] = "small"
			w.checkpoint()
			w.compare()
			waitFor(t, "the files of values to go", func() bool { return w.tables(mem) == 0 })
			dir := "/backup"
			if err := w.Backup(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			w.check(mem, dir)
		})
	}
}

// TestValuesAreHeld: a scan that has taken its moment reads values in tables that have been
// replaced since, and whose files would have gone.
func TestValuesAreHeld(t *testing.T) {
	mem := memFS()
	w := newTabled(t, mem, 1)
	w.put(0, "key-00", pattern(5000, "old"))
	moment, err := w.journal.Moment(w.disk, w.shards, &w.ckpt.Leaving)
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key-00")
	sh := w.shard(0)
	sh.Mu.Lock()
	e, ok := sh.Dirty.Find(w.hash("key-00"), key)
	sh.Mu.Unlock()
	if !ok {
		t.Fatal("the key is not dirty")
	}
	for i := range 3 {
		w.put(0, "key-00", pattern(5000, fmt.Sprint("new", i)))
		w.checkpoint()
	}
	if rec, err := w.newest.Entry(0, key, e); err != nil || string(rec.Value) != pattern(5000, "old") {
		t.Errorf("%s, %v", clip(string(rec.Value)), err)
	}
	// Nothing is written behind the release, so no checkpoint comes that would have the files go.
	w.put(0, "key-00", "small")
	w.checkpoint()
	moment.Release()
	if err := moment.Base.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the files of values to go", func() bool { return w.tables(mem) == 0 })
}

// TestValuesWithoutARecord: a value whose write was never in the log, because the process ended in
// between, came into the base with its table all the same. The next life deletes it.
func TestValuesWithoutARecord(t *testing.T) {
	mem := crashfs.New()
	w := newTabled(t, mem, 1)
	value := []byte(pattern(5000, "lost"))
	for i := range 3 {
		if _, err := w.values.Put(value, 1); err != nil {
			t.Fatal(err)
		}
		w.has["key-00"] = pattern(5000, fmt.Sprint(i))
		w.put(0, "key-00", w.has["key-00"])
	}
	last, err := w.values.Put(value, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.checkpoint()
	key := disk.AppendBytesKey(nil, last.Table, last.Number)
	if _, closer, err := w.disk.ForTests().DB().Get(key); err != nil {
		t.Fatalf("it did not come into the base: %v", err)
	} else if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	mem = mem.CrashClone(vfs.CrashCloneCfg{})
	w.start(mem)
	w.put(1, "key-01", pattern(5000, "next"))
	w.has["key-01"] = pattern(5000, "next")
	w.checkpoint()
	w.compare()
	if _, _, err := w.disk.ForTests().DB().Get(key); !errors.Is(err, pebble.ErrNotFound) {
		t.Errorf("the next life has it still: %v", err)
	}
}

// TestValuesBetweenTwoCrashes: the life behind a crash puts a large value and is killed before its first checkpoint.
// What the life before has left without a record stands between values to which records lead then, and goes all the same.
func TestValuesBetweenTwoCrashes(t *testing.T) {
	mem := crashfs.New()
	w := newTabled(t, mem, 1)
	put := func(i int) {
		key := fmt.Sprint("key-0", i)
		w.has[key] = pattern(5000, key)
		w.put(shardOf(key), key, w.has[key])
	}
	put(0)
	lost, err := w.values.Put([]byte(pattern(5000, "lost")), 1)
	if err != nil {
		t.Fatal(err)
	}
	w.checkpoint()
	in := func(what string, want bool) {
		t.Helper()
		_, closer, err := w.disk.ForTests().DB().Get(disk.AppendBytesKey(nil, lost.Table, lost.Number))
		if there := err == nil; there != want {
			t.Errorf("%s the value is in the base: %v, %v", what, there, err)
		}
		if err == nil {
			_ = closer.Close()
		}
	}
	in("behind the checkpoint", true)
	for i := range 3 { // lives that are killed before their first checkpoint
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		w.start(mem)
		put(2 * i)
		put(2*i + 1)
	}
	in("behind lives without a checkpoint", true)
	mem = mem.CrashClone(vfs.CrashCloneCfg{})
	w.start(mem)
	put(1)
	w.checkpoint()
	in("behind the next checkpoint", false)
	w.compare()
}

// TestValuesOnAFullDisk: when the disk has no room for a table of values, the value goes through
// the log, where room was set aside; what stood in the table that was cut is read, and comes into
// the base.
func TestValuesOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	mem := crashfs.New()
	w := newTabled(t, &fullFS{FS: mem, full: &full}, 1)
	for i := range 40 {
		full.Store(i%4 == 3)
		key := fmt.Sprintf("key-%02d", i%20)
		w.put(shardOf(key), key, pattern(3000+i, key))
		w.has[key] = pattern(3000+i, key)
		if i%7 == 0 {
			full.Store(false)
			w.checkpoint()
		}
	}
	w.compare()
	full.Store(false)
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	w.check(crashed, "/store")
	w.checkpoint()
	w.compare()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.check(mem, "/store")
}

// A fullFS has no room for tables of values while it is full.
type fullFS struct {
	vfs.FS
	full *atomic.Bool
}

func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full.Load() && strings.HasSuffix(name, ".values") {
		return nil, syscall.ENOSPC
	}
	file, err := f.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".values") {
		return &fullFile{file, f.full}, nil
	}
	return file, err
}

type fullFile struct {
	vfs.File
	full *atomic.Bool
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.full.Load() {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// TestManyValuesAreCopied: after a crash the values of a table that was cut fill several tables
// of the base, and what is deleted behind them overlaps none of those.
func TestManyValuesAreCopied(t *testing.T) {
	fs := crashfs.New()
	c := testConfig(fs)
	c.noKeeper, c.PredecessorGone, c.LogBytes, c.MemoryLimit = true, true, 256<<20, 64<<20
	n := open(t, c)
	const keys, size = 20, 2 << 20
	key := func(i int) string { return fmt.Sprintf("key-%02d", i) }
	for i := range keys {
		n.put(i%4, key(i), pattern(size, key(i)))
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	for life := range 2 {
		c.FS, c.Memory = crashed, newHeapMemory()
		n = open(t, c)
		if life == 0 {
			n.put(1, key(1), pattern(size, "newer")) // the first of those that were copied is dead later
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // one that fails is tried again
		err := n.ckpt.Now(ctx)
		cancel()
		if err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		for i := range keys {
			want := pattern(size, key(i))
			if i == 1 {
				want = pattern(size, "newer")
			}
			n.want(i%4, key(i), want)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
