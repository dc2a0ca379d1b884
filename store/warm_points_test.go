//go:build points

package store

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// TestWarmStops: random operations in lives that end at a step of a write, of an eviction or of a growth of the index: between two stores.
func TestWarmStops(t *testing.T) {
	names := []string{"publish.pending", "publish.killed", "publish.swung", "publish.live", "batch.killed", "batch.swung", "batch.live", "evict",
		"index.mark", "index.wipe", "index.slot", "index.header", "index.entry", "index.newdir", "index.root"}
	stopped := make(map[string]int)
	for round := range 60 {
		seed := warmSeed(t, round)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWarmModel(t, seed)
			m := newKeptHeap()
			for range 5 {
				w.begin(m)
				name, nth := names[w.rng.IntN(len(names))], int64(1+w.rng.IntN(1<<w.rng.IntN(8)))
				if name == "index.root" || name == "index.entry" { // of which there are few
					nth = 1
				}
				var passed atomic.Int64
				hook(t, func(point string, _ ...uint64) {
					if point == name && passed.Add(1) == nth {
						w.stop() // whoever waits for the operation that is stopped here does nothing meanwhile
					}
				})
				for i := 0; i < 150 && passed.Load() < nth; i++ {
					w.step()
				}
				hook(t, func(string, ...uint64) {})
				if passed.Load() >= nth {
					stopped[name]++
				}
				m = w.end()
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d: run it again with WARM_SEED=%d", seed, seed)
		}
	}
	for _, name := range names {
		if stopped[name] == 0 {
			t.Errorf("no life ended at %s: this test sees too little", name)
		}
	}
	t.Logf("lives that ended at: %v", stopped)
}
