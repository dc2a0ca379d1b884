package simcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/test/linear"
)

// A punctual is a client whose calls are held to their deadlines: one ends by it, whatever nodes and ways do meanwhile. Virtual time makes that exact: no
// busy machine is late here.
type punctual struct {
	linear.Store

	mu   *sync.Mutex
	late *error // the first one
}

// grace is what the end of a call may take after its deadline: steps of other goroutines take no time, messages of the network do.
const grace = 20 * time.Millisecond

// judge notes a call that has ended too late.
func (s *punctual) judge(ctx context.Context, what string, began time.Time) {
	by, ok := ctx.Deadline()
	if !ok {
		return
	}
	if over := time.Since(by); over > grace {
		s.mu.Lock()
		defer s.mu.Unlock()
		if *s.late == nil {
			*s.late = fmt.Errorf("a %s that had %v went on for %v more", what, by.Sub(began), over)
		}
	}
}

// Do does an operation on one key.
func (s *punctual) Do(ctx context.Context, key []byte, in *linear.Input, size int) (linear.Output, error) {
	defer s.judge(ctx, in.Op.String(), time.Now())
	return s.Store.Do(ctx, key, in, size)
}

// Batch does a batch.
func (s *punctual) Batch(ctx context.Context, keys [][]byte, in *linear.Input, size int) (linear.Output, error) {
	defer s.judge(ctx, "batch", time.Now())
	return s.Store.Batch(ctx, keys, in, size)
}

// MultiGet gets all keys in one call.
func (s *punctual) MultiGet(ctx context.Context, keys [][]byte) ([]*linear.Output, error) {
	defer s.judge(ctx, "multiget", time.Now())
	return s.Store.MultiGet(ctx, keys)
}

// Scan lists what begins with prefix.
func (s *punctual) Scan(ctx context.Context, prefix []byte, values bool) ([]linear.Found, error) {
	defer s.judge(ctx, "scan", time.Now())
	return s.Store.Scan(ctx, prefix, values)
}
