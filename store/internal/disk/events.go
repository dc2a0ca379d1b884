package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// Pebble does not return the error of a failed log write: it calls
// Logger.Fatalf, with locks held, and relies on it not to return. Type events
// is that logger, and fences the store.

// events is Pebble's logger and event sink.
type events struct {
	fence  *base.Fence
	counts eventCounts

	noSpace  atomic.Bool // the disk said ENOSPC or is below the floor
	readOnly atomic.Bool // the disk said EROFS

	mu         sync.Mutex
	stormSince time.Time // the window in which stormCount were counted
	stormCount int
}

// eventCounts counts Pebble's events since Open.
type eventCounts struct {
	background, corruption, slow, lowSpace, stalls atomic.Uint64
}

// Infof drops Pebble's chatter; what matters comes as an event.
func (v *events) Infof(string, ...any) {}

// Errorf logs, rate-limited.
func (v *events) Errorf(format string, args ...any) {
	v.fence.Report(slog.LevelError, "pebble", "text", fmt.Sprintf(format, args...))
}

// Fatalf fences the store and never returns: Pebble goes on as if the failed
// operation had succeeded if it does. Should OnFatal return (it must not),
// the goroutine is parked for ever; unwinding it would release Pebble's locks
// over a state that Pebble calls impossible.
func (v *events) Fatalf(format string, args ...any) {
	v.fence.Fail(fmt.Errorf(format, args...))
	select {}
}

// openTries is how often Pebble may fail at one thing while it opens. It would
// go on for ever.
const openTries = 20

// listener returns the events of Pebble that are worth a line or a count.
func (v *events) listener() *pebble.EventListener {
	l := &pebble.EventListener{
		BackgroundError: func(err error) {
			n := v.counts.background.Add(1)
			known := v.diskError(err)
			if v.fence.Opening.Load() && n > openTries || !known && v.storm(time.Now()) {
				v.fence.Fail(err)
			}
			v.fence.Report(slog.LevelError, "pebble: background error", "err", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			v.counts.corruption.Add(1)
			v.fence.Report(slog.LevelError, "pebble: corrupt data", "file", info.Path, "err", info.Details)
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			v.counts.slow.Add(1)
			v.fence.Report(slog.LevelWarn, "pebble: slow disk", "op", info.String())
		},
		LowDiskSpace: func(info pebble.LowDiskSpaceInfo) {
			v.counts.lowSpace.Add(1)
			v.fence.Report(slog.LevelWarn, "pebble: low disk space", "avail", info.AvailBytes, "total", info.TotalBytes)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			v.counts.stalls.Add(1)
			v.fence.Report(slog.LevelWarn, "pebble: writes stall", "reason", info.Reason)
		},
	}
	return l
}

// diskError takes note of errors that say what state the disk is in, which
// writers are told and which may pass.
func (v *events) diskError(err error) (known bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		v.noSpace.Store(true)
	case errors.Is(err, syscall.EROFS):
		v.readOnly.Store(true)
	default:
		return false
	}
	return true
}

// A background job that fails is started again at once. When it goes on like
// that (a table was removed under Pebble's hands) the machine does nothing
// else any more, and the data is not whole: better to stop.
const (
	StormErrors = 1000
	stormWindow = 10 * time.Second
)

// storm counts an unexplained background error; true: there are too many.
func (v *events) storm(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.Sub(v.stormSince) > stormWindow {
		v.stormSince, v.stormCount = now, 0
	}
	v.stormCount++
	return v.stormCount >= StormErrors
}
