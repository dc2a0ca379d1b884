package groups

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// TestRoomy: a leader whose disk is full hands its group to a voter that has room and could lead at once, and to nobody else.
func TestRoomy(t *testing.T) {
	full := func() *consensus.Status {
		return &consensus.Status{
			Group: 3, ID: 1, Leads: true, Full: true, Term: 4, Last: 1000, Config: voters(3),
			Peers: []consensus.Peer{
				{Member: consensus.Member{ID: 2}, Match: 1000, Active: true},
				{Member: consensus.Member{ID: 3}, Match: 900, Active: true, Room: true},
			},
		}
	}
	for name, c := range map[string]struct {
		change func(*consensus.Status)
		want   consensus.ReplicaID
	}{
		"one has room":                {func(*consensus.Status) {}, 3},
		"both have room":              {func(st *consensus.Status) { st.Peers[0].Room = true }, 2},
		"its own disk has room":       {func(st *consensus.Status) { st.Full = false }, 0},
		"it does not lead":            {func(st *consensus.Status) { st.Leads = false }, 0},
		"it was stopped":              {func(st *consensus.Status) { st.Fenced = errors.New("x") }, 0},
		"all are full":                {func(st *consensus.Status) { st.Peers[1].Room = false }, 0},
		"who has room is silent":      {func(st *consensus.Status) { st.Peers[1].Active = false }, 0},
		"who has room is far behind":  {func(st *consensus.Status) { st.Peers[1].Match = st.Last - nearly - 1 }, 0},
		"who has room gets a state":   {func(st *consensus.Status) { st.Peers[1].Snapshot = true }, 0},
		"who has room is a learner":   {func(st *consensus.Status) { st.Peers[1].Learner = true }, 0},
		"who has room is no voter":    {func(st *consensus.Status) { st.Config = voters(2) }, 0},
		"nobody is known":             {func(st *consensus.Status) { st.Peers = nil }, 0},
		"who has room is this itself": {func(st *consensus.Status) { st.Peers[1].ID = 1 }, 0},
	} {
		st := full()
		c.change(st)
		if got := roomy(st); got != c.want {
			t.Errorf("%s: replica %d, want %d", name, got, c.want)
		}
	}
	both := full()
	both.Peers[0].Room, both.Peers[1].Match = true, 1000
	took := map[consensus.ReplicaID]int{}
	for g := range consensus.GroupID(30) {
		both.Group = g
		took[roomy(both)]++
	}
	if took[2] < 5 || took[3] < 5 {
		t.Errorf("of 30 groups the two others take %v: all groups of a full node go to one", took)
	}
}
