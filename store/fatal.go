package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Pebble does not return the error of a failed log write: it calls
// Logger.Fatalf, with locks held, and relies on it not to return. fence is
// that logger. It stops acknowledgements and beats at once, so that clients
// stop believing this node within a lease even if the process hangs on, then
// calls OnFatal, which must end the process.

// A fence is the store's one-way switch from serving to fenced, and Pebble's
// logger and event sink.
type fence struct {
	log     *slog.Logger
	onFatal func(error)

	opening atomic.Bool // Open tells by its error; onFatal is not called
	once    sync.Once
	down    chan struct{} // closed when fenced
	err     atomic.Pointer[error]
	counts  eventCounts

	noSpace  atomic.Bool // the disk said ENOSPC or is below the floor
	readOnly atomic.Bool // the disk said EROFS

	mu         sync.Mutex
	last       map[string]time.Time // per event: when it was last logged
	stormSince time.Time            // the window in which stormCount were counted
	stormCount int
}

// eventCounts counts Pebble's events since Open.
type eventCounts struct {
	background, corruption, slow, lowSpace, stalls atomic.Uint64
}

func newFence(log *slog.Logger, onFatal func(error)) *fence {
	return &fence{log: log, onFatal: onFatal, down: make(chan struct{}), last: make(map[string]time.Time)}
}

// fail fences the store and calls OnFatal, once. It returns when OnFatal does.
func (f *fence) fail(err error) {
	f.once.Do(func() {
		err := fmt.Errorf("%w: %w", ErrFatal, err)
		f.err.Store(&err)
		close(f.down)
		if f.opening.Load() {
			return
		}
		f.log.Error("fenced: nothing more is acknowledged", "err", err)
		f.onFatal(err)
	})
}

// failed returns the error that fenced the store, or nil.
func (f *fence) failed() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Infof drops Pebble's chatter; what matters comes as an event.
func (f *fence) Infof(string, ...any) {}

// Errorf logs, rate-limited.
func (f *fence) Errorf(format string, args ...any) {
	f.report(slog.LevelError, "pebble", "text", fmt.Sprintf(format, args...))
}

// Fatalf fences the store and never returns: Pebble goes on as if the failed
// operation had succeeded if it does. Should OnFatal return (it must not),
// the goroutine is parked for ever; unwinding it would release Pebble's locks
// over a state that Pebble calls impossible.
func (f *fence) Fatalf(format string, args ...any) {
	f.fail(fmt.Errorf(format, args...))
	select {}
}

// openTries is how often Pebble may fail at one thing while it opens. It would
// go on for ever.
const openTries = 20

// reportEvery is the least time between two log lines of one event. Pebble
// repeats a failing flush without pause: 17,000 to 50,000 events in seconds
// were seen.
const reportEvery = 5 * time.Second

// report logs one event, unless the same was logged a moment ago.
func (f *fence) report(level slog.Level, event string, args ...any) {
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

// listener returns the events of Pebble that are worth a line or a count.
func (f *fence) listener() *pebble.EventListener {
	l := &pebble.EventListener{
		BackgroundError: func(err error) {
			n := f.counts.background.Add(1)
			known := f.diskError(err)
			if f.opening.Load() && n > openTries || !known && f.storm(time.Now()) {
				f.fail(err)
			}
			f.report(slog.LevelError, "pebble: background error", "err", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			f.counts.corruption.Add(1)
			f.report(slog.LevelError, "pebble: corrupt data", "file", info.Path, "err", info.Details)
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			f.counts.slow.Add(1)
			f.report(slog.LevelWarn, "pebble: slow disk", "op", info.String())
		},
		LowDiskSpace: func(info pebble.LowDiskSpaceInfo) {
			f.counts.lowSpace.Add(1)
			f.report(slog.LevelWarn, "pebble: low disk space", "avail", info.AvailBytes, "total", info.TotalBytes)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			f.counts.stalls.Add(1)
			f.report(slog.LevelWarn, "pebble: writes stall", "reason", info.Reason)
		},
	}
	return l
}

// diskError takes note of errors that say what state the disk is in, which
// writers are told and which may pass.
func (f *fence) diskError(err error) (known bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		f.noSpace.Store(true)
	case errors.Is(err, syscall.EROFS):
		f.readOnly.Store(true)
	default:
		return false
	}
	return true
}

// A background job that fails is started again at once. When it goes on like
// that (a table was removed under Pebble's hands) the machine does nothing
// else any more, and the data is not whole: better to stop.
const (
	stormErrors = 1000
	stormWindow = 10 * time.Second
)

// storm counts an unexplained background error; true: there are too many.
func (f *fence) storm(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.stormSince) > stormWindow {
		f.stormSince, f.stormCount = now, 0
	}
	f.stormCount++
	return f.stormCount >= stormErrors
}
