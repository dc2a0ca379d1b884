package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

var fullScale = flag.Int("full.scale", 1, "TestEightTimesMemory: how many times the usual amount of work")

// fullConfig is a store with little memory.
func fullConfig(limit uint64) Config {
	c := testConfig(memFS())
	c.MemoryLimit, c.RegionSize = limit, 2<<20
	c.CacheBytes = 8 << 20
	c.Sync = Off
	return c
}

// beats lets the clock of leases run beside a test, many times as fast.
func (n *node) beats() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				n.now = n.now.Add(50 * time.Millisecond)
				n.Beat(n.now)
			}
		}
	}()
	return sync.OnceFunc(func() { close(quit); <-done })
}

// held checks that the limit is.
func (n *node) limitHeld() {
	n.t.Helper()
	n.heap.mu.Lock()
	used := n.heap.used
	n.heap.mu.Unlock()
	if limit := n.cfg.MemoryLimit; uint64(used) > limit+limit/50 {
		n.t.Errorf("%d bytes are registered, the limit is %d", used, limit)
	}
	if st := n.Stats(); st.RegionBytes > st.MemoryLimit || st.MemoryUsed > st.RegionBytes {
		n.t.Errorf("%d bytes used of %d registered, the limit is %d", st.MemoryUsed, st.RegionBytes, st.MemoryLimit)
	}
}

// fullValue is a value that tells which write it is of.
func fullValue(key, write, size int) string {
	return pattern(size, fmt.Sprintf("%d/%d", key, write))
}

// TestEightTimesMemory: a data set eight times the memory, with values of 1 KiB
// and of 64 B. Every get, one-sided or by SEND, is right.
func TestEightTimesMemory(t *testing.T) {
	if underRace && testing.Short() {
		t.Skip("TestFullMemoryConcurrently does the same from many goroutines, and make race-full has this")
	}
	for _, size := range []int{1 << 10, 64} {
		t.Run(fmt.Sprintf("value=%d", size), func(t *testing.T) {
			limit := uint64(4<<20) * uint64(*fullScale)
			if underRace && size < 100 {
				t.Skip("half a million puts take minutes under the race detector; TestFullMemoryConcurrently runs under it")
			}
			n := open(t, fullConfig(limit))
			n.fill()
			defer n.beats()()
			times := uint64(8)
			if underRace {
				times = 3
			}
			keys := int(times * limit / uint64(size+16))
			rng := rand.New(rand.NewPCG(1, uint64(size)))
			wrote := make([]uint8, keys)
			name := func(k int) (int, string) { return k % 4, fmt.Sprintf("key-%08d", k) }
			ctx := context.Background()
			start := time.Now()
			n.putMany(keys, func(k int) (int, string, string) {
				shard, key := name(k)
				return shard, key, fullValue(k, 0, size)
			})
			loaded := time.Since(start)
			n.limitHeld()

			zipf := rand.NewZipf(rng, 1.1, 1, uint64(keys-1))
			rd := n.reader()
			ops := 30_000 * *fullScale
			if underRace {
				ops /= 8
			}
			start = time.Now()
			absent := 0
			for i := range ops {
				k := int(zipf.Uint64())
				shard, key := name(k)
				switch x := rng.IntN(100); {
				case x < 5:
					wrote[k]++
					n.put(shard, key, fullValue(k, int(wrote[k]), size))
				case x < 10: // a key that is not there
					if _, _, found, err := rd.getAny(ctx, shard, key+"-not"); found || err != nil {
						t.Fatalf("op %d: %q-not: found %v, %v", i, key, found, err)
					}
					absent++
				default:
					_, got, found, err := rd.getAny(ctx, shard, key)
					if want := fullValue(k, int(wrote[k]), size); err != nil || !found || got != want {
						t.Fatalf("op %d: get of %q: %q, found %v, %v; want %q", i, key, clip(got), found, err, clip(want))
					}
				}
				if len(rd.loc) > 2000 {
					clear(rd.loc) // a client's cache of places is bounded
				}
			}
			took := time.Since(start)
			n.limitHeld()
			st := n.Stats()
			if st.Damaged != 0 || st.Corrupt != 0 {
				t.Errorf("%d damaged, %d corrupt", st.Damaged, st.Corrupt)
			}
			if st.Evicted == 0 || st.Promoted == 0 {
				t.Errorf("%d evicted, %d promoted: memory was never full", st.Evicted, st.Promoted)
			}
			t.Logf("limit %d MiB, %d keys of %d B, loaded in %v (%.0f puts/s), %d ops in %v (%.0f ops/s)", limit>>20, keys, size,
				loaded.Round(time.Millisecond), float64(keys)/loaded.Seconds(), ops, took.Round(time.Millisecond), float64(ops)/took.Seconds())
			t.Logf("one-sided: %d found, %d absent (of %d gets of absent keys), %d asked (%.1f %%): %v", rd.found, rd.absent, absent, rd.asked,
				100*float64(rd.asked)/float64(rd.found+rd.absent+rd.asked), rd.reasons)
			t.Logf("memory: %d registered, %d used (items %d, live %d, index %d, retired %d); %d keys in memory, %d Pebble-only, %d counted",
				st.RegionBytes, st.MemoryUsed, st.ItemBytes, st.ItemLive, st.IndexBytes, st.RetiredBytes, st.Keys, st.PebbleOnly, st.Slotless)
			t.Logf("evicted %d, promoted %d, refused %d, overtaken %d, slots dropped %d, no memory %d; from disk %d",
				st.Evicted, st.Promoted, st.Refused, st.Overtaken, st.SlotsDropped, st.NoMemory, st.FromDisk)
		})
	}
}

// putMany puts keys 0 … n-1 with many in flight.
func (n *node) putMany(keys int, of func(int) (shard int, key, value string)) {
	n.t.Helper()
	const window = 512
	free := make(chan *Write, window)
	for range window {
		free <- &Write{Done: func(w *Write) { free <- w }}
	}
	for k := range keys {
		shard, key, value := of(k)
		w := <-free
		*w = Write{Op: Op{Shard: uint16(shard), Key: []byte(key), Value: []byte(value)}, Done: w.Done}
		for {
			err := n.Submit(w)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrOverloaded) {
				n.t.Fatalf("put of key %d: %v", k, err)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	for range window {
		<-free
	}
}

// TestHostileSizes: whatever sizes arrive in whatever order, the limit holds,
// every put succeeds, and every value can be got.
func TestHostileSizes(t *testing.T) {
	if underRace && testing.Short() {
		t.Skip("checksums of large values take minutes; TestFullMemoryConcurrently runs, and make race-full has this")
	}
	limit, scale := uint64(10<<20), 1
	if underRace {
		limit, scale = 4<<20, 2
	}
	n := open(t, fullConfig(limit))
	n.fill()
	defer n.beats()()
	rd := n.reader()
	last := map[string]string{}
	phase := func(what string, size, keys int) {
		before := n.Stats()
		n.putMany(keys, func(k int) (int, string, string) {
			key := fmt.Sprintf("%s-%d", what, k)
			last[key] = fullValue(k, size, size)
			return k % 4, key, last[key]
		})
		n.limitHeld()
		// Read a few of them again and again: they belong in memory.
		hot := min(keys, 4)
		resident := false
		rounds := 150
		if underRace { // which makes checksums of large values very slow
			rounds = 40
		}
		for i := range rounds {
			if i > 2 && size > int(limit) {
				break // it never comes in
			}
			for k := range hot {
				key := fmt.Sprintf("%s-%d", what, k)
				_, got, found, err := rd.getAny(context.Background(), k%4, key)
				if errors.Is(err, ErrOverloaded) {
					continue
				}
				if err != nil || !found || got != last[key] {
					t.Fatalf("%s: get of %q: %q, found %v, %v", what, key, clip(got), found, err)
				}
			}
			if _, _, found, ask := rd.get(0, fmt.Sprintf("%s-0", what)); found && !ask {
				resident = true
			}
			time.Sleep(time.Millisecond)
		}
		if !resident && layout.ItemSize(20, size, false) < int(limit)/8 {
			t.Errorf("%s: a key of %d bytes that is read all the time does not come into memory", what, size)
		}
		st := n.Stats()
		t.Logf("%s: %d of %d B: evicted %d, cleared %d, no memory %d; %d keys in memory, %d Pebble-only, %d counted; items %d, live %d, index %d, retired %d",
			what, keys, size, st.Evicted-before.Evicted, st.Cleared-before.Cleared, st.NoMemory-before.NoMemory, st.Keys, st.PebbleOnly, st.Slotless,
			st.ItemBytes, st.ItemLive, st.IndexBytes, st.RetiredBytes)
	}
	small := 60_000
	if underRace {
		small = 4000
	}
	phase("flood", 64, small)
	phase("large", 1<<19/scale, 20)
	phase("again", 64, small)
	phase("middle", 5000, 2000/scale)
	phase("chunked", 100<<10, 100/scale)
	phase("huge", int(limit)+1000, 1)
	for key, want := range last {
		if len(want) < int(limit) && rand.IntN(50) > 0 {
			continue
		}
		got, err := n.Get(context.Background(), uint16(shardOfName(key)), []byte(key), nil)
		if err != nil || string(got.Data) != want {
			t.Fatalf("get of %q: %q, %v", key, clip(string(got.Data)), err)
		}
	}
	n.limitHeld()
}

// shardOfName is the shard of a key whose name ends in its number.
func shardOfName(key string) int {
	var k int
	for i := range key {
		if key[i] == '-' {
			fmt.Sscanf(key[i+1:], "%d", &k)
		}
	}
	return k % 4
}

// TestLeastMemory: with the least memory that there may be, all goes on.
func TestLeastMemory(t *testing.T) {
	n := open(t, fullConfig(minMemoryLimit))
	n.fill()
	defer n.beats()()
	keys := 30_000
	if underRace {
		keys = 5_000
	}
	value := func(k int) string { return fullValue(k, 0, 10+k%600) }
	n.putMany(keys, func(k int) (int, string, string) { return k % 4, fmt.Sprintf("k%d", k), value(k) })
	rd := n.reader()
	for k := 0; k < keys; k += 7 {
		_, got, found, err := rd.getAny(context.Background(), k%4, fmt.Sprintf("k%d", k))
		if err != nil || !found || got != value(k) {
			t.Fatalf("key %d: %q, found %v, %v", k, clip(got), found, err)
		}
	}
	n.limitHeld()
	st := n.Stats()
	if st.Keys == 0 {
		t.Error("nothing is in memory")
	}
	t.Logf("%d of %d keys in memory, %d Pebble-only, %d counted", st.Keys, keys, st.PebbleOnly, st.Slotless)
}

// TestHoldWhenFull: a value too large for a reply can be held for a reader
// though memory is full of others, at the latest when he comes again.
func TestHoldWhenFull(t *testing.T) {
	n := open(t, fullConfig(12<<20))
	n.fill()
	stop := n.beats()
	defer func() { stop() }()
	keys, size := 60_000, 300
	if underRace {
		keys, size = 15_000, 1200
	}
	big := pattern(3<<20, "big")
	n.put(1, "big", big)
	n.putMany(keys, func(k int) (int, string, string) { return k % 4, fmt.Sprintf("k%d", k), fullValue(k, 0, size) })
	rounds := 10
	if underRace {
		rounds = 3
	}
	for i := range rounds {
		n.want(0, "k0", fullValue(0, 0, size))
		n.evictKey(1, "big")
		var h *Held
		waitFor(t, "a place for the large value", func() bool {
			stop() // what is held is held for a lease, and the clock ran fifty times as fast
			var err error
			h, err = n.Hold(context.Background(), 1, []byte("big"))
			if err != nil && !errors.Is(err, ErrOverloaded) {
				t.Fatal(err)
			}
			if err != nil {
				stop = n.beats()
				time.Sleep(5 * time.Millisecond)
			}
			return err == nil
		})
		it, err := layout.ParseItem(n.mem.Table.Bytes(h.Place, h.Size), n.Incarnation(), h.Place)
		if err != nil || it.ValLen != len(big) {
			t.Errorf("round %d: %+v, %v", i, it.ValLen, err)
		}
		h.Release()
		stop = n.beats()
		n.limitHeld()
	}
}
