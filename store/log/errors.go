package log

import (
	"errors"
	"fmt"
)

// The errors of a log.
var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log: closed")
	// ErrFailed: a write or a sync of the log has failed or was short. Nothing more is
	// written or believed in this process, because nobody knows what the disk has; it is
	// wrapped together with the cause. Restart the process when the disk is mended.
	ErrFailed = errors.New("log: failed: nothing more can be made durable")
	// ErrFull: the log has no room left within its bound, or the disk has none. A
	// checkpoint makes room.
	ErrFull = errors.New("log: full: a checkpoint must come first")
	// ErrTooLarge: a record, or a frame, would be larger than Config.MaxFrame.
	ErrTooLarge = errors.New("log: the record is too large for a frame")
	// ErrTrimmed: the entry was trimmed.
	ErrTrimmed = errors.New("log: the entry was trimmed")
	// ErrNoEntry: the stream has no such entry.
	ErrNoEntry = errors.New("log: there is no such entry")
	// ErrNoStream: the stream was dropped, or its id is 0.
	ErrNoStream = errors.New("log: there is no such stream")
	// ErrNoLog: the directory holds no log.
	ErrNoLog = errors.New("log: there is no log in this directory")
	// ErrDamaged: the log is not what was written. It is wrapped in a *DamageError.
	ErrDamaged = errors.New("log: damaged")
	// ErrForeign: the log belongs to another store.
	ErrForeign = errors.New("log: it belongs to another store")
)

// A DamageError says what is damaged: acknowledged records are lost or cannot be read.
// errors.Is(e, ErrDamaged) holds.
type DamageError struct {
	File   string   // its name, without the directory
	At     Position // where; 0: the file as a whole
	Detail string
	Err    error // the cause, if there is one
}

// Error names the file, the position and the finding.
func (e *DamageError) Error() string {
	s := "log: damaged"
	if e.File != "" {
		s += " file " + e.File
	}
	if e.At != 0 {
		s += fmt.Sprintf(" at offset %d", e.At.Offset())
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(e, ErrDamaged) hold.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }
