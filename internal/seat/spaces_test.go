package seat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// TestCreateSpace: a space comes once, however often it is asked for, and not before the level allows it; what it cannot be is refused, and says why.
func TestCreateSpace(t *testing.T) {
	s := five(t)
	s.Level = feature.Here().Newest
	if next, err := CreateSpace(s, "blue", 0, 0); next != nil || !errors.Is(err, feature.ErrNeeds) {
		t.Fatalf("at a level that does not allow spaces: %v", err)
	}
	withSpaces(t)
	n, err := CreateSpace(s, "blue", 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	if is := n.Map.Replication.Space("blue"); is == nil || len(is.Groups) != cluster.GroupsOfSpace || is.Memory != 7 || n.Version != s.Version+1 || s.Follows(n) != nil {
		t.Errorf("%+v: %v", is, s.Follows(n))
	}
	for _, groups := range []int{0, cluster.GroupsOfSpace} {
		if again, err := CreateSpace(n, "blue", groups, 7); again != n || err != nil {
			t.Errorf("asked for again: %v", err)
		}
	}
	for want, f := range map[string]func() (*meta.State, error){
		"with 4 groups and 7 bytes of memory: drop it first": func() (*meta.State, error) { return CreateSpace(n, "blue", 3, 7) },
		"7 bytes of memory: drop it first":                   func() (*meta.State, error) { return CreateSpace(n, "blue", 4, 8) },
		`neither "main" nor "own"`:                           func() (*meta.State, error) { return CreateSpace(n, "main", 0, 0) },
		"17 groups of a space: 1 to 16":                      func() (*meta.State, error) { return CreateSpace(n, "red", 17, 0) },
		"-1 groups of a space":                               func() (*meta.State, error) { return CreateSpace(n, "red", -1, 0) },
	} {
		if next, err := f(); next != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	for i := range cluster.MaxSpaces { // one more than there can be
		next, err := CreateSpace(n, fmt.Sprint("s", i), 1, 0)
		if (err != nil) != (i == cluster.MaxSpaces-1) || err != nil && !errors.Is(err, ErrRequest) {
			t.Fatalf("space %d: %v", i+2, err)
		}
		if err == nil {
			n = next
		}
	}
}

// TestDropSpace: what is dropped is the space that was seen, once, and not one that was made under its name since.
func TestDropSpace(t *testing.T) {
	withSpaces(t)
	s := must(CreateSpace(five(t), "blue", 1, 0))(t)
	number := s.Map.Replication.Space("blue").ID
	gone := must(DropSpace(s, "blue", number))(t)
	if gone.Map.Replication.Space("blue") != nil || s.Follows(gone) != nil {
		t.Errorf("%+v: %v", gone.Map.Replication.Spaces, s.Follows(gone))
	}
	if again, err := DropSpace(gone, "blue", number); again != gone || err != nil {
		t.Errorf("a second time: %v", err)
	}
	made := must(CreateSpace(gone, "blue", 1, 0))(t)
	for name, f := range map[string]func() (*meta.State, error){
		"it was made again meanwhile": func() (*meta.State, error) { return DropSpace(made, "blue", number) },
		`there is no space "red"`:     func() (*meta.State, error) { return DropSpace(made, "red", 0) },
		`there is no space "green"`:   func() (*meta.State, error) { return DropSpace(made, "green", 1000) },
		`and not 0`:                   func() (*meta.State, error) { return DropSpace(made, "blue", 0) },
	} {
		if next, err := f(); next != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q: %v", name, err)
		}
	}
}

// must is a state that was made without an error.
func must(s *meta.State, err error) func(*testing.T) *meta.State {
	return func(t *testing.T) *meta.State {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// apart is a state of nodes a to d in which group 1, of a, b and c, has gone to b, c and d, so that the group of space "blue" is to follow it; and so is that of "red".
func apart(t *testing.T) *meta.State {
	t.Helper()
	withSpaces(t)
	s := born(t, []Node{named("a", ""), named("b", ""), named("c", "")}, 3, 1)
	s = must(CreateSpace(must(CreateSpace(s, "blue", 1, 0))(t), "red", 1, 0))(t)
	d := s.Map.Draft()
	d.Nodes["d"] = cluster.DraftNode{Weight: 1, Store: named("d", "").Store}
	for _, g := range every(d)[1:] {
		g.Replicas[0].Node, g.Replicas[1].Node, g.Replicas[2].Node = "a", "b", "c"
	}
	g := d.Group(1)
	g.Take(1, 0)
	g.Add("d")
	n := s.Clone()
	var err error
	if n.Map, err = d.Map(s.Map); err != nil {
		t.Fatal(err)
	}
	return n
}

// well are reports of a state of which each group is as the map says, and the first replica that stays leads. f changes what replicas say.
func well(s *meta.State, f func(node string, g *GroupReport)) Reports {
	r := Reports{}
	d := s.Map.Draft()
	for n := range d.Nodes {
		r[n] = Report{Map: s.Map.Version}
	}
	for _, g := range every(d) {
		var voters []uint64
		for _, p := range g.Replicas {
			if !p.Leaves {
				voters = append(voters, p.ID)
			}
		}
		for _, p := range g.Replicas {
			one := GroupReport{Group: g.ID, Replica: p.ID, Leads: p.ID == voters[0], Term: 1, Config: 1, Voters: voters}
			if f != nil {
				f(p.Node, &one)
			}
			n := r[p.Node]
			n.Groups = append(n.Groups, one)
			r[p.Node] = n
		}
	}
	return r
}

// text is where the groups of a state's spaces are; a replica that leaves has a minus.
func spacesOf(s *meta.State) (text string) {
	for _, sp := range s.Map.Draft().Spaces {
		text += sp.Name
		for i := range sp.Groups {
			for _, p := range sp.Groups[i].Replicas {
				text += fmt.Sprintf(" %s%d", p.Node, p.ID)
				if p.Leaves {
					text += "-"
				}
			}
		}
		text += "; "
	}
	return strings.TrimSuffix(text, "; ")
}

// TestBeside: a group of a space goes to where the one is beside which it runs, as far as nothing speaks against it.
func TestBeside(t *testing.T) {
	space := func(s *meta.State, name string) uint32 { return s.Map.Replication.Space(name).Groups[0].ID }
	running := func(s *meta.State, m meta.Move) {
		m.State = meta.Moves
		s.Tasks = append(s.Tasks, meta.Task{ID: s.NextTask(), Kind: meta.Rebalance, State: meta.Runs, Moves: []meta.Move{m}})
	}
	edit := func(t *testing.T, s *meta.State, f func(d *cluster.Draft)) {
		d := s.Map.Draft()
		f(d)
		m, err := d.Map(s.Map)
		if err != nil {
			t.Fatal(err)
		}
		s.Map = m
	}
	for name, c := range map[string]struct {
		want string // "": nothing is done
		s    func(t *testing.T, s *meta.State)
		r    func(s *meta.State, r Reports, node string, g *GroupReport)
	}{
		"it goes":                       {"blue a1- b2 c3 d4; red a1- b2 c3 d4", nil, nil},
		"moves are paused":              {"", func(_ *testing.T, s *meta.State) { s.Paused = true }, nil},
		"the group beside it moves":     {"", func(_ *testing.T, s *meta.State) { running(s, meta.Move{Group: 1, To: "a", ToID: 5}) }, nil},
		"others move as many as may":    {"", func(_ *testing.T, s *meta.State) { running(s, meta.Move{Group: 0, To: "d", ToID: 5}) }, nil},
		"others move into other places": {"blue a1- b2 c3 d4; red a1- b2 c3 d4", func(_ *testing.T, s *meta.State) { running(s, meta.Move{Group: 0, To: "c", ToID: 5}) }, nil},
		"nobody leads one": {"blue a1 b2 c3; red a1- b2 c3 d4", nil, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			g.Leads = g.Leads && g.Group != space(s, "blue")
		}},
		"a voter of one is away": {"blue a1 b2 c3; red a1- b2 c3 d4", nil, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			if g.Group == space(s, "blue") {
				g.Away = []uint64{2}
			}
		}},
		"the voter is away that goes": {"blue a1- b2 c3 d4; red a1- b2 c3 d4", nil, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			g.Leads = g.Replica == 2
			g.Away = []uint64{1}
		}},
		"one has a replica without a vote": {"blue a1 b2 c3; red a1- b2 c3 d4", nil, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			if g.Group == space(s, "blue") {
				g.Voters, g.Learns = []uint64{1, 2}, []uint64{3}
			}
		}},
		"the one that is to go has no vote": {"blue a1- b2 c3; red a1- b2 c3 d4", nil, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			if g.Group == space(s, "blue") {
				g.Voters, g.Leads = []uint64{2, 3}, g.Replica == 2
			}
		}},
		"it has gone": {"blue b2 c3 d4; red b2 c3 d4", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) {
				for _, sp := range d.Spaces {
					sp.Groups[0].Replicas[0].Leaves = true
					sp.Groups[0].Add("d")
				}
			})
		}, nil},
		"it has gone, and the new one has no vote yet": {"", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) {
				for _, sp := range d.Spaces {
					sp.Groups[0].Replicas[0].Leaves = true
					sp.Groups[0].Add("d")
				}
			})
		}, func(s *meta.State, _ Reports, _ string, g *GroupReport) {
			if g.Group != 0 && g.Group != 1 {
				g.Voters, g.Learns = []uint64{2, 3}, []uint64{4}
			}
		}},
		"it is to come back": {"blue a1 b2 c3 d4; red a1 b2 c3 d4", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) {
				d.Group(1).Replica(4).Node = "a"
				for _, sp := range d.Spaces {
					sp.Groups[0].Replicas[0].Leaves = true
					sp.Groups[0].Add("d")
				}
			})
		}, nil},
		"another one leads where it can": {"blue c3 a1 b2; red c3 a1 b2", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) {
				g := d.Group(1)
				g.Replica(4).Node = "a"
				g.Replicas = []cluster.DraftReplica{*g.Replica(3), *g.Replica(2), *g.Replica(4)}
			})
		}, nil},
		"the group beside it was lost, and it has all": {"blue b2 a1 c3; red b2 a1 c3", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) { d.Recover(1, "b", 1) })
		}, nil},
		"it was lost, and is whole again": {"blue a1- b2 c3; red a1- b2 c3", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) { d.Group(d.Recover(1, "b", 1)).Phase = cluster.Settled })
		}, nil},
		"it was lost, and a node is to go": {"blue a1 b2 c3-; red a1 b2 c3-", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) { d.Recover(1, "b", 1) })
			s.Tasks = []meta.Task{{ID: 1, Kind: meta.Remove, Nodes: []string{"c"}, State: meta.Runs, Moves: []meta.Move{{Group: 9, From: "c", State: meta.Waits}}}}
		}, nil},
		"fewer replicas": {"blue a1- b2 c3; red a1- b2 c3", func(t *testing.T, s *meta.State) {
			edit(t, s, func(d *cluster.Draft) { g := d.Group(1); g.Take(4, 0); g.Take(2, 0) })
		}, nil},
	} {
		s := apart(t)
		if c.s != nil {
			c.s(t, s)
		}
		r := Reports{}
		r = well(s, func(node string, g *GroupReport) {
			if c.r != nil {
				c.r(s, r, node, g)
			}
		})
		// With limits of one there is one move of each space at a time, and those of tasks count for all.
		n := Step(s, r, Limits{Moves: 2, In: 1, Out: 1}, 9)
		switch {
		case n == nil && c.want != "" || n != nil && spacesOf(n) != c.want && (c.want != "" || spacesOf(n) != spacesOf(s)):
			if n == nil {
				n = s
			}
			t.Errorf("%s: %s, want %q", name, spacesOf(n), c.want)
		case n != nil && len(n.Tasks) == 0:
			if err := s.Follows(n); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestSpaceOfOneTenant: what one space has under way, or cannot begin, holds no other one up.
func TestSpaceOfOneTenant(t *testing.T) {
	s := apart(t)
	blue := s.Map.Replication.Space("blue").Groups[0].ID
	r := well(s, func(_ string, g *GroupReport) { // of blue replica 2 and 3 were never made, because its tenant is not at their nodes
		if g.Group == blue {
			g.Voters, g.Learns = []uint64{1}, []uint64{2, 3}
		}
	})
	n := Step(s, r, Limits{Moves: 1}, 9)
	if n == nil || spacesOf(n) != "blue a1 b2 c3; red a1- b2 c3 d4" {
		t.Errorf("%v", n)
	}
	// And tasks begin and end beside it, but for the one that takes out a node which has a replica of it.
	for _, c := range []struct {
		node string
		over bool
	}{{"e", true}, {"a", false}} {
		s := s.Clone()
		d := s.Map.Draft()
		d.Nodes["e"] = cluster.DraftNode{Weight: 1, Store: named("e", "").Store}
		var err error
		if s.Map, err = d.Map(s.Map); err != nil {
			t.Fatal(err)
		}
		s.Tasks = []meta.Task{{ID: 1, Kind: meta.Remove, Nodes: []string{c.node}, State: meta.Runs, Moves: []meta.Move{{Group: 1, From: c.node, State: meta.Dropped}}}}
		n := Step(s, well(s, func(_ string, g *GroupReport) { g.Leads = g.Leads && g.Group != blue }), Limits{Moves: 1}, 9)
		if n == nil || n.Tasks[0].Over() != c.over || n.Map.Has(c.node) == c.over {
			t.Errorf("node %s goes: %+v", c.node, n)
		}
	}
}

// TestRecoverSpace: a group of a space that has lost its majority is made anew as any other one, and keeps its place; it is made again of what another node has kept of it, and of nothing that was kept of another space.
func TestRecoverSpace(t *testing.T) {
	s := apart(t)
	sp := s.Map.Replication.Space("blue")
	group, last := sp.Groups[0].ID, s.Map.Replication.Last
	say := func(node string, r GroupReport) Reports {
		return Reports{node: {Map: s.Map.Version, Groups: []GroupReport{r}}}
	}
	next, loss, err := Recover(s, say("b", GroupReport{Group: group, Replica: 2, Term: 3, Last: 9, LastTerm: 3, Voters: []uint64{1, 2, 3}}), group, "b", 5)
	if err != nil {
		t.Fatal(err)
	}
	g := &next.Map.Replication.Space("blue").Groups[0]
	if loss.Made != last+1 || g.ID != last+1 || g.Was != group || len(g.Replicas) != 1 || s.Follows(next) != nil || next.Map.Replication.Space("red").Groups[0].ID != s.Map.Replication.Space("red").Groups[0].ID {
		t.Errorf("%+v, %+v: %v", loss, g, s.Follows(next))
	}
	if again, _, err := Recover(next, Reports{}, group, "b", 6); again != next || err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, _, err := Recover(s, Reports{}, 77, "b", 5); err == nil || !strings.Contains(err.Error(), fmt.Sprint(group)) {
		t.Errorf("the groups that there are, those of spaces among them: %v", err)
	}
	// The node is lost, too, and c has kept what it had.
	kept := KeptReport{Group: group, Replica: 3, Last: 8, LastTerm: 3, Votes: true, Space: sp.ID}
	third, _, err := Recover(next, Reports{"c": {Kept: []KeptReport{kept}}}, group, "c", 7)
	if err != nil {
		t.Fatal(err)
	}
	if g := &third.Map.Replication.Space("blue").Groups[0]; g.Was != group || g.Times != 2 || next.Follows(third) != nil {
		t.Errorf("%+v: %v", g, next.Follows(third))
	}
	for _, of := range []uint32{0, s.Map.Replication.Space("red").ID, 99} {
		other := kept
		other.Space = of
		if _, _, err := Recover(next, Reports{"c": {Kept: []KeptReport{other}}}, group, "c", 7); !errors.Is(err, ErrRequest) {
			t.Errorf("what was kept of space %d is taken: %v", of, err)
		}
	}
	// Phases are those of any other group.
	stands := Step(next, well(next, func(_ string, g *GroupReport) { g.Shown = 2 }), Limits{}, 9)
	if stands == nil || stands.Map.Replication.Space("blue").Groups[0].Phase != cluster.Stands {
		t.Errorf("%+v", stands)
	}
}

// TestRecoverMetaOfSpaces: a meta group that is made anew leaves numbers out, of replicas of spaces, too, and of groups and spaces: those that lost replicas of it may have given to others.
func TestRecoverMetaOfSpaces(t *testing.T) {
	s := apart(t)
	d := s.Map.Draft()
	from := d.Groups[0].Replicas[0]
	r := Reports{from.Node: {Map: s.Map.Version, Groups: []GroupReport{{Group: 0, Replica: from.ID, Term: 3, Last: 9, LastTerm: 3, Voters: []uint64{from.ID, 88, 89}}}}}
	m, _, err := RecoverMeta(s.Map, r, from.Node, 77)
	if err != nil {
		t.Fatal(err)
	}
	was, is := s.Map.Replication, m.Replication
	if is.Last <= was.Last+1000 || is.Space("blue").Groups[0].Top <= was.Space("blue").Groups[0].Top+1000 {
		t.Errorf("numbers up to %d, and %d before; replicas up to %d, and %d", is.Last, was.Last, is.Space("blue").Groups[0].Top, was.Space("blue").Groups[0].Top)
	}
	if err := cluster.CheckChange(s.Map, m); err != nil {
		t.Error(err)
	}
	if !slices.EqualFunc(was.Spaces, is.Spaces, func(a, b cluster.Space) bool { return a.ID == b.ID && a.Name == b.Name }) {
		t.Errorf("%+v", is.Spaces)
	}
}
