package streams

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// The errors of the table. Package log gives them to its callers under the same names.
var (
	// ErrTrimmed: the entry was trimmed.
	ErrTrimmed = errors.New("log: the entry was trimmed")
	// ErrNoEntry: the stream has no such entry.
	ErrNoEntry = errors.New("log: there is no such entry")
	// ErrNoStream: the stream was dropped, or its id is 0.
	ErrNoStream = errors.New("log: there is no such stream")
	// ErrGap: an entry would not follow the one before it, or its term is below that one's.
	ErrGap = errors.New("log: the entry does not follow the one before it")
	// ErrStreams: there are as many streams as there can be. Drop one that has ended.
	ErrStreams = errors.New("log: too many streams: drop those that have ended")
	// ErrFacts: a stream has as many facts as it can have, or the fact is too long.
	ErrFacts = errors.New("log: too many facts, or one that is too long")
	// ErrPromise: a state that takes back what the replica has promised.
	ErrPromise = errors.New("log: the replica has promised otherwise")
	// ErrRecord: the record is none of a log, or of a newer version.
	ErrRecord = errors.New("log: no record of this version")
	// ErrNeeded: a segment cannot go, because something in it still counts.
	ErrNeeded = errors.New("log: the segment is still needed")
)

// refused wraps one of the errors above with the record and the reason. It is a function of
// its own so that what goes right makes no text.
func refused(cause error, r *format.Record, why string, args ...any) error {
	what := fmt.Sprintf("stream %d, %v", r.Stream, r.Kind)
	switch r.Kind {
	case format.Entry:
		what += fmt.Sprintf(" %d of term %d", r.Index, r.Term)
	case format.Fact:
		what += fmt.Sprintf(" %#x", r.Name)
	}
	return fmt.Errorf("%w: %s: %s", cause, what, fmt.Sprintf(why, args...))
}

// Limits bounds the table, and with it what hostile segments can make of it. A zero is the
// default.
type Limits struct {
	MaxStreams int // with those that were dropped and can still be replayed; 65,536
	MaxFact    int // bytes of a fact; 256
	MaxFacts   int // of a stream, the log's own apart; 16
}

// withDefaults fills in what is zero.
func (l Limits) withDefaults() Limits {
	if l.MaxStreams == 0 {
		l.MaxStreams = 65536
	}
	if l.MaxFact == 0 {
		l.MaxFact = 256
	}
	if l.MaxFacts == 0 {
		l.MaxFacts = 16
	}
	return l
}
