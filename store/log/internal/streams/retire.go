package streams

import "fmt"

// Drop ends a stream: nothing of it is needed any more. The log writes a FactDropped for
// it, and when that is noted, Note does the same.
func (t *Table) Drop(id uint64) {
	if s := t.find(id); s != nil && !s.dropped {
		s.dropped = true
		t.end(s)
		t.need.weigh(s)
	}
}

// Retire forgets a segment, and all before it: they have gone, or will go next, and no
// replay finds them any more. It refuses a segment that something still needs; that would
// be a fault of the log's, which has to write facts again and to ask Oldest.
func (t *Table) Retire(segment uint64) error {
	if at, id := t.Oldest(); at != 0 && at.Segment() <= segment {
		return fmt.Errorf("%w: segment %d: stream %d needs it from %v on", ErrNeeded, segment, id, at)
	}
	for number, l := range t.facts {
		if f := l.first; number <= segment {
			return fmt.Errorf("%w: segment %d: fact %#x of stream %d was not written again", ErrNeeded, number, f.name, f.of.id)
		}
	}
	t.gone = max(t.gone, segment)
	for number, ended := range t.ended {
		if number <= segment {
			delete(t.ended, number)
			for _, s := range ended {
				t.bury(s)
			}
		}
	}
	return nil
}

// end takes a stream apart that was dropped just now. It stays as long as a record of it can
// be replayed, so that the table says the same as after a replay: then its id is refused.
func (t *Table) end(s *stream) {
	for _, f := range s.facts {
		t.unlink(f)
	}
	s.facts, s.entries, s.writes = nil, places{}, nil
	s.shape = shape{dropped: true}
	if number := s.newest.Segment(); number <= t.gone {
		t.bury(s)
	} else {
		t.ended[number] = append(t.ended[number], s)
	}
}

// bury forgets a dropped stream, none of whose records is in force.
func (t *Table) bury(s *stream) {
	delete(t.streams, s.id)
	if t.recent == s {
		t.recent = nil
	}
}
