package seat

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// moving is a state in which replica 1 of group 1 moves from a to d, as replica 4; nodes a to c have replicas 1 to 3 of two groups, and d has none.
func moving(t *testing.T) *meta.State {
	t.Helper()
	s := born(t, []Node{named("a", ""), named("b", ""), named("c", "")}, 3, 2)
	d := s.Map.Draft()
	d.Nodes["d"] = cluster.DraftNode{Weight: 1, Store: named("d", "").Store}
	for i := range d.Groups {
		g := &d.Groups[i]
		for j, n := range []string{"a", "b", "c"}[:len(g.Replicas)] {
			g.Replicas[j].Node = n
		}
	}
	d.Group(1).Replica(1).Leaves = true
	d.Group(1).Add("d")
	n := s.Clone()
	var err error
	if n.Map, err = d.Map(s.Map); err != nil {
		t.Fatal(err)
	}
	n.Tasks = []meta.Task{{ID: 1, Kind: meta.Add, Nodes: []string{"d"}, State: meta.Runs, Began: 1, Moves: []meta.Move{
		{Group: 1, From: "a", To: "d", FromID: 1, ToID: 4, State: meta.Moves, Began: 1}, {Group: 2, From: "b", To: "d", State: meta.Waits},
	}}}
	return n
}

// reports are those of a to d, of which group 1 has voters and learners, and who leads it; group 2 is as it was born. All have the map of version 2 in force.
func reports(leader uint64, voters, learns []uint64) Reports {
	r := Reports{}
	for i, node := range []string{"a", "b", "c", "d"} {
		id := uint64(i + 1)
		one := Report{Map: 2, Groups: []GroupReport{{Group: 1, Replica: id, Leads: id == leader, Term: 5, Config: 40, Voters: voters, Learns: learns}}}
		if id < 4 {
			one.Groups = append(one.Groups, GroupReport{Group: 2, Replica: id, Leads: id == 1, Term: 3, Config: 1, Voters: []uint64{1, 2, 3}})
		}
		r[node] = one
	}
	return r
}

// at changes what a node says of group 1.
func (r Reports) at(node string, f func(*Report, *GroupReport)) {
	one := r[node]
	one.Groups = slices.Clone(one.Groups)
	f(&one, &one.Groups[0])
	r[node] = one
}

// TestArrives: a move is over when the group is as it is to be and nobody can change that any more; with one thing broken it is not.
func TestArrives(t *testing.T) {
	all := func() Reports { return reports(2, []uint64{2, 3, 4}, nil) }
	for name, c := range map[string]struct {
		over bool
		f    func(r Reports)
	}{
		"as it is to be":            {true, func(Reports) {}},
		"the old node says nothing": {true, func(r Reports) { delete(r, "a") }},
		"a minority says nothing":   {true, func(r Reports) { delete(r, "d") }},
		"a voter is behind":         {true, func(r Reports) { r.at("c", func(_ *Report, g *GroupReport) { g.Config-- }) }},
		"nobody says anything":      {false, func(r Reports) { clear(r) }},
		"the leader says nothing":   {false, func(r Reports) { delete(r, "b") }},
		"a majority says nothing":   {false, func(r Reports) { delete(r, "c"); delete(r, "d") }},
		"the old one votes":         {false, func(r Reports) { r.at("b", func(_ *Report, g *GroupReport) { g.Voters = []uint64{1, 2, 3, 4} }) }},
		"the old one learns":        {false, func(r Reports) { r.at("b", func(_ *Report, g *GroupReport) { g.Learns = []uint64{1} }) }},
		"the new one learns": {false, func(r Reports) {
			r.at("b", func(_ *Report, g *GroupReport) { g.Voters, g.Learns = []uint64{2, 3}, []uint64{4} })
		}},
		"the leader has an older map": {false, func(r Reports) { r.at("b", func(n *Report, _ *GroupReport) { n.Map = 1 }) }},
		"the others have an older map": {false, func(r Reports) {
			r.at("c", func(n *Report, _ *GroupReport) { n.Map = 1 })
			r.at("d", func(n *Report, _ *GroupReport) { n.Map = 1 })
		}},
		"the others are behind": {false, func(r Reports) {
			r.at("c", func(_ *Report, g *GroupReport) { g.Config-- })
			r.at("d", func(_ *Report, g *GroupReport) { g.Config-- })
		}},
		"the others are in a later term": {false, func(r Reports) {
			r.at("c", func(_ *Report, g *GroupReport) { g.Term++ })
			r.at("d", func(_ *Report, g *GroupReport) { g.Term++ })
		}},
		"the others are in an older term": {false, func(r Reports) {
			r.at("c", func(_ *Report, g *GroupReport) { g.Term-- })
			r.at("d", func(_ *Report, g *GroupReport) { g.Term-- })
		}},
		"the others have it back since": {false, func(r Reports) {
			for _, n := range []string{"c", "d"} {
				r.at(n, func(_ *Report, g *GroupReport) { g.Config++; g.Learns = []uint64{1} })
			}
		}},
		"another one leads in a later one": {false, func(r Reports) { r.at("c", func(_ *Report, g *GroupReport) { g.Leads = true; g.Term++ }) }},
	} {
		s, r := moving(t), all()
		c.f(r)
		n := Step(s, r, Limits{Moves: 1}, 9)
		if over := n != nil && n.Tasks[0].Moves[0].State == meta.Arrived; over != c.over {
			t.Errorf("%s: the move is over: %v", name, over)
			continue
		}
		if !c.over {
			continue
		}
		g := n.Map.Draft().Group(1)
		if g.Replica(1) != nil || g.Replicas[0].ID != 4 || n.Tasks[0].Moves[0].Ended != 9 {
			t.Errorf("%s: %+v, %+v", name, g, n.Tasks[0].Moves[0])
		}
		// The next one begins in the same step, as the limit is one at a time.
		if m := n.Tasks[0].Moves[1]; len(r) == 4 && (m.State != meta.Moves || m.FromID != 2 || m.ToID != 4 || !n.Map.Draft().Group(2).Replica(2).Leaves) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestCanceled: a move of a task that was canceled ends the way that needs no replica that is not there.
func TestCanceled(t *testing.T) {
	for name, c := range map[string]struct {
		voters, learns, away []uint64
		from, to             string
		state                meta.MoveState
		want                 meta.MoveState // after a step; of a group that is as the map says in both ways it is the same one
	}{
		"nothing has happened":           {[]uint64{1, 2, 3}, nil, nil, "a", "d", meta.Moves, meta.Undoes},
		"the new one learns":             {[]uint64{1, 2, 3}, []uint64{4}, nil, "a", "d", meta.Moves, meta.Undoes},
		"both vote":                      {[]uint64{1, 2, 3, 4}, nil, nil, "a", "d", meta.Moves, meta.Undoes},
		"both vote, the new one away":    {[]uint64{1, 2, 3, 4}, nil, []uint64{4}, "a", "d", meta.Moves, meta.Undoes},
		"both vote, the old one away":    {[]uint64{1, 2, 3, 4}, nil, []uint64{1}, "a", "d", meta.Moves, meta.Moves},
		"both vote, the old one goes":    {[]uint64{1, 2, 3, 4}, nil, []uint64{1}, "a", "d", meta.Undoes, meta.Moves},
		"the old one has no vote":        {[]uint64{2, 3, 4}, []uint64{1}, nil, "a", "d", meta.Moves, meta.Moves},
		"the old one is out":             {[]uint64{2, 3, 4}, nil, nil, "a", "d", meta.Moves, meta.Arrived},
		"and the map says that it stays": {[]uint64{2, 3, 4}, nil, nil, "a", "d", meta.Undoes, meta.Moves},
		"it is undone":                   {[]uint64{1, 2, 3}, nil, nil, "a", "d", meta.Undoes, meta.Undone},
		"undone, and the old one away":   {[]uint64{1, 2, 3}, nil, []uint64{1}, "a", "d", meta.Undoes, meta.Undone},
		"one more learns":                {[]uint64{2, 3}, []uint64{4}, nil, "", "d", meta.Moves, meta.Undoes},
		"one more votes":                 {[]uint64{2, 3, 4}, nil, nil, "", "d", meta.Moves, meta.Arrived},
		"one more is gone":               {[]uint64{2, 3}, nil, nil, "", "d", meta.Undoes, meta.Undone},
		"one less votes still":           {[]uint64{1, 2, 3}, nil, nil, "a", "", meta.Moves, meta.Undoes},
		"one less has no vote":           {[]uint64{2, 3}, []uint64{1}, nil, "a", "", meta.Moves, meta.Moves},
		"one less is gone":               {[]uint64{2, 3}, nil, nil, "a", "", meta.Moves, meta.Arrived},
		"one less is back":               {[]uint64{1, 2, 3}, nil, nil, "a", "", meta.Undoes, meta.Undone},
	} {
		s := moving(t)
		d := s.Map.Draft()
		g := d.Group(1)
		task := &s.Tasks[0]
		task.State, task.Moves = meta.Canceling, task.Moves[:1]
		m := &task.Moves[0]
		m.State = c.state
		if m.From = c.from; c.from == "" {
			m.FromID = 0
			g.Take(1, 0)
		}
		if m.To = c.to; c.to == "" {
			m.ToID = 0
			g.Take(4, 0)
		}
		if p := g.Replica(1); p != nil {
			p.Leaves = c.state == meta.Moves
		}
		if p := g.Replica(4); p != nil {
			p.Leaves = c.state == meta.Undoes
		}
		version := s.Map.Version
		m2, err := d.Map(s.Map)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.Map = m2
		r := reports(2, c.voters, c.learns)
		for n := range r {
			r.at(n, func(n *Report, g *GroupReport) {
				if n.Map = s.Map.Version; g.Leads {
					g.Away = c.away
				}
			})
		}
		n := Step(s, r, Limits{}, 9)
		if n == nil {
			if c.want != c.state {
				t.Errorf("%s: nothing is done", name)
			}
			continue
		}
		if err := meta.Outcome(apply(s, n)); err != nil || n.Map.Version < version {
			t.Errorf("%s: %v", name, err)
		}
		got := n.Tasks[0].Moves[0].State
		if got != c.want || (n.Tasks[0].State == meta.Canceled) != (got != meta.Moves && got != meta.Undoes) {
			t.Errorf("%s: the move %s, task %s", name, got, n.Tasks[0].State)
		}
		now := n.Map.Draft().Group(1)
		for id, leaves := range map[uint64]bool{1: got == meta.Moves, 4: got == meta.Undoes} {
			if p := now.Replica(id); p != nil && p.Leaves != leaves {
				t.Errorf("%s: %+v of a move that %s", name, p, got)
			}
		}
		if gone := map[meta.MoveState]uint64{meta.Arrived: 1, meta.Undone: 4}[got]; gone != 0 && now.Replica(gone) != nil {
			t.Errorf("%s: replica %d is there still", name, gone)
		}
	}
}

func apply(s, n *meta.State) []byte {
	_, answer := s.Apply(meta.AppendEntry(nil, n))
	return answer
}

// TestStepKeepsMaps: a step with nothing to do is none, and none is done without what it needs: a leader, a node that answers, room within the limits.
func TestStepKeepsMaps(t *testing.T) {
	s := moving(t)
	busy := reports(1, []uint64{1, 2, 3}, []uint64{4})
	if n := Step(s, busy, Limits{}, 9); n != nil {
		t.Errorf("%+v", n)
	}
	if n := Step(s, nil, Limits{}, 9); n != nil {
		t.Errorf("%+v", n)
	}
	n := Step(s, busy, Limits{In: 2}, 9)
	if n == nil || n.Tasks[0].Moves[1].State != meta.Moves {
		t.Fatalf("%+v", n)
	}
	if err := meta.Outcome(apply(s, n)); err != nil {
		t.Error(err)
	}
	if s.Tasks[0].Moves[1].State != meta.Waits {
		t.Error("the state itself was changed")
	}
	paused := Pause(s, true)
	if n := Step(paused, busy, Limits{In: 2}, 9); n != nil {
		t.Errorf("a move begins while moves are paused: %+v", n)
	}
	if n := Step(paused, reports(2, []uint64{2, 3, 4}, nil), Limits{In: 2}, 9); n == nil || n.Tasks[0].Moves[0].State != meta.Arrived || n.Tasks[0].Moves[1].State != meta.Waits {
		t.Errorf("a move does not end while moves are paused: %+v", n)
	}
}

// TestHolds: why a move does not begin.
func TestHolds(t *testing.T) {
	for want, f := range map[string]func(s *meta.State, r Reports, l *Limits, m *meta.Move){
		"":                                                 func(*meta.State, Reports, *Limits, *meta.Move) {},
		"moves are paused":                                 func(s *meta.State, _ Reports, _ *Limits, _ *meta.Move) { s.Paused = true },
		"another replica of the group moves":               func(_ *meta.State, _ Reports, _ *Limits, m *meta.Move) { m.Group = 1 },
		"1 moves are under way":                            func(_ *meta.State, _ Reports, l *Limits, _ *meta.Move) { l.Moves = 1 },
		"another move into d is under way":                 func(_ *meta.State, _ Reports, l *Limits, _ *meta.Move) { l.In = 1 },
		"another move out of a is under way":               func(_ *meta.State, _ Reports, _ *Limits, m *meta.Move) { m.From = "a" },
		"node e is not in the map any more":                func(_ *meta.State, _ Reports, _ *Limits, m *meta.Move) { m.To = "e" },
		"node d does not answer":                           func(_ *meta.State, r Reports, _ *Limits, _ *meta.Move) { delete(r, "d") },
		"the map has no such group":                        func(_ *meta.State, _ Reports, _ *Limits, m *meta.Move) { m.Group = 9 },
		"group 2 has no leader":                            func(_ *meta.State, r Reports, _ *Limits, _ *meta.Move) { r["a"].Groups[1].Leads = false },
		"a voter of group 2 is away, at node c":            func(_ *meta.State, r Reports, _ *Limits, _ *meta.Move) { r["a"].Groups[1].Away = []uint64{2, 3} },
		"replica 3 of group 2, at node c, has no vote yet": func(_ *meta.State, r Reports, _ *Limits, _ *meta.Move) { r["a"].Groups[1].Voters = []uint64{1, 2} },
		"node c has a replica of the group":                func(_ *meta.State, _ Reports, _ *Limits, m *meta.Move) { m.To = "c" },
	} {
		s, r, l := moving(t), reports(1, []uint64{1, 2, 3}, nil), Limits{In: 2}
		m := s.Tasks[0].Moves[1]
		f(s, r, &l, &m)
		if got := Holds(s, s.Map.Draft(), r, l, &m); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	s, r := moving(t), reports(1, []uint64{1, 2, 3}, nil)
	r["a"].Groups[1].Away = []uint64{2}
	if got := Holds(s, s.Map.Draft(), r, Limits{In: 2}, &s.Tasks[0].Moves[1]); got != "" {
		t.Errorf("the one that leaves is away: %q", got)
	}
}

// TestStepEnds: nodes leave the map with the task that takes them out, and not if it was canceled; one that has a replica still stays; who leads is evened out.
func TestStepEnds(t *testing.T) {
	for name, c := range map[string]struct {
		task meta.Task
		gone string
	}{
		"remove":           {meta.Task{Kind: meta.Remove, Nodes: []string{"d"}, State: meta.Runs}, "d"},
		"replace":          {meta.Task{Kind: meta.Replace, Nodes: []string{"d", "a"}, State: meta.Runs}, "d"},
		"replace by it":    {meta.Task{Kind: meta.Replace, Nodes: []string{"a", "d"}, State: meta.Runs}, ""},
		"add":              {meta.Task{Kind: meta.Add, Nodes: []string{"d"}, State: meta.Runs}, ""},
		"canceled":         {meta.Task{Kind: meta.Remove, Nodes: []string{"d"}, State: meta.Canceling}, ""},
		"one has replicas": {meta.Task{Kind: meta.Remove, Nodes: []string{"a"}, State: meta.Runs}, ""},
	} {
		s := moving(t)
		d := s.Map.Draft()
		d.Group(1).Replica(1).Leaves = false
		d.Group(1).Take(4, 0)
		m, err := d.Map(s.Map)
		if err != nil {
			t.Fatal(err)
		}
		c.task.ID, c.task.Moves = 1, []meta.Move{}
		s.Map, s.Tasks = m, []meta.Task{c.task}
		n := Step(s, nil, Limits{}, 9)
		if n == nil || !n.Tasks[0].Over() || n.Tasks[0].Ended != 9 || (n.Tasks[0].State == meta.Canceled) != (name == "canceled") {
			t.Errorf("%s: %+v", name, n)
			continue
		}
		for _, node := range []string{"a", "b", "c", "d"} {
			if n.Map.Has(node) != (node != c.gone) {
				t.Errorf("%s: %s is in the map: %v", name, node, n.Map.Has(node))
			}
		}
		// Both groups were led by a.
		if g := n.Map.Draft().Groups; g[1].Replicas[0].Node == g[2].Replicas[0].Node {
			t.Errorf("%s: node %s leads both groups", name, g[1].Replicas[0].Node)
		}
		if Step(n, nil, Limits{}, 10) != nil {
			t.Errorf("%s: there is something to do still", name)
		}
	}
	if _, err := Cancel(moving(t), 3, 9); !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
}
