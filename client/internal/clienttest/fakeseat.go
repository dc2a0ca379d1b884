package clienttest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Seat is what fake nodes have agreed on about changes of their cluster. A test says which of them answers for it; nothing is elected,
// and a task gets on by one move each time that somebody asks for the tasks.
type Seat struct {
	Nodes []*Node // those of the map first
	// Say, if set, is asked first: it answers in the place of a node, with any text, or with nothing and Silent.
	Say func(node string, q wire.ClusterQuestion) (text []byte, handled bool)
	// Refuse, if set, is the reason for which a node may not come, by its id, or "" for what is asked of the seat.
	Refuse map[string]string

	mu     sync.Mutex
	lead   string
	m      *cluster.Map
	tasks  []wire.ClusterTask
	paused bool
	asked  []SeatAsked
}

// A SeatAsked is a question, and who was asked.
type SeatAsked struct {
	Node string
	wire.ClusterQuestion
}

// Silent is what Say returns for a question that nobody answers.
var Silent = []byte{}

// Live makes nodes n1, n2, …, the first of which are a cluster with three replicas whose first node is the seat. The others have no map
// yet, and gossip knows them.
func Live(t *testing.T, in, others int) *Seat {
	t.Helper()
	s := &Seat{Nodes: Cluster(t, in+others, false), lead: "n1", Refuse: map[string]string{}}
	var nodes []cluster.MapNode
	want := cluster.Want{Replicas: 3, Groups: 4}
	for i, n := range s.Nodes {
		n.Store, n.seat = strings.Repeat(string("123456789abcdef"[i]), 32), s
		if i < in {
			nodes = append(nodes, cluster.MapNode{ID: n.ID})
			want.Stores = append(want.Stores, storeOf(n.Store))
		}
	}
	m, err := cluster.ProposeReplicas([16]byte{1}, "fakes", ClusterShards, nodes, want)
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	for _, n := range s.Nodes[:in] {
		n.Map = m
	}
	return s
}

func storeOf(text string) (store [16]byte) {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	copy(store[:], b)
	return store
}

// Lead says which node is the seat; "": none is.
func (s *Seat) Lead(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lead = node
}

// Asked returns the questions that have come, in order.
func (s *Seat) Asked() []SeatAsked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Tasks returns the tasks as they are.
func (s *Seat) Tasks() []wire.ClusterTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tasks)
}

// Map returns the map that is agreed on.
func (s *Seat) Map() *cluster.Map {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m
}

// answer is what a node says to a question; Silent: nothing. The node is locked.
func (s *Seat) answer(n *Node, argument []byte) []byte {
	q, err := wire.ParseClusterQuestion(argument)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.asked = append(s.asked, SeatAsked{n.ID, q})
	say := s.Say
	s.mu.Unlock()
	if say != nil {
		if text, handled := say(n.ID, q); handled {
			return text
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.answerLocked(n, q))
	if err != nil {
		panic(err)
	}
	return text
}

func (s *Seat) answerLocked(n *Node, q wire.ClusterQuestion) wire.ClusterAnswer {
	a := wire.ClusterAnswer{State: wire.ClusterTaken, Seat: s.lead, MapVersion: s.m.Version, Paused: s.paused}
	who := ""
	if q.Do == wire.ClusterJoin {
		who = n.ID
	}
	switch why := s.Refuse[who]; {
	case q.Do == wire.ClusterJoin && why == "":
		a.State = wire.ClusterMay
		return a
	case q.Do != wire.ClusterJoin && n.ID != s.lead:
		a.State = wire.ClusterNotSeat
		return a
	case why != "":
		a.State, a.Why = wire.ClusterRefused, why
		return a
	}
	switch q.Do {
	case wire.ClusterTasks:
		s.stepLocked()
		a.Tasks = s.tasks
	case wire.ClusterPause, wire.ClusterResume:
		s.paused = q.Do == wire.ClusterPause
		a.Paused = s.paused
	case wire.ClusterCancel:
		i := slices.IndexFunc(s.tasks, func(t wire.ClusterTask) bool { return t.ID == q.Task })
		if i < 0 {
			a.State, a.Why = wire.ClusterRefused, fmt.Sprintf("there is no task %d", q.Task)
			return a
		}
		s.tasks[i].State = "canceled"
		a.Task = &s.tasks[i]
	default:
		s.changeLocked(q, &a)
	}
	return a
}

// changeLocked plans a task, and with a question that is not dry begins it.
func (s *Seat) changeLocked(q wire.ClusterQuestion, a *wire.ClusterAnswer) {
	t := wire.ClusterTask{What: q.Do, Kind: q.Do, State: "runs", Moves: []wire.ClusterMove{}}
	d := s.m.Draft()
	for _, n := range q.Nodes {
		t.What += " " + n.ID
		if q.Do == "remove" {
			continue
		}
		d.Nodes[n.ID] = cluster.DraftNode{Weight: max(n.Weight, 1), Store: storeOf(n.Store), Zone: n.Zone}
		for _, g := range d.Groups {
			t.Moves = append(t.Moves, wire.ClusterMove{Group: g.ID, From: g.Replicas[0].Node, To: n.ID, State: "waits"})
		}
	}
	a.Map = cluster.AppendMap(nil, s.m)
	if i := slices.IndexFunc(s.tasks, func(o wire.ClusterTask) bool { return o.What == t.What && o.State == "runs" }); i >= 0 {
		a.Task = &s.tasks[i]
		if q.Dry {
			a.State = wire.ClusterPlan
		}
		return
	}
	if a.Task = &t; q.Dry {
		a.State = wire.ClusterPlan
		return
	}
	m, err := d.Map(s.m)
	if err != nil {
		panic(err)
	}
	s.m, a.Map, a.MapVersion = m, cluster.AppendMap(nil, m), m.Version
	t.ID, t.Began = uint64(len(s.tasks)+1), 1
	s.tasks = append(s.tasks, t)
	a.Task = &s.tasks[len(s.tasks)-1]
}

// stepLocked ends one move.
func (s *Seat) stepLocked() {
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.State != "runs" || s.paused {
			continue
		}
		j := slices.IndexFunc(t.Moves, func(m wire.ClusterMove) bool { return m.State != "done" })
		if j >= 0 {
			t.Moves = slices.Clone(t.Moves)
			t.Moves[j].State = "done"
		} else {
			t.State, t.Ended = "done", 2
		}
		return
	}
}

// follow is MapFollow at a node. The node is locked.
func (n *Node) follow(m *cluster.Map) (why string) {
	switch {
	case n.Map == nil || n.Map.Cluster == m.Cluster && n.Map.Version < m.Version || n.Map.Digest() == m.Digest():
		n.Map = m
		return ""
	}
	return fmt.Sprintf("it has %v", n.Map)
}
