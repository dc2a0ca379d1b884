package streams

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
	"pgregory.net/rapid"
)

// A scene is a table and its model, and where the log ends.
type scene struct {
	*rapid.T
	table  *Table
	model  *model
	limits Limits
	at     format.Position
}

// ids are the streams of a scene, one more than there may be.
const ids = 6

// TestTableIsItsModel: whatever is noted, trimmed, released, dropped and retired, the table
// says what a model says that keeps everything; and a replay of the segments in force, from
// wherever they begin, makes the same table.
func TestTableIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{MaxStreams: ids - 1, MaxFact: 20, MaxFacts: 2}
		s := &scene{T: t, table: New(l), model: newModel(l), limits: l, at: format.At(1, 4096)}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			id := rapid.Uint64Range(1, ids).Draw(t, "stream")
			switch rapid.IntRange(0, 19).Draw(t, "step") {
			case 0:
				s.at = format.At(s.at.Segment()+1, 4096)
			case 1:
				s.trim(id)
				if rapid.IntRange(0, 5).Draw(t, "drop") == 0 {
					s.drop(id)
				}
			case 2, 3:
				s.release(id)
			case 4:
				s.late(id)
			case 5, 6:
				s.free()
			case 7:
				s.refuse()
			case 8:
				s.many(id)
			default:
				s.frame(s.records())
			}
			s.same()
		}
		s.replay()
	})
}

// records draws the records of a frame.
func (s *scene) records() []format.Record {
	ahead := s.model.clone()
	var rs []format.Record
	for range rapid.IntRange(1, 4).Draw(s.T, "records") {
		r := s.record(ahead)
		ahead.apply(r, true)
		rs = append(rs, r)
	}
	return rs
}

// record draws one that can mostly follow.
func (s *scene) record(m *model) format.Record {
	r := format.Record{Stream: rapid.Uint64Range(1, ids).Draw(s.T, "stream"), Kind: format.Write}
	if rapid.IntRange(0, 49).Draw(s.T, "odd") == 0 {
		r.Stream = 0
	}
	in := m.streams[r.Stream]
	if in == nil {
		in = &mStream{}
	}
	last := in.last()
	switch k := rapid.IntRange(0, 29).Draw(s.T, "kind"); {
	case k < 8:
		r.Body = make([]byte, rapid.IntRange(0, 100).Draw(s.T, "size"))
	case k < 20:
		r.Kind = format.Entry
		r.Index = last + 1
		if rapid.IntRange(0, 4).Draw(s.T, "jump") == 0 {
			r.Index = uint64(max(0, int(last)+rapid.IntRange(-5, 4).Draw(s.T, "by")))
		}
		t, _ := in.term(min(r.Index-1, last))
		r.Term = uint64(max(0, int(t)+rapid.IntRange(-1, 12).Draw(s.T, "term")/6))
		r.Body = make([]byte, rapid.IntRange(0, 100).Draw(s.T, "size"))
	case k == 20:
		was := State{}
		if f, ok := in.facts[FactState]; ok {
			was = parseState([]byte(f.body))
		}
		by := func(v uint64) uint64 { return uint64(max(0, int(v)+rapid.IntRange(-1, 9).Draw(s.T, "state")/5)) }
		r.Kind, r.Name, r.Body = format.Fact, FactState, State{by(was.Term), by(was.Vote), by(was.Commit)}.Body()
	case k < 25:
		r.Kind = format.Fact
		r.Name = uint16(rapid.IntRange(1, 3).Draw(s.T, "name"))
		r.Body = make([]byte, rapid.SampledFrom([]int{0, 1, 1, 8, 20, 21}).Draw(s.T, "size"))
		for i := range r.Body {
			r.Body[i] = byte(rapid.IntRange(0, 255).Draw(s.T, "byte"))
		}
	case k < 28:
		r.Kind, r.Name = format.Fact, FactTrim+uint16(rapid.IntRange(0, 3).Draw(s.T, "anew")/3)
		i := uint64(max(0, int(last)-rapid.IntRange(-3, 6).Draw(s.T, "back")))
		t, _ := in.term(i)
		r.Body = TrimBody(i, t+uint64(rapid.IntRange(0, 5).Draw(s.T, "off")/5))
	case k == 28 && rapid.IntRange(0, 2).Draw(s.T, "drop") == 0:
		r.Kind, r.Name, r.Body = format.Fact, FactDropped, DroppedBody()
	case k == 29 && rapid.Bool().Draw(s.T, "unknown"):
		r.Kind, r.Name, r.Body = format.Fact, FactDropped+uint16(rapid.IntRange(-2, 2).Draw(s.T, "name")), []byte{7}
	}
	return r
}

// many appends so many entries that they fill more than a chunk, seldom.
func (s *scene) many(id uint64) {
	m := s.model.streams[id]
	if m == nil || m.dropped || rapid.IntRange(0, 2).Draw(s.T, "many") > 0 {
		return
	}
	term, _ := m.term(m.last())
	rs := make([]format.Record, rapid.IntRange(30, 100).Draw(s.T, "entries"))
	for i := range rs {
		rs[i] = format.Record{Kind: format.Entry, Stream: id, Index: m.last() + uint64(i) + 1, Term: term + uint64(i/40)}
	}
	s.frame(rs)
	if rapid.Bool().Draw(s.T, "cut") {
		to := m.last() - min(m.last(), rapid.Uint64Range(0, 80).Draw(s.T, "to"))
		term, _ := m.term(to)
		r := []format.Record{{Kind: format.Fact, Stream: id, Name: FactTrim, Body: TrimBody(to, term)}}
		if rapid.Bool().Draw(s.T, "entry") {
			r = []format.Record{{Kind: format.Entry, Stream: id, Index: to, Term: term + 1}}
		}
		s.frame(r)
	}
}

// place gives a record its place.
func (s *scene) place(r *format.Record) {
	r.Position = s.at
	s.at = s.at.Add(int64(format.RecordSize(len(r.Body))))
	s.model.records = append(s.model.records, *r)
}

// frame checks the records of a frame, and notes them if they may stand. The frames of the
// log's own, which carry facts, are never refused.
func (s *scene) frame(rs []format.Record) bool {
	want, after := true, s.model.clone()
	for _, r := range rs {
		want = want && after.apply(r, true)
	}
	err := s.table.CheckAll(rs)
	if len(rs) == 1 {
		if e := s.table.Check(&rs[0]); (e == nil) != (err == nil) {
			s.Fatalf("CheckAll says %v, Check %v", err, e)
		}
	}
	if (err == nil) != want {
		s.Fatalf("%+v: CheckAll says %v, the model %v", rs, err, want)
	}
	s.same() // a look changes nothing
	for i := range rs {
		if err != nil {
			break
		}
		s.place(&rs[i])
		if e := s.table.Note(&rs[i]); e != nil {
			s.Fatalf("%+v was checked: %v", rs[i], e)
		}
		s.model.apply(rs[i], false)
		s.model.bury()
	}
	return err == nil
}

// trim and release do so somewhere about where the stream is.
func (s *scene) trim(id uint64) {
	m := s.model.streams[id]
	if m == nil {
		s.table.Trim(id, 5) // not known: nothing
		return
	}
	i := uint64(max(0, int(m.last())-rapid.IntRange(-2, 6).Draw(s.T, "back")))
	s.table.Trim(id, i)
	if !m.dropped {
		m.trim(i)
	}
}

// drop ends a stream, and tells the log.
func (s *scene) drop(id uint64) {
	s.table.Drop(id)
	if m := s.model.streams[id]; m != nil {
		*m = mStream{dropped: true, newest: m.newest}
		s.model.bury()
	}
	s.same()
	s.frame([]format.Record{{Kind: format.Fact, Stream: id, Name: FactDropped, Body: DroppedBody()}})
}

func (s *scene) release(id uint64) {
	to := s.at
	switch n := len(s.model.records); {
	case n > 0 && rapid.Bool().Draw(s.T, "between"):
		to = s.model.records[rapid.IntRange(0, n-1).Draw(s.T, "at")].Position + format.Position(rapid.IntRange(0, 1).Draw(s.T, "behind"))
	case rapid.IntRange(0, 9).Draw(s.T, "far") == 0:
		to = format.At(s.at.Segment()+1, 0)
	}
	s.table.Release(id, to)
	if m := s.model.streams[id]; m != nil {
		m.released = max(m.released, to)
	}
}

// late notes a record of a stream that was dropped while the record was on its way.
func (s *scene) late(id uint64) {
	if m := s.model.streams[id]; m == nil || !m.dropped {
		return
	}
	for _, r := range []format.Record{{Kind: format.Write}, {Kind: format.Entry, Index: 1}, {Kind: format.Fact, Name: 1, Body: []byte{1}}} {
		r.Stream, r.Position = id, s.at
		if err := s.table.Note(&r); !errors.Is(err, ErrNoStream) {
			s.Fatalf("%+v of a dropped stream: %v", r, err)
		}
	}
}

// free gives back all segments that nothing needs, as the log does.
func (s *scene) free() {
	upTo := s.at.Segment() - 1
	if at, _ := s.table.Oldest(); at != 0 {
		upTo = min(upTo, at.Segment()-1)
	}
	for n := s.model.gone + 1; n <= upTo; n++ {
		var rs []format.Record
		s.table.FactsIn(n, func(id uint64, name uint16, body []byte) {
			rs = append(rs, format.Record{Kind: format.Fact, Stream: id, Name: name, Body: body})
		})
		if !s.frame(rs) {
			s.Fatalf("facts of segment %d cannot be written again: %+v", n, rs)
		}
		if err := s.table.Retire(n); err != nil {
			s.Fatal(err)
		}
		s.model.retire(n)
		s.replay()
	}
}

// refuse retires a segment that may be needed.
func (s *scene) refuse() {
	n := rapid.Uint64Range(s.model.gone+1, s.at.Segment()+1).Draw(s.T, "segment")
	needed := false
	for _, m := range s.model.streams {
		o := m.oldest()
		needed = needed || o != 0 && o.Segment() <= n
		for _, f := range m.facts {
			needed = needed || f.at.Segment() <= n
		}
	}
	if n >= s.at.Segment() && !needed {
		return // the segment that is written does not go
	}
	err := s.table.Retire(n)
	if (err != nil) != needed || err != nil && !errors.Is(err, ErrNeeded) {
		s.Fatalf("Retire(%d) = %v, needed: %v", n, err, needed)
	}
	if err == nil {
		s.model.retire(n)
	}
}

// same compares all that can be asked.
func (s *scene) same() {
	var oldest format.Position
	for id := range uint64(ids + 1) {
		m := s.model.streams[id]
		if m == nil {
			m = &mStream{}
		}
		if first, last := s.table.First(id), s.table.Last(id); first != m.start+1 || last != m.last() {
			s.Fatalf("stream %d: entries %d to %d, expected %d to %d", id, first, last, m.start+1, m.last())
		}
		for i := m.start - min(m.start, 3); i <= m.last()+2; i++ {
			term, err := s.table.Term(id, i)
			want, ok := m.term(i)
			if ok = ok && id != 0 && !m.dropped; ok != (err == nil) || ok && term != want {
				s.Fatalf("stream %d: term %d is %d, %v; expected %d, %v", id, i, term, err, want, ok)
			}
			at, size, err := s.table.At(id, i)
			if e, ok := m.entries[i]; ok != (err == nil) || at != e.at || size != e.size {
				s.Fatalf("stream %d: entry %d stands at %v with %d, %v; expected %+v", id, i, at, size, err, e)
			}
		}
		for _, name := range []uint16{1, 2, 3, FactTrim, FactBegin, FactState, FactDropped} {
			body, at, ok := s.table.Fact(id, name)
			if f, has := m.facts[name]; ok != has || string(body) != f.body || at != f.at {
				s.Fatalf("stream %d: fact %#x is %x at %v, %v; expected %+v", id, name, body, at, ok, f)
			}
		}
		state, ok := s.table.State(id)
		if f, has := m.facts[FactState]; ok != has || string(state.Body()) != f.body && has {
			s.Fatalf("stream %d: state %+v, %v; expected %x", id, state, ok, f.body)
		}
		if o := m.oldest(); o != 0 && (oldest == 0 || o < oldest) {
			oldest = o
		}
	}
	// Of writes the table knows the segment, and a position that is not behind the oldest.
	at, id := s.table.Oldest()
	if at.Segment() != oldest.Segment() || at > oldest || (at == 0) != (id == 0) {
		s.Fatalf("stream %d needs %v, expected %v", id, at, oldest)
	}
	for n := uint64(1); n <= s.at.Segment(); n++ {
		want, last := s.model.factsIn(n), ""
		s.table.FactsIn(n, func(id uint64, name uint16, body []byte) {
			if got := (mName{id, name}); want[got] != string(body) {
				s.Fatalf("segment %d has fact %v with %x, expected %x", n, got, body, want[got])
			}
			delete(want, mName{id, name})
			_, at, _ := s.table.Fact(id, name)
			if p := fmt.Sprintf("%016x", uint64(at)); p <= last {
				s.Fatalf("the facts of segment %d are not in their order", n)
			} else {
				last = p
			}
		})
		if len(want) > 0 {
			s.Fatalf("FactsIn(%d) does not visit %v", n, want)
		}
	}
	s.infos()
}

// infos compares what tools are told.
func (s *scene) infos() {
	var before uint64
	n := 0
	s.table.Streams(func(i Info) {
		m := s.model.streams[i.Stream]
		if m == nil || i.Stream <= before || i.First != m.start+1 || i.Last != m.last() || i.Facts != len(m.facts) ||
			i.Dropped != m.dropped || i.Newest != m.newest || i.Oldest.Segment() != m.oldest().Segment() {
			s.Fatalf("%+v, expected %+v", i, m)
		}
		n, before = n+1, i.Stream
	})
	if n != len(s.model.streams) {
		s.Fatalf("%d streams, expected %d", n, len(s.model.streams))
	}
}

// replay reads the segments in force into a new table, which must say what this one says.
func (s *scene) replay() {
	fresh := New(s.limits)
	for i := range s.model.records {
		if err := fresh.Note(&s.model.records[i]); err != nil {
			s.Fatalf("replay from segment %d: %v", s.model.gone+1, err)
		}
	}
	for id := range uint64(ids + 1) {
		m := s.model.streams[id]
		if m == nil || m.dropped {
			if f := fresh.look(id); f.last != f.base || len(f.writes) > 0 || len(f.facts) > 0 && !f.dropped {
				s.Fatalf("stream %d was dropped, and is back: %+v", id, f)
			}
			continue
		}
		if first := fresh.First(id); fresh.Last(id) != m.last() && len(m.entries) > 0 || first > m.start+1 && len(m.entries) > 0 {
			s.Fatalf("stream %d: a replay finds entries %d to %d, expected %d to %d", id, first, fresh.Last(id), m.start+1, m.last())
		}
		for i, e := range m.entries {
			term, _ := fresh.Term(id, i)
			if at, size, err := fresh.At(id, i); at != e.at || size != e.size || term != e.term || err != nil {
				s.Fatalf("stream %d: a replay finds entry %d of term %d at %v, %v; expected %+v", id, i, term, at, err, e)
			}
		}
		if m.floor == m.told && m.floor > 0 {
			term, err := fresh.Term(id, m.start)
			if want, ok := m.term(m.start); fresh.First(id) != m.start+1 || fresh.Last(id) != m.last() || ok != (err == nil) || ok && term != want {
				s.Fatalf("stream %d: a replay begins at %d behind term %d, %v; expected %d, %d", id, fresh.First(id), term, err, m.start+1, want)
			}
		}
		for name, f := range m.facts {
			if body, at, ok := fresh.Fact(id, name); string(body) != f.body || at != f.at || !ok {
				s.Fatalf("stream %d: a replay finds fact %#x as %x at %v, %v; expected %+v", id, name, body, at, ok, f)
			}
		}
		if f := fresh.find(id); f != nil && len(f.facts) != len(m.facts) {
			s.Fatalf("stream %d: a replay finds %d facts, expected %d", id, len(f.facts), len(m.facts))
		}
		for _, at := range m.writes {
			if at < m.released {
				continue
			}
			if f := fresh.find(id); f == nil || !slices.ContainsFunc(f.writes, func(w stay) bool { return w.first <= at && at <= w.last }) {
				s.Fatalf("stream %d: a replay does not know that %v is needed", id, at)
			}
		}
	}
}
