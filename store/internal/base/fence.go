package base

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A Fence is the store's one-way switch from serving to fenced. It stops
// acknowledgements and beats at once, so that clients stop believing this node
// within a lease even if the process hangs on, then calls OnFatal, which must
// end the process. It is also the way to the log for what may repeat itself
// without pause. Safe for concurrent use.
type Fence struct {
	log     *slog.Logger
	onFatal func(error)

	// Opening says that the store is being opened: Open tells of a fault by its
	// error, and onFatal is not called.
	Opening atomic.Bool
	once    sync.Once
	// Down is closed when the store is fenced, by Fail alone.
	Down chan struct{}
	err  atomic.Pointer[error]

	mu   sync.Mutex
	last map[string]time.Time // per event: when it was last logged
}

// NewFence returns a fence of a store that serves. onFatal is called once, by
// whoever meets the fault.
func NewFence(log *slog.Logger, onFatal func(error)) *Fence {
	return &Fence{log: log, onFatal: onFatal, Down: make(chan struct{}), last: make(map[string]time.Time)}
}

// Fail fences the store and calls OnFatal, once. It returns when OnFatal does.
func (f *Fence) Fail(err error) {
	f.once.Do(func() {
		err := fmt.Errorf("%w: %w", ErrFatal, err)
		f.err.Store(&err)
		close(f.Down)
		if f.Opening.Load() {
			return
		}
		f.log.Error("fenced: nothing more is acknowledged", "err", err)
		f.onFatal(err)
	})
}

// Failed returns the error that fenced the store, or nil.
func (f *Fence) Failed() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Or returns the error that fenced the store, or err if it is not fenced: once it is,
// no other reason matters to a caller.
func (f *Fence) Or(err error) error {
	if fatal := f.Failed(); fatal != nil {
		return fatal
	}
	return err
}

// reportEvery is the least time between two log lines of one event. Pebble
// repeats a failing flush without pause: 17,000 to 50,000 events in seconds
// were seen.
const reportEvery = 5 * time.Second

// Report logs one event, unless the same was logged a moment ago.
func (f *Fence) Report(level slog.Level, event string, args ...any) {
	now := time.Now()
	f.mu.Lock()
	if last, ok := f.last[event]; ok && now.Sub(last) < reportEvery {
		f.mu.Unlock()
		return
	}
	f.last[event] = now
	f.mu.Unlock()
	f.log.Log(context.Background(), level, event, args...)
}
