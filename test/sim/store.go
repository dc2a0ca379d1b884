package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/linear"
)

// A thinker is a client that waits before some calls for a while of virtual
// time, so that a run is not over before the first beat. An eager one rarely
// does.
type thinker struct {
	linear.Store
	world *World
	eager bool

	mu  sync.Mutex
	rng *rand.Rand
}

func newThinker(c *client.Client, w *World, seed, n uint64, eager bool) *thinker {
	return &thinker{Store: linear.NewClient(c), world: w, eager: eager, rng: rand.New(rand.NewPCG(seed, 100+n))}
}

// think waits: mostly not at all, now and then longer than a lease.
func (s *thinker) think(ctx context.Context) {
	s.mu.Lock()
	n, d := s.rng.IntN(1000), time.Duration(s.rng.Int64N(int64(time.Second)))
	s.mu.Unlock()
	switch {
	case n < 600 || s.eager && n < 985:
		return
	case n < 900:
		d /= 1000
	case n < 985:
		d /= 20
	case n >= 998:
		d *= 3
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Do does an operation on one key.
func (s *thinker) Do(ctx context.Context, key []byte, in *linear.Input, size int) (linear.Output, error) {
	s.think(ctx)
	before := s.world.lives()
	out, err := s.Store.Do(ctx, key, in, size)
	out.Ahead = s.world.ahead(before)
	return out, err
}

// Batch does a batch.
func (s *thinker) Batch(ctx context.Context, keys [][]byte, in *linear.Input, size int) (linear.Output, error) {
	s.think(ctx)
	before := s.world.lives()
	out, err := s.Store.Batch(ctx, keys, in, size)
	out.Ahead = s.world.ahead(before)
	return out, err
}

// MultiGet gets all keys in one call.
func (s *thinker) MultiGet(ctx context.Context, keys [][]byte) ([]*linear.Output, error) {
	s.think(ctx)
	return s.Store.MultiGet(ctx, keys)
}

// Scan lists what begins with prefix.
func (s *thinker) Scan(ctx context.Context, prefix []byte, values bool) ([]linear.Found, error) {
	s.think(ctx)
	return s.Store.Scan(ctx, prefix, values)
}
