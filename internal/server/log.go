package server

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A limit is a kind of log line with a budget of its own, so that a peer that
// misbehaves a thousand times a second fills neither disk nor terminal.
type limit uint8

const (
	limitNone     limit = iota // always written: rare by nature
	limitAccept                // the fabric could not accept
	limitRefused               // connection requests refused
	limitEnded                 // sessions ended by their client's fault
	limitInternal              // requests that failed inside
	limitLate                  // late beats
	limitMemory                // memory that could not be had or registered
	limitCount
)

const (
	limitLines  = 10 // lines of a kind …
	limitPeriod = 10 * time.Second
)

// limitedLog is a logger that drops lines beyond their kind's budget and says
// later how many it has dropped.
type limitedLog struct {
	out atomic.Pointer[slog.Logger] // replaced once, when the store's id is known
	now func() time.Time

	mu     sync.Mutex
	budget [limitCount]struct {
		until   time.Time // end of the period
		lines   int       // written in it
		dropped int
	}
}

func newLimitedLog(out *slog.Logger) *limitedLog {
	l := &limitedLog{now: time.Now}
	l.out.Store(out)
	return l
}

// pass says whether a line of this kind may be written, and how many before
// it were not.
func (l *limitedLog) pass(kind limit) (dropped int, ok bool) {
	if kind == limitNone {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.budget[kind]
	if now := l.now(); now.After(b.until) {
		b.until, b.lines = now.Add(limitPeriod), 0
	}
	if b.lines >= limitLines {
		b.dropped++
		return 0, false
	}
	b.lines++
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}

func (l *limitedLog) write(level slog.Level, kind limit, msg string, args []any) {
	out := l.out.Load()
	if !out.Enabled(context.Background(), level) {
		return
	}
	dropped, ok := l.pass(kind)
	if !ok {
		return
	}
	args = withoutNil(args)
	if dropped > 0 {
		args = append(args, "similar_lines_dropped", dropped)
	}
	out.Log(context.Background(), level, msg, args...)
}

// withoutNil leaves out an error that is nil: "err=<nil>" reads as if there were one.
func withoutNil(args []any) []any {
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "err" && args[i+1] == nil {
			return append(args[:i:i], args[i+2:]...)
		}
	}
	return args
}

// Error, Warn and Info write a line of a kind. Debug lines have no budget: who
// asks for them wants them all.
func (l *limitedLog) Error(kind limit, msg string, args ...any) {
	l.write(slog.LevelError, kind, msg, args)
}
func (l *limitedLog) Warn(kind limit, msg string, args ...any) {
	l.write(slog.LevelWarn, kind, msg, args)
}
func (l *limitedLog) Info(msg string, args ...any) { l.write(slog.LevelInfo, limitNone, msg, args) }
func (l *limitedLog) Debug(msg string, args ...any) {
	l.write(slog.LevelDebug, limitNone, msg, args)
}
