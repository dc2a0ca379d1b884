package base

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A LogKind is a kind of log line with a budget of its own, so that a peer that
// misbehaves a thousand times a second fills neither disk nor terminal.
type LogKind uint8

const (
	LogAlways   LogKind = iota // always written: rare by nature
	LogAccept                  // the fabric could not accept
	LogRefused                 // connection requests refused
	LogEnded                   // sessions ended by their client's fault
	LogInternal                // requests that failed inside
	LogLate                    // late beats
	LogMemory                  // memory that could not be had or registered
	logKinds
)

const (
	logLines  = 10 // lines of a kind …
	logPeriod = 10 * time.Second
)

// A Log writes lines to a logger. It drops lines beyond their kind's budget, and the
// next line of the kind that is written says how many were dropped.
type Log struct {
	out atomic.Pointer[slog.Logger] // replaced once, when the store's id is known
	now func() time.Time

	mu     sync.Mutex
	budget [logKinds]struct {
		until   time.Time // end of the period
		lines   int       // written in it
		dropped int
	}
}

// NewLog returns a Log that writes to out.
func NewLog(out *slog.Logger) *Log {
	l := &Log{now: time.Now}
	l.out.Store(out)
	return l
}

// Replace has the lines written to another logger from now on.
func (l *Log) Replace(out *slog.Logger) { l.out.Store(out) }

// pass says whether a line of this kind may be written, and how many before
// it were not.
func (l *Log) pass(kind LogKind) (dropped int, ok bool) {
	if kind == LogAlways {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.budget[kind]
	if now := l.now(); now.After(b.until) {
		b.until, b.lines = now.Add(logPeriod), 0
	}
	if b.lines >= logLines {
		b.dropped++
		return 0, false
	}
	b.lines++
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}

func (l *Log) write(level slog.Level, kind LogKind, msg string, args []any) {
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

// Error writes a line of a kind at level error.
func (l *Log) Error(kind LogKind, msg string, args ...any) {
	l.write(slog.LevelError, kind, msg, args)
}

// Warn writes a line of a kind at level warn.
func (l *Log) Warn(kind LogKind, msg string, args ...any) {
	l.write(slog.LevelWarn, kind, msg, args)
}

// Info writes a line at level info, which has no budget: such lines are rare by nature.
func (l *Log) Info(msg string, args ...any) { l.write(slog.LevelInfo, LogAlways, msg, args) }

// Debug writes a line at level debug, which has no budget: somebody who turns that level
// on needs all lines.
func (l *Log) Debug(msg string, args ...any) {
	l.write(slog.LevelDebug, LogAlways, msg, args)
}
