package seat

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/meta"
)

// Limits bound what is under way at once.
type Limits struct {
	Moves int // in all; default 2
	In    int // into one node; default 1
	Out   int // out of one node; default 1
}

func (l Limits) withDefaults() Limits {
	if l.Moves == 0 {
		l.Moves = 2
	}
	if l.In == 0 {
		l.In = 1
	}
	if l.Out == 0 {
		l.Out = 1
	}
	return l
}

// Reports are what the nodes that answer have said last, by node. A node that does not answer is not in it.
type Reports map[string]Report

// A Report is what a node says of its replicas, as JSON. Fields are only ever added.
type Report struct {
	Map uint64 `json:"map"` // version of the map that it has in force, and that its leaders go by: see Next
	// Life and Stamp are when the report was made, by a clock that begins with each life of the node. The seat says them to the node again, and no more.
	Life   uint64        `json:"life,omitempty"`
	Stamp  time.Duration `json:"stamp,omitempty"` // nanoseconds
	Groups []GroupReport `json:"groups"`
	// Stopped are its replicas that were stopped by an error, by group, with what the error says. They count for nothing.
	Stopped map[uint32]string `json:"stopped,omitempty"`
	// Kept is what it has kept of groups that gave way to others (cluster.Begins).
	Kept []KeptReport `json:"kept,omitempty"`
	// MetaLife is the number of the meta group whose map the node has in force (cluster.Map.Life).
	MetaLife uint64 `json:"meta_life,omitempty"`
	// Reads is which feature levels its program reads; nil: it says nothing of levels, and reads level 0 alone. Hold: its operator wants the level to stay.
	Reads *feature.Range `json:"reads,omitempty"`
	Hold  bool           `json:"hold,omitempty"`
}

// A KeptReport is what a node says of a replica of a group that is in the map no more, which it does not run: what its log had is applied.
type KeptReport struct {
	Group    uint32 `json:"group"`
	Replica  uint64 `json:"replica"`
	Shard    uint16 `json:"shard"` // the first one of the group
	Last     uint64 `json:"last"`  // index of its newest entry
	LastTerm uint64 `json:"last_term"`
	Votes    bool   `json:"votes"` // by the newest configuration that it has
	// Space is the number of the space that the group was of (cluster.Space); 0: it was one of the node's own.
	Space uint32 `json:"space,omitempty"`
}

// A GroupReport is what a node says of its replica of a group.
type GroupReport struct {
	Group   uint32   `json:"group"`
	Replica uint64   `json:"replica"`
	Leads   bool     `json:"leads"`
	Term    uint64   `json:"term"`
	Config  uint64   `json:"config"` // index of the configuration that it has published
	Shown   uint64   `json:"shown"`  // index of the newest entry that it has published
	Voters  []uint64 `json:"voters"`
	Learns  []uint64 `json:"learns,omitempty"` // learners
	Last    uint64   `json:"last"`             // index of its newest entry
	// LastTerm is the term of that entry, Heard the replica that it knows to lead, if another one does; 0: none.
	LastTerm uint64            `json:"last_term,omitempty"`
	Heard    uint64            `json:"heard,omitempty"`
	Away     []uint64          `json:"away,omitempty"`  // of a leader: voters that it has not heard of lately
	Match    map[uint64]uint64 `json:"match,omitempty"` // of a leader: up to which index the others have its entries
	Step     string            `json:"step,omitempty"`  // of a leader: what it does to bring the group to what the map wants
	Why      string            `json:"why,omitempty"`   // and what it waits for
}

// of returns what a replica of a group has said of itself, and the version of the map that its node had in force; nil: nothing.
func (r Reports) of(group uint32, replica uint64) (*GroupReport, uint64) {
	for _, n := range r {
		for i := range n.Groups {
			if g := &n.Groups[i]; g.Group == group && g.Replica == replica {
				return g, n.Map
			}
		}
	}
	return nil, 0
}

// Leader returns what the leader of a group says; nil: none was heard. Of several the one of the highest term leads.
func (r Reports) Leader(group uint32) (l *GroupReport) {
	for _, n := range r {
		for i := range n.Groups {
			if g := &n.Groups[i]; g.Group == group && g.Leads && (l == nil || g.Term > l.Term) {
				l = g
			}
		}
	}
	return l
}

// settled says whether a group is as it is to be by the map of a version, so that nothing changes it any more: it is rid of one replica, which may be given up (R24), and another one
// votes (0 each: none). Its leader, and with it a majority of the voters of its configuration,
//
//	have published that configuration, or a later one   so nobody needs the vote of the one that is gone to learn that it is
//	have that map in force, or a later one              else the leader, which goes by an older one, might give a vote or take one yet
//	are in the leader's term                            so nobody leads in a later one who was elected before that map was made
//
// The last two make it hold for reports of any age, and if what a later leader says has not come: see Next for what such a one goes by.
func (r Reports) settled(group uint32, gone, stays, version uint64) bool {
	is := func(g *GroupReport) bool {
		return !slices.Contains(g.Voters, gone) && !slices.Contains(g.Learns, gone) && (stays == 0 || slices.Contains(g.Voters, stays))
	}
	l := r.Leader(group)
	if l == nil || !is(l) {
		return false
	}
	if _, at := r.of(group, l.Replica); at < version {
		return false
	}
	have := 0
	for _, v := range l.Voters {
		if o, at := r.of(group, v); o != nil && o.Config >= l.Config && o.Term == l.Term && at >= version && is(o) {
			have++
		}
	}
	return have > len(l.Voters)/2
}

// Step works out what is to be done next, given what nodes have reported; nil: nothing, until they report something else. It is called by the seat alone.
func Step(s *meta.State, r Reports, l Limits, now int64) *meta.State {
	l = l.withDefaults()
	n := s.Clone()
	d := s.Map.Draft()
	w := walk{n, d, r, l, now, false, false}
	for i := range n.Tasks {
		if t := &n.Tasks[i]; !t.Over() {
			w.task(t)
		}
	}
	w.phases(s)
	w.spaces()
	if !w.changed {
		return nil
	}
	if w.mapped {
		m, err := d.Map(s.Map)
		if err != nil {
			return nil // the draft was a map before, and each change keeps it one: see TestStepKeepsMaps
		}
		n.Map = m
	}
	return n
}

// A walk is a Step under way.
type walk struct {
	s       *meta.State
	d       *cluster.Draft
	r       Reports
	l       Limits
	now     int64
	changed bool
	mapped  bool // the draft is
}

func (w *walk) task(t *meta.Task) {
	for i := range t.Moves {
		if t.Moves[i].Running() {
			w.arrive(t, &t.Moves[i])
		}
	}
	for i := range t.Moves {
		if m := &t.Moves[i]; m.State == meta.Waits && t.State == meta.Runs && !w.s.Paused && Holds(w.s, w.d, w.r, w.l, m) == "" {
			w.begin(m)
		}
	}
	if slices.ContainsFunc(t.Moves, func(m meta.Move) bool { return !m.Over() }) {
		return
	}
	if gone := leaving(t); slices.ContainsFunc(w.d.Spaces, func(s cluster.DraftSpace) bool {
		return slices.ContainsFunc(s.Groups, func(g cluster.DraftGroup) bool {
			return slices.ContainsFunc(gone, func(n string) bool { return g.At(n) != nil })
		})
	}) {
		return // they go behind those beside which they run
	}
	w.end(t)
}

// arrive ends a move of which nothing is left to do.
func (w *walk) arrive(t *meta.Task, m *meta.Move) {
	g := w.d.Group(m.Group)
	lead := w.r.Leader(m.Group)
	if lead == nil {
		return
	}
	if back := undo(m, lead); t.State == meta.Canceling && back != (m.State == meta.Undoes) {
		if m.ToID != 0 {
			g.Replica(m.ToID).Leaves = back
		}
		if m.FromID != 0 {
			g.Replica(m.FromID).Leaves = !back
		}
		m.State = meta.Moves
		if back {
			m.State = meta.Undoes
		}
		w.changed, w.mapped = true, true
		return
	}
	gone, stays := m.FromID, m.ToID
	if m.State == meta.Undoes {
		gone, stays = m.ToID, 0 // the group's leader gives the old one its vote again, if it has lost it; whether that one is there does not matter here
	}
	if !w.r.settled(m.Group, gone, stays, w.s.Map.Version) {
		return
	}
	if gone != 0 {
		g.Take(gone, m.ToID)
		w.mapped = true
	}
	m.Ended = w.now
	m.State = map[meta.MoveState]meta.MoveState{meta.Moves: meta.Arrived, meta.Undoes: meta.Undone}[m.State]
	w.changed = true
}

// undo says which way a move of a task that was canceled ends, by what the group's leader says: true: the group is to be again as it was. What has a vote already can stay
// without anybody else, so the way is the one that needs no replica that is not there: a node that has died in the middle must not keep the task from its end. It may change
// while the move runs, because each step of a leader holds for both ways: one of the two replicas votes at any time.
func undo(m *meta.Move, lead *GroupReport) bool {
	from, to := slices.Contains(lead.Voters, m.FromID), slices.Contains(lead.Voters, m.ToID)
	switch {
	case m.FromID == 0:
		return !to
	case m.ToID == 0:
		return from
	}
	return !to || from && !slices.Contains(lead.Away, m.FromID)
}

// begin puts a move into the map.
func (w *walk) begin(m *meta.Move) {
	g := w.d.Group(m.Group)
	if m.From != "" {
		p := g.At(m.From)
		if p == nil { // it is gone already
			m.State, m.Ended = meta.Dropped, w.now
			w.changed = true
			return
		}
		p.Leaves, m.FromID = true, p.ID
	}
	if m.To != "" {
		m.ToID = g.Add(m.To)
	}
	m.State, m.Began = meta.Moves, w.now
	w.changed, w.mapped = true, true
}

// end ends a task all of whose moves are over. Nodes that it was to take out of the map go if they have nothing left.
func (w *walk) end(t *meta.Task) {
	for _, n := range leaving(t) {
		if !slices.ContainsFunc(w.d.Groups, func(g cluster.DraftGroup) bool { return g.At(n) != nil }) {
			delete(w.d.Nodes, n)
			w.mapped = true
		}
	}
	w.mapped = leaders(w.d) || w.mapped
	t.State = map[meta.TaskState]meta.TaskState{meta.Runs: meta.Done, meta.Canceling: meta.Canceled}[t.State]
	t.Ended, w.changed = w.now, true
}

// Holds says why a move that waits does not begin now; "": it may.
func Holds(s *meta.State, d *cluster.Draft, r Reports, l Limits, m *meta.Move) string {
	if s.Paused {
		return "moves are paused"
	}
	moves := running(s)
	if slices.ContainsFunc(moves, func(o meta.Move) bool { return o.Group == m.Group }) {
		return "another replica of the group moves"
	}
	if why := l.full(moves, m); why != "" {
		return why
	}
	return unfit(d, r, m)
}

// running are the moves of tasks that are under way.
func running(s *meta.State) (list []meta.Move) {
	for i := range s.Tasks {
		for j := range s.Tasks[i].Moves {
			if m := &s.Tasks[i].Moves[j]; m.Running() {
				list = append(list, *m)
			}
		}
	}
	return list
}

// full says why a move is one too many beside others that are under way; "": it is not.
func (l Limits) full(moves []meta.Move, m *meta.Move) string {
	l = l.withDefaults()
	in, out := 0, 0
	for i := range moves {
		o := &moves[i]
		if o.To == m.To && m.To != "" {
			in++
		}
		if o.From == m.From && m.From != "" {
			out++
		}
	}
	switch {
	case len(moves) >= l.Moves:
		return fmt.Sprintf("%d moves are under way", len(moves))
	case in >= l.In:
		return fmt.Sprintf("another move into %s is under way", m.To)
	case out >= l.Out:
		return fmt.Sprintf("another move out of %s is under way", m.From)
	}
	return ""
}

// unfit says why the group of a move, or the node that it goes to, is not fit for it now; "": both are.
func unfit(d *cluster.Draft, r Reports, m *meta.Move) string {
	if _, ok := d.Nodes[m.To]; m.To != "" && !ok {
		return fmt.Sprintf("node %s is not in the map any more", m.To)
	}
	if _, heard := r[m.To]; m.To != "" && !heard {
		return fmt.Sprintf("node %s does not answer", m.To)
	}
	g := d.Group(m.Group)
	if g == nil {
		return "the map has no such group"
	}
	if g.Was != 0 && g.Phase == cluster.Begins {
		return fmt.Sprintf("group %d is not made yet of what was left of group %d", g.ID, g.Was)
	}
	lead := r.Leader(m.Group)
	if lead == nil {
		return fmt.Sprintf("group %d has no leader", m.Group)
	}
	from := g.At(m.From)
	for _, v := range lead.Away {
		if from == nil || from.ID != v {
			return fmt.Sprintf("a voter of group %d is away, at node %s: with one more that changes the group could lose its majority", m.Group, nodeOf(g, v))
		}
	}
	for _, p := range g.Replicas {
		if (from == nil || from.ID != p.ID) && !slices.Contains(lead.Voters, p.ID) {
			return fmt.Sprintf("replica %d of group %d, at node %s, has no vote yet", p.ID, m.Group, p.Node)
		}
	}
	if g.At(m.To) != nil {
		return fmt.Sprintf("node %s has a replica of the group", m.To)
	}
	return ""
}

// nodeOf is where a replica of a group is.
func nodeOf(g *cluster.DraftGroup, id uint64) string {
	if p := g.Replica(id); p != nil {
		return p.Node
	}
	return "?"
}

// Cancel has a task end as soon as it can. nil: there is nothing to cancel.
func Cancel(s *meta.State, id uint64, now int64) (*meta.State, error) {
	t := s.Task(id)
	switch {
	case t == nil:
		return nil, refuse("there is no task %d", id)
	case t.State == meta.Canceling || t.Over():
		return nil, nil
	}
	n := s.Clone()
	t = n.Task(id)
	t.State = meta.Canceling
	for i := range t.Moves {
		if m := &t.Moves[i]; m.State == meta.Waits {
			m.State, m.Ended = meta.Dropped, now
		}
	}
	return n, nil
}

// Pause says whether moves begin. nil: it is so already.
func Pause(s *meta.State, paused bool) *meta.State {
	if s.Paused == paused {
		return nil
	}
	n := s.Clone()
	n.Paused = paused
	return n
}
