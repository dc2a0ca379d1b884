package pipeline

import (
	"sync"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A queue takes ordered writes to the workers and numbers them. One lock for
// both makes version order and commit order the same, over all shards: places
// are shared by the shards, so a version must be unique in the whole store for
// an item's checksum to mean anything (checksum-covers-version).
type queue struct {
	mu     sync.Mutex
	writes []*flight.Flight
	next   layout.Version // the next version to give out
	limit  layout.Version // versions below it may be given out
	closed bool
	wake   chan struct{} // capacity 1: there is something
}

// push is Pipeline.Push.
func (q *queue) push(f *flight.Flight) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return base.ErrClosed
	case q.next+f.Versions() > q.limit:
		return base.ErrEpochs
	}
	q.next = f.Number(q.next)
	q.writes = append(q.writes, f)
	if len(q.writes) == 1 {
		q.signal()
	}
	return nil
}

// signal wakes a worker.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns everything queued, in order, and leaves spare as the empty
// queue. closed: the queue is closed and this was the last.
func (q *queue) take(spare []*flight.Flight) (writes []*flight.Flight, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	writes, q.writes = q.writes, spare[:0]
	return writes, q.closed
}

// close refuses further writes and wakes a worker.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}
