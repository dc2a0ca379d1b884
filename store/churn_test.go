package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/residents"
)

var churnFor = flag.Duration("churn.for", 0, "TestChurn: how long the churn goes on, of the server's time; 0: a short one")

// TestChurn has keys written, deleted and expired under a full memory, and gets
// by a skewed distribution beside it. The share of gets that are answered by
// READs alone, misses included, stays what it was after a minute: what deleted
// keys leave in the index is cleared. Time is virtual: a minute takes seconds.
func TestChurn(t *testing.T) {
	// The figures of a node with 48 MiB and 200,000 keys, by 16.
	limit, keys, writes, gets, last := uint64(4<<20), 12_500, 100, 300, 8*time.Minute
	if *churnFor > 0 {
		limit, keys, writes, gets, last = 48<<20, 200_000, 1500, 4000, *churnFor
	} else if underRace {
		t.Skip("one goroutine; TestSweepRuns runs under the race detector")
	}
	c, f := timedConfig(fullConfig(limit))
	n := open(t, c)
	n.fill()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	name := func(k int) (uint16, []byte) { return uint16(k % 4), fmt.Appendf(nil, "key-%08d", k) }
	value := []byte(pattern(600, "v"))
	put := func(k int, ttl time.Duration) {
		shard, key := name(k)
		err := n.Do(t.Context(), &Write{Op: Op{Shard: shard, Key: key, Value: value, TTL: ttl}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for k := range keys {
		put(k, 0)
		if k%1000 == 0 {
			n.lease() // the index grows no further than what waits for one allows
		}
	}
	zipf := rand.NewZipf(rng, 1.1, 20, uint64(keys-1))
	r := n.reader()
	sw := n.sweeper()
	ctx := context.Background()
	began := time.Now()
	// share plays one minute and returns the share of its gets that needed no SEND,
	// and that of its misses.
	share := func() (all, misses float64) {
		var gotten, asked, missed, missAsked int
		for range 60 {
			for range writes {
				k := rng.IntN(keys)
				switch x := rng.IntN(100); {
				case x < 25:
					shard, key := name(k)
					if _, err := n.Delete(ctx, shard, key); err != nil {
						t.Fatal(err)
					}
				case x < 40:
					put(k, 20*time.Second)
				default:
					put(k, 0)
				}
			}
			for range gets {
				shard, key := name(int(zipf.Uint64()))
				gotten++
				_, _, found, ask := r.get(int(shard), string(key))
				switch {
				case ask:
					asked++
					_, err := n.Get(ctx, shard, key, nil)
					if errors.Is(err, ErrNotFound) {
						missed++
						missAsked++
					} else if err != nil {
						t.Fatal(err)
					}
				case !found:
					missed++
				case rng.IntN(16) == 0: // as clients report what they READ
					n.Touched([]Touch{{Hash: n.hash(string(key)).Hi, Count: 16}})
				}
			}
			n.pass(f, time.Second)
			n.expire()
			n.lease()
			if err := sw.Some(residents.SweepRate); err != nil {
				t.Fatal(err)
			}
		}
		return 1 - float64(asked)/float64(gotten), 1 - float64(missAsked)/float64(missed)
	}
	first, firstMiss := share()
	now, nowMiss := first, firstMiss
	for minute := 2; minute <= int(last/time.Minute); minute++ {
		now, nowMiss = share()
		st := n.Stats()
		t.Logf("minute %d: %.1f %% of gets one-sided (%.1f %% in the first), %.1f %% of misses (%.1f %%); %d keys in memory, %d slots of others, %d swept, %d keys read for that (%v)",
			minute, 100*now, 100*first, 100*nowMiss, 100*firstMiss, st.Keys, st.PebbleOnly, st.SlotsSwept, st.SweptKeys, time.Since(began).Round(time.Second))
	}
	if now < 0.95*first || nowMiss < 0.95*firstMiss {
		t.Errorf("%.1f %% of gets and %.1f %% of misses are one-sided at the end, %.1f %% and %.1f %% in the first minute",
			100*now, 100*nowMiss, 100*first, 100*firstMiss)
	}
}
