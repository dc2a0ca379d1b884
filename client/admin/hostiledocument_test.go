package admin_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestHostileDocuments: whatever a server answers, a call that reads a document ends: at
// once where the answer makes no sense, with its context where it would go on for ever.
func TestHostileDocuments(t *testing.T) {
	part := func(m wire.DocumentReply) func(wire.Document) wire.DocumentReply {
		return func(wire.Document) wire.DocumentReply { return m }
	}
	ten := make([]byte, 10)
	const enough = 50 // requests, after which the context ends
	for _, c := range []struct {
		name   string
		answer func(m wire.Document) wire.DocumentReply
		most   int64 // requests; 0: until the context ends
	}{
		{"wants what it has", part(wire.DocumentReply{Serial: 1, Wants: true}), 1},
		{"more than anything may have", part(wire.DocumentReply{Serial: 1, Total: 1 << 31, Data: ten}), 1},
		{"a part of nothing", part(wire.DocumentReply{Serial: 1, Total: 100}), 1},
		{"the first part for ever", part(wire.DocumentReply{Serial: 1, Total: 100, Data: ten}), 2},
		{"another document", func(m wire.Document) wire.DocumentReply {
			return wire.DocumentReply{Serial: m.Serial + 1, Total: 100, Offset: m.From, Data: ten}
		}, 2},
		{"less than there was", func(m wire.Document) wire.DocumentReply {
			return wire.DocumentReply{Serial: 1, Total: max(100-10*m.From, m.From), Offset: m.From, Data: ten[:min(10, max(100-10*m.From, m.From)-m.From)]}
		}, 20},
		{"ever more", func(m wire.Document) wire.DocumentReply {
			return wire.DocumentReply{Serial: 1, Total: m.From + 2, Offset: m.From, Data: ten[:1]}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			node := clienttest.Cluster(t, 1, true)[0]
			node.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeDocument || wire.KindOf(wire.Body(msg)) != wire.AdminTenants {
					return node.Answer(h, msg)
				}
				m, err := wire.ParseDocument(wire.Body(msg))
				if err != nil {
					panic(err)
				}
				if asked.Add(1) == enough {
					cancel()
				}
				out := wire.AppendDocumentReply(nil, h.ID, c.answer(m))
				wire.SetCredits(out, 1)
				return out, true
			}
			cl := dialFakes(t, []*clienttest.Node{node}, nil)
			_, err := admin.Of(cl).Do(ctx, "n1", wire.AdminTenants, "")
			switch n := asked.Load(); {
			case c.most > 0 && (!errors.Is(err, client.ErrProtocol) || n > c.most):
				t.Errorf("%v, after %d requests", err, n)
			case c.most == 0 && (!errors.Is(err, context.Canceled) || n < enough):
				t.Errorf("%v, after %d requests", err, n)
			}
		})
	}
}
