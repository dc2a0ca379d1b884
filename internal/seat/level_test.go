package seat

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/feature"
)

// TestLevel is the table of how far the feature level rises, and what is in its way.
func TestLevel(t *testing.T) {
	says := func(newest feature.Level) Report { return Report{Reads: &feature.Range{Newest: newest}} }
	for name, c := range map[string]struct {
		at   feature.Level
		own  feature.Level
		r    Reports // of a to c
		to   feature.Level
		why  string
		hold bool // by b
	}{
		"all read it":                     {own: 1, r: Reports{"a": says(1), "b": says(1), "c": says(1)}, to: 1},
		"one says nothing of levels":      {own: 1, r: Reports{"a": says(1), "b": {}, "c": says(1)}, why: "the program of node b reads no level above 0"},
		"one does not read it":            {own: 1, r: Reports{"a": says(1), "b": says(1), "c": says(0)}, why: "node c reads no level above 0"},
		"one is not heard":                {own: 1, r: Reports{"a": says(1), "c": says(1)}, why: "node b has not said"},
		"nobody is heard":                 {own: 1, r: Reports{}, why: "node a has not said"},
		"one holds it":                    {own: 1, r: Reports{"a": says(1), "b": says(1), "c": says(1)}, hold: true, why: "node b holds the level"},
		"who is not in the map holds it":  {own: 1, r: Reports{"a": says(1), "b": says(1), "c": says(1), "d": {Hold: true}}, to: 1},
		"it stays":                        {at: 1, own: 1, r: Reports{"a": says(1), "b": says(1), "c": says(1)}, to: 1},
		"it does not fall":                {at: 1, own: 1, r: Reports{"a": says(1), "b": says(0), "c": says(1)}, to: 1},
		"it rises by two":                 {own: 2, r: Reports{"a": says(2), "b": says(2), "c": says(3)}, to: 2},
		"as far as the last one":          {own: 2, r: Reports{"a": says(2), "b": says(1), "c": says(3)}, to: 1, why: "node b reads no level above 1"},
		"not above the seat's program":    {own: 1, r: Reports{"a": says(9), "b": says(255), "c": says(9)}, to: 1},
		"a range that is none counts low": {own: 1, r: Reports{"a": says(1), "b": {Reads: &feature.Range{Oldest: 255}}, "c": says(1)}, why: "the program of node b reads no level above 0"},
	} {
		s := born(t, []Node{named("a", ""), named("b", ""), named("c", "")}, 3, 2)
		s.Level = c.at
		if c.hold {
			b := c.r["b"]
			b.Hold = true
			c.r["b"] = b
		}
		own := feature.Range{Newest: c.own}
		got := Level(s, c.r, own)
		if got.To != c.to || (got.Why == "") != (c.why == "") || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %+v, want level %d, %q", name, got, c.to, c.why)
		}
		next := Raise(s, c.r, own)
		if (next != nil) != (c.to > c.at) || next != nil && (next.Level != c.to || next.Version != s.Version+1 || s.Level != c.at) {
			t.Errorf("%s: the next state is %+v", name, next)
		}
	}
}

// TestMayCome: nodes that are in the map already are asked nothing.
func TestMayCome(t *testing.T) {
	s := born(t, []Node{named("a", ""), named("b", ""), named("c", "")}, 3, 2)
	nobody := func(string) (feature.Level, bool) { return 0, false }
	for level, want := range map[feature.Level]error{0: nil, 1: ErrRequest} {
		s.Level = level
		if err := MayCome(s, []Node{named("a", "")}, nobody); err != nil {
			t.Errorf("level %d: node a, which is in: %v", level, err)
		}
		if err := MayCome(s, []Node{named("a", ""), named("d", "")}, nobody); !errors.Is(err, want) {
			t.Errorf("level %d: node d: %v", level, err)
		}
	}
}
