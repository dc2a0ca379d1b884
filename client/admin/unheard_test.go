package admin_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestUnheardAdmin: an operation that changes something and is not answered may
// have been done, and its error says so; one that only asks has timed out; one that
// was refused was not done.
func TestUnheardAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 1, true)
		refuse := true
		nodes[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypeDocument || wire.KindOf(wire.Body(msg)) < wire.AdminRotate {
				return nodes[0].Answer(h, msg)
			}
			if refuse {
				out := wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "no such tenant")
				wire.SetCredits(out, 1)
				return out, true
			}
			return nil, true // no reply
		}
		c := dialFakes(t, nodes, nil)
		if _, err := admin.Of(c).Do(t.Context(), "n1", wire.AdminRevoke, "bob"); !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("refused: %v", err)
		}
		refuse = false
		for _, op := range []struct {
			op      wire.DocumentKind
			name    string
			changes bool
		}{
			{wire.AdminRevoke, "bob", true}, {wire.AdminAllow, "bob", true}, {wire.AdminRotate, "start", true}, {wire.AdminGossipKeys, "use 0123456789abcdef", true},
			{wire.AdminRotate, "status", false}, {wire.AdminGossipKeys, "list", false},
			{wire.AdminStatus, "", false}, {wire.AdminTenants, "", false}, {wire.AdminLimits, "", false}, {wire.AdminCheck, "put 1", false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := admin.Of(c).Do(ctx, "n1", op.op, op.name)
			cancel()
			if got := errors.Is(err, client.ErrOutcomeUnknown); got != op.changes || !got && !errors.Is(err, client.ErrTimeout) {
				t.Errorf("%v %s without an answer: %v", op.op, op.name, err)
			}
		}
		// Not sent: certainly not done.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := admin.Of(c).Do(ctx, "n1", wire.AdminRevoke, "bob"); err == nil || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("not sent: %v", err)
		}
	})
}

// TestOperatorsOps: what is no operator's is not sent. A step towards a shard map, say, would be
// taken by any node for one.
func TestOperatorsOps(t *testing.T) {
	var sent atomic.Int32
	var dialled atomic.Bool // what a client asks when it is dialled does not count
	nodes := clienttest.Cluster(t, 1, true)
	nodes[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if dialled.Load() && h.Type == wire.TypeDocument {
			sent.Add(1)
			out := wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "not this one")
			wire.SetCredits(out, 1)
			return out, true
		}
		return nodes[0].Answer(h, msg)
	}
	c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout = time.Second })
	dialled.Store(true)
	for _, op := range []admin.Op{0, wire.DocumentStats, wire.DocumentMap, wire.MapPrepare, wire.MapCommit, wire.MapAbandon, wire.MapFollow, wire.MaxDocumentKind + 1, 1 << 15} {
		if _, err := admin.Of(c).Do(t.Context(), "n1", op, ""); !errors.Is(err, client.ErrOptions) {
			t.Errorf("%v: %v", op, err)
		}
	}
	if n := sent.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	operators := []admin.Op{admin.Rotate, admin.Revoke, admin.Allow, admin.Status, admin.GossipKeys, admin.Limits, admin.Tenants, admin.Check, wire.AdminCluster, wire.AdminCopy}
	for op := range wire.DocumentKinds() {
		if slices.Contains(operators, op) != op.Operators() {
			t.Errorf("%v: %v", op, op.Operators())
		}
	}
}
