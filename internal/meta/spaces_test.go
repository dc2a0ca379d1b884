package meta

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
)

// withSpaces has the level of a test allow maps with spaces, and returns a state with space "blue" of two groups.
func withSpaces(t *testing.T) *State {
	t.Helper()
	asked := allows
	t.Cleanup(func() { allows = asked })
	allows = func(feature.Level, feature.Family, int) error { return nil }
	s := Begin(firstMap(t, 4))
	n := s.Clone()
	n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.AddSpace(s.Map, "blue", 2, 0) })
	next, answer := s.Apply(AppendEntry(nil, n))
	if err := Outcome(answer); err != nil {
		t.Fatal(err)
	}
	return next
}

// TestSpacesNeedTheirLevel: no cluster gets a map with spaces from a program that does not run them, whatever its level.
func TestSpacesNeedTheirLevel(t *testing.T) {
	for _, level := range []feature.Level{0, 1, feature.Here().Newest, 254, 255} {
		s := Begin(firstMap(t, 4))
		s.Level = level
		n := s.Clone()
		n.Map = redraw(t, s.Map, func(d *cluster.Draft) { d.AddSpace(s.Map, "blue", 2, 0) })
		if after, answer := s.Apply(AppendEntry(nil, n)); after != s || !strings.Contains(string(answer), "no cluster may have shard map 6 with this program") {
			t.Errorf("level %d: %s", level, answer)
		}
	}
}

// TestSpacesFollow: which spaces may follow which.
func TestSpacesFollow(t *testing.T) {
	first := func(d *cluster.Draft) *cluster.DraftGroup { return &d.Spaces[0].Groups[0] }
	for name, c := range map[string]struct {
		want string // "": it is taken
		f    func(d *cluster.Draft, m *cluster.Map)
	}{
		"a space goes":          {"", func(d *cluster.Draft, _ *cluster.Map) { d.DropSpace("blue") }},
		"another one comes":     {"", func(d *cluster.Draft, m *cluster.Map) { d.AddSpace(m, "red", 3, 5) }},
		"it is made again":      {"", func(d *cluster.Draft, m *cluster.Map) { d.DropSpace("blue"); d.AddSpace(m, "blue", 2, 0) }},
		"a replica comes":       {"", func(d *cluster.Draft, _ *cluster.Map) { first(d).Add(gapOf(d, first(d).ID)) }},
		"a replica is to leave": {"", func(d *cluster.Draft, _ *cluster.Map) { first(d).Replicas[0].Leaves = true }},
		"a group gives way":     {"", func(d *cluster.Draft, _ *cluster.Map) { d.Recover(first(d).ID, first(d).Replicas[1].Node, first(d).ID) }},
		"a replica is gone":     {"is gone, and was not on its way out", func(d *cluster.Draft, _ *cluster.Map) { first(d).Take(2, 0) }},
		"ids fall":              {"ids up to 2 behind 3", func(d *cluster.Draft, _ *cluster.Map) { g := first(d); g.Take(3, 0); g.Top = 2 }},
		"a group gives way to one that was given a replica": {"begins with 2 replicas", func(d *cluster.Draft, _ *cluster.Map) {
			d.Recover(first(d).ID, first(d).Replicas[1].Node, first(d).ID)
			first(d).Add(gapOf(d, first(d).ID))
		}},
		"one comes that was given a replica and has lost it": {"which comes, was group 0, or has 3 replicas up to id 4", func(d *cluster.Draft, m *cluster.Map) {
			d.AddSpace(m, "red", 1, 0)
			d.Spaces[1].Groups[0].Top++
		}},
		"one comes of which a replica leaves": {"or one of them leaves", func(d *cluster.Draft, m *cluster.Map) {
			d.AddSpace(m, "red", 1, 0)
			d.Spaces[1].Groups[0].Replicas[2].Leaves = true
		}},
		"one comes whose group was another": {"which comes, was group ", func(d *cluster.Draft, m *cluster.Map) {
			d.AddSpace(m, "red", 1, 0)
			g := &d.Spaces[1].Groups[0]
			d.Recover(g.ID, g.Replicas[0].Node, g.ID)
		}},
		"one comes of a number that was": {"which may have been another one", func(d *cluster.Draft, _ *cluster.Map) {
			d.Spaces[0].ID, d.Spaces[0].Groups[0].ID, d.Spaces[0].Groups[1].ID = d.Last, d.Last+1, d.Last+2
			d.Last += 2
		}},
	} {
		s := withSpaces(t)
		n := s.Clone()
		n.Map = redraw(t, s.Map, func(d *cluster.Draft) { c.f(d, s.Map) })
		after, answer := s.Apply(AppendEntry(nil, n))
		if err := Outcome(answer); c.want == "" && (err != nil || !bytes.Equal(after.Encode(), n.Encode())) || c.want != "" && (err == nil || after != s || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
