package core

import (
	"fmt"
	"log/slog"
	"strings"

	"go.etcd.io/raft/v3"
)

// Limits bound what is under way. Zero values take defaults.
type Limits struct {
	ElectionTicks  int    // without word of a leader for 1 to 2 times as long a voter stands; default 20
	HeartbeatTicks int    // a leader sends a heartbeat each; default 5
	Message        uint64 // bytes of entries in one message; default and most 1 MiB
	Inflight       uint64 // bytes of entries sent to a replica and not acknowledged; default 8 MiB, at least Message
	Uncommitted    uint64 // bytes of a leader's entries that are proposed and not applied; default 32 MiB
	Applying       uint64 // bytes of entries that are committed and handed out to be applied; default 4 MiB
}

// WithDefaults returns the limits with defaults in the place of zeros.
func (l Limits) WithDefaults() Limits {
	set := func(p *uint64, v uint64) {
		if *p == 0 {
			*p = v
		}
	}
	if l.ElectionTicks == 0 {
		l.ElectionTicks = 20
	}
	if l.HeartbeatTicks == 0 {
		l.HeartbeatTicks = 5
	}
	set(&l.Message, 1<<20)
	set(&l.Inflight, 8<<20)
	set(&l.Uncommitted, 32<<20)
	set(&l.Applying, 4<<20)
	l.Message = min(l.Message, MaxMessage/4)
	l.Inflight = max(l.Inflight, l.Message)
	return l
}

// maxInflight bounds the messages with entries that are sent to a replica and not
// acknowledged.
const maxInflight = 256

// guard makes an error of a panic of the library: a broken invariant of it ends this
// replica, and no other.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = &BrokenError{What: fmt.Sprint(p)}
	}
}

// A BrokenError says that the library met what it holds impossible. The replica must not be
// used any more.
type BrokenError struct{ What string }

func (e *BrokenError) Error() string {
	return fmt.Sprintf("consensus: the replica's state is broken: %s; its node keeps it stopped, rebuild it from the others", e.What)
}

// A logger takes the library's words to the node's log. What it calls information is told
// for debugging: elections are told by who leads.
type logger struct{ to *slog.Logger }

var _ raft.Logger = (*logger)(nil)

func text(v []any) string { return strings.TrimSpace(fmt.Sprintln(v...)) }

func (l *logger) Debug(...any)                {}
func (l *logger) Debugf(string, ...any)       {}
func (l *logger) Info(v ...any)               { l.to.Debug(text(v)) }
func (l *logger) Infof(f string, v ...any)    { l.debugf(f, v) }
func (l *logger) Warning(v ...any)            { l.to.Debug(text(v)) }
func (l *logger) Warningf(f string, v ...any) { l.debugf(f, v) }
func (l *logger) Error(v ...any)              { l.to.Error(text(v)) }
func (l *logger) Errorf(f string, v ...any)   { l.to.Error(fmt.Sprintf(f, v...)) }

// Fatal and Panic say that the library met what it holds impossible. Its replica is stopped
// by the panic (core.BrokenError), and the process goes on.
func (l *logger) Fatal(v ...any)            { panic(text(v)) }
func (l *logger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (l *logger) Panic(v ...any)            { panic(text(v)) }
func (l *logger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

func (l *logger) debugf(f string, v []any) {
	l.to.Debug(fmt.Sprintf(f, v...))
}
