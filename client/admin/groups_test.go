package admin_test

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// threeFounders is group 3 of the map, at a, b and c.
func threeFounders() []admin.Group {
	g := admin.Group{ID: 3, Shards: []uint16{1, 4}}
	for i, node := range []string{"a", "b", "c"} {
		g.Replicas = append(g.Replicas, admin.Replica{ID: uint64(i + 1), Node: node, Votes: true})
	}
	return []admin.Group{g}
}

// saying is what a replica of group 3 says: of itself, and with match of a, b and c.
func saying(replica uint64, state, leader string, term, last uint64, match ...uint64) admin.GroupStatus {
	g := admin.GroupStatus{ID: 3, Replica: replica, State: state, Leader: leader, Term: term, Last: last, Shards: []uint16{4, 1, 4}}
	if len(match) == 0 {
		match = []uint64{0, 0, 0}
	}
	for i, m := range match {
		g.Replicas = append(g.Replicas, wire.ReplicaStatus{ID: uint64(i + 1), Node: string(rune('a' + i)), Votes: true, Match: m, Active: true})
	}
	return g
}

// with changes a report.
func with(g admin.GroupStatus, change func(*admin.GroupStatus)) admin.GroupStatus {
	change(&g)
	return g
}

// TestGroupsOf: a group is what its leader of the highest term says, and each replica what its own node says. What contradicts, is
// not there, or cannot be makes no leader, no lag and no fault.
func TestGroupsOf(t *testing.T) {
	const huge = math.MaxUint64
	type told = map[string][]admin.GroupStatus
	one := func(g ...admin.GroupStatus) []admin.GroupStatus { return g }
	lead := saying(1, "leads", "a", 5, 9, 9, 7, 9)
	for name, c := range map[string]struct {
		told   told
		leader string
		term   uint64
		lag    []uint64 // by replica
		states string   // likewise
		heard  bool
	}{
		"all well": {told{"a": one(lead), "b": one(saying(2, "follows", "a", 5, 7)), "c": one(saying(3, "learns", "a", 5, 9))}, "a", 5, []uint64{0, 2, 0}, "leads follows learns", true},
		"two lead, the higher term wins": {told{"a": one(saying(1, "leads", "a", 4, 20, 20, 1, 1)), "b": one(saying(2, "leads", "b", 5, 9, 8, 9, 9))}, "b", 5,
			[]uint64{1, 0, 0}, "leads leads ", true},
		"two lead in one term": {told{"b": one(saying(2, "leads", "b", 5, 9, 9, 9, 9)), "a": one(lead)}, "a", 5, []uint64{0, 2, 0}, "leads leads ", true},
		"a minority is in a later term": {told{"a": one(lead), "b": one(saying(2, "follows", "", 6, 7)), "c": one(saying(3, "follows", "a", 5, 9))}, "a", 5,
			[]uint64{0, 2, 0}, "leads follows follows", true},
		"a majority is in a later term": {told{"a": one(lead), "b": one(saying(2, "follows", "", 6, 7)), "c": one(saying(3, "follows", "", 7, 9))}, "", 7,
			[]uint64{0, 0, 0}, "leads follows follows", false},
		"those in a later term are of before": {told{"a": one(lead), "b": one(saying(7, "follows", "", 6, 7)), "c": one(saying(8, "follows", "", 6, 9))}, "a", 5,
			[]uint64{0, 2, 0}, "leads  ", true},
		"a learner in a later term has no say": {told{"a": one(with(saying(1, "leads", "a", 5, 9, 9, 7, 9), func(g *admin.GroupStatus) { g.Replicas[1].Votes, g.Replicas[2].Votes = false, false })),
			"b": one(saying(2, "learns", "", 6, 7)), "c": one(saying(3, "learns", "", 6, 9))}, "a", 5, []uint64{0, 2, 0}, "leads learns learns", true},
		"one of two does not know yet": {told{"b": one(saying(2, "follows", "", 5, 7)), "c": one(saying(3, "follows", "a", 5, 7))}, "a", 5,
			[]uint64{0, 0, 0}, " follows follows", false},
		// Its word of an earlier term does not speak for it in a later one.
		"a majority names a late leader": {told{"a": one(lead), "b": one(saying(2, "follows", "a", 6, 7)), "c": one(saying(3, "follows", "a", 6, 9))}, "", 6,
			[]uint64{0, 0, 0}, "leads follows follows", false},
		"the leader was not heard":       {told{"b": one(saying(2, "follows", "a", 5, 7))}, "a", 5, []uint64{0, 0, 0}, " follows ", false},
		"nobody leads":                   {told{"a": one(saying(1, "follows", "b", 5, 7)), "b": one(saying(2, "follows", "a", 5, 7))}, "", 5, []uint64{0, 0, 0}, "follows follows ", false},
		"who was named has no groups":    {told{"a": nil, "b": one(saying(2, "follows", "a", 5, 7))}, "", 5, []uint64{0, 0, 0}, " follows ", false},
		"nobody was heard":               {told{}, "", 0, []uint64{0, 0, 0}, "  ", false},
		"nobody has groups":              {told{"a": nil, "b": {}}, "", 0, []uint64{0, 0, 0}, "  ", false},
		"the named leader is no replica": {told{"b": one(saying(2, "follows", "evil", 5, 7))}, "", 5, []uint64{0, 0, 0}, " follows ", false},
		"a leader that names another":    {told{"a": one(saying(1, "leads", "b", 5, 9, 9, 7, 9))}, "a", 5, []uint64{0, 2, 0}, "leads  ", true},
		"a stranger leads":               {told{"evil": one(saying(1, "leads", "evil", 99, 9)), "a": one(lead)}, "a", 5, []uint64{0, 2, 0}, "leads  ", true},
		"another replica's number":       {told{"b": one(saying(1, "leads", "b", 99, 9)), "a": one(lead)}, "a", 5, []uint64{0, 2, 0}, "leads  ", true},
		"a replica of before":            {told{"b": one(saying(7, "stopped", "", 5, 9)), "a": one(lead)}, "a", 5, []uint64{0, 2, 0}, "leads  ", true},
		"a leader without a vote": {told{"a": one(with(saying(1, "leads", "a", 5, 9), func(g *admin.GroupStatus) { g.Replicas[0].Votes = false }))}, "", 5,
			[]uint64{0, 0, 0}, "leads  ", false},
		"a leader with an empty list": {told{"a": one(with(saying(1, "leads", "a", 5, 9), func(g *admin.GroupStatus) { g.Replicas = nil }))}, "", 5,
			[]uint64{0, 0, 0}, "leads  ", false},
		"more than there is": {told{"a": one(saying(1, "leads", "a", 5, 9, 9, huge, 10))}, "a", 5, []uint64{0, 0, 0}, "leads  ", true},
		"huge numbers":       {told{"a": one(saying(1, "leads", "a", huge, huge, huge, 0, 1))}, "a", huge, []uint64{0, huge, huge - 1}, "leads  ", true},
		"a group twice": {told{"a": one(lead, saying(1, "stopped", "", huge, 1)), "b": one(saying(2, "follows", "a", 5, 7), saying(2, "leads", "b", 9, 9))}, "a", 5,
			[]uint64{0, 2, 0}, "leads follows ", true},
		"replicas twice": {told{"a": one(with(saying(1, "leads", "a", 5, 9, 9, 7, 9), func(g *admin.GroupStatus) {
			g.Replicas = append(g.Replicas, wire.ReplicaStatus{ID: 2, Node: "z", Match: 1}, wire.ReplicaStatus{ID: 9, Node: "b", Match: 1}, wire.ReplicaStatus{Node: "y"}, wire.ReplicaStatus{ID: 8})
		}))}, "a", 5, []uint64{0, 2, 0}, "leads  ", true},
		"groups that the map has not": {told{"a": one(lead, with(lead, func(g *admin.GroupStatus) { g.ID = 4 }), with(lead, func(g *admin.GroupStatus) { g.ID = 0 }))}, "a", 5,
			[]uint64{0, 2, 0}, "leads  ", true},
	} {
		list := admin.GroupsOf(threeFounders(), c.told)
		if len(list) != 1 || list[0].ID != 3 || !slices.Equal(list[0].Shards, []uint16{1, 4}) || len(list[0].Replicas) != 3 {
			t.Errorf("%s: %+v", name, list)
			continue
		}
		g := list[0]
		var lag []uint64
		var states []string
		for i, p := range g.Replicas {
			if p.ID != uint64(i+1) || p.Node != string(rune('a'+i)) {
				t.Errorf("%s: replica %d is %+v", name, i, p)
			}
			lag, states = append(lag, p.Lag), append(states, p.State)
		}
		if g.Leader != c.leader || g.Term != c.term || !slices.Equal(lag, c.lag) || strings.Join(states, " ") != c.states || g.Heard() != c.heard {
			t.Errorf("%s: %+v, heard: %v", name, g, g.Heard())
		}
	}
}

// TestGroupsOfTheNodesAlone: before the map is known the nodes are taken at their word, whatever stands there.
func TestGroupsOfTheNodesAlone(t *testing.T) {
	at := func(id uint32, g admin.GroupStatus) admin.GroupStatus { g.ID = id; return g }
	list := admin.GroupsOf(nil, map[string][]admin.GroupStatus{
		"a": {at(7, saying(1, "leads", "a", 5, 9, 9, 7, 9)), at(math.MaxUint32, admin.GroupStatus{State: "leads"}), at(0, saying(1, "leads", "a", 5, 9))},
		"b": {at(2, saying(2, "waits", "", 0, 0))},
	})
	if len(list) != 3 || list[0].ID != 2 || list[1].ID != 7 || list[2].ID != math.MaxUint32 {
		t.Fatalf("%+v", list)
	}
	if g := list[0]; g.Leader != "" || g.Replicas[1].State != "waits" || g.Heard() {
		t.Errorf("%+v", g)
	}
	if g := list[1]; g.Leader != "a" || !slices.Equal(g.Shards, []uint16{1, 4}) || g.Replicas[1].Lag != 2 {
		t.Errorf("%+v", g)
	}
	if text, err := json.Marshal(list[2]); err != nil || string(text) != `{"id":4294967295,"leader":"","term":0,"shards":[],"replicas":[]}` {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := json.Marshal(admin.GroupsOf(nil, nil)); err != nil || string(text) != "[]" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestGroupsOfKeepsItsArguments: the answer shares no memory with what it was made of.
func TestGroupsOfKeepsItsArguments(t *testing.T) {
	make1 := func() ([]admin.Group, map[string][]admin.GroupStatus) {
		return threeFounders(), map[string][]admin.GroupStatus{"a": {saying(1, "leads", "a", 5, 9, 9, 7, 9)}}
	}
	founders, told := make1()
	for _, list := range [][]admin.Group{admin.GroupsOf(founders, told), admin.GroupsOf(founders, nil), admin.GroupsOf(nil, told)} {
		list[0].Shards[0], list[0].Replicas[0] = 99, admin.Replica{}
	}
	wantFounders, wantTold := make1()
	if !reflect.DeepEqual(founders, wantFounders) || !reflect.DeepEqual(told, wantTold) {
		t.Errorf("%+v, %+v", founders, told)
	}
}
