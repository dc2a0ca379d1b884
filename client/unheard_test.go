package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestUnheardAdmin: an operation that changes something and is not answered may
// have been done, and its error says so; one that only asks has timed out; one that
// was refused was not done.
func TestUnheardAdmin(t *testing.T) {
	nodes := fakeCluster(t, 1, true)
	refuse := true
	nodes[0].onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeAdmin {
			return nodes[0].answer(h, msg)
		}
		if refuse {
			out := wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "no such tenant")
			wire.SetCredits(out, 1)
			return out, true
		}
		return nil, true // no reply
	}
	c := dialFakes(t, nodes, nil)
	if _, err := c.Admin(t.Context(), "n1", wire.AdminRevoke, "bob"); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("refused: %v", err)
	}
	refuse = false
	for _, op := range []struct {
		op      wire.AdminOp
		name    string
		changes bool
	}{
		{wire.AdminRevoke, "bob", true}, {wire.AdminAllow, "bob", true}, {wire.AdminRotate, "start", true}, {wire.AdminGossipKeys, "use 0123456789abcdef", true},
		{wire.AdminRotate, "status", false}, {wire.AdminGossipKeys, "list", false},
		{wire.AdminStatus, "", false}, {wire.AdminTenants, "", false}, {wire.AdminLimits, "", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := c.Admin(ctx, "n1", op.op, op.name)
		cancel()
		if got := errors.Is(err, ErrOutcomeUnknown); got != op.changes || !got && !errors.Is(err, ErrTimeout) {
			t.Errorf("%v %s without an answer: %v", op.op, op.name, err)
		}
	}
	// Not sent: certainly not done.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Admin(ctx, "n1", wire.AdminRevoke, "bob"); err == nil || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("not sent: %v", err)
	}
}
