package simcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/linear"
)

// Gets with a bound beside the load. One client raises a number, and it and another one get it with a bound: they may be late by that, and never go back
// (linear.Ladder). The bound of a run is shorter than an election, about as long, or much longer, so that gets fall behind it, wait for a leader,
// or go on without one.

var bounds = []time.Duration{30 * time.Millisecond, 400 * time.Millisecond, 5 * time.Second}

// climb begins; the returned function ends it, and says what must not be.
func (w *World) climb(seed uint64) (end func(*Outcome) error) {
	rng := rand.New(rand.NewPCG(seed, 0xb0))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	l := &linear.Ladder{
		Key:   func(round int) []byte { return fmt.Appendf(nil, "ladder/%d", round) },
		Bound: bounds[rng.IntN(len(bounds))], Pause: time.Duration(10+rng.IntN(50)) * time.Millisecond,
	}
	writer := rng.IntN(len(w.clients))
	wg.Go(func() {
		l.Climb(ctx, func(ctx context.Context, key, value []byte) (bool, error) {
			within, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			err := w.clients[writer].Put(within, key, value)
			return !errors.Is(err, client.ErrOutcomeUnknown), err
		})
	})
	for i := range 2 {
		reader := w.clients[(writer+i)%len(w.clients)]
		wg.Go(func() {
			l.Watch(ctx, func(ctx context.Context, key []byte) ([]byte, error) {
				within, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				value, err := getBounded(within, reader, key, l.Bound, i == 1)
				if errors.Is(err, client.ErrNotFound) {
					return nil, nil
				}
				return value, err
			})
		})
	}
	return func(out *Outcome) error {
		cancel()
		wg.Wait()
		_, late, err := l.Result()
		out.Late += late
		return err
	}
}

// getBounded gets a key with a bound, by itself or as one of many. Those are one here: parts of a call at several nodes take turns at a mutex while they wait, and
// virtual time stands still meanwhile (test/cluster has several).
func getBounded(ctx context.Context, c *client.Client, key []byte, bound time.Duration, many bool) ([]byte, error) {
	if !many {
		return c.Get(ctx, key, client.ReadBounded(bound))
	}
	results, err := c.MultiGet(ctx, [][]byte{key}, client.ReadBounded(bound))
	if len(results) == 0 {
		return nil, err
	}
	return results[0].Value, results[0].Err
}
