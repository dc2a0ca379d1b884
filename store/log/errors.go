package log

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/streams"
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
	ErrTrimmed = streams.ErrTrimmed
	// ErrNoEntry: the stream has no such entry.
	ErrNoEntry = streams.ErrNoEntry
	// ErrNoStream: the stream was dropped, or its id is 0.
	ErrNoStream = streams.ErrNoStream
	// ErrGap: an entry would not follow the one before it, or its term is below that one's.
	ErrGap = streams.ErrGap
	// ErrStreams: there are as many streams as there can be. Drop one that has ended.
	ErrStreams = streams.ErrStreams
	// ErrFacts: a stream has as many facts as it can have, or the fact is too long.
	ErrFacts = streams.ErrFacts
	// ErrPromise: the state would take back a term, a vote or a commit index.
	ErrPromise = streams.ErrPromise
	// ErrRecord: the record is none of a log, or of a newer version.
	ErrRecord = streams.ErrRecord
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
