package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// A quiet logger hears Fatalf: it tells and does not return, as the store's.
type quiet struct{ down chan struct{} }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (q quiet) Fatalf(string, ...any) {
	select {
	case <-q.down:
	default:
		close(q.down)
	}
	select {}
}

// A world is a base in memory, and how tables get into it.
type world struct {
	testing.TB
	db  *pebble.DB
	o   *pebble.Options
	cfg Config
}

// opened opens the base of a disk; change may alter the options.
func opened(t testing.TB, fsys vfs.FS, change func(*pebble.Options)) (*world, error) {
	down := make(chan struct{})
	o := &pebble.Options{FS: fsys, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{down}}
	Options(o)
	if change != nil {
		change(o)
	}
	db, err := pebble.Open("db", o)
	return &world{TB: t, db: db, o: o, cfg: Config{FS: fsys, Options: o, Dir: "way", Down: down}}, err
}

// newWorld is a base on a disk that can crash.
func newWorld(t testing.TB, fsys vfs.FS) *world {
	t.Helper()
	w, err := opened(t, fsys, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// change brings pairs of key and value into the base; the value "-" deletes.
func (w *world) change(pairs ...string) error {
	b, err := Begin(context.Background(), w.db, w.cfg)
	if err != nil {
		return err
	}
	defer b.Abort()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "-" {
			err = b.Delete([]byte(pairs[i]))
		} else {
			err = b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
		}
		if err != nil {
			return err
		}
		b.CutHere()
	}
	_, err = b.Commit(context.Background())
	return err
}

// must fails the test over an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// all is what the base has.
func (w *world) all() map[string]string {
	w.Helper()
	it, err := w.db.NewIter(nil)
	w.must(err)
	m := map[string]string{}
	for it.First(); it.Valid(); it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	w.must(it.Close())
	return m
}

// has compares the base with pairs.
func (w *world) has(pairs ...string) {
	w.Helper()
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	if got := w.all(); !maps.Equal(got, want) {
		w.Errorf("the base has %v, want %v", got, want)
	}
}

// crashed opens what a power cut leaves of a disk, nothing unsynced.
func crashed(t testing.TB, disk *crashfs.Disk) *world {
	t.Helper()
	return newWorld(t, disk.CrashClone(vfs.CrashCloneCfg{}))
}

// TestCommitIsDurable crashes after Commit, and looks for leftovers.
func TestCommitIsDurable(t *testing.T) {
	disk := crashfs.New()
	// A compaction would write what it reads into tables of its own, and sync those.
	w, err := opened(t, disk, func(o *pebble.Options) { o.DisableAutomaticCompactions = true })
	if err != nil {
		t.Fatal(err)
	}
	defer w.db.Close()
	w.cfg.TableBytes = 1 // a table for each key
	w.must(w.change("a", "1", "b", "1", "position", "1"))
	w.must(w.change("a", "-", "c", "2", "position", "2"))
	if names, err := disk.List("way"); err != nil || len(names) != 0 {
		t.Errorf("files are left: %v, %v", names, err)
	}
	for range 2 { // also after a second crash
		c := crashed(t, disk)
		c.has("b", "1", "c", "2", "position", "2")
		c.must(c.db.Compact(context.Background(), []byte("a"), []byte("z"), false))
		c.has("b", "1", "c", "2", "position", "2")
		c.must(c.db.Close())
	}
}

// TestOnTheMachinesDisk goes through files as they are, and nobody else may read them.
func TestOnTheMachinesDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	for range 2 { // a base that is made, and one that is found
		w := newWorld(t, vfs.Default)
		w.must(w.change("a", "1", "b", "1"))
		w.must(w.change("a", "-", "c", "2"))
		w.has("b", "1", "c", "2")
		w.must(w.db.Close())
	}
	info, err := os.Stat("way")
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("the directory has mode %o, want 700", mode)
	}
}

// TestOrder gives keys that do not rise: nothing of the batch may be committed.
func TestOrder(t *testing.T) {
	w := newWorld(t, vfs.NewMem())
	defer w.db.Close()
	for _, second := range []string{"b", "a", ""} {
		b, err := Begin(context.Background(), w.db, w.cfg)
		w.must(err)
		w.must(b.Set([]byte("b"), nil))
		var order *OrderError
		if err := b.Delete([]byte(second)); !errors.As(err, &order) || string(order.Last) != "b" || string(order.Key) != second {
			t.Errorf("key %q after b: %v", second, err)
		}
		if err := b.Set([]byte("c"), nil); !errors.As(err, &order) {
			t.Errorf("going on: %v", err)
		}
		if _, err := b.Commit(context.Background()); !errors.As(err, &order) {
			t.Errorf("commit: %v", err)
		}
		if err := b.Set([]byte("d"), nil); err != ErrOver {
			t.Errorf("after commit: %v", err)
		}
		w.has()
	}
}

// TestForeignMemtable writes past the door: Begin and Commit see it.
func TestForeignMemtable(t *testing.T) {
	for _, key := range []string{"", "m", "\xff\xff"} {
		w := newWorld(t, vfs.NewMem())
		b, err := Begin(context.Background(), w.db, w.cfg)
		w.must(err)
		w.must(b.Set([]byte("a"), nil))
		w.must(w.db.Set([]byte(key), nil, pebble.NoSync))
		if _, err := b.Commit(context.Background()); !errors.Is(err, ErrFence) {
			t.Errorf("commit beside a write of %q: %v", key, err)
		}
		if _, err := Begin(context.Background(), w.db, w.cfg); !errors.Is(err, ErrFence) {
			t.Errorf("begin after a write of %q: %v", key, err)
		}
		w.must(w.db.Close())
	}
}

// TestCuts counts the tables of a batch.
func TestCuts(t *testing.T) {
	w := newWorld(t, vfs.NewMem())
	defer w.db.Close()
	w.cfg.TableBytes, w.cfg.MaxTables = 1000, 5
	for _, c := range []struct{ keys, each, tables int }{{0, 1, 0}, {1, 1, 1}, {9, 1, 5}, {30, 10, 3}, {21, 1000, 2}, {300, 10, 5}} {
		b, err := Begin(context.Background(), w.db, w.cfg)
		w.must(err)
		for i := range c.keys {
			if i%c.each == 0 {
				b.CutHere()
			}
			w.must(b.Set(fmt.Appendf(nil, "%04d", i), make([]byte, 996)))
		}
		s, err := b.Commit(context.Background())
		w.must(err)
		if s.Keys != c.keys || s.Tables != c.tables {
			t.Errorf("%+v: there are %d keys in %d tables", c, s.Keys, s.Tables)
		}
	}
}

// TestRate writes in virtual time: never faster than the rate, and a context
// that ends is obeyed.
func TestRate(t *testing.T) {
	w := newWorld(t, vfs.NewMem())
	defer w.db.Close()
	begun := time.Unix(1000, 0)
	now := begun
	w.cfg.Rate, w.cfg.Burst = 1<<20, 64<<10
	var mu sync.Mutex
	w.cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	w.cfg.Sleep = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, err := Begin(ctx, w.db, w.cfg)
	w.must(err)
	noise := make([]byte, 10<<10)
	x := uint64(1)
	for i := range 300 {
		for j := range noise {
			x = x*6364136223846793005 + 1442695040888963407
			noise[j] = byte(x >> 56)
		}
		w.must(b.Set(fmt.Appendf(nil, "%04d", i), noise))
	}
	s, err := b.Commit(ctx)
	w.must(err)
	least := time.Duration(s.Bytes-w.cfg.Burst) * time.Second / time.Duration(w.cfg.Rate)
	if took := now.Sub(begun); took < least*99/100 || took > least*11/10 {
		t.Errorf("%d bytes took %v, want about %v", s.Bytes, took, least)
	}
	b, err = Begin(ctx, w.db, w.cfg)
	w.must(err)
	cancel()
	for i := 0; err == nil && i < 300; i++ {
		err = b.Set(fmt.Appendf(nil, "%04d", i), noise)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	w.must(b.Abort())
	if names, _ := w.cfg.FS.List("way"); len(names) != 0 {
		t.Errorf("files are left: %v", names)
	}
}

// TestSyncEach: a table on its way is synced in pieces of so many bytes, so that the syncs of others have little to wait for; the last mebibyte when it ends.
func TestSyncEach(t *testing.T) {
	const all = 9 << 20
	for _, each := range []int{0, 512 << 10} {
		var syncs atomic.Int64
		w := newWorld(t, vfs.NewMem())
		w.cfg.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error { // a file in memory is synced as a whole
			if op.Kind == errorfs.OpFileSyncTo || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
				syncs.Add(1)
			}
			return nil
		}))
		w.cfg.SyncEach, w.cfg.Cuts, w.cfg.Dir = each, true, t.TempDir()
		b, err := Begin(t.Context(), w.db, w.cfg)
		w.must(err)
		noise := make([]byte, 8<<10)
		rng := rand.NewChaCha8([32]byte{1})
		for i := range all / len(noise) {
			_, _ = rng.Read(noise) // never fails
			w.must(b.Set(fmt.Appendf(nil, "%04d", i), noise))
		}
		want := int64((all - 1<<20) / cmp.Or(each, defaultSyncEach))
		if got := syncs.Load(); got < want*3/4 || got > want*5/4 {
			t.Errorf("each %d bytes: %d syncs of %d bytes, want about %d", each, got, all, want)
		}
		w.must(errors.Join(b.Abort(), w.db.Close()))
	}
}
