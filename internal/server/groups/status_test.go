package groups

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store"
)

func voters(n int) (c consensus.Config) {
	c.Index = 1
	for i := range n {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: string(rune('a' + i))})
	}
	return c
}

// TestHeir: who takes over has the most of those that can.
func TestHeir(t *testing.T) {
	peer := func(id consensus.ReplicaID, match uint64, change func(*consensus.Peer)) consensus.Peer {
		p := consensus.Peer{Member: consensus.Member{ID: id}, Match: match, Active: true, Room: true}
		if change != nil {
			change(&p)
		}
		return p
	}
	for name, c := range map[string]struct {
		peers []consensus.Peer
		want  consensus.ReplicaID
	}{
		"nobody":         {nil, 0},
		"itself alone":   {[]consensus.Peer{peer(1, 9, nil)}, 0},
		"the most":       {[]consensus.Peer{peer(1, 9, nil), peer(2, 7, nil), peer(3, 8, nil)}, 3},
		"one is silent":  {[]consensus.Peer{peer(1, 9, nil), peer(2, 9, func(p *consensus.Peer) { p.Active = false }), peer(3, 1, nil)}, 3},
		"a learner":      {[]consensus.Peer{peer(1, 9, nil), peer(2, 9, func(p *consensus.Peer) { p.Learner = true }), peer(3, 1, nil)}, 3},
		"a snapshot":     {[]consensus.Peer{peer(1, 9, nil), peer(2, 9, func(p *consensus.Peer) { p.Snapshot = true }), peer(3, 1, nil)}, 3},
		"no voter":       {[]consensus.Peer{peer(1, 9, nil), peer(7, 9, nil)}, 0},
		"one is full":    {[]consensus.Peer{peer(2, 9, func(p *consensus.Peer) { p.Room = false }), peer(3, 1, nil)}, 3},
		"all are full":   {[]consensus.Peer{peer(2, 9, func(p *consensus.Peer) { p.Room = false }), peer(3, 1, func(p *consensus.Peer) { p.Room = false })}, 2},
		"all are silent": {[]consensus.Peer{peer(2, 9, func(p *consensus.Peer) { p.Active = false }), peer(3, 9, func(p *consensus.Peer) { p.Active = false })}, 0},
	} {
		st := &consensus.Status{Group: 5, ID: 1, Config: voters(3), Peers: c.peers}
		if got := heir(st, 0); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	took := map[consensus.ReplicaID]int{}
	for g := range consensus.GroupID(30) {
		took[heir(&consensus.Status{Group: g, ID: 1, Config: voters(3), Peers: []consensus.Peer{peer(1, 9, nil), peer(2, 9, nil), peer(3, 9, nil)}}, 0)]++
	}
	if took[2] < 5 || took[3] < 5 {
		t.Errorf("of 30 groups the two others take %v", took)
	}
	// Who was asked in vain is the last choice.
	for g := range consensus.GroupID(3) {
		st := &consensus.Status{Group: g, ID: 1, Config: voters(3), Peers: []consensus.Peer{peer(2, 9, nil), peer(3, 7, nil)}}
		if got := heir(st, 2); got != 3 {
			t.Errorf("group %d: %d was asked, %d is next", g, 2, got)
		}
		if st.Peers = st.Peers[:1]; heir(st, 2) != 2 {
			t.Errorf("group %d: the only one there is, is not asked again", g)
		}
	}
}

// TestStatusOf: what is told of a replica in each of its states.
func TestStatusOf(t *testing.T) {
	g := &Groups{env: Env{Node: "a"}}
	group := &store.Group{ID: 3, Replica: 1, Shards: []uint16{0, 2}}
	for name, c := range map[string]struct {
		st     consensus.Status
		runs   bool
		state  string
		leader string
		match  uint64 // of replica 2
	}{
		"leads":   {consensus.Status{Leads: true, Leader: 1, Last: 9, Peers: []consensus.Peer{{Member: consensus.Member{ID: 2}, Match: 8}}}, true, "leads", "a", 8},
		"follows": {consensus.Status{Leader: 3, Last: 9, Peers: []consensus.Peer{{Member: consensus.Member{ID: 2}, Match: 8}}}, true, "follows", "c", 0},
		"nobody":  {consensus.Status{Last: 9}, true, "follows", "", 0},
		"waits":   {consensus.Status{}, false, "waits", "", 0},
		"stopped": {consensus.Status{Leader: 2, Fenced: errors.New("x\x1b[2J")}, true, "stopped", "b", 0},
	} {
		c.st.Config = voters(3)
		got := g.statusOf(group, &c.st, c.runs)
		if got.State != c.state || got.Leader != c.leader || len(got.Replicas) != 3 || got.Replicas[1].Match != c.match || got.ID != 3 {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "stopped" && got.Why != "x?[2J" {
			t.Errorf("why: %q", got.Why)
		}
	}
	learner := consensus.Status{Config: voters(2)}
	learner.Config.Voters, learner.Config.Learners = learner.Config.Voters[1:], learner.Config.Voters[:1]
	if got := g.statusOf(group, &learner, true); got.State != "learns" || got.Replicas[0].Votes || !got.Replicas[1].Votes {
		t.Errorf("a learner: %+v", got)
	}
}

// TestWanted: what a group begins with is alike at all its nodes, whatever the order of its replicas in the map, and a node that has none gets none.
func TestWanted(t *testing.T) {
	m := &cluster.Map{
		Nodes: []cluster.MapNode{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}},
		Owner: []uint16{2, 0, 2},
		Replication: &cluster.Replication{
			Group: []uint16{0, 1, 0},
			Groups: []cluster.Group{
				{ID: 4, Replicas: []cluster.Replica{{Node: 2, ID: 3}, {Node: 0, ID: 1}, {Node: 1, ID: 2}}},
				{ID: 9, Replicas: []cluster.Replica{{Node: 0, ID: 7}}},
			},
		},
	}
	for node, want := range map[string]int{"a": 2, "b": 1, "c": 1, "d": 0, "nobody": 0} {
		list := (&Groups{env: Env{Node: node}}).wanted(m)
		if len(list) != want {
			t.Errorf("%s: %+v", node, list)
			continue
		}
		for _, g := range list {
			if err := g.Founders.Check(); err != nil || g.Founders.Index != 1 || g.Founders.Node(g.Replica) != node || g.ID == 4 && len(g.Shards) != 2 {
				t.Errorf("%s: %+v, %v", node, g, err)
			}
		}
	}
}

// TestStay: a group goes to its preferred replica once it could have gone for a while, and not because it could at some moments.
func TestStay(t *testing.T) {
	well := func() *consensus.Status {
		return &consensus.Status{
			Group: 3, ID: 1, Leads: true, Term: 4, Last: 1000, Config: voters(3),
			Peers: []consensus.Peer{{Member: consensus.Member{ID: 2}, Match: 900, Active: true, Room: true}, {Member: consensus.Member{ID: 3}, Match: 1000, Active: true, Room: true}},
		}
	}
	looks := func(s *stay, n int, st *consensus.Status, preferred consensus.ReplicaID) (due bool) {
		for range n {
			due = s.due(st, preferred)
		}
		return due
	}
	for name, c := range map[string]struct {
		change    func(*consensus.Status)
		preferred consensus.ReplicaID
		want      bool
	}{
		"well":                      {func(*consensus.Status) {}, 2, true},
		"it leads where it is to":   {func(*consensus.Status) {}, 1, false},
		"nobody is preferred":       {func(*consensus.Status) {}, 0, false},
		"no voter":                  {func(st *consensus.Status) { st.Config = voters(1) }, 2, false},
		"it does not lead":          {func(st *consensus.Status) { st.Leads = false }, 2, false},
		"it was stopped":            {func(st *consensus.Status) { st.Fenced = errors.New("x") }, 2, false},
		"the other is silent":       {func(st *consensus.Status) { st.Peers[0].Active = false }, 2, false},
		"a snapshot is on its way":  {func(st *consensus.Status) { st.Peers[0].Snapshot = true }, 2, false},
		"the other is far behind":   {func(st *consensus.Status) { st.Peers[0].Match = st.Last - nearly - 1 }, 2, false},
		"the other is a bit behind": {func(st *consensus.Status) { st.Peers[0].Match = st.Last - nearly }, 2, true},
		"a learner":                 {func(st *consensus.Status) { st.Peers[0].Learner = true }, 2, false},
		"the other's disk is full":  {func(st *consensus.Status) { st.Peers[0].Room = false }, 2, false},
		"nothing is known of it":    {func(st *consensus.Status) { st.Peers = nil }, 2, false},
	} {
		st := well()
		c.change(st)
		if got := looks(new(stay), homewardChecks+1, st, c.preferred); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if looks(new(stay), homewardChecks, well(), 2) { // the first look begins
		t.Error("it goes too early")
	}
	for name, change := range map[string]func(*consensus.Status){
		"another term":          func(st *consensus.Status) { st.Term++ },
		"another configuration": func(st *consensus.Status) { st.Config.Index++ },
		"silent for a moment":   func(st *consensus.Status) { st.Peers[0].Active = false },
	} {
		s := new(stay)
		looks(s, homewardChecks, well(), 2)
		st := well()
		change(st)
		if s.due(st, 2) || looks(s, homewardChecks-1, well(), 2) {
			t.Errorf("%s: it goes all the same", name)
		}
	}
}

// TestPreferred: the first replica that stays is to lead.
func TestPreferred(t *testing.T) {
	m := &cluster.Map{Replication: &cluster.Replication{Groups: []cluster.Group{
		{ID: 4, Replicas: []cluster.Replica{{Node: 2, ID: 3, Leaves: true}, {Node: 0, ID: 5}, {Node: 1, ID: 2}}},
		{ID: 9, Replicas: []cluster.Replica{{Node: 0, ID: 7}}},
	}}}
	g := &Groups{m: m}
	for id, want := range map[consensus.GroupID]consensus.ReplicaID{4: 5, 9: 7, 5: 0} {
		if got := g.preferred(&store.Group{ID: id}); got != want {
			t.Errorf("group %d: %d, want %d", id, got, want)
		}
	}
}
