package client

import (
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
)

// WaitCounters says how calls have waited for what they had asked the fabric
// for. Waits that found it at the first look, or that another call polled for,
// are in none of them.
type WaitCounters struct {
	SpinsGot  uint64 `json:"spins_got"`  // waits that polled, and it came
	SpinsVain uint64 `json:"spins_vain"` // waits that polled, and nothing came in their time
	Parks     uint64 `json:"parks"`      // how often somebody slept
	SpinNanos uint64 `json:"spin_nanos"` // time spent polling
}

func (w *WaitCounters) count(s rdma.DispatcherStats) {
	w.SpinsGot += s.Spins.Got
	w.SpinsVain += s.Spins.Vain
	w.Parks += s.Parks
	w.SpinNanos += uint64(s.Spins.Time)
}

// waits sums up the dispatchers of a peer's sessions, those that have ended
// included.
type waits struct {
	mu    sync.Mutex
	ended WaitCounters
	live  []*rdma.Dispatcher // a few: one, and those that are about to end
}

func (w *waits) begin(d *rdma.Dispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = append(w.live, d)
}

// end is for a dispatcher that has been closed.
func (w *waits) end(d *rdma.Dispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.live {
		if other == d {
			w.live[i] = w.live[len(w.live)-1]
			w.live = w.live[:len(w.live)-1]
			w.ended.count(d.Stats())
			return
		}
	}
}

func (w *waits) counters() WaitCounters {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.ended
	for _, d := range w.live {
		sum.count(d.Stats())
	}
	return sum
}
