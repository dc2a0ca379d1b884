package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestTasks: a task is seen to get on until it is done, to rest while moves are paused, and to end when it is canceled.
func TestTasks(t *testing.T) {
	s := clienttest.Live(t, 3, 1)
	s.Lead("n2")
	a := admin.Of(dialFakes(t, s.Nodes, nil))
	if _, err := a.Change(t.Context(), adds("n4")); err != nil {
		t.Fatal(err)
	}
	if answer, err := a.Pause(t.Context()); err != nil || !answer.Paused {
		t.Errorf("pause: %+v, %v", answer, err)
	}
	done := func() (n int) {
		answer, err := a.Tasks(t.Context())
		if err != nil || len(answer.Tasks) == 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
		for _, m := range answer.Tasks[0].Moves {
			if m.State == "done" {
				n++
			}
		}
		return n
	}
	if n := done(); n != 0 {
		t.Errorf("%d moves are done while they are paused", n)
	}
	if answer, err := a.Resume(t.Context()); err != nil || answer.Paused {
		t.Errorf("resume: %+v, %v", answer, err)
	}
	for want := 1; want <= 5; want++ {
		if n := done(); n != want {
			t.Errorf("%d moves are done, want %d", n, want)
		}
	}
	if done(); s.Tasks()[0].State != "done" {
		t.Errorf("%+v", s.Tasks())
	}
	if _, err := a.Change(t.Context(), admin.ChangeRequest{Kind: admin.RemoveNodes, Nodes: []admin.NodeWeight{{ID: "n1", Weight: 7, Zone: "x"}}}); err != nil {
		t.Fatal(err)
	}
	asked := s.Asked()
	if last := asked[len(asked)-1]; last.Nodes[0] != (wire.ClusterNode{ID: "n1"}) {
		t.Errorf("of one that goes the question has %+v", last.Nodes[0])
	}
	if answer, err := a.Cancel(t.Context(), 2); err != nil || answer.Task.ID != 2 || answer.Task.State != "canceled" {
		t.Errorf("cancel: %+v, %v", answer, err)
	}
	if _, err := a.Cancel(t.Context(), 7); !errors.Is(err, admin.ErrRefused) || !strings.Contains(err.Error(), "no task 7") {
		t.Errorf("cancel of what is not there: %v", err)
	}
}

// TestCancelsAnother: an answer about another task leaves open what became of the one that was meant.
func TestCancelsAnother(t *testing.T) {
	s := clienttest.Live(t, 3, 0)
	s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) {
		return text(wire.ClusterAnswer{State: wire.ClusterTaken, Task: &wire.ClusterTask{ID: 1}}), q.Do == wire.ClusterCancel
	}
	a := admin.Of(dialFakes(t, s.Nodes, func(c *client.Config) { c.Timeout = 100 * time.Millisecond }))
	if _, err := a.Cancel(t.Context(), 2); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("another task is said to be canceled: %v", err)
	}
}

// TestChangeRequests: what no cluster could do is found before any node is asked.
func TestChangeRequests(t *testing.T) {
	s := clienttest.Live(t, 3, 1)
	a := admin.Of(dialFakes(t, s.Nodes, nil))
	many := admin.ChangeRequest{Kind: admin.RemoveNodes}
	for i := range 1024 {
		many.Nodes = append(many.Nodes, admin.NodeWeight{ID: fmt.Sprintf("%s-%d", strings.Repeat("n", 58), i)})
	}
	for name, tc := range map[string]struct {
		r    admin.ChangeRequest
		want string
	}{
		"nothing":            {admin.ChangeRequest{}, "nothing that can become"},
		"no nodes":           {adds(), "no nodes"},
		"no id":              {adds("N4"), "N4"},
		"twice":              {adds("n4", "n4"), "twice"},
		"left out":           {admin.ChangeRequest{Kind: admin.AddNodes, Nodes: []admin.NodeWeight{{ID: "n4", Out: true}}}, "weight"},
		"too heavy":          {admin.ChangeRequest{Kind: admin.AddNodes, Nodes: []admin.NodeWeight{{ID: "n4", Weight: cluster.MaxWeight + 1}}}, "weight"},
		"no zone":            {admin.ChangeRequest{Kind: admin.AddNodes, Nodes: []admin.NodeWeight{{ID: "n4", Zone: "a b"}}}, "zone"},
		"add and old":        {admin.ChangeRequest{Kind: admin.AddNodes, Nodes: weights("n4"), Old: "n1"}, "nothing to do with"},
		"replace by two":     {admin.ChangeRequest{Kind: admin.ReplaceNode, Old: "n1", Nodes: weights("n4", "n5")}, "one is needed"},
		"replace nobody":     {admin.ChangeRequest{Kind: admin.ReplaceNode, Nodes: weights("n4")}, "node id"},
		"by itself":          {admin.ChangeRequest{Kind: admin.ReplaceNode, Old: "n1", Nodes: weights("n1")}, "own place"},
		"rebalance a node":   {admin.ChangeRequest{Kind: admin.Rebalance, Nodes: weights("n1")}, "nothing to do with"},
		"two replicas":       {admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: 2}, "even number"},
		"nine replicas":      {admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: 9}, "1, 3, 5 or 7"},
		"replicas of a node": {admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: 3, Nodes: weights("n1")}, "nothing to do with"},
		"a thousand nodes":   {many, "fewer nodes"},
	} {
		if _, err := a.Change(t.Context(), tc.r); !errors.Is(err, client.ErrOptions) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if q := s.Asked(); len(q) != 0 {
		t.Errorf("asked %+v", q)
	}
}

// TestChangeElsewhere: a cluster that cannot be changed says so at once: without a map, without replicas, of an older version, and for
// whoever has no right.
func TestChangeElsewhere(t *testing.T) {
	refuse := func(nodes []*clienttest.Node, status wire.Status) {
		for _, n := range nodes {
			n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeDocument || wire.KindOf(wire.Body(msg)) != wire.AdminCluster {
					return n.Answer(h, msg)
				}
				out := wire.AppendError(nil, h.Type, h.ID, status, "")
				wire.SetCredits(out, 1)
				return out, true
			}
		}
	}
	for name, tc := range map[string]struct {
		nodes func() []*clienttest.Node
		want  error
	}{
		"without a map":    {func() []*clienttest.Node { return clienttest.Cluster(t, 3, false) }, client.ErrNoMap},
		"without replicas": {func() []*clienttest.Node { return clienttest.Cluster(t, 3, true) }, client.ErrUnsupported},
		"of older versions": {func() []*clienttest.Node {
			s := clienttest.Live(t, 3, 0)
			refuse(s.Nodes, wire.StatusUnsupported)
			return s.Nodes
		}, client.ErrUnsupported},
		"one older version": {func() []*clienttest.Node {
			s := clienttest.Live(t, 3, 0)
			s.Lead("n2")
			refuse(s.Nodes[:1], wire.StatusUnsupported)
			return s.Nodes
		}, nil},
		"without the right": {func() []*clienttest.Node {
			s := clienttest.Live(t, 3, 0)
			refuse(s.Nodes, wire.StatusDenied)
			return s.Nodes
		}, client.ErrDenied},
	} {
		nodes := tc.nodes()
		if _, err := admin.Of(dialFakes(t, nodes, nil)).Tasks(t.Context()); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestClusterInitOfLiveCluster: a cluster that has changed since its birth is there: init again changes nothing, also while its nodes have
// maps of different versions.
func TestClusterInitOfLiveCluster(t *testing.T) {
	s := clienttest.Live(t, 3, 0)
	later, err := s.Map().Draft().Map(s.Map())
	if err != nil {
		t.Fatal(err)
	}
	s.Nodes[1].Map = later
	c := dialFakes(t, s.Nodes, nil)
	info, err := admin.Of(c).ClusterInitWith(t.Context(), weights("n1", "n2", "n3"), admin.InitOptions{Replicas: 3})
	if err != nil || info.MapVersion == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, n := range s.Nodes {
		if len(n.Steps) != 0 {
			t.Errorf("%s was told %v", n.ID, n.Steps)
		}
	}
}
