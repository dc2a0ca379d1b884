package groups

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A link is the engine's way to other nodes, from before there is one. It implements consensus.Link.
type link struct {
	to  atomic.Pointer[transport.Transport] // nil: there is no map yet
	cut atomic.Bool                         // by Groups.Cut
}

var _ consensus.Link = (*link)(nil)

// A map fits into an answer of another node; if it did not, this would not compile.
const _ uint = transport.MaxAsk - cluster.MaxMap

// now is the transport, as long as this process may speak for its node.
func (l *link) now() *transport.Transport {
	if l.cut.Load() {
		return nil
	}
	return l.to.Load()
}

// Send implements consensus.Link.
func (l *link) Send(node string, urgent bool, b []byte) {
	if t := l.now(); t != nil {
		t.Send(node, urgent, b)
	}
}

// Snapshot implements consensus.Link.
func (l *link) Snapshot(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	if t := l.now(); t != nil {
		return t.Snapshot(ctx, node, h, data)
	}
	return consensus.ErrClosed
}

// Ask asks another node (transport.Ask). consensus.ErrClosed: there is no map yet, or this process may not speak for its node any more; an answer
// that comes when it may not is none.
func (l *link) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	t := l.now()
	if t == nil {
		return nil, consensus.ErrClosed
	}
	answer, err := t.Ask(ctx, node, question)
	if l.cut.Load() {
		return nil, consensus.ErrClosed
	}
	return answer, err
}

// answering returns what answers other nodes as long as this process may speak for its node; nil: nobody does.
func (l *link) answering(answer func(ctx context.Context, node string, question []byte) ([]byte, error)) func(ctx context.Context, node string, question []byte) ([]byte, error) {
	if answer == nil {
		return nil
	}
	return func(ctx context.Context, node string, question []byte) ([]byte, error) {
		if l.cut.Load() {
			return nil, consensus.ErrClosed
		}
		b, err := answer(ctx, node, question)
		if l.cut.Load() {
			return nil, consensus.ErrClosed
		}
		return b, err
	}
}

// A door is the engine to other nodes: it is shut when this process may not speak for its node any more.
type door struct {
	consensus.Endpoint
	*link
}

// Deliver implements consensus.Endpoint.
func (d door) Deliver(node string, b []byte) error {
	if d.cut.Load() {
		return nil // as if the way had lost it
	}
	return d.Endpoint.Deliver(node, b)
}

// Receive implements consensus.Endpoint.
func (d door) Receive(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	if d.cut.Load() {
		return consensus.ErrClosed
	}
	return d.Endpoint.Receive(ctx, node, h, data)
}

// Ask asks another node a question, which its Env.Answer answers (transport.Ask says what is promised).
//
// Errors: those of transport.Ask. consensus.ErrClosed also if there are no replicas here (yet), or after Cut.
func (g *Groups) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	if g == nil {
		return nil, consensus.ErrClosed
	}
	return g.link.Ask(ctx, node, question)
}

// Accept answers the connection request of another node (wire.IsNode), which came by a device. It does not block.
func (g *Groups) Accept(dev rdma.Device, req rdma.ConnRequest) {
	if g != nil {
		if t := g.link.now(); t != nil {
			t.Accept(dev, req)
			return
		}
	}
	_ = req.Reject(wire.AppendNodeReject(nil, req.PrivateData(), wire.NodeSpeaks(), wire.NodeRefused))
}

// Release lets go of a device that is gone: it returns when nothing of the ways to other nodes is left on it, or with ctx's error. Closed tells
// that it is closed.
func (g *Groups) Release(ctx context.Context, dev rdma.Device) error {
	if g != nil {
		if t := g.link.to.Load(); t != nil {
			return t.Release(ctx, dev)
		}
	}
	return nil
}

// Closed tells that a device which was released is closed.
func (g *Groups) Closed(dev rdma.Device) {
	if g != nil {
		if t := g.link.to.Load(); t != nil {
			t.Closed(dev)
		}
	}
}

// Cut ends what the node's replicas say to others and hear of them, at once: another process is this node, and speaks for it from now on. It
// does not wait.
func (g *Groups) Cut() {
	if g != nil {
		g.link.cut.Store(true)
	}
}
