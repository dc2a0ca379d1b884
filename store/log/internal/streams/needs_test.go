package streams

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// oldest is the oldest segment that is needed, and by which stream.
func (b *builder) oldest() string {
	at, id := b.Oldest()
	return fmt.Sprintf("segment %d, stream %d", at.Segment(), id)
}

// facts are those that must be written again before a segment goes.
func (b *builder) facts(segment uint64) []string {
	var s []string
	b.FactsIn(segment, func(id uint64, name uint16, body []byte) {
		s = append(s, fmt.Sprintf("%d/%x=%s", id, name, body))
	})
	return s
}

// TestOldest: the segment that must stay is that of the oldest write that was not released,
// or of the oldest entry that was neither trimmed nor replaced.
func TestOldest(t *testing.T) {
	b := build(t, Limits{})
	is := func(want string) {
		t.Helper()
		if got := b.oldest(); got != want {
			t.Errorf("needed from %s, expected %s", got, want)
		}
	}
	is("segment 0, stream 0")
	b.note(write(1), entry(2, 1, 1), named(3, 1, "a fact needs no segment"))
	is("segment 1, stream 1")
	b.segment()
	b.note(write(1), entry(2, 2, 1), write(4))
	b.segment()
	b.note(write(1), entry(2, 3, 1))
	b.Release(1, format.At(2, 0))
	is("segment 1, stream 2")
	b.Trim(2, 1)
	is("segment 2, stream 1")
	b.Release(1, b.at)
	is("segment 2, stream 2")
	b.note(entry(2, 2, 2)) // takes the place of both
	is("segment 2, stream 4")
	b.note(drop(4))
	is("segment 3, stream 2")
	b.note(trim(2, 2, 2))
	is("segment 0, stream 0")

	// A release that goes further than the log holds for what comes, and none goes back.
	b.Release(1, format.At(9, 0))
	b.Release(1, format.At(1, 0))
	b.note(write(1))
	is("segment 0, stream 0")
}

// TestReleaseInASegment: the segment stays if a write behind the position is in it, and
// goes if none is.
func TestReleaseInASegment(t *testing.T) {
	b := build(t, Limits{})
	b.note(write(1), write(1), write(1))
	last := b.at.Add(-4096)
	b.segment()
	b.note(write(1))
	b.Release(1, last)
	if got := b.oldest(); got != "segment 1, stream 1" {
		t.Errorf("needed from %s, expected segment 1: a write is at the position", got)
	}
	b.Release(1, last+1)
	if got := b.oldest(); got != "segment 2, stream 1" {
		t.Errorf("needed from %s, expected segment 2: the position is behind the last write", got)
	}
}

// TestRetire: a segment goes when nothing in it is needed and its facts were written again.
func TestRetire(t *testing.T) {
	b := build(t, Limits{})
	b.note(named(1, 7, "vote"), named(1, 8, "term"), named(2, 7, "gone"), write(3))
	b.segment()
	b.note(named(2, 7, ""))
	if err := b.Retire(1); !errors.Is(err, ErrNeeded) {
		t.Errorf("Retire(1) = %v although stream 3 needs it", err)
	}
	b.Release(3, b.at)
	if err := b.Retire(1); !errors.Is(err, ErrNeeded) {
		t.Errorf("Retire(1) = %v although facts stand in it", err)
	}
	if got, want := b.facts(1), []string{"1/7=vote", "1/8=term"}; !slices.Equal(got, want) {
		t.Errorf("facts %v, expected %v", got, want)
	}
	b.note(named(1, 8, "new"))
	if got, want := b.facts(1), []string{"1/7=vote"}; !slices.Equal(got, want) {
		t.Errorf("facts %v, expected %v", got, want)
	}
	b.note(named(1, 7, "vote"))
	if err := b.Retire(1); err != nil {
		t.Error(err)
	}
	if body, at, ok := b.Fact(1, 7); string(body) != "vote" || at.Segment() != 2 || !ok {
		t.Errorf("the vote is %q at %v, %v", body, at, ok)
	}
	if got, want := b.facts(2), []string{"1/8=new", "1/7=vote"}; !slices.Equal(got, want) {
		t.Errorf("facts %v, expected %v", got, want)
	}
	r := write(3)
	r.Position = format.At(1, 1<<20)
	if err := b.Note(&r); !errors.Is(err, ErrRecord) {
		t.Errorf("a record of a segment that has gone: %v", err)
	}
}

// TestDropIsRemembered: a dropped stream is refused as long as one of its records can be
// replayed, and does not take the place of another for longer.
func TestDropIsRemembered(t *testing.T) {
	b := build(t, Limits{MaxStreams: 1})
	b.note(entries(1, 1, 3, 1)...)
	b.note(named(1, 7, "vote"))
	b.segment()
	b.note(write(1), drop(1))
	if got := b.oldest(); got != "segment 0, stream 0" || b.facts(1) != nil || b.facts(2) != nil {
		t.Errorf("a dropped stream needs %s, and facts %v %v", got, b.facts(1), b.facts(2))
	}
	if _, _, err := b.At(1, 2); !errors.Is(err, ErrNoStream) {
		t.Errorf("entry of a dropped stream: %v", err)
	}
	if _, err := b.Term(1, 0); !errors.Is(err, ErrNoStream) {
		t.Errorf("term of a dropped stream: %v", err)
	}
	if _, _, ok := b.Fact(1, 7); ok {
		t.Error("a dropped stream has its vote")
	}
	w := write(2)
	if err := b.Retire(1); err != nil {
		t.Error(err)
	}
	if err := b.Check(&w); !errors.Is(err, ErrStreams) {
		t.Errorf("a stream more: %v, expected that the dropped one counts while a record of it is there", err)
	}
	if err := b.Retire(2); err != nil {
		t.Error(err)
	}
	b.segment()
	b.note(w)
	b.note(drop(1)) // of no account now
	b.note(drop(2))
	if err := b.Retire(3); err != nil || len(b.streams)+len(b.ended)+len(b.Table.facts)+len(b.need) > 0 {
		t.Errorf("%v; the table still has %d streams", err, len(b.streams))
	}
}

// TestReplayFromTheMiddle: what a start finds when the oldest segments have gone.
func TestReplayFromTheMiddle(t *testing.T) {
	for _, c := range []struct {
		name string
		rs   []format.Record
		want string
	}{
		{"entries, and a leader that replaced those before them", append(entries(1, 41, 70, 2), entries(1, 35, 60, 3)...), "35..60 ?@34 3@35"},
		{"a trim point that was told later", append(entries(1, 41, 70, 2), trim(1, 50, 2)), "51..70 2@50"},
		{"a trim point carried behind its entries", append(entries(1, 51, 70, 2), trim(1, 50, 1)), "51..70 1@50 2@51"},
		{"a trim point behind which more was trimmed", append(entries(1, 61, 70, 2), trim(1, 50, 2)), "61..70 ?@60 2@61"},
		{"a stream that began anew below what is left", append(entries(1, 61, 70, 2), begin(1, 50, 7)), "51..50 7@50"},
		{"and went on", append(append(entries(1, 61, 70, 2), begin(1, 50, 7)), entries(1, 51, 52, 7)...), "51..52 7@50"},
		{"a drop without its stream", []format.Record{drop(1)}, "1..0 0@0"},
		{"the end of a stream", append(entries(1, 61, 70, 2), drop(1)), "1..0 ?@0"},
		{"a fact that is removed and was not there", []format.Record{named(1, 7, "")}, "1..0 0@0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build(t, Limits{})
			b.replay(c.rs...)
			if got := b.of(1); got != c.want {
				t.Errorf("%s, expected %s", got, c.want)
			}
		})
	}
}

// TestMemory: an entry takes 16 bytes at most, and what was trimmed or replaced is given
// back, of a few entries and of many.
func TestMemory(t *testing.T) {
	const n = 300_000
	used := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	table, r, before := New(Limits{}), entry(1, 0, 1), used()
	at := format.At(1, 4096)
	note := func(index, term uint64) {
		if at = at.Add(64); at.Offset() > 1<<26 {
			at = format.At(at.Segment()+1, 4096)
		}
		r.Index, r.Term, r.Position = index, term, at
		if err := table.Note(&r); err != nil {
			t.Fatal(err)
		}
	}
	is := func(entries, more int64) {
		t.Helper()
		if left := used() - before; left > 16*entries+more {
			t.Errorf("%d bytes for %d entries", left, entries)
		}
	}
	for i := range uint64(n) {
		note(i+1, i/10_000)
	}
	is(n, 0)
	table.Trim(1, n*2/5)
	is(n*3/5, n/2) // the pointers to the chunks in front stay until the next entry
	note(n*4/5, 100)
	is(n*2/5, n/2)
	table.Trim(1, n*4/5-100)
	is(100, 16<<10)
	if term, err := table.Term(1, n*4/5-100); err != nil || term != 23 {
		t.Errorf("term %d at the trim point, %v", term, err)
	}
	runtime.KeepAlive(table)
}

// TestAllocations: a write is checked and noted without an allocation, an entry with one
// for each chunk.
func TestAllocations(t *testing.T) {
	table, at := New(Limits{}), format.At(1, 4096)
	rs := []format.Record{write(1), write(2), write(1)}
	note := func() {
		if err := table.CheckAll(rs); err != nil {
			t.Fatal(err)
		}
		for i := range rs {
			at = at.Add(64)
			rs[i].Position = at
			if err := table.Note(&rs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	note()
	if n := testing.AllocsPerRun(1000, note); n > 0 {
		t.Errorf("%v allocations for three writes", n)
	}
	rs = []format.Record{entry(1, 0, 1), entry(1, 0, 1)}
	index := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		rs[0].Index, rs[1].Index, index = index+1, index+2, index+2
		note()
	}); n > 0 { // it is rounded down
		t.Errorf("%v allocations for two entries", n)
	}
}

// BenchmarkNote is what the table costs per record, beside 65,536 streams.
func BenchmarkNote(b *testing.B) {
	for _, c := range []struct {
		name string
		r    format.Record
		all  bool
	}{{"write", write(1), false}, {"write of any stream", write(1), true}, {"entry", entry(1, 0, 1), false}, {"fact", named(1, 7, "0123456789abcdef"), false}} {
		b.Run(c.name, func(b *testing.B) {
			table, at, i := New(Limits{}), format.At(1, 4096), uint64(0)
			r := c.r
			b.ReportAllocs()
			for b.Loop() {
				if i++; c.all {
					r.Stream = i%65536 + 1
				}
				if at = at.Add(64); at.Offset() > 1<<26 {
					at = format.At(at.Segment()+1, 4096)
				}
				r.Position, r.Index = at, i
				if err := table.Check(&r); err != nil {
					b.Fatal(err)
				}
				if err := table.Note(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("oldest", func(b *testing.B) {
		table, at := New(Limits{}), format.At(1, 4096)
		for i := range uint64(65536) {
			r := write(i + 1)
			at = at.Add(64)
			r.Position = at
			if err := table.Note(&r); err != nil {
				b.Fatal(err)
			}
		}
		i := uint64(0)
		for b.Loop() { // released, written again, asked
			i++
			r := write(i%65536 + 1)
			table.Release(r.Stream, at+1)
			at = at.Add(64)
			r.Position = at
			if err := table.Note(&r); err != nil {
				b.Fatal(err)
			}
			table.Oldest()
		}
	})
}
