package streams

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Constructors of records, for tables of cases.
func write(stream uint64) format.Record { return format.Record{Kind: format.Write, Stream: stream} }

func entry(stream, index, term uint64) format.Record {
	return format.Record{Kind: format.Entry, Stream: stream, Index: index, Term: term, Body: make([]byte, 10)}
}

func named(stream uint64, name uint16, body string) format.Record {
	return format.Record{Kind: format.Fact, Stream: stream, Name: name, Body: []byte(body)}
}

func trim(stream, index, term uint64) format.Record {
	return named(stream, FactTrim, string(TrimBody(index, term)))
}

func begin(stream, index, term uint64) format.Record {
	return named(stream, FactBegin, string(TrimBody(index, term)))
}

func drop(stream uint64) format.Record { return named(stream, FactDropped, string(DroppedBody())) }

// entries are those from first to last, of one term.
func entries(stream, first, last, term uint64) []format.Record {
	var rs []format.Record
	for i := first; i <= last; i++ {
		rs = append(rs, entry(stream, i, term))
	}
	return rs
}

// A builder fills a table, one record of 4 KiB after the other.
type builder struct {
	*Table
	t  *testing.T
	at format.Position
}

func build(t *testing.T, l Limits) *builder {
	return &builder{Table: New(l), t: t, at: format.At(1, 4096)}
}

// note checks and notes.
func (b *builder) note(rs ...format.Record) {
	b.t.Helper()
	if err := b.CheckAll(rs); err != nil {
		b.t.Fatal(err)
	}
	b.replay(rs...)
}

// replay notes without a check.
func (b *builder) replay(rs ...format.Record) {
	b.t.Helper()
	for i := range rs {
		rs[i].Position = b.at
		b.at = b.at.Add(4096)
		if err := b.Note(&rs[i]); err != nil {
			b.t.Fatal(err)
		}
	}
}

// segment goes on in the next segment.
func (b *builder) segment() { b.at = format.At(b.at.Segment()+1, 4096) }

// of tells entries and terms of a stream, as first..last and term@index where they
// change; "?" is a term that is not known.
func (b *builder) of(id uint64) string {
	s := fmt.Sprintf("%d..%d", b.First(id), b.Last(id))
	before := ""
	for i := b.First(id) - 1; i <= b.Last(id); i++ {
		term := "?"
		if v, err := b.Term(id, i); err == nil {
			term = fmt.Sprint(v)
		}
		if term != before {
			s += fmt.Sprintf(" %s@%d", term, i)
		}
		before = term
	}
	return s
}

// TestEntries: what a record makes of the entries of a stream, and why it may not.
func TestEntries(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []format.Record
		next   format.Record
		want   string // of stream 1 afterwards
		err    error
		text   string
	}{
		{"the first of all", nil, entry(1, 1, 1), "1..1 0@0 1@1", nil, ""},
		{"follows", entries(1, 1, 3, 2), entry(1, 4, 2), "1..4 0@0 2@1", nil, ""},
		{"of a new term", entries(1, 1, 3, 2), entry(1, 4, 9), "1..4 0@0 2@1 9@4", nil, ""},
		{"takes the place of two", entries(1, 1, 3, 2), entry(1, 2, 3), "1..2 0@0 2@1 3@2", nil, ""},
		{"takes the place of all", entries(1, 1, 3, 2), entry(1, 1, 3), "1..1 0@0 3@1", nil, ""},
		{"begins behind a snapshot", nil, entry(1, 7, 3), "7..7 ?@6 3@7", nil, ""},
		{"a gap", entries(1, 1, 3, 2), entry(1, 5, 2), "", ErrGap, "the last is 3"},
		{"a term that falls", entries(1, 1, 3, 2), entry(1, 4, 1), "", ErrGap, "entry 3 is of term 2"},
		{"a term below that of what is replaced", entries(1, 1, 3, 2), entry(1, 3, 1), "", ErrGap, "entry 2 is of term 2"},
		{"index 0", nil, entry(1, 0, 1), "", ErrRecord, "no such index"},
		{"the last index of all", nil, entry(1, math.MaxUint64, 1), "", ErrRecord, "no such index"},
		{"before the first", []format.Record{entry(1, 7, 3)}, entry(1, 6, 3), "", ErrTrimmed, "the first is 7"},
		{"trimmed", append(entries(1, 1, 9, 2), trim(1, 5, 2)), entry(1, 5, 2), "", ErrTrimmed, "everything up to 5 is trimmed"},
		{"behind the trim point", append(entries(1, 1, 9, 2), trim(1, 5, 2)), entry(1, 6, 3), "6..6 2@5 3@6", nil, ""},
		{"below the term of the trim point", append(entries(1, 1, 9, 2), trim(1, 9, 2)), entry(1, 10, 1), "", ErrGap, "entry 9 is of term 2"},
		{"a gap behind a trim point that was told", append(entries(1, 1, 9, 2), trim(1, 9, 2)), entry(1, 20, 2), "20..20 ?@19 2@20", nil, ""},

		{"a trim point between", append(entries(1, 1, 5, 2), entries(1, 6, 9, 3)...), trim(1, 7, 3), "8..9 3@7", nil, ""},
		{"a trim point at a change of term", append(entries(1, 1, 5, 2), entries(1, 6, 9, 3)...), trim(1, 5, 2), "6..9 2@5 3@6", nil, ""},
		{"a trim point at the last", entries(1, 1, 9, 2), trim(1, 9, 2), "10..9 2@9", nil, ""},
		{"a trim point behind all", entries(1, 1, 9, 2), trim(1, 20, 7), "21..20 7@20", nil, ""},
		{"a trim point before any entry", nil, trim(1, 20, 7), "21..20 7@20", nil, ""},
		{"the term before the first is told", []format.Record{entry(1, 7, 3)}, trim(1, 6, 2), "7..7 2@6 3@7", nil, ""},
		{"the term before the first is above it", []format.Record{entry(1, 7, 3)}, trim(1, 6, 4), "", ErrGap, "begin anew"},
		{"another term than the entry's", entries(1, 1, 9, 2), trim(1, 5, 3), "", ErrGap, "begin anew"},
		{"a trim point told again", append(entries(1, 1, 9, 2), trim(1, 5, 2)), trim(1, 5, 2), "6..9 2@5", nil, ""},
		{"a trim point told again with another term", append(entries(1, 1, 9, 2), trim(1, 5, 2)), trim(1, 5, 1), "", ErrGap, "was of term 2"},
		{"a trim point that goes back", append(entries(1, 1, 9, 2), trim(1, 5, 2)), trim(1, 4, 2), "", ErrTrimmed, "up to 5"},
		{"a trim point of 0", nil, trim(1, 0, 0), "", ErrRecord, "no such index"},

		{"begins anew between", entries(1, 1, 9, 2), begin(1, 5, 3), "6..5 3@5", nil, ""},
		{"begins anew at its own entry", entries(1, 1, 9, 2), begin(1, 5, 2), "6..5 2@5", nil, ""},
		{"begins anew behind all", entries(1, 1, 9, 2), begin(1, 20, 3), "21..20 3@20", nil, ""},
		{"begins anew below the trim point", append(entries(1, 1, 9, 2), trim(1, 5, 2)), begin(1, 4, 2), "", ErrTrimmed, "up to 5"},

		{"a short trim fact", nil, named(1, FactTrim, "1234567"), "", ErrRecord, "a body of 7 bytes"},
		{"a trim fact that is removed", nil, named(1, FactTrim, ""), "", ErrRecord, "a body of 0 bytes"},
		{"a name of a newer version", nil, named(1, Reserved+9, "x"), "", ErrRecord, "a body of 1 bytes"},
		{"an unknown kind", nil, format.Record{Kind: 9, Stream: 1}, "", ErrRecord, "an unknown kind"},
		{"stream 0", nil, write(0), "", ErrNoStream, "0 is no id"},
		{"a dropped stream", []format.Record{write(1), drop(1)}, write(1), "", ErrNoStream, "the stream was dropped"},
		{"a state of a dropped stream", []format.Record{write(1), drop(1)}, named(1, FactState, string(State{1, 1, 1}.Body())), "", ErrNoStream, "the stream was dropped"},
		{"a fact of a dropped stream", []format.Record{write(1), drop(1)}, named(1, 1, "x"), "", ErrNoStream, "the stream was dropped"},
		{"dropped again", []format.Record{entry(1, 1, 1), drop(1)}, drop(1), "1..0 ?@0", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build(t, Limits{})
			b.note(c.before...)
			was := b.of(1)
			err := b.Check(&c.next)
			if !errors.Is(err, c.err) || err == nil != (c.err == nil) {
				t.Fatalf("%v, expected %v", err, c.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q does not say %q", err, c.text)
				}
				if got := b.of(1); got != was {
					t.Errorf("a check has made %s of %s", got, was)
				}
				return
			}
			b.note(c.next)
			if got := b.of(1); got != c.want {
				t.Errorf("%s, expected %s", got, c.want)
			}
		})
	}
}

// TestFrame: a record is checked as if those before it in its frame stood, and nothing of
// that remains.
func TestFrame(t *testing.T) {
	b := build(t, Limits{MaxStreams: 2, MaxFacts: 2})
	b.note(entries(1, 1, 5, 3)...)
	for _, c := range []struct {
		name  string
		frame []format.Record
		err   error
	}{
		{"entries", entries(1, 6, 9, 3), nil},
		{"entries with a gap", []format.Record{entry(1, 6, 3), entry(1, 8, 3)}, ErrGap},
		{"a replaced term does not count", []format.Record{entry(1, 6, 9), entry(1, 6, 4)}, nil},
		{"a term of the frame does", []format.Record{entry(1, 6, 9), entry(1, 7, 4)}, ErrGap},
		{"a trim counts", []format.Record{trim(1, 3, 3), entry(1, 3, 3)}, ErrTrimmed},
		{"a drop counts", []format.Record{drop(1), write(1)}, ErrNoStream},
		{"a drop of an unknown stream too", []format.Record{drop(9), write(9)}, ErrNoStream},
		{"two streams", []format.Record{write(2), write(2)}, nil},
		{"a stream more with a state", []format.Record{write(2), named(3, FactState, string(State{1, 1, 1}.Body()))}, ErrStreams},
		{"three streams", []format.Record{write(2), write(3)}, ErrStreams},
		{"two facts", []format.Record{named(1, 1, "x"), named(1, 2, "x"), trim(1, 1, 3)}, nil},
		{"three facts", []format.Record{named(1, 1, "x"), named(1, 2, "x"), named(1, 3, "x")}, ErrFacts},
		{"three facts, one removed", []format.Record{named(1, 1, "x"), named(1, 2, "x"), named(1, 1, ""), named(1, 3, "x")}, nil},
		{"one not there removed", []format.Record{named(1, 1, "")}, nil},
		{"a long fact", []format.Record{named(1, 1, strings.Repeat("x", 257))}, ErrFacts},
	} {
		if err := b.CheckAll(c.frame); !errors.Is(err, c.err) || err == nil != (c.err == nil) {
			t.Errorf("%s: %v, expected %v", c.name, err, c.err)
		}
		if got := b.of(1); got != "1..5 0@0 3@1" || b.Last(2) != 0 {
			t.Fatalf("%s: a check has left %s", c.name, got)
		}
		n := 0
		b.Streams(func(Info) { n++ })
		if n != 1 {
			t.Fatalf("%s: a check has left %d streams", c.name, n)
		}
	}
}

// TestNoteRefuses: what stands where no log of ours would have put it is refused, and
// changes nothing.
func TestNoteRefuses(t *testing.T) {
	b := build(t, Limits{MaxStreams: 1})
	b.note(entries(1, 1, 5, 3)...)
	b.note(trim(1, 2, 3))
	for _, c := range []struct {
		name string
		r    format.Record
		at   format.Position
		err  error
	}{
		{"the place of the newest", write(1), b.at.Add(-4096), ErrRecord},
		{"before the newest", write(1), format.At(1, 4096), ErrRecord},
		{"segment 0", write(1), format.At(0, 1<<31), ErrRecord},
		{"beyond a segment", write(1), format.At(1, format.MaxSize), ErrRecord},
		{"a gap", entry(1, 9, 3), b.at, ErrGap},
		{"trimmed", entry(1, 2, 3), b.at, ErrTrimmed},
		{"too many streams", write(2), b.at, ErrStreams},
		{"stream 0", entry(0, 1, 1), b.at, ErrNoStream},
	} {
		c.r.Position = c.at
		if err := b.Note(&c.r); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, expected %v", c.name, err, c.err)
		}
	}
	if got := b.of(1); got != "3..5 3@2" {
		t.Errorf("what was refused has left %s", got)
	}
	b.note(entry(1, 6, 3)) // the place of what was refused is free
}

// TestFactsStayTheirOwn: a fact is not the frame's bytes, and a look at a frame that is
// refused, or that is not sealed after all, leaves the facts as they were.
func TestFactsStayTheirOwn(t *testing.T) {
	b := build(t, Limits{MaxFacts: 2})
	r := named(1, 1, "vote")
	b.note(r, named(1, 2, "term"))
	copy(r.Body, "????")
	if body, _, _ := b.Fact(1, 1); string(body) != "vote" {
		t.Errorf("the fact has become %q with the buffer that it came in", body)
	}
	swap := []format.Record{named(1, 1, ""), named(1, 3, "new")}
	if err := b.CheckAll(append(swap, entry(1, 0, 0))); !errors.Is(err, ErrRecord) {
		t.Fatal(err)
	}
	if err := b.CheckAll(swap); err != nil {
		t.Error(err)
	}
	for name := range uint16(3) {
		again, want := named(1, name+1, "again"), error(nil)
		if name == 2 {
			want = ErrFacts
		}
		if err := b.Check(&again); !errors.Is(err, want) {
			t.Errorf("fact %d: %v, expected %v", name+1, err, want)
		}
	}
}
