package log

import (
	"bytes"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/streams"
)

// A replicated stream has entries, which the log finds by their index, and facts: what its
// replica has promised (term, vote, commit index) is a fact in the words of its owner. Both
// are written by the frames of writer.go; an entry and a fact of one frame are there after
// a crash together or not at all.
//
// What these functions return counts from Seal on, also before it is durable: a replica
// that has sealed an entry knows it.

// LastFactName is the highest name of a fact that a stream may use; those above are the log's.
const LastFactName = streams.Reserved - 1

// Entries returns the index of the oldest entry of a stream that is not trimmed, and of the
// newest. Without entries first is last + 1.
func (l *Log) Entries(stream uint64) (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.First(stream), l.table.Last(stream)
}

// Term returns the term of an entry, or of the one at the trim point. It fails with
// ErrTrimmed, ErrNoEntry or ErrNoStream.
func (l *Log) Term(stream, index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.Term(stream, index)
}

// EntryAt returns the position of an entry, which ReadAt reads. It fails as Term does. The entry
// stands there until another takes its place or it is trimmed.
func (l *Log) EntryAt(stream, index uint64) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _, err := l.table.At(stream, index)
	return at, err
}

// ReadEntries returns the entries of a stream from index lo to hi, without hi, in memory of
// their own: at least one, and no more when their bodies exceed so many bytes. It fails as
// Term does, and with a *DamageError. It reads ahead: entries that stand near each other cost
// one read of the disk.
func (l *Log) ReadEntries(stream, lo, hi uint64, maxBytes int64) ([]Record, error) {
	if lo >= hi {
		return nil, fmt.Errorf("log: entries from %d to %d", lo, hi)
	}
	var out []Record
	var w *Window
	if hi-lo > 1 {
		w = NewWindow(l)
	}
	for i := lo; i < hi && (i == lo || maxBytes > 0); i++ {
		r, err := l.readEntry(w, stream, i)
		if err != nil {
			return nil, err
		}
		if maxBytes -= int64(len(r.Body)); maxBytes < 0 && len(out) > 0 {
			break
		}
		out = append(out, r)
	}
	return out, nil
}

// readEntry reads one entry, by a window or nil. The segment is held meanwhile.
func (l *Log) readEntry(w *Window, stream, index uint64) (Record, error) {
	l.mu.Lock()
	at, _, err := l.table.At(stream, index)
	if err != nil {
		l.mu.Unlock()
		return Record{}, err
	}
	h := &hold{at: at}
	l.holds[h] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.holds, h)
		l.mu.Unlock()
		l.pokeRetirer()
	}()
	read := l.ReadAt
	if w != nil {
		read = w.ReadAt
	}
	r, err := read(at)
	if err != nil {
		return Record{}, err
	}
	if r.Kind != Entry || r.Stream != stream || r.Index != index {
		return Record{}, &DamageError{File: segmentName(at.Segment()), At: at, Detail: fmt.Sprintf("a %v of stream %d with index %d, expected entry %d of stream %d", r.Kind, r.Stream, r.Index, index, stream)}
	}
	if w != nil {
		r.Body = bytes.Clone(r.Body)
	}
	return r, nil
}

// State is what the replica of a stream has promised and knows: term, vote, commit index.
type State = streams.State

// AddState adds to a frame what a replica promises from now on. The promise may be acted
// upon when the frame's turn has come: it is durable then. It never falls behind an earlier
// one; Seal refuses that with ErrPromise.
func (f *Frame) AddState(stream uint64, s State) error {
	return f.AddFact(stream, streams.FactState, s.Body())
}

// State returns what the replica of a stream has promised; ok says whether it has promised
// anything.
func (l *Log) State(stream uint64) (state State, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.State(stream)
}

// AddTrim adds to a frame that the entries of a stream up to an index are not needed any
// more, because a checkpoint that is durable has them. The term of the entry at the index
// stays known.
func (f *Frame) AddTrim(stream, index uint64) error {
	term, err := f.l.Term(stream, index)
	if err != nil {
		return err
	}
	f.frees = true
	return f.AddFact(stream, streams.FactTrim, streams.TrimBody(index, term))
}

// TrimStream is a frame with AddTrim alone. An index that was trimmed before is no error.
func TrimStream(l *Log, stream, index uint64) error {
	if first, _ := l.Entries(stream); index < first {
		return nil
	}
	f := l.Begin()
	if err := f.AddTrim(stream, index); err != nil {
		f.Drop()
		return err
	}
	_, err := l.finish(f, true)
	return err
}

// AddBegin adds to a frame that a stream begins behind an index whose entry had a term: a
// snapshot has everything up to it. All entries that the stream has go, those behind the
// index too. One that continues the very entry at the index is trimmed instead (AddTrim).
func (f *Frame) AddBegin(stream, index, term uint64) error {
	f.frees = true
	return f.AddFact(stream, streams.FactBegin, streams.TrimBody(index, term))
}

// AddDrop adds to a frame that a stream has ended. Nothing of it is needed any more, and
// its id must not be used again.
func (f *Frame) AddDrop(stream uint64) error {
	f.frees = true
	return f.AddFact(stream, streams.FactDropped, streams.DroppedBody())
}

// DropStream is a frame with AddDrop alone.
func (l *Log) DropStream(stream uint64) error {
	f := l.Begin()
	if err := f.AddDrop(stream); err != nil {
		f.Drop()
		return err
	}
	_, err := l.finish(f, true)
	return err
}

// Fact returns the newest value of a name in a stream; ok says whether there is one. The
// caller does not change it.
func (l *Log) Fact(stream uint64, name uint16) (body []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	body, _, ok = l.table.Fact(stream, name)
	return body, ok
}

// Info is what the log knows of a stream.
type Info = streams.Info

// Streams visits all streams in the order of their ids. The log stands still meanwhile.
func (l *Log) Streams(visit func(Info)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.Streams(visit)
}
