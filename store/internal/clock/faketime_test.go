package clock

import (
	"sync"
	"time"
)

// A fakeTime is a wall clock and a monotonic one that a test moves.
type fakeTime struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func newFakeTime() *fakeTime { return &fakeTime{wall: time.Unix(1_800_000_000, 0)} }

func (f *fakeTime) source() (time.Time, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wall, f.mono
}

// pass lets time go by, for both clocks.
func (f *fakeTime) pass(d time.Duration) { f.step(d, d) }

// step moves each by its own.
func (f *fakeTime) step(wall, mono time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wall, f.mono = f.wall.Add(wall), f.mono+mono
}
