package admin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestRecoverAsks: what the seat is asked is what the caller has said, and what it answers is what the caller is told.
func TestRecoverAsks(t *testing.T) {
	s := clienttest.Live(t, 3, 0)
	var asked []wire.ClusterQuestion
	loss := &wire.ClusterLoss{Group: 3, From: "n2", Last: 9, Away: []string{"n1"}, Made: 7}
	s.Say = func(node string, q wire.ClusterQuestion) ([]byte, bool) {
		if q.Do != wire.ClusterRecover {
			return nil, false
		}
		if q.Group == 0 && node != "n2" {
			t.Errorf("node %s is asked to make the meta group", node)
		}
		asked = append(asked, q)
		switch {
		case q.Dry:
			return text(wire.ClusterAnswer{State: wire.ClusterPlan, Loss: loss}), true
		case q.Accept:
			return text(wire.ClusterAnswer{State: wire.ClusterTaken, Loss: loss}), true
		}
		return text(wire.ClusterAnswer{State: wire.ClusterRefused, Why: "that has to be accepted"}), true
	}
	a := admin.Of(dialFakes(t, s.Nodes, nil))
	for _, c := range []struct {
		r     admin.RecoverRequest
		want  error
		asks  int
		loses bool
	}{
		{admin.RecoverRequest{Group: 3, From: "n2", Dry: true}, nil, 1, true},
		{admin.RecoverRequest{Group: 3, From: "n2", AcceptLoss: true}, nil, 1, true},
		{admin.RecoverRequest{Group: 3, From: "n2"}, admin.ErrRefused, 1, false},
		{admin.RecoverRequest{Group: 0, From: "n2", AcceptLoss: true}, nil, 1, true}, // of that node alone
		{admin.RecoverRequest{Group: 0, From: "n2"}, admin.ErrRefused, 1, false},
		{admin.RecoverRequest{Group: 0, From: "n9", AcceptLoss: true}, client.ErrUnknownNode, 0, false},
		{admin.RecoverRequest{Group: 3, From: "N2", AcceptLoss: true}, client.ErrOptions, 0, false},
		{admin.RecoverRequest{Group: 3, AcceptLoss: true}, client.ErrOptions, 0, false},
	} {
		asked = nil
		answer, err := a.Recover(t.Context(), c.r)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || len(asked) != c.asks || (answer.Loss != nil) != c.loses {
			t.Errorf("%+v: %+v, %v; asked %+v", c.r, answer, err, asked)
		}
		for _, q := range asked {
			if q.Group != c.r.Group || q.From != c.r.From || q.Accept != c.r.AcceptLoss || q.Dry != c.r.Dry {
				t.Errorf("%+v is asked as %+v", c.r, q)
			}
		}
	}
}

// TestRecoverAsksAll: before a node is asked to make the meta group anew, all nodes that the client reaches are asked for their maps: if another one has made it, or there are two, that is refused.
func TestRecoverAsksAll(t *testing.T) {
	anew := func(m *cluster.Map, version uint64, lives ...uint64) *cluster.Map {
		next, r := *m, *m.Replication
		r.Lives, next.Replication, next.Version = lives, &r, version
		return &next
	}
	for name, c := range map[string]struct {
		maps map[string]func(m *cluster.Map) *cluster.Map
		want string // "": the node is asked
	}{
		"nobody has":      {nil, ""},
		"that node has":   {map[string]func(m *cluster.Map) *cluster.Map{"n2": func(m *cluster.Map) *cluster.Map { return anew(m, 1<<32, 7) }}, ""},
		"another one has": {map[string]func(m *cluster.Map) *cluster.Map{"n3": func(m *cluster.Map) *cluster.Map { return anew(m, 1<<32, 7) }}, "was made anew before"},
		"two have": {map[string]func(m *cluster.Map) *cluster.Map{
			"n1": func(m *cluster.Map) *cluster.Map { return anew(m, 1<<32, 7) }, "n3": func(m *cluster.Map) *cluster.Map { return anew(m, 1<<32+3, 8) },
		}, "two meta groups"},
	} {
		s := clienttest.Live(t, 3, 0)
		asked := 0
		s.Say = func(_ string, q wire.ClusterQuestion) ([]byte, bool) {
			if q.Do != wire.ClusterRecover {
				return nil, false
			}
			asked++
			return text(wire.ClusterAnswer{State: wire.ClusterTaken, Loss: &wire.ClusterLoss{From: "n2"}}), true
		}
		conn := dialFakes(t, s.Nodes, nil)
		for _, n := range s.Nodes {
			if f := c.maps[n.ID]; f != nil {
				n.Set(func(n *clienttest.Node) { n.Map = f(n.Map) })
			}
		}
		_, err := admin.Of(conn).Recover(t.Context(), admin.RecoverRequest{Group: 0, From: "n2", AcceptLoss: true})
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, admin.ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) || (asked == 1) != (c.want == "") {
			t.Errorf("%s: asked %d times, %v, want %q", name, asked, err, c.want)
		}
	}
}
