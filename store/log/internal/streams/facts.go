package streams

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Names of facts from Reserved on are the log's own. They do not count among the facts of a
// stream. All of them are here, so that no two are the same.
const (
	Reserved uint16 = 0xff00

	// FactTrim says that the entries of the stream up to an index are not needed, and
	// which term the entry at the index has. Its body:
	//
	//	  0        8        16
	//	+--------+--------+
	//	| index  | term   |
	//	| 64     | 64     |
	//	+--------+--------+
	FactTrim = Reserved

	offTrimIndex = 0
	offTrimTerm  = offTrimIndex + 8
	trimLen      = offTrimTerm + 8

	// FactBegin says the same, and that no entry that stands before the fact counts: a
	// snapshot took the place of all. Its body is that of FactTrim. In the table it is a
	// FactTrim, and is written again as one, because entries may stand before that.
	FactBegin = FactTrim + 1

	// FactDropped says that the stream has ended. Its body is one byte, 1, because a fact
	// without a body is one that was removed. It is never written again: it stands behind
	// all records of its stream, so they go before it does or with it.
	FactDropped = FactBegin + 1

	// FactState is what the replica of a stream has promised; its body is a State.
	FactState = Reserved + 3

	droppedMark = 1
)

// TrimBody is the body of a FactTrim and of a FactBegin.
func TrimBody(index, term uint64) []byte {
	b := make([]byte, trimLen)
	binary.LittleEndian.PutUint64(b[offTrimIndex:], index)
	binary.LittleEndian.PutUint64(b[offTrimTerm:], term)
	return b
}

// DroppedBody is the body of a FactDropped.
func DroppedBody() []byte { return []byte{droppedMark} }

// drops reports whether a record says that its stream was dropped.
func drops(r *format.Record) bool { return r.Kind == format.Fact && r.Name == FactDropped }

// A shape is what decides whether a record can follow: all of a stream but positions.
type shape struct {
	span
	names   []uint16 // of its facts, the log's own apart. Its array is not written again
	state   *State   // never written again; nil: none
	dropped bool
}

// apply makes of a shape what it is behind a record, or says why there can be none. Strict
// is for a record that is new, as against one that a replay finds. After an error the shape
// is as it was.
func (h *shape) apply(r *format.Record, l *Limits, strict bool) error {
	switch {
	case r.Stream == 0:
		return refused(ErrNoStream, r, "0 is no id")
	case h.dropped && !drops(r):
		return refused(ErrNoStream, r, "the stream was dropped")
	case r.Kind == format.Write:
		return nil
	case r.Kind == format.Entry:
		return h.put(r, strict)
	case r.Kind != format.Fact:
		return refused(ErrRecord, r, "an unknown kind")
	case r.Name < Reserved:
		return h.name(r, l)
	case (r.Name == FactTrim || r.Name == FactBegin) && len(r.Body) == trimLen:
		le := binary.LittleEndian
		to := run{le.Uint64(r.Body[offTrimIndex:]), le.Uint64(r.Body[offTrimTerm:])}
		return h.tell(r, to, r.Name == FactBegin, strict)
	case r.Name == FactState && len(r.Body) == stateLen:
		return h.promise(r)
	case r.Name == FactDropped && len(r.Body) == 1 && r.Body[0] == droppedMark:
		h.dropped = true
		return nil
	}
	return refused(ErrRecord, r, "a body of %d bytes", len(r.Body))
}

// name adds the name of a fact, or removes it.
func (h *shape) name(r *format.Record, l *Limits) error {
	k := slices.Index(h.names, r.Name)
	switch {
	case len(r.Body) > l.MaxFact:
		return refused(ErrFacts, r, "%d bytes of at most %d", len(r.Body), l.MaxFact)
	case len(r.Body) == 0 && k >= 0:
		h.names = slices.Delete(slices.Clone(h.names), k, k+1)
	case len(r.Body) == 0 || k >= 0:
	case len(h.names) >= l.MaxFacts:
		return refused(ErrFacts, r, "%d of at most %d", len(h.names), l.MaxFacts)
	default:
		h.names = append(slices.Clip(h.names), r.Name)
	}
	return nil
}

// A fact is the newest of its name, in the list of the segment in which it stands.
type fact struct {
	of         *stream
	name       uint16
	at         format.Position
	body       []byte // never written again, so it can be handed out
	prev, next *fact
}

// A factList is the facts of a segment, in the order of their positions. With it the facts
// of a segment are found without a look at all streams.
type factList struct{ first, last *fact }

// setFact notes the newest of a name.
func (t *Table) setFact(s *stream, r *format.Record) {
	name := r.Name
	if name == FactBegin {
		name = FactTrim
	}
	k := slices.IndexFunc(s.facts, func(f *fact) bool { return f.name == name })
	if len(r.Body) == 0 {
		if k >= 0 {
			t.unlink(s.facts[k])
			s.facts = slices.Delete(s.facts, k, k+1)
		}
		return
	}
	if k < 0 {
		k = len(s.facts)
		s.facts = append(s.facts, &fact{of: s, name: name})
	}
	f := s.facts[k]
	t.unlink(f)
	if !bytes.Equal(f.body, r.Body) {
		f.body = bytes.Clone(r.Body)
	}
	f.at = r.Position
	l := t.facts[f.at.Segment()]
	if l == nil {
		l = &factList{}
		t.facts[f.at.Segment()] = l
	}
	if f.prev, l.last = l.last, f; f.prev != nil {
		f.prev.next = f
	} else {
		l.first = f
	}
}

// unlink takes a fact out of the list of its segment, if it is in one.
func (t *Table) unlink(f *fact) {
	if f.at == 0 {
		return
	}
	l := t.facts[f.at.Segment()]
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.last = f.prev
	}
	if l.first == nil {
		delete(t.facts, f.at.Segment())
	}
	f.at, f.prev, f.next = 0, nil, nil
}

// Fact returns the newest of a name and where it stands. The caller does not change it.
func (t *Table) Fact(id uint64, name uint16) ([]byte, format.Position, bool) {
	if s := t.find(id); s != nil {
		for _, f := range s.facts {
			if f.name == name {
				return f.body, f.at, true
			}
		}
	}
	return nil, 0, false
}

// FactsIn visits the facts that must be written again before a segment goes, the oldest
// first: those whose newest stands in it. Visit does not change the table. The frame that
// carries them is sealed before the lock of the table is given back.
func (t *Table) FactsIn(segment uint64, visit func(stream uint64, name uint16, body []byte)) {
	l := t.facts[segment]
	if l == nil {
		return
	}
	for f := l.first; f != nil; f = f.next {
		visit(f.of.id, f.name, f.body)
	}
}
