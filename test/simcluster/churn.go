package simcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

const (
	churnLanes = 8
	churnKeys  = 24
	churnBytes = 30_000
)

// calm are the errors of a write that a disturbed cluster may leave without an answer.
var calm = []error{client.ErrOutcomeUnknown, client.ErrTimeout, client.ErrUnavailable, client.ErrOverloaded, client.ErrNoSpace, client.ErrClosed}

// churn writes so much beside the keys that are judged that the log lets entries go, and a node that was away needs a snapshot.
func (w *World) churn(done <-chan struct{}) error {
	if !w.sc.Churn {
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, churnLanes)
	for lane := range churnLanes {
		wg.Go(func() { errs[lane] = w.churnLane(lane, done) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *World) churnLane(lane int, done <-chan struct{}) error {
	c := w.clients[lane%len(w.clients)]
	for i := lane; ; i += churnLanes {
		select {
		case <-done:
			return nil
		case <-time.After(80 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := c.Put(ctx, fmt.Appendf(nil, "churn-%d", i%churnKeys), bytes.Repeat([]byte{byte(i)}, churnBytes))
		cancel()
		if err != nil && !slices.ContainsFunc(calm, func(e error) bool { return errors.Is(err, e) }) {
			return fmt.Errorf("churn: %w", err)
		}
	}
}
