package seat

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// A whole cluster as a model: groups (raft_test.go), nodes that die and come back, maps that reach them late, reports that are old or missing, seats that were deposed,
// and an operator who asks for anything at any time. What must hold is compared at every step; when all is well again, everything must come to an end.

// A host is a node of the model.
type host struct {
	alive bool
	m     *cluster.Map // in force; nil: it has none yet
	d     *cluster.Draft
}

// A world is a cluster of the model.
type world struct {
	t       *testing.T
	seed    uint64
	rand    *rand.Rand
	names   []string
	cut     map[string]bool // nodes that the seat does not reach now, though others do
	hosts   map[string]*host
	groups  []*raft
	s       *meta.State   // what the meta group has agreed on
	past    []*meta.State // every state before it
	reports Reports
	limits  Limits
	now     int64
	gaveUp  map[string]bool // "group/replica"
	sizes   []int           // how many replicas the operator may ask for
	victim  string          // a node that never comes back once it has died; "": all do
	spaces  bool            // the operator makes and drops spaces
	steps   int
	trace   []string
}

func (w *world) fault(format string, args ...any) {
	w.t.Helper()
	text := fmt.Sprintf(format, args...)
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		text += "\n" + line
	}
	for _, r := range w.groups {
		text += "\n" + r.String()
	}
	w.t.Fatalf("seed %d, step %d: %s\n%s", w.seed, w.steps, text, shown(w.s))
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d: ", w.steps)+fmt.Sprintf(format, args...))
}

// shown is a state as text.
func shown(s *meta.State) string {
	text := fmt.Sprintf("state %d, map %d, paused %v\n", s.Version, s.Map.Version, s.Paused)
	for _, g := range every(s.Map.Draft()) {
		text += fmt.Sprintf("  group %d: %+v\n", g.ID, g.Replicas)
	}
	for _, t := range s.Tasks[max(0, len(s.Tasks)-2):] {
		text += fmt.Sprintf("  task %+v\n", t)
	}
	return text
}

func newWorld(t *testing.T, seed uint64, victim bool) *world {
	w := &world{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), hosts: map[string]*host{}, reports: Reports{}, gaveUp: map[string]bool{}, sizes: []int{1, 3, 5}}
	replicas := []int{1, 3, 3, 5}[w.rand.IntN(4)]
	first := replicas + w.rand.IntN(3)
	if victim {
		replicas, first, w.sizes = 3, 3+w.rand.IntN(3), []int{3, 5}
		w.victim = fmt.Sprint("n", 1+w.rand.IntN(first))
	}
	w.limits = Limits{Moves: 1 + w.rand.IntN(3), In: 1 + w.rand.IntN(2), Out: 1 + w.rand.IntN(2)}
	var nodes []cluster.MapNode
	want := cluster.Want{Replicas: replicas, Groups: max(1, w.rand.IntN(8)-3)} // mostly one, of which then more becomes
	for i := range first + 2 {
		name := fmt.Sprint("n", i+1)
		w.names = append(w.names, name)
		w.hosts[name] = &host{alive: true}
		if i < first {
			nodes = append(nodes, cluster.MapNode{ID: name})
			want.Stores, want.Zones = append(want.Stores, w.node(name).Store), append(want.Zones, w.node(name).Zone)
		}
	}
	m, err := cluster.ProposeReplicas([16]byte{1}, "c", 8, nodes, want)
	if err != nil {
		t.Fatal(err)
	}
	w.s = meta.Begin(m)
	for _, g := range m.Draft().Groups {
		r := &raft{id: g.ID, rand: w.rand, members: map[consensus.ReplicaID]*member{}, alive: func(n string) bool { return w.hosts[n].alive }, fault: w.fault}
		c := consensus.Config{}
		for _, p := range g.Replicas {
			c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(p.ID), Node: p.Node})
		}
		begin := []entry{{config: &c}}
		for _, v := range c.Voters {
			one := &member{id: v.ID, node: v.Node, log: begin}
			one.publish(1)
			r.members[v.ID], r.config, r.committed = one, one.config, 1
		}
		w.groups = append(w.groups, r)
	}
	for _, n := range nodes {
		w.deliver(n.ID, m)
	}
	return w
}

// node is a node as a request names it.
func (w *world) node(name string) Node {
	i := slices.Index(w.names, name)
	return Node{ID: name, Weight: 1, Store: [16]byte{byte(i + 1)}, Zone: fmt.Sprint("z", i%3)}
}

// deliver brings a map to a node, which makes the replicas that it is to have, and gives up those that the map has not any more.
func (w *world) deliver(name string, m *cluster.Map) {
	h := w.hosts[name]
	if !h.alive || h.m != nil && h.m.Version > m.Version {
		return
	}
	if err := cluster.CheckChange(h.m, m); h.m != nil && err != nil {
		w.fault("node %s refuses map %d behind map %d: %v", name, m.Version, h.m.Version, err)
	}
	h.m, h.d = m, m.Draft()
	w.meet(h.d)
	for _, r := range w.groups {
		g := h.d.Group(r.id)
		var p *cluster.DraftReplica // nil, too: the space was dropped that the group is of
		if g != nil {
			p = g.At(name)
		}
		for _, one := range r.sorted() {
			if one.node == name && (p == nil || uint64(one.id) != p.ID) {
				delete(r.members, one.id)
				w.gaveUp[fmt.Sprint(r.id, "/", one.id)] = true
				if g != nil && r.config.Voter(one.id) {
					w.fault("replica %d of group %d is given up at %s by map %d, and votes", one.id, r.id, name, m.Version)
				}
			}
			// It has asked which map is the newest since it leads: see Next.
			one.fresh = one.fresh || one.node == name && m.Version == w.s.Map.Version
		}
		if p == nil || r.members[consensus.ReplicaID(p.ID)] != nil {
			continue
		}
		if w.gaveUp[fmt.Sprint(r.id, "/", p.ID)] {
			w.fault("replica %d of group %d is made at %s, and was given up before", p.ID, r.id, name)
		}
		one := &member{id: consensus.ReplicaID(p.ID), node: name}
		r.members[one.id] = one
		if r.space && founds(g, p.ID) {
			if r.committed > 0 {
				w.fault("group %d begins a second time, at %s", r.id, name)
			}
			one.log = []entry{{config: &consensus.Config{Voters: []consensus.Member{{ID: one.id, Node: name}}}}}
			one.publish(1)
			r.config, r.committed = one.config, 1
		}
	}
}

// founds is cluster.Group.Founds.
func founds(g *cluster.DraftGroup, replica uint64) bool {
	return (&cluster.Group{ID: g.ID, Was: g.Was}).Founds(replica)
}

// meet notes groups of spaces that a map has.
func (w *world) meet(d *cluster.Draft) {
	for _, g := range every(d)[len(d.Groups):] {
		if w.group(g.ID) == nil {
			w.groups = append(w.groups, &raft{id: g.ID, rand: w.rand, members: map[consensus.ReplicaID]*member{}, alive: func(n string) bool { return w.hosts[n].alive }, fault: w.fault, space: true})
		}
	}
}

// group is the group of an id; nil: no node has heard of it.
func (w *world) group(id uint32) *raft {
	if i := slices.IndexFunc(w.groups, func(r *raft) bool { return r.id == id }); i >= 0 {
		return w.groups[i]
	}
	return nil
}

// report notes what a node says now.
func (w *world) report(name string) {
	h := w.hosts[name]
	if !h.alive || h.m == nil {
		delete(w.reports, name)
		return
	}
	report := Report{Map: h.m.Version}
	for _, r := range w.groups {
		g := h.d.Group(r.id)
		if g == nil {
			continue
		}
		p := g.At(name)
		if p == nil {
			continue
		}
		one := r.members[consensus.ReplicaID(p.ID)]
		st := one.status(r.id)
		says := GroupReport{Group: r.id, Replica: p.ID, Leads: one.leads, Term: one.term, Config: one.config.Index, Last: st.Last, Away: Away(st)}
		for _, v := range one.config.Voters {
			says.Voters = append(says.Voters, uint64(v.ID))
		}
		for _, v := range one.config.Learners {
			says.Learns = append(says.Learns, uint64(v.ID))
		}
		report.Groups = append(report.Groups, says)
	}
	w.reports[name] = report
}

// lead has the leader of a group do its next step.
func (w *world) lead(r *raft, l *member) {
	h := w.hosts[l.node]
	if !l.leads || !l.fresh || !h.alive || h.m == nil {
		return
	}
	g := h.d.Group(r.id)
	if g == nil {
		return
	}
	do := Next(g, l.status(r.id), func(id consensus.ReplicaID) bool { return l.heard[id] && l.match[id] >= len(l.log)-1 })
	if do.Act == Nothing || do.Act != Transfer && l.changing() {
		return
	}
	away := false // that stays
	for _, v := range l.config.Voters {
		p := g.Replica(uint64(v.ID))
		away = away || v.ID != l.id && p != nil && !p.Leaves && !l.heard[v.ID]
	}
	if away && (do.Act == Promote && do.Config.Majority() > l.config.Majority() || do.Act == Demote && l.spare(&do.Config) < 0) {
		w.fault("group %d: %v %d, and a replica that stays is away", r.id, do.Act, do.Replica)
	}
	w.note("group %d: %d at %s (map %d): %v %d", r.id, l.id, l.node, h.m.Version, do.Act, do.Replica)
	r.obey(l, do)
}

// agree has the meta group take a state, if it has a majority, and holds that state to what must be.
func (w *world) agree(next *meta.State, err error, from *meta.State) {
	l := w.groups[0].leader()
	switch {
	case err != nil && !errors.Is(err, ErrRequest) && !errors.Is(err, ErrBusy):
		w.fault("%v", err)
	case err != nil || next == nil || next == from || l == nil || !l.leads:
		return
	}
	now, err := w.apply(next)
	switch {
	case from.Version != w.s.Version:
		if err == nil || now != w.s {
			w.fault("a state that was worked out from version %d was taken at version %d", from.Version, w.s.Version)
		}
		return
	case err != nil:
		w.fault("the meta group refuses a state: %v", err)
	}
	was := w.s
	w.meet(now.Map.Draft())
	w.past, w.s = append(w.past, was), now
	w.held(was)
}

// apply has the meta group take a state, or not. It asks no level, where there are spaces, because none allows them yet.
func (w *world) apply(next *meta.State) (*meta.State, error) {
	if !w.spaces {
		now, answer := w.s.Apply(meta.AppendEntry(nil, next))
		return now, meta.Outcome(answer)
	}
	now, err := meta.Parse(next.Encode())
	if err == nil {
		err = w.s.Follows(now)
	}
	if err != nil {
		return w.s, err
	}
	return now, nil
}

// held compares a state with the one before.
func (w *world) held(was *meta.State) {
	in, out, all := map[string]int{}, map[string]int{}, 0
	group := map[uint32]bool{}
	for i := range w.s.Tasks {
		for _, m := range w.s.Tasks[i].Moves {
			if !m.Running() {
				continue
			}
			if group[m.Group] {
				w.fault("two moves of group %d at once", m.Group)
			}
			group[m.Group] = true
			all++
			in[m.To]++
			out[m.From]++
			if m.To != "" && in[m.To] > w.limits.In || m.From != "" && out[m.From] > w.limits.Out || all > w.limits.Moves {
				w.fault("more moves than %+v allow", w.limits)
			}
		}
	}
	before, after := was.Map.Draft(), w.s.Map.Draft()
	for _, g := range every(before) {
		r, is := w.group(g.ID), after.Group(g.ID)
		if is == nil && r.space {
			r.dropped = true
			continue
		}
		for _, p := range g.Replicas {
			if is.Replica(p.ID) != nil {
				continue
			}
			w.note("map %d: group %d has not replica %d at %s any more", w.s.Map.Version, g.ID, p.ID, p.Node)
			know := 0
			for _, v := range r.config.Voters {
				if m := r.members[v.ID]; m != nil && m.config.Index > 0 && !m.config.Voter(consensus.ReplicaID(p.ID)) {
					know++
				}
			}
			if r.config.Voter(consensus.ReplicaID(p.ID)) || know < r.config.Majority() {
				w.fault("replica %d of group %d is out of the map, and %d of %d voters know that it has no vote", p.ID, g.ID, know, len(r.config.Voters))
			}
		}
	}
}

// seat has a seat do a step: that of now, or one that was deposed and does not know it.
func (w *world) seat(do func(*meta.State) (*meta.State, error)) {
	from := w.s
	if len(w.past) > 0 && w.rand.IntN(8) == 0 {
		from = w.past[max(0, len(w.past)-1-w.rand.IntN(4))]
	}
	next, err := do(from)
	w.agree(next, err, from)
}

func (w *world) step(s *meta.State) (*meta.State, error) {
	w.now++
	return Step(s, w.reports, w.limits, w.now), nil
}

func (w *world) any() string { return w.names[w.rand.IntN(len(w.names))] }

// request is what an operator asks for.
func (w *world) request(s *meta.State) (*meta.State, error) {
	if w.spaces && w.rand.IntN(3) == 0 {
		name := []string{"blue", "red"}[w.rand.IntN(2)]
		is := s.Map.Replication.Space(name)
		switch w.note("space %s: is there %v", name, is != nil); {
		case is == nil:
			return CreateSpace(s, name, 1+w.rand.IntN(2), 0)
		case w.rand.IntN(3) == 0:
			return DropSpace(s, name, is.ID)
		}
		return s, nil
	}
	r := Request{}
	switch k := w.rand.IntN(20); {
	case k < 4:
		r = Request{Kind: meta.Add, Nodes: []Node{w.node(w.any())}}
	case k < 8:
		r = Request{Kind: meta.Remove, Nodes: []Node{{ID: w.any()}}}
	case k < 11:
		r = Request{Kind: meta.Replace, Old: w.any(), Nodes: []Node{w.node(w.any())}}
		for _, n := range w.names {
			if !w.hosts[n].alive && s.Map.Has(n) {
				r.Old = n
			}
		}
	case k < 12:
		r = Request{Kind: meta.Rebalance}
	case k < 14:
		r = Request{Kind: meta.Replicas, Replicas: w.sizes[w.rand.IntN(len(w.sizes))]}
	case k < 18:
		next, err := Cancel(s, max(1, s.NextTask()-1), w.now)
		w.note("cancel")
		return next, err
	default:
		return Pause(s, w.rand.IntN(3) == 0), nil
	}
	next, task, err := Plan(s, r, w.now)
	if err == nil {
		w.note("task %d: %s, %d moves", task.ID, Describe(task), len(task.Moves))
	}
	return next, err
}

// chaos does one thing that can happen.
func (w *world) chaos() {
	r := w.groups[w.rand.IntN(len(w.groups))]
	list := r.sorted()
	if len(list) == 0 { // of a space that was dropped, or that no node has heard of
		return
	}
	m := list[w.rand.IntN(len(list))]
	name := w.any()
	if l := r.leader(); l != nil && w.rand.IntN(2) == 0 {
		m = l
	}
	if w.rand.IntN(150) == 0 {
		w.cut = map[string]bool{}
		for _, n := range w.names {
			w.cut[n] = w.rand.IntN(3) == 0
		}
	}
	switch k := w.rand.IntN(100); {
	case k < 2:
		w.seat(w.request)
	case k < 3:
		w.hosts[name].alive = false
		w.note("%s dies", name)
	case k < 8:
		if name != w.victim {
			w.hosts[name].alive = true
		}
	case k < 12:
		if r.elect(m, false) {
			w.note("group %d: %d leads", r.id, m.id)
		}
	case k < 26: // any version that it might hear of
		if h := w.hosts[name]; w.cut[name] {
			break
		} else if h.m == nil || w.rand.IntN(2) == 0 {
			w.deliver(name, w.s.Map)
		} else if n := w.s.Map.Version - h.m.Version; n > 0 {
			w.deliver(name, w.mapOf(h.m.Version+1+w.rand.Uint64N(n)))
		}
	case k < 50:
		if !w.cut[name] {
			w.report(name)
		}
	case k < 51:
		delete(w.reports, name)
	case k < 60:
		w.seat(w.step)
	case k < 85:
		if m.leads && r.alive(m.node) {
			to := list[w.rand.IntN(len(list))]
			if (m.config.Voter(to.id) || m.config.Learner(to.id)) && to != m {
				r.send(m, to.id, w.rand.IntN(2) == 0)
			}
			r.commit(m)
		}
	default:
		w.lead(r, m)
	}
}

// mapOf is the map of a version.
func (w *world) mapOf(version uint64) *cluster.Map {
	for i := range w.past {
		if w.past[i].Map.Version == version {
			return w.past[i].Map
		}
	}
	return w.s.Map
}

// calm is a turn in which nothing fails: all that are alive hear of the map, leaders lead, and the seat does a step.
func (w *world) calm() {
	for _, r := range w.groups {
		l := r.leader()
		for range 2 { // a leader that finds a later term is none
			for _, m := range r.sorted() {
				if l != nil && m.id != l.id && l.leads {
					r.send(l, m.id, true)
				}
			}
			if l != nil && l.leads {
				break
			}
			for _, m := range r.sorted() {
				if r.elect(m, true) {
					l = m
					break
				}
			}
		}
	}
	for _, n := range w.names {
		w.deliver(n, w.s.Map)
	}
	for _, r := range w.groups {
		if l := r.leader(); l != nil {
			r.commit(l)
			w.lead(r, l)
			for range 2 {
				if l = r.leader(); l == nil {
					break
				}
				for _, list := range [][]consensus.Member{l.config.Voters, l.config.Learners} {
					for _, m := range list {
						if m.ID != l.id {
							r.send(l, m.ID, true)
						}
					}
				}
				r.commit(l)
			}
		}
	}
	for _, n := range w.names {
		w.report(n)
	}
	next, err := w.step(w.s)
	w.agree(next, err, w.s)
}

// over says whether no task is left.
func (w *world) over() bool {
	return !slices.ContainsFunc(w.s.Tasks, func(t meta.Task) bool { return !t.Over() }) && w.apart() == nil
}

// apart is a group of a space that is not where the one is beside which it runs, in the same order; nil: there is none.
func (w *world) apart() *cluster.DraftGroup {
	d := w.s.Map.Draft()
	nodes := func(g *cluster.DraftGroup) (list []string) {
		for _, p := range g.Replicas {
			list = append(list, p.Node)
		}
		return list
	}
	for i := range d.Spaces {
		for j := range d.Spaces[i].Groups {
			g, beside := &d.Spaces[i].Groups[j], d.Beside(w.s.Map, j)
			is, wanted := nodes(g), nodes(beside)
			if is[0] != wanted[0] {
				return g
			}
			slices.Sort(is)
			slices.Sort(wanted)
			if !slices.Equal(is, wanted) {
				return g
			}
		}
	}
	return nil
}

// converge has all tasks end, in so many turns, and compares what there is with what the map says.
func (w *world) converge() {
	moves := 0
	for i := range w.s.Tasks {
		if !w.s.Tasks[i].Over() {
			moves += len(w.s.Tasks[i].Moves)
		}
	}
	for _, s := range w.s.Map.Replication.Spaces { // each of their groups goes to as many nodes at most
		moves += cluster.MaxReplicas * len(s.Groups)
	}
	for turns := 0; !w.over(); turns++ {
		if w.steps++; turns > 20+20*moves {
			w.fault("tasks do not end, or a group of a space is apart: %+v", w.apart())
		}
		w.calm()
	}
	for range 12 { // what maps were late with
		w.calm()
	}
	d := w.s.Map.Draft()
	for _, r := range w.groups {
		g := d.Group(r.id)
		if g == nil && r.space {
			if slices.ContainsFunc(r.sorted(), func(m *member) bool { return w.hosts[m.node].alive }) {
				w.fault("group %d was dropped, and nodes have replicas of it: %v", r.id, r)
			}
			continue
		}
		l := r.leader()
		if l == nil {
			w.fault("nobody leads group %d", r.id)
		}
		for _, p := range g.Replicas {
			// One that is lost may have lost its vote, too, when a shrinking was canceled.
			if id := consensus.ReplicaID(p.ID); p.Leaves || !l.config.Voter(id) && !(l.config.Learner(id) && p.Node == w.victim) {
				w.fault("replica %d of group %d is not what the map says", p.ID, r.id)
			}
		}
		if len(l.config.Voters)+len(l.config.Learners) != len(g.Replicas) {
			w.fault("group %d is not what the map says", r.id)
		}
		for _, m := range r.sorted() {
			if g.Replica(uint64(m.id)) == nil && w.hosts[m.node].alive {
				w.fault("node %s has replica %d of group %d still", m.node, m.id, r.id)
			}
		}
	}
}

// models is how many clusters each test of the model goes through; a seed is that of the same cluster on every machine.
var models = flag.Int("models", 0, "how many clusters; 0: 120, or 40 with -short")

func modelRuns() int {
	switch {
	case *models > 0:
		return *models
	case testing.Short():
		return 40
	}
	return 120
}

// TestModel: whatever dies, is late or is asked for, what must hold does, and everything comes to an end.
func TestModel(t *testing.T) {
	for i := range modelRuns() {
		w := newWorld(t, uint64(i), false)
		for range 3 {
			for range 1200 {
				w.steps++
				w.chaos()
			}
			for _, h := range w.hosts {
				h.alive = true
			}
			w.cut = nil
			w.note("all are well")
			w.agree(Pause(w.s, false), nil, w.s)
			w.converge()
		}
	}
}

// TestModelOfALoss: a node dies for good, whatever is under way. What is under way can be canceled then, without it, and the node be removed or replaced.
func TestModelOfALoss(t *testing.T) {
	for i := range modelRuns() {
		w := newWorld(t, uint64(i), true)
		for range 600 + w.rand.IntN(1200) {
			w.steps++
			w.chaos()
		}
		for _, h := range w.hosts {
			h.alive = true
		}
		w.cut = nil
		// What was under way goes on for a while, with all that there are, and then the one dies at any moment of it.
		w.agree(Pause(w.s, false), nil, w.s)
		for range w.rand.IntN(4) {
			w.calm()
		}
		for range w.rand.IntN(100) {
			w.steps++
			w.chaos()
		}
		w.cut = nil
		for n, h := range w.hosts {
			h.alive = n != w.victim
		}
		w.note("%s is lost", w.victim)
		for range 5 {
			w.calm()
		}
		for id := range w.s.NextTask() {
			if next, err := Cancel(w.s, id, w.now); err == nil {
				w.note("cancel")
				w.agree(next, nil, w.s)
			}
		}
		w.agree(Pause(w.s, false), nil, w.s)
		w.converge()
		if !w.s.Map.Has(w.victim) {
			continue
		}
		next, _, err := Plan(w.s, Request{Kind: meta.Remove, Nodes: []Node{{ID: w.victim}}}, w.now)
		if errors.Is(err, ErrRequest) || i%2 == 0 { // too few nodes would be left, or as well
			w.names = append(w.names, "spare")
			w.hosts["spare"] = &host{alive: true}
			next, _, err = Plan(w.s, Request{Kind: meta.Replace, Old: w.victim, Nodes: []Node{w.node("spare")}}, w.now)
		}
		if err != nil {
			w.fault("%v", err)
		}
		w.agree(next, nil, w.s)
		if w.converge(); w.s.Map.Has(w.victim) {
			w.fault("node %s is in the cluster still", w.victim)
		}
	}
}
