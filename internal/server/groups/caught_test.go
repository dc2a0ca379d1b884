package groups

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
)

// TestLacks: what keeps a replica from having caught up.
func TestLacks(t *testing.T) {
	for name, c := range map[string]struct {
		st   consensus.Status
		err  error
		want string // "": it has caught up
	}{
		"leads":                   {st: consensus.Status{Leads: true, Last: 9, Applied: 8}},
		"leads, and has not read": {st: consensus.Status{Leads: true, Last: 9 + nearly, Applied: 8}, want: "257 entries"},
		"follows":                 {st: consensus.Status{Leader: 2, Shown: 9, Applied: 9, Last: 9}},
		"follows, further on":     {st: consensus.Status{Leader: 2, Shown: 9, Applied: 12, Last: 12}},
		"follows closely":         {st: consensus.Status{Leader: 2, Shown: 9 + nearly, Applied: 9}},
		"is behind":               {st: consensus.Status{Leader: 2, Shown: 10 + nearly, Applied: 9, Committed: 9, Last: 9}, want: "257 entries behind"},
		"was told nothing":        {st: consensus.Status{Leader: 2, Applied: 9, Last: 9}, want: "has not said"},
		"knows no leader":         {st: consensus.Status{Shown: 9, Applied: 9}, want: "no leader"},
		"was stopped":             {st: consensus.Status{Leader: 2, Shown: 9, Applied: 9, Fenced: errors.New("bad\nentry")}, want: "stopped: bad"},
		"does not run":            {err: consensus.ErrNoGroup, want: "takes no part yet"},
	} {
		got := lacks(&c.st, c.err)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestKeeps: a node is not taken for unready again because others are away, but if a replica of its own is stopped.
func TestKeeps(t *testing.T) {
	behind, stopped := &consensus.Status{ID: 1, Config: voters(3), Leader: 2, Shown: 1000, Applied: 9}, &consensus.Status{Leader: 2, Shown: 9, Applied: 9, Fenced: errors.New("x")}
	alone := &consensus.Status{ID: 1, Config: voters(3)}
	for name, c := range map[string]struct {
		st     *consensus.Status
		err    error
		caught bool
		want   bool
	}{
		"behind":                  {st: behind, want: true},
		"behind, later":           {st: behind, caught: true},
		"without a leader":        {st: alone, want: true},
		"without a leader, later": {st: alone, caught: true},
		"without a vote":          {st: &consensus.Status{ID: 9, Config: voters(3), Leader: 2, Shown: 1000, Applied: 9}},
		"before it has come":      {st: &consensus.Status{ID: 9}},
		"stopped":                 {st: stopped, want: true},
		"stopped, later":          {st: stopped, caught: true, want: true},
		"not there":               {st: &consensus.Status{}, err: consensus.ErrNoGroup, want: true},
	} {
		if got := keeps(c.st, c.err, c.caught); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLackingWithoutReplicas: who is to have no replicas lacks none; who is to have some and has none says so.
func TestLackingWithoutReplicas(t *testing.T) {
	g := New(Env{Node: "a"})
	plain, replicated := &cluster.Map{}, &cluster.Map{Replication: &cluster.Replication{}}
	var none *Groups
	for name, list := range map[string][]Lacking{
		"alone": none.Lacking(replicated), "no map": g.Lacking(nil), "no replicas": g.Lacking(plain),
	} {
		if len(list) > 0 {
			t.Errorf("%s: %v", name, list)
		}
	}
	if list := g.Lacking(replicated); len(list) != 1 || list[0].Group != 0 || !strings.Contains(list[0].Why, "none of the replicas") {
		t.Errorf("none are there: %v", list)
	}
	g.m = replicated // of which this node has no part
	if list := g.Lacking(replicated); len(list) > 0 {
		t.Errorf("a node that has no part in any group: %v", list)
	}
}
