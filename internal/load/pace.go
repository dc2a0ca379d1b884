package load

import (
	"sync"
	"sync/atomic"
	"time"
)

// A pace says when calls of the open loop are due: call k at start + k*period.
// The callers take turns to wait for the next call: the caller whose turn it is
// makes it, and the next caller that is free waits meanwhile. So a slow call
// delays no other one as long as there are callers left, and only one thread
// waits at a time.
type pace struct {
	now  func() int64 // nanoseconds
	stop *atomic.Bool

	mu         sync.Mutex
	start, end int64   // of the phase
	period     float64 // nanoseconds between two calls
	calls      uint64  // made or under way
	most       uint64  // the phase ends after so many
}

// spinBefore is for how long before its moment a call waits by looking at the
// clock: a thread that sleeps wakes up to that much too late. The thread is busy
// then, and with a period below it all the time.
const spinBefore = 80 * time.Microsecond

// stopEvery is how often a long wait looks whether the run was stopped.
const stopEvery = 50 * time.Millisecond

// begin starts a phase.
func (p *pace) begin(start, end int64, most uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start, p.end, p.most, p.calls = start, end, most, 0
}

// next waits until a call is due. It returns when that was, or false when the
// phase is over.
func (p *pace) next() (due int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = p.start + int64(float64(p.calls)*p.period)
	if due >= p.end || p.calls >= p.most {
		return 0, false
	}
	for {
		now := p.now()
		switch left := time.Duration(due - now); {
		case now >= p.end || p.stop.Load():
			return 0, false
		case left <= 0:
			p.calls++
			return due, true
		case left > spinBefore:
			sleep(min(left-spinBefore, stopEvery))
		}
	}
}

// due returns how many calls were due until a moment, and how many of them were
// never made.
func (p *pace) due(now int64) (due, missed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Those at start, start+period, … before the end.
	n := float64(min(now, p.end)-p.start) / p.period
	due = int64(n)
	if float64(due) < n {
		due++
	}
	due = int64(min(uint64(max(due, 0)), p.most))
	due = max(due, int64(p.calls))
	return due, due - int64(p.calls)
}
