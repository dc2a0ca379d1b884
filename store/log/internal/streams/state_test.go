package streams

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// TestState: what a replica may promise after what it has promised.
func TestState(t *testing.T) {
	was := State{Term: 5, Vote: 2, Commit: 10}
	for _, c := range []struct {
		name string
		next State
		err  error
	}{
		{"the same again", was, nil},
		{"a higher term has no vote yet", State{6, 0, 10}, nil},
		{"a higher term votes for another", State{6, 3, 10}, nil},
		{"more is committed", State{5, 2, 11}, nil},
		{"a lower term", State{4, 2, 10}, ErrPromise},
		{"a second vote", State{5, 3, 10}, ErrPromise},
		{"a vote taken back", State{5, 0, 10}, ErrPromise},
		{"less is committed", State{6, 0, 9}, ErrPromise},
		{"nothing", State{}, ErrRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := New(Limits{})
			note := func(s State, at int64) error {
				return table.Note(&format.Record{Kind: format.Fact, Stream: 3, Name: FactState, Body: s.Body(), Position: format.At(1, at)})
			}
			if err := note(was, 4096); err != nil {
				t.Fatal(err)
			}
			r := format.Record{Kind: format.Fact, Stream: 3, Name: FactState, Body: c.next.Body()}
			if err := table.Check(&r); !errors.Is(err, c.err) {
				t.Fatalf("Check: %v, expected %v", err, c.err)
			}
			if err := note(c.next, 8192); !errors.Is(err, c.err) {
				t.Fatalf("Note: %v, expected %v", err, c.err)
			}
			want := c.next
			if c.err != nil {
				want = was
			}
			if got, ok := table.State(3); got != want || !ok {
				t.Fatalf("%+v, %v, expected %+v", got, ok, want)
			}
			if got, ok := table.State(4); ok {
				t.Fatalf("another stream has %+v", got)
			}
		})
	}
	short := format.Record{Kind: format.Fact, Stream: 3, Name: FactState, Body: was.Body()[:23]}
	if err := New(Limits{}).Check(&short); !errors.Is(err, ErrRecord) {
		t.Fatal(err)
	}
}

// TestStateBesideDrop: a state and a drop are two facts. A dropped stream takes no state, and
// a state of a new stream counts as a stream, so CheckAll and Note agree on how many there
// can be.
func TestStateBesideDrop(t *testing.T) {
	state := func(stream uint64) format.Record { return named(stream, FactState, string(State{Term: 1}.Body())) }
	table := New(Limits{MaxStreams: 1})
	if err := table.CheckAll([]format.Record{state(1), state(2)}); !errors.Is(err, ErrStreams) {
		t.Fatalf("two streams of at most one: %v", err)
	}
	if err := table.CheckAll([]format.Record{entry(1, 1, 1), drop(1), state(1)}); !errors.Is(err, ErrNoStream) {
		t.Fatalf("a state behind the drop: %v", err)
	}
}
