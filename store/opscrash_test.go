package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestRetriesOverCrashes cuts the power while requests are in flight, under each
// sync policy, and sends all of them again afterwards, those that were answered
// too. Whatever the crash took: each has then taken effect exactly once, and
// batches are whole.
func TestRetriesOverCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	rounds := 8
	if underRace {
		rounds = 3
	}
	for _, policy := range []SyncPolicy{Always, Interval, Off} {
		for round := range rounds {
			t.Run(fmt.Sprintf("%v/%d", policy, round), func(t *testing.T) { retriesOverCrash(t, policy, rng) })
		}
	}
}

func retriesOverCrash(t *testing.T, policy SyncPolicy, rng *rand.Rand) {
	const requests = 300
	fs := crashfs.New()
	c := testConfig(fs)
	c.Sync, c.PredecessorGone = policy, true
	n := open(t, c)
	request := func(i int, age time.Duration) Write {
		id := sent(rid(uint16(i), 1), age)
		if i%3 == 0 {
			return Write{Op: Op{Shard: uint16(i % 4), Kind: OpBatch, ID: id, Parts: []Part{
				{Key: fmt.Appendf(nil, "batch-%d-a", i), Value: []byte("v"), If: CondAbsent},
				{Key: fmt.Appendf(nil, "batch-%d-b", i), Value: []byte("v"), If: CondAbsent, TTL: time.Hour},
			}}}
		}
		return Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "count-%d", i), Kind: OpIncrement, Delta: 1, ID: id}}
	}
	answers := make(chan int, requests)
	crashAt, acks := rng.IntN(requests), 0
	for i := range requests {
		w := request(i, 0)
		w.Done = func(*Write) { answers <- i }
		n.submit(&w)
		if i%16 == 15 {
			for len(answers) > 0 {
				<-answers
				acks++
			}
		}
		if i == crashAt {
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		}
	}
	if err := n.Close(); err != nil { // of the world in which nothing happened
		t.Fatal(err)
	}
	c.FS, c.Memory = fs, newHeapMemory()
	n = open(t, c)
	for _, i := range rng.Perm(requests) {
		for range 2 {
			w := request(i, time.Second)
			if err := n.Do(t.Context(), &w); err != nil {
				t.Fatalf("request %d again: %v", i, err)
			}
			if w.Kind == OpIncrement && w.Number != 1 {
				t.Errorf("request %d has counted to %d", i, w.Number)
			}
		}
	}
	for i := range requests {
		if i%3 != 0 {
			n.want(i%4, fmt.Sprintf("count-%d", i), "1")
			continue
		}
		a, err1 := n.Stat(t.Context(), uint16(i%4), fmt.Appendf(nil, "batch-%d-a", i))
		b, err2 := n.Stat(t.Context(), uint16(i%4), fmt.Appendf(nil, "batch-%d-b", i))
		if err := errors.Join(err1, err2); err != nil || b.Version != a.Version+1 {
			t.Errorf("batch %d: versions %#x and %#x, %v", i, a.Version, b.Version, err)
		}
	}
}
