package seat

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// lost are reports of nodes a to d of which group 1, that a move is under way of, has lost its majority: a's replica is left, and d's, which learns, too.
func lost() Reports {
	r := reports(0, []uint64{1, 2, 3}, []uint64{4})
	delete(r, "b")
	delete(r, "c")
	for _, n := range []string{"a", "d"} {
		r.at(n, func(_ *Report, g *GroupReport) { g.Last, g.LastTerm = 90, 5 })
	}
	return r
}

// TestRecover: a group that has lost its majority is replaced by one with another id, of one replica; its moves are dropped, and everything else stays.
func TestRecover(t *testing.T) {
	s := moving(t)
	next, loss, err := Recover(s, lost(), 1, "a", 77)
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Loss{Group: 1, From: "a", Replica: 1, Last: 90, Heard: []string{"a", "d"}, Away: []string{"b", "c"}, Made: 3, Forgets: []string{"a move of task 1 (" + Describe(&s.Tasks[0]) + ")"}}); !reflect.DeepEqual(loss, want) {
		t.Errorf("%+v, want %+v", loss, want)
	}
	after, answer := s.Apply(meta.AppendEntry(nil, next))
	if err := meta.Outcome(answer); err != nil {
		t.Fatal(err)
	}
	d := after.Map.Draft()
	if want := (&cluster.DraftGroup{ID: 3, Was: 1, Times: 1, Top: 1, Replicas: []cluster.DraftReplica{{Node: "a", ID: 1}}}); d.Group(1) != nil || !reflect.DeepEqual(d.Group(3), want) {
		t.Errorf("%+v, want %+v", d.Group(3), want)
	}
	if before := s.Map.Draft(); !reflect.DeepEqual(d.Group(2), before.Group(2)) || !reflect.DeepEqual(d.Groups[0], before.Groups[0]) || !maps.Equal(d.Nodes, before.Nodes) {
		t.Errorf("%+v, before %+v", d, before)
	}
	for shard := range s.Map.Owner {
		was, is := s.Map.Replication.Groups[s.Map.Replication.Group[shard]].ID, after.Map.Replication.Groups[after.Map.Replication.Group[shard]].ID
		if was == 1 && is != 3 || was != 1 && is != was {
			t.Errorf("shard %d goes from group %d to %d", shard, was, is)
		}
	}
	if m := after.Tasks[0].Moves[0]; m.State != meta.Dropped || m.Ended != 77 || after.Tasks[0].Moves[1].State != meta.Waits {
		t.Errorf("%+v", after.Tasks[0].Moves)
	}
	// Again: it is done, and nothing changes.
	again, loss, err := Recover(after, lost(), 1, "a", 78)
	if err != nil || again != after || loss.Made != 3 {
		t.Errorf("again: %+v, %v", loss, err)
	}
	if _, _, err := Recover(after, lost(), 1, "d", 78); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "is to make group 3 of what it has") && !strings.Contains(err.Error(), "recovered before, as group 3") {
		t.Errorf("again, from another node: %v", err)
	}
	// The task that was under way ends, or goes on with what is left of it.
	r := reports(0, nil, nil)
	for range 3 {
		if n := Step(after, r, Limits{}, 80); n != nil {
			after = n
		}
	}
	if m := after.Tasks[0].Moves[0]; m.State != meta.Dropped {
		t.Errorf("%+v", m)
	}
	// A node that comes back with the first map goes by the newest one.
	if err := cluster.CheckChange(s.Map, after.Map); err != nil {
		t.Error(err)
	}
}

// TestRecoverRefuses: what is not lost, and what is no beginning of a group, is not recovered, and the error says why in one line.
func TestRecoverRefuses(t *testing.T) {
	back := func(r Reports, node string, id uint64) {
		all := reports(0, []uint64{1, 2, 3}, []uint64{4})[node]
		all.Groups = slices.Clone(all.Groups)
		r[node] = all
		r.at(node, func(_ *Report, g *GroupReport) { g.Replica, g.Last, g.LastTerm = id, 80, 5 })
	}
	for name, c := range map[string]struct {
		group uint32
		from  string
		f     func(r Reports)
		want  string
	}{
		"the meta group":           {0, "a", func(Reports) {}, "meta group, which answers"},
		"no such group":            {9, "a", func(Reports) {}, "there is no group 9: 1, 2 are"},
		"a stranger":               {1, "x", func(Reports) {}, `"x" is not in the cluster`},
		"no replica there":         {2, "d", func(Reports) {}, `"d" has no replica of group 2: a, b, c have`},
		"it leads":                 {1, "a", func(r Reports) { r.at("a", func(_ *Report, g *GroupReport) { g.Leads = true }) }, "has a leader"},
		"it knows who leads":       {1, "a", func(r Reports) { r.at("a", func(_ *Report, g *GroupReport) { g.Heard = 2 }) }, "knows a leader, replica 2"},
		"a majority answers":       {1, "a", func(r Reports) { back(r, "b", 2) }, "a majority of group 1 answers, 2 of the 3"},
		"it does not answer":       {1, "b", func(Reports) {}, `"b" does not answer`},
		"it was stopped":           {1, "a", func(r Reports) { n := r["a"]; n.Stopped, n.Groups = map[uint32]string{1: "rot"}, nil; r["a"] = n }, "stopped by an error, and is no beginning of a group: rot"},
		"it does not run":          {1, "a", func(r Reports) { n := r["a"]; n.Groups = n.Groups[1:]; r["a"] = n }, "does not run its replica"},
		"it has nothing":           {1, "a", func(r Reports) { r.at("a", func(_ *Report, g *GroupReport) { g.Last = 0 }) }, "has nothing yet"},
		"it knows no voters":       {1, "a", func(r Reports) { r.at("a", func(_ *Report, g *GroupReport) { g.Voters = nil }) }, "has nothing yet"},
		"it learns":                {1, "d", func(Reports) {}, "has no vote"},
		"another has more":         {1, "a", func(r Reports) { more(r, 91, 5) }, `at node "d" has more, up to entry 91 of term 5`},
		"another has a later term": {1, "a", func(r Reports) { more(r, 70, 6) }, `at node "d" has more, up to entry 70 of term 6`},
		"a majority of a later configuration": {1, "a", func(r Reports) {
			r.at("d", func(_ *Report, g *GroupReport) { g.Voters, g.Last = []uint64{1, 2, 4}, 89 })
		}, "a majority of group 1 answers, 2 of the 3 voters that node \"d\" knows"},
		"nobody answers": {1, "a", func(r Reports) { clear(r) }, `"a" does not answer`},
	} {
		s, r := moving(t), lost()
		c.f(r)
		next, _, err := Recover(s, r, c.group, c.from, 1)
		if next != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestRecoverMeta: the meta group is made anew with one replica, by a map that is above all of before, ids of replicas of which nobody can have heard, and no replica that is on its way out.
func TestRecoverMeta(t *testing.T) {
	s := moving(t)
	reports := func(nodes ...string) Reports {
		r := Reports{}
		for _, n := range nodes {
			r[n] = Report{Map: 2, Groups: []GroupReport{{Group: 0, Replica: s.Map.Draft().Groups[0].At(n).ID, Voters: []uint64{1, 2, 3}, Last: 9, LastTerm: 3}}}
		}
		return r
	}
	m, loss, err := RecoverMeta(s.Map, reports("c"), "c", 0x77)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(loss.Away, []string{"a", "b"}) || loss.Last != 9 || loss.Group != 0 || m.Version != 1<<32 || m.Generation() != 1 || !m.BeginsGeneration() || m.Life() != 0x77 {
		t.Errorf("%+v, %v", loss, m)
	}
	d, was := m.Draft(), s.Map.Draft()
	if g := d.Groups[0]; len(g.Replicas) != 1 || g.Replicas[0].Node != "c" || g.Replicas[0].ID != g.Top || g.Top <= was.Groups[0].Top+topGap {
		t.Errorf("the meta group is %+v, was %+v", g, was.Groups[0])
	}
	for i := range d.Groups[1:] {
		g, b := &d.Groups[1+i], &was.Groups[1+i]
		if g.ID != b.ID || g.Top != b.Top+topGap || len(g.Replicas) != len(b.Replicas) || slices.ContainsFunc(g.Replicas, func(p cluster.DraftReplica) bool { return p.Leaves || b.Replica(p.ID).Node != p.Node }) {
			t.Errorf("group %+v, was %+v", g, b)
		}
	}
	if err := cluster.CheckChange(s.Map, m); err != nil {
		t.Error(err)
	}
	if err := cluster.CheckChange(m, s.Map); err == nil {
		t.Error("the map of before is followed")
	}
	// Once more, a generation later.
	again, _, err := RecoverMeta(m, Reports{"c": {Map: m.Version, Groups: []GroupReport{{Group: 0, Replica: d.Groups[0].Top, Voters: []uint64{d.Groups[0].Top, 8, 9}, Last: 4}}}}, "c", 0x78)
	if err != nil || again.Version != 2<<32 || again.Generation() != 2 || !slices.Equal(again.Replication.Lives, []uint64{0x77, 0x78}) {
		t.Errorf("%v, %v", again, err)
	}
	for name, c := range map[string]struct {
		from string
		r    Reports
		want string
	}{
		"it does not answer":    {"a", reports("c"), `"a" does not answer`},
		"a majority answers":    {"c", reports("c", "b"), "a majority of group 0 answers"},
		"no replica of it":      {"d", reports("c"), `"d" has no replica of the meta group: a, b, c have`},
		"somebody leads":        {"c", Reports{"c": {Groups: []GroupReport{{Replica: 3, Leads: true, Voters: []uint64{1, 2, 3}, Last: 9}}}}, "has a leader"},
		"it knows who leads":    {"c", Reports{"c": {Groups: []GroupReport{{Replica: 3, Heard: 1, Voters: []uint64{1, 2, 3}, Last: 9}}}}, "knows a leader"},
		"it has nothing":        {"c", Reports{"c": {Groups: []GroupReport{{Replica: 3}}}}, "has nothing yet"},
		"it was stopped":        {"c", Reports{"c": {Stopped: map[uint32]string{0: "rot"}}}, "stopped by an error"},
		"a map without a group": {"x", reports("c"), `"x" has no replica`},
	} {
		if next, _, err := RecoverMeta(s.Map, c.r, c.from, 1); next != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// more has d's replica, which votes by what it knows, have more than a's.
func more(r Reports, last, term uint64) {
	r.at("d", func(_ *Report, g *GroupReport) { g.Last, g.LastTerm, g.Voters = last, term, []uint64{2, 3, 4} })
}

// TestRecoverAgain: a group that was made of another one, and whose node is lost before others have what it had, is made again of what another node has kept; of what has most, and of nothing while the new group lives.
func TestRecoverAgain(t *testing.T) {
	first, _, err := Recover(moving(t), lost(), 1, "a", 77)
	if err != nil {
		t.Fatal(err)
	}
	shard := uint16(slices.IndexFunc(first.Map.Replication.Group, func(g uint16) bool { return first.Map.Replication.Groups[g].ID == 3 }))
	keeps := func(node string, last, term uint64) Report {
		return Report{Map: first.Map.Version, Kept: []KeptReport{{Group: 1, Replica: uint64(node[0]-'a') + 1, Shard: shard, Last: last, LastTerm: term, Votes: true}}}
	}
	left := func() Reports { return Reports{"b": keeps("b", 80, 5), "d": keeps("d", 80, 5)} }
	for _, group := range []uint32{1, 3} { // by whichever number the operator knows it
		for _, phase := range []cluster.Phase{cluster.Begins, cluster.Stands} {
			s := first.Clone()
			d := first.Map.Draft()
			d.Group(3).Phase = phase
			if s.Map, err = d.Map(first.Map); err != nil {
				t.Fatal(err)
			}
			next, loss, err := Recover(s, left(), group, "b", 78)
			if err != nil || loss.Made != 4 || loss.Since != 3 || loss.Last != 80 || loss.Replica != 2 || !slices.Equal(loss.Heard, []string{"b", "d"}) || !slices.Equal(loss.Away, []string{"a"}) {
				t.Fatalf("%+v, %v", loss, err)
			}
			after, answer := s.Apply(meta.AppendEntry(nil, next))
			if err := meta.Outcome(answer); err != nil {
				t.Fatal(err)
			}
			if g := after.Map.Draft().Group(4); g == nil || g.Was != 1 || g.Times != 2 || g.Phase != cluster.Begins || len(g.Replicas) != 1 || g.Replicas[0].Node != "b" || after.Map.Draft().Group(3) != nil {
				t.Errorf("%+v", g)
			}
			if err := cluster.CheckChange(moving(t).Map, after.Map); err != nil { // who was away all the time
				t.Error(err)
			}
			if _, again, err := Recover(after, left(), 1, "b", 79); err != nil || again.Made != 4 {
				t.Errorf("again: %+v, %v", again, err)
			}
		}
	}
	for name, c := range map[string]struct {
		from string
		f    func(r Reports)
		want string
	}{
		"the new group leads": {"b", func(r Reports) {
			r["a"] = Report{Groups: []GroupReport{{Group: 3, Replica: 1, Leads: true, Voters: []uint64{1}}}}
		}, "has a leader, so nothing of it is lost"},
		"it answers":       {"b", func(r Reports) { r["a"] = Report{Groups: []GroupReport{{Group: 3, Replica: 1, Voters: []uint64{1}}}} }, "a majority of group 3 answers"},
		"it is being made": {"b", func(r Reports) { r["a"] = keeps("a", 90, 5) }, `node "a" answers, which is to make group 3`},
		"no answer":        {"b", func(r Reports) { delete(r, "b") }, `"b" does not answer`},
		"nothing kept":     {"c", func(r Reports) { r["c"] = Report{} }, `node "c" has kept nothing of it: a have the new one`},
		"of another group": {"b", func(r Reports) { r["b"].Kept[0].Shard = 1 - shard }, "has kept nothing"},
		"of a later group": {"b", func(r Reports) { r["b"].Kept[0].Group = 3 }, "has kept nothing"},
		"of no shard":      {"b", func(r Reports) { r["b"].Kept[0].Shard = 4095 }, "has kept nothing"},
		"it learned":       {"b", func(r Reports) { r["b"].Kept[0].Votes = false }, "without a vote"},
		"another has more": {"b", func(r Reports) { r["d"] = keeps("d", 81, 5) }, `node "d" has kept more, up to entry 81 of term 5`},
		"another is later": {"b", func(r Reports) { r["d"] = keeps("d", 7, 6) }, "recover from d"},
	} {
		r := left()
		c.f(r)
		next, _, err := Recover(first, r, 3, c.from, 78)
		if next != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestPhases: the map says that a new group stands when its leader has published something of its own, and that nothing of the old one has to be kept when three replicas of it vote and show as much.
func TestPhases(t *testing.T) {
	s, _, err := Recover(moving(t), lost(), 1, "a", 77)
	if err != nil {
		t.Fatal(err)
	}
	step := func(want cluster.Phase, r Reports) {
		t.Helper()
		if next := Step(s, r, Limits{}, 80); next != nil {
			after, answer := s.Apply(meta.AppendEntry(nil, next))
			if err := meta.Outcome(answer); err != nil {
				t.Fatal(err)
			}
			s = after
		}
		if g := s.Map.Draft().Group(3); g.Phase != want {
			t.Fatalf("phase %d, want %d", g.Phase, want)
		}
	}
	at := func(replica uint64, leads bool, shown uint64, voters ...uint64) Report {
		return Report{Map: s.Map.Version, Groups: []GroupReport{{Group: 3, Replica: replica, Leads: leads, Term: 2, Config: uint64(len(voters)), Shown: shown, Voters: voters}}}
	}
	step(cluster.Begins, Reports{})
	step(cluster.Begins, Reports{"a": at(1, false, 5, 1)})
	step(cluster.Begins, Reports{"a": at(1, true, 1, 1)}) // it leads, and has published nothing of its own yet
	old := at(1, true, 2, 1)
	old.Map = 1
	step(cluster.Begins, Reports{"a": old})
	// Nothing else comes into it until it stands.
	m := &meta.Move{Group: 3, To: "b", State: meta.Waits}
	if why := Holds(s, s.Map.Draft(), Reports{"a": at(1, true, 2, 1), "b": {}}, Limits{}, m); !strings.Contains(why, "is not made yet") {
		t.Errorf("a move begins: %q", why)
	}
	step(cluster.Stands, Reports{"a": at(1, true, 2, 1)})
	if why := Holds(s, s.Map.Draft(), Reports{"a": at(1, true, 2, 1), "b": {}}, Limits{}, m); strings.Contains(why, "is not made yet") {
		t.Errorf("no move begins: %q", why)
	}
	step(cluster.Stands, Reports{"a": at(1, true, 9, 1)})
	step(cluster.Stands, Reports{"a": at(1, true, 9, 1, 2), "b": at(2, false, 9, 1, 2)})
	step(cluster.Stands, Reports{"a": at(1, true, 9, 1, 2, 3), "b": at(2, false, 9, 1, 2, 3)})
	step(cluster.Stands, Reports{"a": at(1, true, 9, 1, 2, 3), "b": at(2, false, 9, 1, 2, 3), "c": at(3, false, 2, 1, 2, 3)})
	step(cluster.Settled, Reports{"a": at(1, true, 9, 1, 2, 3), "b": at(2, false, 9, 1, 2, 3), "c": at(3, false, 3, 1, 2, 3)})
	step(cluster.Settled, Reports{})
}
