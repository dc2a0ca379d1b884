package streams

import (
	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A Table says what stands in the log, by stream.
type Table struct {
	limits  Limits
	streams map[uint64]*stream
	recent  *stream         // the one asked for last: records of a stream often come together
	newest  format.Position // of all records

	ahead map[uint64]shape // what streams will be, while CheckAll looks at a frame
	fresh int              // how many streams of ahead the table does not know

	need  needs                // streams that need something, the oldest first
	facts map[uint64]*factList // by the segment in which the newest of a name stands
	ended map[uint64][]*stream // dropped streams, by the segment of their newest record
	gone  uint64               // the newest segment that has gone
}

// A stream is what the table knows of one.
type stream struct {
	id uint64
	shape
	entries  places
	writes   []stay
	released format.Position // writes before it are not needed
	count    uint64          // of writes
	facts    []*fact         // in any order
	newest   format.Position // of its records, the fact that it was dropped apart

	oldest format.Position // what it needs; 0: nothing
	at     int             // in Table.need
}

// New returns an empty table.
func New(limits Limits) *Table {
	return &Table{
		limits: limits.withDefaults(), streams: map[uint64]*stream{}, ahead: map[uint64]shape{},
		facts: map[uint64]*factList{}, ended: map[uint64][]*stream{},
	}
}

// find returns a stream, or nil.
func (t *Table) find(id uint64) *stream {
	if s := t.recent; s != nil && s.id == id {
		return s
	}
	s := t.streams[id]
	if s != nil {
		t.recent = s
	}
	return s
}

// Check reports whether a record may be the next of the log. Of bodies it looks at those
// of facts only.
func (t *Table) Check(r *format.Record) error {
	defer t.forget()
	return t.checkNext(r)
}

// CheckAll reports whether these records may be the next of the log, in this order. It is
// for a frame, whose records get their place together: the second entry of a frame follows
// the first one, which is not noted yet. What CheckAll lets pass, Note takes, if nothing
// else is noted in between.
func (t *Table) CheckAll(records []format.Record) error {
	defer t.forget()
	for i := range records {
		if err := t.checkNext(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

// forget ends a look ahead.
func (t *Table) forget() {
	if len(t.ahead) > 0 {
		clear(t.ahead)
		t.fresh = 0
	}
}

// checkNext looks at one record more.
func (t *Table) checkNext(r *format.Record) error {
	s := t.find(r.Stream)
	if r.Kind == format.Write && s != nil && !s.dropped && len(t.ahead) == 0 {
		return nil // nearly every record, and the rest would find the same
	}
	a, ok := t.ahead[r.Stream]
	if !ok && s != nil {
		a = s.shape
		a.span = s.copy()
	}
	if err := a.apply(r, &t.limits, true); err != nil {
		return err
	}
	if !ok && s == nil && !drops(r) {
		if n := len(t.streams) + t.fresh; n >= t.limits.MaxStreams {
			return refused(ErrStreams, r, "%d of at most %d", n, t.limits.MaxStreams)
		}
		t.fresh++
	}
	t.ahead[r.Stream] = a
	return nil
}

// Note takes in a record that stands at r.Position: it was sealed, or replayed. Positions
// rise. An error means that no log of ours has this record at this place; the table is as
// it was. Note keeps nothing of r.Body.
func (t *Table) Note(r *format.Record) error {
	end := r.Position.Offset() + int64(format.RecordHead) + int64(len(r.Body))
	if r.Position <= t.newest || r.Position.Segment() <= t.gone || end > format.MaxSize {
		return refused(ErrRecord, r, "%d bytes at %v, and the newest record is at %v", len(r.Body), r.Position, t.newest)
	}
	s, err := t.take(r)
	if err != nil {
		return err
	}
	t.newest = r.Position
	if s == nil {
		return nil
	}
	if !s.dropped {
		s.newest = r.Position
	}
	switch {
	case s.dropped:
		t.end(s)
	case r.Kind == format.Write:
		s.count++
		s.stays(r.Position)
	case r.Kind == format.Entry:
		s.entries.keep(s.base+1, r.Index-1)
		s.entries.put(r.Index, r.Position, uint32(format.RecordSize(len(r.Body))))
	default:
		s.entries.keep(s.base+1, s.last)
		t.setFact(s, r)
	}
	t.need.weigh(s)
	return nil
}

// take finds or makes the stream of a record and changes its shape. It returns none where
// there is nothing else to do: a stream was dropped once more, or one was dropped of which
// no record is left.
func (t *Table) take(r *format.Record) (*stream, error) {
	s := t.find(r.Stream)
	switch {
	case s == nil:
		s = &stream{id: r.Stream, at: -1}
		if err := s.apply(r, &t.limits, false); err != nil || s.dropped {
			return nil, err
		}
		if n := len(t.streams); n >= t.limits.MaxStreams {
			return nil, refused(ErrStreams, r, "%d of at most %d", n, t.limits.MaxStreams)
		}
		t.streams[s.id], t.recent = s, s
		return s, nil
	case s.dropped:
		return nil, s.apply(r, &t.limits, false) // it was dropped once more
	}
	return s, s.apply(r, &t.limits, false)
}

// Trim forgets the entries of a stream up to index. The log writes a FactTrim for it, and
// when that is noted, Note does the same.
func (t *Table) Trim(id, index uint64) {
	if s := t.find(id); s != nil && !s.dropped {
		s.trim(index)
		s.entries.keep(s.base+1, s.last)
		t.need.weigh(s)
	}
}
