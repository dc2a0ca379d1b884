package meta

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// TestLevel: a state of level 0 has the form of before, and says nothing of levels; one above has the next form; either one comes back, and neither is taken in the form of the other.
func TestLevel(t *testing.T) {
	for _, level := range []feature.Level{0, 1, 2, 255} {
		s := sample(t)
		s.Level = level
		b := s.Encode()
		if b[0] != feature.Of(level).State || bytes.Contains(b, []byte("level")) != (level > 0) {
			t.Errorf("level %d: %q", level, b)
		}
		if back, err := Parse(b); err != nil || back.Level != level {
			t.Errorf("level %d comes back as %+v, %v", level, back, err)
		}
		other := bytes.Clone(b)
		other[0] = 3 - other[0]
		if _, err := Parse(other); !errors.Is(err, ErrMalformed) {
			t.Errorf("level %d in form %d: %v", level, other[0], err)
		}
	}
	if _, err := Parse([]byte{Format + 1, '{'}); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer form: %v", err)
	}
}

// TestLevelNeverFalls: the meta group takes no state of a lower level, whoever proposes it; a higher one it takes.
func TestLevelNeverFalls(t *testing.T) {
	for was := range feature.Level(3) {
		for is := range feature.Level(3) {
			s := sample(t)
			s.Level = was
			n := s.Clone()
			n.Level = is
			got, answer := s.Apply(AppendEntry(nil, n))
			err := Outcome(answer)
			if (err == nil) != (is >= was) || err != nil && (got != s || !strings.Contains(err.Error(), "never falls")) || err == nil && got.Level != is {
				t.Errorf("from level %d to %d: %v", was, is, err)
			}
		}
	}
}

// TestMapNeedsItsLevel: the meta group takes no shard map of a form that its level does not allow; from that level on it does.
func TestMapNeedsItsLevel(t *testing.T) {
	asked := allows
	defer func() { allows = asked }()
	allows = func(l feature.Level, f feature.Family, form int) error {
		if f != feature.ShardMap || form != 3 {
			t.Errorf("it asks for %s %d", f, form)
		}
		if l < 1 {
			return &feature.NeedsError{Family: f, Form: form, Needs: 1, Level: l}
		}
		return nil
	}
	for _, c := range []struct{ was, is feature.Level }{{0, 0}, {1, 1}, {2, 2}} {
		s := sample(t)
		s.Level = c.was
		n := s.Clone()
		n.Level = c.is
		n.Map = redraw(t, s.Map, func(*cluster.Draft) {})
		_, answer := s.Apply(AppendEntry(nil, n))
		if err := Outcome(answer); (err == nil) != (c.is > 0) || err != nil && !strings.Contains(err.Error(), "needs level 1") {
			t.Errorf("from level %d to %d: %v", c.was, c.is, err)
		}
	}
	// What was agreed on before is read all the same, whatever the level: the state in force is not asked.
	s := sample(t)
	if _, answer := s.Apply(AppendEntry(nil, s.Clone())); Outcome(answer) != nil {
		t.Errorf("the map stays: %s", answer)
	}
}

// TestLevelRisesAlone: the entry by which the level rises changes nothing else, so that a program which does not read the level knows by the level that it has to stop.
func TestLevelRisesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *State)
		words  string // "": it is taken
	}{
		"nothing else":         {func(*State) {}, ""},
		"by two":               {func(n *State) { n.Level++ }, ""},
		"and moves are paused": {func(n *State) { n.Paused = !n.Paused }, "with something else"},
		"and another map":      {func(n *State) { n.Map = redraw(t, n.Map, func(*cluster.Draft) {}) }, "with something else"},
		"and another task": {func(n *State) {
			n.AddTask(Task{ID: n.NextTask(), Kind: Rebalance, State: Runs, Began: 1, Moves: []Move{}})
		}, "with something else"},
		"and a task says more":  {func(n *State) { n.Tasks[0].Ended++ }, "with something else"},
		"moves paused, no rise": {func(n *State) { n.Level, n.Paused = 0, !n.Paused }, ""},
	} {
		s := sample(t)
		n := s.Clone()
		n.Level = 1
		c.change(n)
		got, answer := s.Apply(AppendEntry(nil, n))
		if err := Outcome(answer); (err == nil) != (c.words == "") || err != nil && (got != s || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadable: a program goes on with a state whose level it reads.
func TestReadable(t *testing.T) {
	for _, c := range []struct {
		level feature.Level
		by    feature.Range
		want  error
	}{
		{0, feature.Range{}, nil},
		{1, feature.Range{Oldest: 0, Newest: 1}, nil},
		{1, feature.Range{}, ErrNewer},
		{2, feature.Range{Oldest: 0, Newest: 1}, ErrNewer},
		{255, feature.Range{Oldest: 0, Newest: 1}, ErrNewer},
		{0, feature.Range{Oldest: 1, Newest: 2}, ErrMalformed},
	} {
		s := sample(t)
		s.Level = c.level
		if err := s.Readable(c.by); !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, feature.ErrUnread) {
			t.Errorf("level %d by a program of %v: %v, want %v", c.level, c.by, err, c.want)
		}
	}
}
