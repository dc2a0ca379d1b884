package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestHistories compares a base with a map over random batches, compactions,
// crashes and starts.
func TestHistories(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 4 {
		disk := crashfs.New()
		w := newWorld(t, disk)
		want := map[string]string{}
		for step := range 60 {
			switch rng.IntN(8) {
			case 0:
				w.must(w.db.Compact(context.Background(), []byte("k"), []byte("l"), false))
			case 1:
				clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				w.must(w.db.Close())
				disk = clone
				w = newWorld(t, disk)
			default:
				changes := map[string]string{}
				for range rng.IntN(60) {
					key, value := fmt.Sprintf("k%03d", rng.IntN(100)), "-"
					if rng.IntN(3) > 0 {
						value = fmt.Sprintf("%d:%0*d", step, rng.IntN(3000), 0)
					}
					changes[key] = value
				}
				w.cfg.TableBytes, w.cfg.MaxTables = 1+rng.Int64N(1<<14), 1+rng.IntN(8)
				var pairs []string
				for _, key := range slices.Sorted(maps.Keys(changes)) {
					pairs = append(pairs, key, changes[key])
					if want[key] = changes[key]; changes[key] == "-" {
						delete(want, key)
					}
				}
				w.must(w.change(pairs...))
			}
			if got := w.all(); !maps.Equal(got, want) {
				t.Fatalf("step %d: the base has %d keys, want %d: %v", step, len(got), len(want), slices.Sorted(maps.Keys(got)))
			}
		}
		w.must(w.db.Close())
	}
}

// TestTombstone deletes a key that lies in the lowest level: it stays gone when
// its tombstone is compacted away, and after a start.
func TestTombstone(t *testing.T) {
	disk := crashfs.New()
	w := newWorld(t, disk)
	w.must(w.change("a", "1", "m", "1", "z", "1"))
	w.must(w.db.Compact(context.Background(), []byte("a"), []byte("zz"), false))
	if n := w.db.Metrics().Levels[6].TablesCount; n == 0 {
		t.Fatal("the lowest level has nothing")
	}
	w.must(w.change("m", "-"))
	w.has("a", "1", "z", "1")
	w.must(w.db.Compact(context.Background(), []byte("a"), []byte("zz"), false))
	w.has("a", "1", "z", "1")
	w.must(w.db.Close())
	w = crashed(t, disk)
	w.has("a", "1", "z", "1")
	w.must(w.db.Close())
}

// TestL0 drives L0 to its height: Commit waits until its context ends, with
// nothing of the batch in the base, and goes on when L0 has become low.
func TestL0(t *testing.T) {
	w, err := opened(t, vfs.NewMem(), func(o *pebble.Options) { o.DisableAutomaticCompactions = true })
	w.must(err)
	defer func() { w.must(w.db.Close()) }()
	for i := range defaultSublevels + 1 { // the first goes to the lowest level
		w.must(w.change("a", fmt.Sprint(i), "z", fmt.Sprint(i)))
	}
	if n := w.db.Metrics().Levels[0].Sublevels; n != defaultSublevels {
		t.Fatalf("L0 has %d sublevels", n)
	}
	batch := func(ctx context.Context, sleep func(context.Context, time.Duration) error) error {
		cfg := w.cfg
		cfg.Sleep = sleep
		b, err := Begin(ctx, w.db, cfg)
		w.must(err)
		w.must(b.Set([]byte("m"), []byte("1")))
		_, err = b.Commit(ctx)
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	slept := 0
	err = batch(ctx, func(ctx context.Context, d time.Duration) error {
		if slept++; slept == 3 {
			cancel()
		}
		return ctx.Err()
	})
	var wait *WaitError
	if !errors.As(err, &wait) || !errors.Is(err, context.Canceled) || wait.Sublevels != defaultSublevels || slept != 3 {
		t.Errorf("after %d sleeps: %v", slept, err)
	}
	w.has("a", "8", "z", "8")
	w.must(batch(context.Background(), func(context.Context, time.Duration) error {
		return w.db.Compact(context.Background(), []byte("a"), []byte("zz"), false)
	}))
	w.has("a", "8", "m", "1", "z", "8")
}

// TestL0AfterFullDisk: a compaction finds no room, and Pebble leaves its keys alone for half a
// minute. A Commit that waits for L0 meanwhile goes on behind that, although nothing else
// happens in the base.
func TestL0AfterFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half a minute, which is Pebble's")
	}
	t.Parallel()
	var full atomic.Bool
	var failed atomic.Int64
	full.Store(true)
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") && full.Load() {
			failed.Add(1)
			return syscall.ENOSPC
		}
		return nil
	}))
	w, err := opened(t, disk, nil)
	w.must(err)
	defer func() { w.must(w.db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for i := 0; w.db.Metrics().Levels[0].Sublevels < defaultSublevels; i++ {
		w.must(w.change("a", fmt.Sprint(i), "z", fmt.Sprint(i)))
	}
	for failed.Load() == 0 && ctx.Err() == nil {
		w.must(sleep(ctx, time.Millisecond))
	}
	full.Store(false)
	w.cfg.Sleep, w.cfg.Now = nil, nil
	batch, err := Begin(ctx, w.db, w.cfg)
	w.must(err)
	w.must(batch.Set([]byte("m"), []byte("1")))
	stats, err := batch.Commit(ctx)
	if err != nil || stats.Waited < time.Second {
		t.Errorf("it waited for %v: %v", stats.Waited, err)
	}
}
