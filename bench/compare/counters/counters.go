// Package counters asks a kvserver for what it counts, by a client that is connected, and
// waits until that is as it should be.
package counters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

// Server is what matters here of the counters of a kvserver; see telemetry.Stats of
// internal/server. Sizes are bytes.
type Server struct {
	Sessions   int              `json:"sessions"`
	Goroutines int              `json:"goroutines"`
	Credits    int              `json:"credits"`          // that its sessions have
	Memory     map[string]int64 `json:"memory"`           // outside the Go heap, by purpose
	Registered int64            `json:"registered_bytes"` // for clients to READ
	Huge       int64            `json:"registered_huge_bytes"`
	Store      Store            `json:"store"`
}

// Store is what matters of its store; see store.Stats.
type Store struct {
	MemoryUsed   uint64 `json:"memory_used"`
	RegionBytes  uint64 `json:"region_bytes"`
	Regions      int    `json:"regions"`
	ItemBytes    uint64 `json:"item_bytes"`
	IndexBytes   uint64 `json:"index_bytes"`
	Shards       int    `json:"shards"`
	ShardsFilled int    `json:"shards_filled"`
	Keys         uint64 `json:"keys"` // in memory
	Evicted      uint64 `json:"evicted"`
	Slotless     uint64 `json:"slotless"`  // keys of which the index has nothing, at most
	NoMemory     uint64 `json:"no_memory"` // puts for which there was no place
	Published    uint64 `json:"published"`
}

// Filled says that all shards are filled, and their misses are believed.
func (st Store) Filled() bool { return st.ShardsFilled == st.Shards }

// Of asks the one server of a client.
func Of(ctx context.Context, c *client.Client) (st Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all, err := admin.Of(c).Stats(ctx)
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(all.Server, &st); err != nil {
		return st, err
	}
	if st.Store.MemoryUsed == 0 && st.Store.Shards == 0 {
		return st, fmt.Errorf("kvserver tells nothing of its store: %.200s", all.Server)
	}
	return st, nil
}

// Until asks until the store is as it should be, for two minutes at most, and seldom
// enough that a fill does not feel it.
func Until(ctx context.Context, c *client.Client, right func(Store) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		st, err := Of(ctx, c)
		if err != nil {
			return err
		}
		if right(st.Store) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d shards are filled, %d keys are in memory: %w", st.Store.ShardsFilled, st.Store.Shards, st.Store.Keys, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
