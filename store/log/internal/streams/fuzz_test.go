package streams

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// FuzzRecords: records that verify, whoever wrote them, are noted or refused with an error
// of this package, and never make the table panic or grow beyond its limits. What Check lets
// pass, Note takes. Each record is 6 bytes: step, stream, two of index, term, and size.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{1, 1, 1, 0, 1, 9, 1, 1, 2, 0, 1, 9, 2, 1, 1, 0, 1, 16, 3, 1, 0, 0, 0, 1})
	f.Add([]byte{1, 1, 70, 0, 1, 9, 1, 1, 71, 0, 1, 9, 1, 1, 50, 0, 2, 9, 4, 1, 60, 0, 3, 16, 1, 1, 61, 0, 3, 0})
	f.Add([]byte{0, 1, 0, 0, 0, 5, 5, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 5, 6, 1, 1, 0, 0, 0, 7, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{MaxStreams: 4, MaxFact: 32, MaxFacts: 3}
		table, at := New(limits), format.At(1, 4096)
		for ; len(data) >= 6; data = data[6:] {
			index := uint64(binary.LittleEndian.Uint16(data[2:]))
			if index > 0xff00 {
				index |= ^uint64(0xffff) // the last of all, too
			}
			r := format.Record{Stream: uint64(data[1] % 8), Index: index, Term: uint64(data[4]), Position: at}
			r.Body = make([]byte, data[5]%40)
			switch step := data[0] % 10; step {
			case 0, 1:
				r.Kind = format.Write + format.Kind(step)
			case 2, 3, 4:
				r.Kind, r.Name = format.Fact, FactTrim+uint16(step-2)+uint16(r.Term&1)
				if r.Name == FactState {
					r.Body = State{r.Term, index, index}.Body()
				} else if len(r.Body) == 16 {
					r.Body = TrimBody(index, r.Term)
				} else if len(r.Body) == 1 {
					r.Body = DroppedBody()
				}
			case 5:
				at = format.At(at.Segment()+1+index%3, 4096)
				continue
			case 6:
				table.Release(r.Stream, format.At(index%8, int64(r.Term)*64))
				table.Trim(r.Stream, r.Term)
				continue
			case 7:
				_ = table.Retire(index % 8)
				continue
			case 8:
				table.Drop(r.Stream)
				continue
			case 9:
				r.Kind, r.Name = format.Fact, uint16(r.Term%6)
			}
			checked := table.Check(&r)
			err := table.Note(&r)
			if checked == nil && err != nil && at.Segment() > table.gone {
				t.Fatalf("%+v: Check passes it, Note: %v", r, err)
			}
			for _, e := range []error{checked, err} {
				if e != nil && !errors.Is(e, ErrTrimmed) && !errors.Is(e, ErrNoStream) && !errors.Is(e, ErrGap) &&
					!errors.Is(e, ErrStreams) && !errors.Is(e, ErrFacts) && !errors.Is(e, ErrPromise) && !errors.Is(e, ErrRecord) {
					t.Fatalf("%+v: %v", r, e)
				}
			}
			if err == nil {
				at = at.Add(int64(format.RecordSize(len(r.Body))))
			}
		}
		sound(t, table, limits)
	})
}

// sound looks whether the parts of a table fit together.
func sound(t *testing.T, table *Table, limits Limits) {
	t.Helper()
	facts, needing := 0, 0
	table.Streams(func(i Info) {
		s := table.streams[i.Stream]
		facts += i.Facts
		if i.Facts > limits.MaxFacts+2 || i.Stream == 0 {
			t.Errorf("%+v", i)
		}
		if s.oldest != 0 {
			needing++
			if table.need[s.at] != s {
				t.Errorf("stream %d is not where it says", i.Stream)
			}
		}
		for x := i.First; x <= i.Last && x > 0; x++ {
			if at, size, err := table.At(i.Stream, x); err != nil || size < format.RecordHead || at < s.oldest {
				t.Fatalf("stream %d, entry %d: %d bytes at %v, %v", i.Stream, x, size, at, err)
			}
			before, err := table.Term(i.Stream, x-1)
			if term, e := table.Term(i.Stream, x); e != nil || err == nil && term < before {
				t.Fatalf("stream %d, entry %d: term %d behind %d, %v", i.Stream, x, term, before, e)
			}
		}
	})
	for n, l := range table.facts {
		if l.first == nil || n <= table.gone {
			t.Errorf("an empty list of segment %d", n)
		}
		table.FactsIn(n, func(uint64, uint16, []byte) { facts-- })
	}
	if len(table.streams) > limits.MaxStreams || needing != len(table.need) || facts != 0 {
		t.Errorf("%d streams, %d need something and %d are said to; %d facts too many", len(table.streams), needing, len(table.need), facts)
	}
	if at, _ := table.Oldest(); at != 0 && at.Segment() <= table.gone {
		t.Errorf("%v is needed, and has gone", at)
	}
}
