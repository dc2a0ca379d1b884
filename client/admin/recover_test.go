package admin_test

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
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
