package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// cacheConfig is a store without a disk.
func cacheConfig(limit uint64) Config {
	c := testConfig(nil)
	c.Mode, c.Dir, c.FS = Cache, "", nil
	c.MemoryLimit, c.RegionSize = limit, 2<<20
	c.PredecessorGone = true
	return c
}

func TestModeNames(t *testing.T) {
	for m := Durable; m <= Cache; m++ {
		var got Mode
		if err := got.UnmarshalText([]byte(m.String())); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	for p := Always; p <= Off; p++ {
		var got SyncPolicy
		if err := got.UnmarshalText([]byte(p.String())); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	m, p := Cache, Off
	if m.UnmarshalText([]byte("disk")) == nil || p.UnmarshalText(nil) == nil || m != Cache || p != Off {
		t.Errorf("names that there are not became %v and %v", m, p)
	}
	if got := Mode(9).String(); got != "Mode(9)" {
		t.Error(got)
	}
}

// TestCache: everything but a scan works without a disk, and a start is empty.
func TestCache(t *testing.T) {
	ctx := context.Background()
	c := cacheConfig(64 << 20)
	n := open(t, c)
	if !n.Filled() {
		t.Error("a cache has nothing to be filled with")
	}
	r := n.reader()
	r.wantAbsent(0, "k")
	v1 := n.put(0, "k", "one")
	r.want(0, "k", "one")
	n.want(0, "k", "one")
	do := func(w Write) *Write {
		t.Helper()
		if err := n.Do(ctx, &w); err != nil && w.Err == nil {
			t.Fatalf("%v: %v", w.Kind, err)
		}
		return &w
	}
	if w := do(Write{Op: Op{Key: []byte("k"), Value: []byte("two"), If: CondVersion, IfVersion: v1}}); w.Err != nil {
		t.Errorf("put if version: %v", w.Err)
	}
	if w := do(Write{Op: Op{Key: []byte("k"), Value: []byte("three"), If: CondVersion, IfVersion: v1}}); !errors.Is(w.Err, ErrCondition) {
		t.Errorf("put if an old version: %v", w.Err)
	}
	if w := do(Write{Op: Op{Key: []byte("k"), Value: []byte("three"), If: CondAbsent}}); !errors.Is(w.Err, ErrCondition) {
		t.Errorf("put if absent: %v", w.Err)
	}
	if w := do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 5}}); w.Number != 5 {
		t.Errorf("increment: %d, %v", w.Number, w.Err)
	}
	if w := do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte("2")}, {Key: []byte("k"), Delete: true}}}}); w.Err != nil {
		t.Errorf("batch: %v", w.Err)
	}
	r.want(0, "a", "1")
	r.wantAbsent(0, "k")
	n.wantAbsent(0, "k")
	do(Write{Op: Op{Key: []byte("brief"), Value: []byte("v"), TTL: time.Millisecond}})
	waitFor(t, "expiry", func() bool { _, ok := n.get(0, "brief"); return !ok })
	waitFor(t, "removal of what has expired", func() bool { return n.Stats().Keys == 3 })
	if _, err := n.Scan(ctx, ScanRequest{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Scan: %v", err)
	}
	if h, err := n.Hold(ctx, 0, []byte("a")); err != nil {
		t.Errorf("Hold: %v", err)
	} else {
		h.Release()
	}
	if !n.del(0, "a") || n.del(0, "a") {
		t.Error("delete does not tell what was there")
	}
	last := n.put(0, "last", "one")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	c = cacheConfig(64 << 20)
	n = open(t, c)
	n.wantAbsent(0, "last")
	if v := n.put(0, "k", "again"); v <= last {
		t.Errorf("version %v in a life after %v", v, last)
	}
}

// TestCacheWaitsForPredecessor: nobody is told anything while clients may believe
// the memory of a life before, not even that its keys are gone.
func TestCacheWaitsForPredecessor(t *testing.T) {
	c := cacheConfig(64 << 20)
	c.PredecessorGone, c.Lease = false, 300*time.Millisecond
	start := time.Now()
	n := open(t, c)
	n.wantAbsent(0, "k")
	if took := time.Since(start); took < c.predecessorWait() {
		t.Errorf("a key was called absent after %v, the leases before may last for %v", took, c.predecessorWait())
	}
	n.put(0, "k", "v")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if s, err := Open(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("Open that nobody waits for: %v, %v", s, err)
	}
}

// TestCacheModel: with far too little memory keys vanish at any time, and that
// is all that happens to them: what is read is the newest, a condition on a
// version holds for the newest only, and one-sided readers agree.
func TestCacheModel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			n := open(t, cacheConfig(5<<20))
			defer n.beats()()
			r := n.reader()
			ctx := context.Background()
			type state struct {
				v     layout.Version
				value string
			}
			keys := map[string]state{}
			var evicted, held int
			steps, least := 60_000, 60_000
			if underRace {
				least = 8_000
			}
			for i := range steps {
				if i >= least && evicted > 0 && held > 0 {
					break // slow: as soon as all there is to see has been seen
				}
				k := rng.IntN(20_000)
				shard, key := k%4, fmt.Sprintf("key-%d", k)
				was, known := keys[key]
				value := fullValue(k, i, rng.IntN(800))
				if rng.IntN(200) == 0 {
					value = fullValue(k, i, rng.IntN(100_000))
				}
				switch x := rng.IntN(100); {
				case x < 45:
					keys[key] = state{n.put(shard, key, value), value}
				case x < 50:
					existed := n.del(shard, key)
					if existed && !known {
						t.Fatalf("step %d: %q existed", i, key)
					}
					delete(keys, key)
				case x < 60 && known:
					w := Write{Op: Op{Shard: uint16(shard), Key: []byte(key), Value: []byte(value), If: CondVersion, IfVersion: was.v}}
					err := n.Do(ctx, &w)
					switch {
					case err == nil:
						held++
						keys[key] = state{w.Version, value}
					case !errors.Is(err, ErrCondition) || w.Actual != 0:
						t.Fatalf("step %d: put of %q if %v: %v, it has %v", i, key, was.v, err, w.Actual)
					default:
						delete(keys, key)
					}
				case x < 80:
					v, got, found, ask := r.get(shard, key)
					switch {
					case ask:
					case found && (!known || v != was.v || got != was.value):
						t.Fatalf("step %d: one-sided get of %q: %q of %v, want %q of %v (%v)", i, key, clip(got), v, clip(was.value), was.v, known)
					case !found && known:
						evicted++
						delete(keys, key) // it does not come back
					}
				default:
					got, found := n.get(shard, key)
					switch {
					case found && (!known || got != was.value):
						t.Fatalf("step %d: get of %q: %q, want %q (%v)", i, key, clip(got), clip(was.value), known)
					case !found && known:
						evicted++
						delete(keys, key)
					}
				}
			}
			n.limitHeld()
			st := n.Stats()
			if evicted == 0 || held == 0 || st.Dropped == 0 || st.PebbleOnly != 0 || st.Slotless != 0 {
				t.Errorf("%d seen to be gone, %d conditions held, %+v", evicted, held, st)
			}
			t.Logf("%d evicted, %d dropped, %d seen to be gone; one-sided %d found, %d absent, %d asked", st.Evicted, st.Dropped, evicted, r.found, r.absent, r.asked)
		})
	}
}

// TestCacheDamagedLarge: where memory is all there is, a damaged value is lost.
// Nobody gets it, nor does a touch write it again with a good checksum.
func TestCacheDamagedLarge(t *testing.T) {
	ctx := context.Background()
	c := cacheConfig(64 << 20)
	c.noKeeper = true
	n := open(t, c)
	big := pattern(3*layout.ChunkSize, "big")
	n.put(0, "big", big)
	n.want(0, "big", big)
	n.damage(0, "big", 2*layout.ChunkSize)
	n.wantAbsent(0, "big")
	w := Write{Op: Op{Key: []byte("big"), Kind: OpTouch, TTL: time.Hour}}
	if err := n.Do(ctx, &w); !errors.Is(err, ErrCondition) {
		t.Errorf("touch of a damaged value: %v", err)
	}
	n.wantAbsent(0, "big")
	n.put(0, "big", big)
	n.want(0, "big", big)
}
