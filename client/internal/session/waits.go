package session

import (
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// How calls wait is counted by the dispatchers of the completion queues, each for
// itself. A program asks for the sum since Dial, over all sessions that there were.

// countWaits adds what a dispatcher has counted.
func countWaits(w *base.WaitCounters, s wait.Stats) {
	w.SpinsGot += s.Spins.Got
	w.SpinsVain += s.Spins.Vain
	w.Parks += s.Parks
	w.SpinNanos += uint64(s.Spins.Time)
}

// Waits sums up how the calls at one server have waited: of the dispatchers of all its
// sessions, those that have ended included. The zero value is ready.
//
// Safe for concurrent use; its lock is a leaf.
type Waits struct {
	mu    sync.Mutex
	ended base.WaitCounters
	live  []*wait.Dispatcher // a few: one, and those that are about to end
}

// begin takes the dispatcher of a new session in.
func (w *Waits) begin(d *wait.Dispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = append(w.live, d)
}

// end is for a dispatcher that has been closed.
func (w *Waits) end(d *wait.Dispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.live {
		if other == d {
			w.live[i] = w.live[len(w.live)-1]
			w.live = w.live[:len(w.live)-1]
			countWaits(&w.ended, d.Stats())
			return
		}
	}
}

// Counters is the sum now.
func (w *Waits) Counters() base.WaitCounters {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.ended
	for _, d := range w.live {
		countWaits(&sum, d.Stats())
	}
	return sum
}
