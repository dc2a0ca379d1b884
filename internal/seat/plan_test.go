package seat

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// named is a node in a zone, with a store of its own.
func named(id, zone string) Node {
	n := Node{ID: id, Weight: 1, Zone: zone}
	copy(n.Store[:], "s"+id)
	return n
}

// born is the state of a new cluster of nodes, with so many replicas of so many groups.
func born(t fataler, nodes []Node, replicas, groups int) *meta.State {
	want := cluster.Want{Replicas: replicas, Groups: groups}
	var list []cluster.MapNode
	for _, n := range nodes {
		list = append(list, cluster.MapNode{ID: n.ID, Weight: n.Weight})
		want.Stores, want.Zones = append(want.Stores, n.Store), append(want.Zones, n.Zone)
	}
	m, err := cluster.ProposeReplicas([16]byte{1}, "c", max(16, groups), list, want)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return meta.Begin(m)
}

// A fataler is a test of package testing, or of rapid.
type fataler interface{ Fatalf(string, ...any) }

// five are a to e in two zones, with three replicas of four groups.
func five(t fataler) *meta.State {
	return born(t, []Node{named("a", "x"), named("b", "y"), named("c", "x"), named("d", "y"), named("e", "x")}, 3, 4)
}

// play has a task's moves arrive one after the other, in any order that holds, and returns the state at the end.
func play(t fataler, s *meta.State) *meta.State {
	for range 10 * meta.MaxMoves {
		reports := Reports{}
		d := s.Map.Draft()
		for _, g := range d.Groups {
			var voters []uint64
			for _, p := range g.Replicas {
				if !p.Leaves {
					voters = append(voters, p.ID)
				}
			}
			for i, p := range g.Replicas {
				r := reports[p.Node]
				r.Map = s.Map.Version
				r.Groups = append(r.Groups, GroupReport{Group: g.ID, Replica: p.ID, Leads: i == 0, Term: 1, Config: s.Map.Version, Voters: voters})
				reports[p.Node] = r
			}
		}
		for n := range d.Nodes {
			if _, ok := reports[n]; !ok {
				reports[n] = Report{Map: s.Map.Version}
			}
		}
		next := Step(s, reports, Limits{Moves: 5, In: 3, Out: 3}, int64(s.Version))
		if next == nil {
			break
		}
		now, answer := s.Apply(meta.AppendEntry(nil, next))
		if err := meta.Outcome(answer); err != nil {
			t.Fatalf("%v", err)
		}
		s = now
	}
	for i := range s.Tasks {
		if !s.Tasks[i].Over() {
			t.Fatalf("task %+v is not over", s.Tasks[i])
		}
	}
	return s
}

// planned is a plan that is carried out.
func planned(t fataler, s *meta.State, r Request) (*meta.State, *meta.Task) {
	next, task, err := Plan(s, r, 7)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	if next == s { // it was done before
		if task.State != meta.Done {
			t.Fatalf("%+v: nothing is to be done, and %+v is not done", r, task)
		}
		return s, task
	}
	d := s.Map.Draft()
	groups := map[string]bool{}
	for _, m := range task.Moves {
		if m.From == m.To || m.State != meta.Waits || m.FromID != 0 || m.ToID != 0 {
			t.Fatalf("%+v is no move that waits", m)
		}
		for _, key := range []string{fmt.Sprint(m.Group, " from ", m.From), fmt.Sprint(m.Group, " to ", m.To)} {
			if groups[key] && !strings.HasSuffix(key, " ") {
				t.Fatalf("two moves of group %s: %+v", key, task.Moves)
			}
			groups[key] = true
		}
		if m.From != "" && d.Group(m.Group).At(m.From) == nil {
			t.Fatalf("%+v moves a replica that is not there", m)
		}
	}
	now, answer := s.Apply(meta.AppendEntry(nil, next))
	if err := meta.Outcome(answer); err != nil {
		t.Fatalf("%v", err)
	}
	return play(t, now), task
}

// has counts the replicas of groups with shards, by node.
func has(s *meta.State) map[string]int {
	n := map[string]int{}
	d := s.Map.Draft()
	for id := range d.Nodes {
		n[id] = 0
	}
	for _, g := range d.Groups[1:] {
		for _, p := range g.Replicas {
			n[p.Node]++
		}
	}
	return n
}

// TestPlan: what each kind of task comes to.
func TestPlan(t *testing.T) {
	f := named("f", "y")
	for _, c := range []struct {
		name   string
		r      Request
		nodes  string // at the end
		has    string // replicas by node, rising
		voters int    // of each group
		meta   int
		least  int // moves
		most   int
	}{
		{"add one", Request{Kind: meta.Add, Nodes: []Node{f}}, "abcdef", "[2 2 2 2 2 2]", 3, 5, 2, 3},
		{"add two", Request{Kind: meta.Add, Nodes: []Node{f, named("g", "x")}}, "abcdefg", "[1 1 2 2 2 2 2]", 3, 5, 2, 2},
		{"add a zone", Request{Kind: meta.Add, Nodes: []Node{f, named("g", "z")}}, "abcdefg", "[1 1 1 1 2 2 4]", 3, 5, 6, 9}, // zones come before shares
		{"remove one", Request{Kind: meta.Remove, Nodes: []Node{{ID: "a"}}}, "bcde", "[3 3 3 3]", 3, 3, 3, 6},
		{"remove two", Request{Kind: meta.Remove, Nodes: []Node{{ID: "a"}, {ID: "d"}}}, "bce", "[4 4 4]", 3, 3, 5, 8},
		{"replace", Request{Kind: meta.Replace, Old: "b", Nodes: []Node{f}}, "acdef", "[2 2 2 3 3]", 3, 5, 3, 4},
		{"rebalance", Request{Kind: meta.Rebalance}, "abcde", "[2 2 2 3 3]", 3, 5, 0, 0},
		{"fewer replicas", Request{Kind: meta.Replicas, Replicas: 1}, "abcde", "[0 1 1 1 1]", 1, 5, 8, 8},
		{"as many replicas", Request{Kind: meta.Replicas, Replicas: 3}, "abcde", "[2 2 2 3 3]", 3, 5, 0, 0},
		{"more replicas", Request{Kind: meta.Replicas, Replicas: 5}, "abcde", "[4 4 4 4 4]", 5, 5, 8, 8},
	} {
		s, task := planned(t, five(t), c.r)
		var nodes string
		for _, n := range s.Map.Nodes {
			nodes += n.ID
		}
		if got := fmt.Sprint(slices.Sorted(maps.Values(has(s)))); nodes != c.nodes || got != c.has {
			t.Errorf("%s: nodes %s with %s", c.name, nodes, got)
		}
		for i, g := range s.Map.Draft().Groups {
			if want := map[bool]int{true: c.meta, false: c.voters}[i == 0]; len(g.Replicas) != want {
				t.Errorf("%s: group %d has %d replicas", c.name, g.ID, len(g.Replicas))
			}
		}
		if n := len(task.Moves); n < c.least || n > c.most {
			t.Errorf("%s: %d moves: %+v", c.name, n, task.Moves)
		}
	}
}

// TestPlanRefuses: what makes no sense is refused, and says what would.
func TestPlanRefuses(t *testing.T) {
	foreign := named("a", "x")
	foreign.Store[0]++
	none := named("f", "x")
	none.Store = [16]byte{}
	heavy := named("f", "x")
	heavy.Weight = cluster.MaxWeight + 1
	taken := named("f", "x")
	taken.Store = named("a", "x").Store
	other, moved := named("a", "x"), named("a", "y")
	other.Weight = 2
	many := func(list ...string) (nodes []Node) {
		for _, n := range list {
			nodes = append(nodes, named(n, "x"))
		}
		return nodes
	}
	for want, r := range map[string]Request{
		"is no kind of task":                      {Kind: "grow"},
		"adding names the nodes that come":        {Kind: meta.Add},
		"removing names the nodes that go":        {Kind: meta.Remove, Nodes: many("a"), Replicas: 3},
		"node id \"F\"":                           {Kind: meta.Add, Nodes: many("F")},
		"named twice":                             {Kind: meta.Add, Nodes: many("f", "g", "f")},
		"with another data directory":             {Kind: meta.Add, Nodes: []Node{foreign}},
		"has no store":                            {Kind: meta.Add, Nodes: []Node{none}},
		"has weight":                              {Kind: meta.Add, Nodes: []Node{heavy}},
		"no store of its own":                     {Kind: meta.Add, Nodes: []Node{taken}},
		"zone \"a b\"":                            {Kind: meta.Add, Nodes: []Node{named("f", "a b")}},
		"\"f\" is not in the cluster: a, b, c":    {Kind: meta.Remove, Nodes: many("f")},
		"and 2 nodes would be left":               {Kind: meta.Remove, Nodes: many("a", "b", "c")},
		"no node would be left":                   {Kind: meta.Remove, Nodes: many("a", "b", "c", "d", "e")},
		"the one that takes its place are needed": {Kind: meta.Replace, Old: "a"},
		"takes its place are needed":              {Kind: meta.Replace, Old: "a", Nodes: many("f", "g")},
		"node \"f\" is not in the cluster":        {Kind: meta.Replace, Old: "f", Nodes: many("g")},
		"cannot take its own place":               {Kind: meta.Replace, Old: "a", Nodes: many("a")},
		"rebalance names no nodes":                {Kind: meta.Rebalance, Nodes: many("a")},
		"2 replicas: 1, 3, 5 or 7 are possible":   {Kind: meta.Replicas, Replicas: 2},
		"9 replicas: 1, 3, 5 or 7 are possible":   {Kind: meta.Replicas, Replicas: 9},
		"7 replicas on 5 nodes":                   {Kind: meta.Replicas, Replicas: 7},
		"the number of replicas names no nodes":   {Kind: meta.Replicas, Replicas: 3, Nodes: many("a")},
		"in the cluster with weight 1":            {Kind: meta.Add, Nodes: []Node{named("f", "x"), other}},
		"in the cluster in zone \"x\"":            {Kind: meta.Add, Nodes: []Node{moved}},
		"node \"c\" is in the cluster in zone":    {Kind: meta.Replace, Old: "b", Nodes: []Node{named("c", "y")}},
	} {
		s := five(t)
		if next, task, err := Plan(s, r, 7); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), want) || next != nil || task != nil {
			t.Errorf("want %q, got %v, %+v", want, err, task)
		}
	}
	three := born(t, []Node{named("a", ""), named("b", ""), named("c", ""), named("d", "")}, 3, 4)
	full := born(t, []Node{named("a", ""), named("b", ""), named("c", "")}, 3, 4)
	if _, _, err := Plan(full, Request{Kind: meta.Replace, Old: "a", Nodes: []Node{named("b", "")}}, 7); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "nothing can take that of a") {
		t.Errorf("%v", err)
	}
	if s, _ := planned(t, three, Request{Kind: meta.Replace, Old: "a", Nodes: []Node{named("b", "")}}); s.Map.Has("a") || has(s)["b"] != 4 {
		t.Errorf("a node that is there takes the place of another: %v", has(s))
	}
	// A command that is given again once it is done is told from a wrong name.
	gone, task := planned(t, three, Request{Kind: meta.Remove, Nodes: []Node{named("d", "")}})
	if !gone.Task(task.ID).Over() {
		t.Fatalf("%+v", gone.Tasks)
	}
	for _, again := range []Request{{Kind: meta.Remove, Nodes: []Node{named("d", "")}}, {Kind: meta.Replace, Old: "d", Nodes: []Node{named("e", "")}}} {
		if _, _, err := Plan(gone, again, 9); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "not in the cluster any more: task 1 (remove d) has taken it out") {
			t.Errorf("%v", err)
		}
	}
	fixed := *full.Map
	r := *fixed.Replication
	r.Meta, fixed.Replication = nil, &r
	if _, _, err := Plan(&meta.State{Version: 1, Map: &fixed}, Request{Kind: meta.Rebalance}, 7); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "no meta group") {
		t.Errorf("%v", err)
	}
}

// TestPlanAgain: the same request again comes to the task that runs, another one waits for its end, also if it is being canceled.
func TestPlanAgain(t *testing.T) {
	r := Request{Kind: meta.Replace, Old: "a", Nodes: []Node{named("f", "x")}}
	s, task, err := Plan(five(t), r, 7)
	if err != nil || task.ID != 1 || task.Began != 7 || !slices.Equal(task.Nodes, []string{"a", "f"}) || !s.Map.Has("f") || s.Map.Version != 2 {
		t.Fatalf("%v: %+v", err, task)
	}
	if again, same, err := Plan(s, r, 9); err != nil || again != s || !reflect.DeepEqual(same, task) {
		t.Errorf("%v: %+v", err, same)
	}
	for _, other := range []Request{
		{Kind: meta.Rebalance}, {Kind: meta.Replace, Old: "b", Nodes: r.Nodes}, {Kind: meta.Replace, Old: "a", Nodes: []Node{named("g", "x")}},
		{Kind: meta.Remove, Nodes: []Node{{ID: "a"}}}, {Kind: meta.Add, Nodes: []Node{{ID: "a", Store: named("a", "x").Store}}}, {Kind: meta.Replicas, Replicas: 5},
	} {
		if _, _, err := Plan(s, other, 9); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "task 1 (replace a by f)") || !strings.Contains(err.Error(), "cancel it first (kvclient cluster cancel 1)") {
			t.Errorf("%+v: %v", other, err)
		}
	}
	c, err := Cancel(s, 1, 9)
	if err != nil || c.Task(1).State != meta.Canceling {
		t.Fatalf("%v: %+v", err, c)
	}
	if _, _, err := Plan(c, r, 9); !errors.Is(err, ErrBusy) {
		t.Errorf("while it is canceled: %v", err)
	}
	if again, err := Cancel(c, 1, 9); again != nil || err != nil {
		t.Errorf("canceled twice: %v, %v", again, err)
	}
	if _, err := Cancel(c, 2, 9); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "there is no task 2") {
		t.Errorf("%v", err)
	}
	over := play(t, c)
	if over.Task(1).State != meta.Canceled || !over.Map.Has("a") || slices.ContainsFunc(over.Task(1).Moves, func(m meta.Move) bool { return m.State != meta.Dropped }) {
		t.Errorf("%+v", over.Task(1))
	}
	if p := Pause(over, true); !p.Paused || Pause(p, true) != nil || Pause(p, false).Paused {
		t.Errorf("%+v", p)
	}
}

// TestPlanAddAgain: to add nodes that are in comes to the task that has added them, and is refused if none has; if something has to move, it is a task of its own.
func TestPlanAddAgain(t *testing.T) {
	add := func(ids ...string) (r Request) {
		r.Kind = meta.Add
		for _, id := range ids {
			r.Nodes = append(r.Nodes, named(id, "x"))
		}
		return r
	}
	born := five(t)
	for ids, text := range map[string]string{"c": `node "c" is in the cluster already`, "a c": "nodes a, c are each in the cluster already"} {
		if next, task, err := Plan(born, add(strings.Fields(ids)...), 7); next != nil || task != nil || !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", ids, task, err)
		}
	}
	s, _ := planned(t, born, add("f"))
	next, task, err := Plan(s, add("f"), 9)
	if err != nil || next != s || task.ID != 1 || task.State != meta.Done {
		t.Errorf("again: %+v, %v", task, err)
	}
	if _, _, err := Plan(s, add("f", "a"), 9); !errors.Is(err, ErrRequest) {
		t.Errorf("with one that was there before: %v", err)
	}
	odd := s.Clone()
	d := s.Map.Draft()
	for i := range d.Groups[1:] { // f loses all that it has
		g := &d.Groups[1+i]
		if p := g.At("f"); p != nil {
			id := p.ID
			for n := range d.Nodes {
				if g.At(n) == nil {
					g.Add(n)
					break
				}
			}
			g.Take(id, 0)
		}
	}
	if odd.Map, err = d.Map(s.Map); err != nil {
		t.Fatal(err)
	}
	if next, task, err := Plan(odd, add("f"), 9); err != nil || next == odd || len(task.Moves) == 0 || task.ID != 2 {
		t.Errorf("without its share: %+v, %v", task, err)
	}
}

// TestDescribe: a task in words.
func TestDescribe(t *testing.T) {
	for want, task := range map[string]meta.Task{
		"add a b":        {Kind: meta.Add, Nodes: []string{"a", "b"}},
		"remove a":       {Kind: meta.Remove, Nodes: []string{"a"}},
		"replace a by b": {Kind: meta.Replace, Nodes: []string{"a", "b"}},
		"replace a":      {Kind: meta.Replace, Nodes: []string{"a"}},
		"5 replicas":     {Kind: meta.Replicas, Replicas: 5},
		"rebalance":      {Kind: meta.Rebalance},
	} {
		if got := Describe(&task); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
