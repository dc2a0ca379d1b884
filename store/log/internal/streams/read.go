package streams

import (
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// An unknown stream has nothing in it: its first entry is 1, its last is 0, and the term
// before the first is 0. A dropped one looks the same, and is asked for in vain.
var nothing = stream{at: -1}

// look returns a stream for reading.
func (t *Table) look(id uint64) *stream {
	if s := t.find(id); s != nil {
		return s
	}
	return &nothing
}

// First is the index of the first entry, Last()+1 if there is none.
func (t *Table) First(id uint64) uint64 { return t.look(id).base + 1 }

// Last is the index of the last entry, or what it was when all were trimmed.
func (t *Table) Last(id uint64) uint64 { return t.look(id).last }

// Term is the term of an entry, or of the one before the first, if that is known.
func (t *Table) Term(id, index uint64) (uint64, error) {
	s := t.look(id)
	term, ok := s.term(index)
	if ok && !s.dropped && id != 0 {
		return term, nil
	}
	return 0, s.missing(id, index)
}

// At says where an entry stands, and how long its record is.
func (t *Table) At(id, index uint64) (format.Position, int, error) {
	s := t.look(id)
	if index <= s.base || index > s.last {
		return 0, 0, s.missing(id, index)
	}
	at, size := s.entries.get(index)
	return at, int(size), nil
}

// missing says why there is no entry.
func (s *stream) missing(id, index uint64) error {
	switch {
	case s.dropped:
		return fmt.Errorf("%w: stream %d was dropped", ErrNoStream, id)
	case id == 0:
		return fmt.Errorf("%w: 0 is no id", ErrNoStream)
	case index <= s.base:
		return fmt.Errorf("%w: stream %d, entry %d: the first is %d", ErrTrimmed, id, index, s.base+1)
	}
	return fmt.Errorf("%w: stream %d, entry %d: the last is %d", ErrNoEntry, id, index, s.last)
}

// An Info is what tools and statistics tell of a stream.
type Info struct {
	Stream  uint64
	Writes  uint64 // noted since the log was opened, needed or not
	First   uint64 // of its entries
	Last    uint64
	Facts   int             // the log's own among them
	Oldest  format.Position // of what it needs; 0: nothing
	Newest  format.Position // of its records
	Dropped bool
}

// Streams visits all streams in the order of their ids. It sorts them, so it is for people
// and not for each second.
func (t *Table) Streams(visit func(Info)) {
	ids := make([]uint64, 0, len(t.streams))
	for id := range t.streams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		s := t.streams[id]
		visit(Info{
			Stream: id, Writes: s.count, First: s.base + 1, Last: s.last, Facts: len(s.facts),
			Oldest: s.oldest, Newest: s.newest, Dropped: s.dropped,
		})
	}
}
