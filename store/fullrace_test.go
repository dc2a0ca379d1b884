package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A fullKey has one writer. What it wrote is numbered; a get that begins after
// the answer to write n returns n or later, and no get returns older than one
// that ended before it began. (With one writer that is linearizability.)
type fullKey struct {
	shard        int
	name         string
	begun, acked atomic.Int64 // writes
	told         atomic.Int64 // the newest that a get returned; 0: absent
}

// raise lifts a mark.
func raise(m *atomic.Int64, n int64) {
	for old := m.Load(); old < n && !m.CompareAndSwap(old, n); old = m.Load() {
	}
}

// TestFullMemoryConcurrently: writers, readers one-sided and by SEND, the
// evictor, clients' reports and the clock of leases, all at once, with memory
// for a small part of the keys, of sizes that change.
func TestFullMemoryConcurrently(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { fullConcurrently(t, seed) })
	}
}

func fullConcurrently(t *testing.T, seed uint64) {
	c := fullConfig(6 << 20)
	c.Lease = 200 * time.Millisecond
	n := open(t, c)
	// Leases by the real clock: a reader whose get took longer than one
	// throws its answer away.
	quit := make(chan struct{})
	var background, all sync.WaitGroup
	background.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-tick.C:
				n.Beat(now)
			}
		}
	})
	defer func() { close(quit); background.Wait() }()
	waitFor(t, "fill", n.Filled)

	const writers, each = 4, 4000
	putsEach, getsEach := 4000, 20_000
	if underRace {
		putsEach, getsEach = 300, 2000
	}
	keys := make([]*fullKey, writers*each)
	for i := range keys {
		keys[i] = &fullKey{shard: i % 4, name: fmt.Sprintf("k%d", i)}
	}
	value := func(rng *rand.Rand, k int, w int64) string {
		size := 30 + rng.IntN(300)
		switch rng.IntN(400) {
		case 0:
			size = rng.IntN(200_000)
		case 1, 2, 3, 4, 5:
			size = rng.IntN(8000)
		}
		return pattern(size, fmt.Sprintf("%d:%d", k, w))
	}
	ctx := context.Background()
	first := rand.New(rand.NewPCG(seed, 50))
	n.putMany(len(keys), func(i int) (int, string, string) { return keys[i].shard, keys[i].name, value(first, i, 1) })
	for _, k := range keys {
		k.begun.Store(1)
		k.acked.Store(1)
	}
	var puts, gets, late atomic.Int64
	for id := range writers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)))
			for range putsEach {
				if t.Failed() {
					return
				}
				i := id*each + rng.IntN(each)
				k := keys[i]
				w := k.begun.Add(1)
				if _, err := n.Put(ctx, uint16(k.shard), []byte(k.name), []byte(value(rng, i, w))); err != nil {
					t.Errorf("put of %q: %v", k.name, err)
					return
				}
				raise(&k.acked, w)
				puts.Add(1)
			}
		})
	}
	for id := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+id)))
			rd := n.reader()
			z := rand.NewZipf(rng, 1.2, 4, uint64(len(keys)-1))
			for range getsEach {
				if t.Failed() {
					return
				}
				i := int(z.Uint64())
				k := keys[i]
				lo := max(k.acked.Load(), k.told.Load())
				start := time.Now()
				_, got, found, ask := rd.get(k.shard, k.name)
				took := time.Since(start)
				if !ask && took > c.Lease/2 {
					late.Add(1)
					continue // it does not count
				}
				if ask || rng.IntN(20) == 0 {
					v, err := n.Get(ctx, uint16(k.shard), []byte(k.name), nil)
					if err != nil && !errors.Is(err, ErrNotFound) {
						t.Errorf("get of %q: %v", k.name, err)
						return
					}
					got, found = string(v.Data), err == nil
				}
				w := int64(0)
				if found {
					var of int
					if _, err := fmt.Sscanf(got, "%d:%d.", &of, &w); err != nil || of != i {
						if len(got) >= 12 { // else it is cut
							t.Errorf("get of %q: %q", k.name, clip(got))
							return
						}
						continue
					}
				}
				if w < lo || w > k.begun.Load() {
					t.Errorf("get of %q (ask %v): write %d, must be %d to %d", k.name, ask, w, lo, k.begun.Load())
					return
				}
				raise(&k.told, w)
				gets.Add(1)
				if len(rd.loc) > 500 {
					clear(rd.loc)
				}
				if rng.IntN(50) == 0 {
					n.Touched([]Touch{{Hash: rng.Uint64(), Count: 1}})
				}
			}
		})
	}
	all.Wait()
	n.limitHeld()
	st := n.Stats()
	if st.Damaged != 0 || st.Corrupt != 0 || st.Evicted == 0 || st.Promoted == 0 {
		t.Errorf("damaged %d, corrupt %d, evicted %d, promoted %d", st.Damaged, st.Corrupt, st.Evicted, st.Promoted)
	}
	t.Logf("%d puts, %d gets, %d too late; evicted %d, promoted %d, refused %d, overtaken %d, cleared %d, slots dropped %d; %d in memory, %d Pebble-only, %d counted, from disk %d",
		puts.Load(), gets.Load(), late.Load(), st.Evicted, st.Promoted, st.Refused, st.Overtaken, st.Cleared, st.SlotsDropped, st.Keys, st.PebbleOnly, st.Slotless, st.FromDisk)
}

// TestFillBeyondMemory: after a start with more data than memory every key is
// there: some in memory, the others in Pebble only; misses are believed, and
// what is asked for comes into memory.
func TestFillBeyondMemory(t *testing.T) {
	fs := memFS()
	keys, limit := 25_000, uint64(6<<20)
	if underRace {
		keys, limit = 14_000, 4<<20
	}
	c := fullConfig(limit)
	c.FS = fs
	n := open(t, c)
	n.fill()
	value := func(k int) string { return fullValue(k, 1, 500+k%100) }
	n.putMany(keys, func(k int) (int, string, string) { return k % 4, fmt.Sprintf("k%d", k), value(k) })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time with keys that were used
		c.Memory = newHeapMemory()
		n = open(t, c)
		stop := n.beats()
		waitFor(t, "fill", n.Filled)
		n.limitHeld()
		st := n.Stats()
		if st.Keys == 0 || st.PebbleOnly+st.Slotless+st.Keys < uint64(keys) || st.Evicted > uint64(keys/50) {
			t.Errorf("%d in memory, %d Pebble-only, %d counted, %d evicted; %d were stored", st.Keys, st.PebbleOnly, st.Slotless, st.Evicted, keys)
		}
		rd := n.reader()
		asked := 0
		for k := 0; k < keys; k += 3 {
			_, got, found, err := rd.getAny(context.Background(), k%4, fmt.Sprintf("k%d", k))
			if err != nil || !found || got != value(k) {
				t.Fatalf("key %d: %q, found %v, %v", k, clip(got), found, err)
			}
			if _, _, found, ask := rd.get(k%4, fmt.Sprintf("k%d-not", k)); found {
				t.Fatalf("key %d-not is there", k)
			} else if ask {
				asked++
			}
		}
		if st.Slotless == 0 && asked > keys/30 {
			t.Errorf("%d of %d gets of absent keys had to ask", asked, keys/3)
		}
		t.Logf("%d in memory, %d Pebble-only, %d counted; %d absent keys asked; one-sided %d found, %d asked; promoted %d",
			st.Keys, st.PebbleOnly, st.Slotless, asked, rd.found, rd.asked, n.Stats().Promoted)
		stop()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
