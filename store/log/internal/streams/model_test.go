package streams

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A model is the table as one would write it without a thought for cost: maps, every
// position kept, and everything that is asked computed from them.
type model struct {
	limits  Limits
	streams map[uint64]*mStream
	records []format.Record // in force
	gone    uint64
	ended   map[uint64]bool // unknown streams that a frame drops: they are not in it again
}

type mStream struct {
	entries             map[uint64]mEntry
	start, floor, told  uint64
	floorTerm, toldTerm uint64
	known               bool
	writes              []format.Position
	released            format.Position
	facts               map[uint16]mFact
	dropped             bool
	newest              format.Position
}

type mEntry struct {
	term uint64
	at   format.Position
	size int
}

type mFact struct {
	body string
	at   format.Position
}

func newModel(l Limits) *model {
	return &model{limits: l, streams: map[uint64]*mStream{}, ended: map[uint64]bool{}}
}

func (s *mStream) clone() *mStream {
	c := *s
	c.entries, c.facts, c.writes = maps.Clone(s.entries), maps.Clone(s.facts), slices.Clone(s.writes)
	return &c
}

func (m *model) clone() *model {
	c := newModel(m.limits)
	for id, s := range m.streams {
		c.streams[id] = s.clone()
	}
	return c
}

func (s *mStream) last() uint64 {
	last := s.start
	for i := range s.entries {
		last = max(last, i)
	}
	return last
}

func (s *mStream) term(i uint64) (uint64, bool) {
	if e, ok := s.entries[i]; ok {
		return e.term, true
	}
	switch {
	case i != s.start:
		return 0, false
	case i == 0:
		return 0, true
	}
	return s.floorTerm, s.known && s.floor == i
}

// cut forgets entries up to i.
func (s *mStream) cut(i uint64) {
	maps.DeleteFunc(s.entries, func(k uint64, _ mEntry) bool { return k <= i })
	s.start = max(s.start, i)
}

func (s *mStream) trim(i uint64) {
	if i = min(i, s.last()); i > s.floor {
		s.floorTerm, s.known = s.term(i)
		s.floor = i
		s.cut(i)
	}
}

// apply reports whether the record can be the next, and takes it if it can.
func (m *model) apply(r format.Record, strict bool) bool {
	s := m.streams[r.Stream]
	if s == nil {
		s = &mStream{entries: map[uint64]mEntry{}, facts: map[uint16]mFact{}}
	}
	switch {
	case r.Stream == 0, (s.dropped || m.ended[r.Stream]) && !drops(&r):
		return false
	case !s.apply(r, m.limits, strict):
		return false
	case m.streams[r.Stream] == nil && drops(&r):
		m.ended[r.Stream] = strict
		return true
	case m.streams[r.Stream] == nil && len(m.streams) >= m.limits.MaxStreams:
		return false
	}
	m.streams[r.Stream] = s
	if !drops(&r) {
		s.newest = r.Position
	}
	return true
}

func (s *mStream) apply(r format.Record, l Limits, strict bool) bool {
	switch r.Kind {
	case format.Write:
		s.writes = append(s.writes, r.Position)
		return true
	case format.Entry:
		return s.put(r, strict)
	case format.Fact:
		return s.fact(r, l, strict)
	}
	return false
}

func (s *mStream) put(r format.Record, strict bool) bool {
	i := r.Index
	if i == 0 || i == math.MaxUint64 || i <= s.floor || strict && i <= s.start || i > s.last()+1 && (len(s.entries) > 0 || strict && s.last() != s.told) {
		return false
	}
	before := min(i-1, s.last())
	if t, ok := s.term(before); ok && r.Term < t {
		return false
	}
	maps.DeleteFunc(s.entries, func(k uint64, _ mEntry) bool { return k >= i })
	if len(s.entries) == 0 {
		s.start = i - 1
	}
	s.entries[i] = mEntry{r.Term, r.Position, format.RecordSize(len(r.Body))}
	return true
}

func (s *mStream) fact(r format.Record, l Limits, strict bool) bool {
	own := 0
	for name := range s.facts {
		if name < Reserved {
			own++
		}
	}
	_, has := s.facts[r.Name]
	switch {
	case r.Name == FactDropped:
		if string(r.Body) != "\x01" {
			return false
		}
		*s = mStream{dropped: true, newest: s.newest, entries: map[uint64]mEntry{}, facts: map[uint16]mFact{}}
		return true
	case r.Name == FactTrim || r.Name == FactBegin:
		if len(r.Body) != 16 || !s.tell(binary.LittleEndian.Uint64(r.Body), binary.LittleEndian.Uint64(r.Body[8:]), r.Name == FactBegin, strict) {
			return false
		}
		r.Name = FactTrim
	case r.Name == FactState:
		if len(r.Body) != 24 || !s.promise(parseState(r.Body)) {
			return false
		}
	case r.Name > Reserved, len(r.Body) > l.MaxFact, !has && len(r.Body) > 0 && own >= l.MaxFacts:
		return false
	}
	if len(r.Body) == 0 {
		delete(s.facts, r.Name)
	} else {
		s.facts[r.Name] = mFact{string(r.Body), r.Position}
	}
	return true
}

func (s *mStream) promise(is State) bool {
	was := State{}
	if f, ok := s.facts[FactState]; ok {
		was = parseState([]byte(f.body))
	}
	vote := is.Term > was.Term || is.Term == was.Term && (was.Vote == 0 || is.Vote == was.Vote)
	return is != State{} && vote && is.Commit >= was.Commit
}

func (s *mStream) tell(i, term uint64, anew, strict bool) bool {
	again := !anew && i == s.told && term == s.toldTerm
	if i == 0 || i < s.floor && (anew || strict && !again) || i == s.floor && s.known && term != s.floorTerm {
		return false
	}
	have, ok := s.term(i)
	next, follows := s.entries[i+1]
	if !anew && (ok && have != term || i == s.start && follows && next.term < term) {
		return false
	}
	if i >= s.told {
		s.told, s.toldTerm = i, term
	}
	if i < s.floor {
		return true
	}
	if anew {
		clear(s.entries)
		s.start = i
	}
	s.floor, s.floorTerm, s.known = i, term, true
	s.cut(i)
	return true
}

// oldest is the oldest position that a stream needs; 0: it needs nothing.
func (s *mStream) oldest() format.Position {
	oldest := format.Position(math.MaxUint64)
	for _, e := range s.entries {
		oldest = min(oldest, e.at)
	}
	for _, at := range s.writes {
		if at >= s.released {
			oldest = min(oldest, at)
		}
	}
	if oldest == math.MaxUint64 {
		return 0
	}
	return oldest
}

// factsIn are the facts that a segment must not take with it.
func (m *model) factsIn(segment uint64) map[mName]string {
	facts := map[mName]string{}
	for id, s := range m.streams {
		for name, f := range s.facts {
			if f.at.Segment() == segment {
				facts[mName{id, name}] = f.body
			}
		}
	}
	return facts
}

type mName struct {
	stream uint64
	name   uint16
}

// retire forgets a segment and all before it.
func (m *model) retire(segment uint64) {
	m.gone = max(m.gone, segment)
	m.records = slices.DeleteFunc(m.records, func(r format.Record) bool { return r.Position.Segment() <= segment })
	m.bury()
}

// bury forgets the dropped streams of which nothing is left.
func (m *model) bury() {
	maps.DeleteFunc(m.streams, func(_ uint64, s *mStream) bool { return s.dropped && s.newest.Segment() <= m.gone })
}
