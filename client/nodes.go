package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// errNameNode: there are several, and the call is about one.
var errNameNode = fmt.Errorf("%w: it is about one node of the cluster: use Node", ErrUnsupported)

// A Node is one server as this Client sees it: the only one, or one of a cluster.
// Its methods are those of Client for this server alone. Safe for concurrent use.
type Node struct{ p *peer }

// Nodes returns the nodes that own keys, by id; the server itself if it is the
// only one. It returns none while a cluster has no shard map.
func (c *Client) Nodes() []*Node {
	if c.solo != nil {
		return []*Node{{c.solo}}
	}
	var nodes []*Node
	for _, p := range c.fleet.owners() {
		nodes = append(nodes, &Node{p})
	}
	return nodes
}

// Known returns all nodes that this Client has anything to do with: those that own
// keys, and others that it was asked about. It is for monitoring: it waits for
// nothing and connects nothing.
func (c *Client) Known() []*Node {
	if c.solo != nil {
		return []*Node{{c.solo}}
	}
	var nodes []*Node
	for _, p := range c.fleet.known() {
		nodes = append(nodes, &Node{p})
	}
	return nodes
}

// Node returns one node by its id, also one that owns no keys (yet). It fails
// with ErrUnknownNode. Whether it can be reached its methods tell. A server that
// is the only one has the id "".
func (c *Client) Node(id string) (*Node, error) {
	p, err := c.node(id)
	if err != nil {
		return nil, c.fail("node", nil, err)
	}
	return &Node{p}, nil
}

func (c *Client) node(id string) (*peer, error) {
	if c.fleet != nil {
		return c.fleet.peer(id)
	}
	if id != "" && id != c.solo.serverInfo().Node {
		return nil, fmt.Errorf("%w: %q; there is one server only", ErrUnknownNode, id)
	}
	return c.solo, nil
}

// NodeOf returns the node that owns key. It fails with ErrNoMap, or with
// ErrUnavailable if the last look for the map has not reached who has it.
func (c *Client) NodeOf(key []byte) (*Node, error) {
	if c.solo != nil {
		return &Node{c.solo}, nil
	}
	p, err := c.fleet.owner(key)
	if err != nil {
		return nil, c.fail("node", key, (&rerouting{away: c.fleet.mapAway()}).because(err))
	}
	return &Node{p}, nil
}

// ID is the node's id; "" for a server that is the only one.
func (n *Node) ID() string { return n.p.node }

// Ping is Client.Ping of this node.
func (n *Node) Ping(ctx context.Context) (time.Duration, error) { return n.p.ping(ctx) }

// PingRead is Client.PingRead of this node.
func (n *Node) PingRead(ctx context.Context) (time.Duration, error) { return n.p.pingRead(ctx) }

// Stats is Client.Stats of this node.
func (n *Node) Stats(ctx context.Context) (Stats, error) { return n.p.stats(ctx) }

// Server describes the session with this node; the zero value if there is none.
func (n *Node) Server() ServerInfo { return n.p.serverInfo() }

// Counters returns what this client has done at this node.
func (n *Node) Counters() Counters { return n.p.counters() }

// View is Client.View of this node.
func (n *Node) View(ctx context.Context) (*layout.View, error) { return n.p.view(ctx) }

// ReadRegion is Client.ReadRegion of this node.
func (n *Node) ReadRegion(ctx context.Context, region uint32, off uint64, dst []byte) error {
	return n.p.readRegion(ctx, region, off, dst)
}

// An AdminOp is something that the operator of a node asks of it.
type AdminOp = wire.AdminOp

// Admin asks the node for an operation of its operator, and returns the answer,
// a JSON text. What it needs is the admin right: else it fails with ErrDenied. One
// that changes something (a revocation, say) and is not answered fails with
// ErrOutcomeUnknown: the node may have done it, or still do it. To ask again does
// no harm.
func (n *Node) Admin(ctx context.Context, op AdminOp, name string) (json.RawMessage, error) {
	return n.p.admin(ctx, op, name)
}

// Admin is Node(node).Admin.
func (c *Client) Admin(ctx context.Context, node string, op AdminOp, name string) (json.RawMessage, error) {
	p, err := c.node(node)
	if err != nil {
		return nil, c.fail("admin", nil, err)
	}
	return p.admin(ctx, op, name)
}

// AdminAll asks every node that owns keys, and returns the answers by node id.
// It fails with a *PartialError if one has not done it; the answers of the others
// count.
func (c *Client) AdminAll(ctx context.Context, op AdminOp, name string) (map[string]json.RawMessage, error) {
	answers := make(map[string]json.RawMessage)
	if c.solo != nil {
		text, err := c.solo.admin(ctx, op, name)
		if err == nil {
			answers[""] = text
		}
		return answers, err
	}
	var mu sync.Mutex
	err := c.fleet.each(ctx, "admin", func(p *peer) error {
		text, err := p.admin(ctx, op, name)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			answers[p.node] = text
		}
		return err
	})
	return answers, err
}

// maxAdmin bounds an answer, bytes of JSON.
const maxAdmin = 16 << 20

func (c *peer) admin(ctx context.Context, op AdminOp, name string) (json.RawMessage, error) {
	if len(name) > wire.MaxAdminName {
		return nil, c.fail("admin", nil, "", fmt.Errorf("%w: a name of %d bytes, at most %d", ErrOptions, len(name), wire.MaxAdminName))
	}
	m := wire.Admin{Op: op, Name: []byte(name)}
	p := c.begin(ctx)
	if err := p.enter(c.adminTurn, 1); err != nil {
		return nil, c.fail("admin "+op.String(), nil, "", err)
	}
	defer c.adminTurn.leave(1)
	var text []byte
	err := c.askOnce(&p, "admin "+op.String(), func(s *session) error {
		text = text[:0]
		for total := uint32(1); uint32(len(text)) < total; {
			sl, err := s.open(&p)
			if err != nil {
				return err
			}
			m.Offset = uint32(len(text))
			r, err := sl.call(&p, wire.AppendAdmin(sl.buf[:0], sl.id(), m))
			if err != nil {
				return unheard(err, m.Changes())
			}
			part, err := wire.ParseAdminReply(r.body)
			if err == nil && (part.Total > maxAdmin || int(part.Offset) != len(text) || len(part.Data) == 0 && part.Total > 0) {
				err = fmt.Errorf("part at %d of %d bytes", part.Offset, part.Total)
			}
			if err != nil {
				return unheard(r.malformed(err), m.Changes())
			}
			text, total = append(text, part.Data...), part.Total
			r.done()
		}
		return nil
	})
	return text, err
}

// unheard makes the error of a request that was sent and has no answer that makes
// sense an ErrOutcomeUnknown, if it changes something. What the server has refused,
// or was never sent, stays what it is.
func unheard(err error, changes bool) error {
	if not := (errNotSent{}); !changes || errors.As(err, &not) {
		return err
	}
	for _, silence := range [...]error{errLate, errLost, ErrProtocol, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, silence) {
			return because(ErrOutcomeUnknown, err)
		}
	}
	return err
}

// each does f at every node that owns keys, side by side. The error is a
// *PartialError.
func (f *fleet) each(ctx context.Context, op string, do func(*peer) error) error {
	peers, err := f.ownersNow(ctx)
	if err != nil {
		return f.fail(op, nil, err)
	}
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	e := &PartialError{Total: len(peers)}
	for i, err := range errs {
		if err != nil {
			e.Failures = append(e.Failures, Failure{Index: -1, Node: peers[i].node, Err: err})
		}
	}
	if e.Failures == nil {
		return nil
	}
	return &Error{Op: op, Err: e}
}

// slowest is the longest time that a node took.
func (f *fleet) slowest(ctx context.Context, op string, do func(*peer) (time.Duration, error)) (longest time.Duration, err error) {
	var mu sync.Mutex
	err = f.each(ctx, op, func(p *peer) error {
		took, err := do(p)
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, took)
		return err
	})
	return longest, err
}

// stats are those of all nodes.
func (f *fleet) stats(ctx context.Context) (Stats, error) {
	var mu sync.Mutex
	nodes := make(map[string]Stats)
	err := f.each(ctx, "stats", func(p *peer) error {
		st, err := p.stats(ctx)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			nodes[p.node] = st
		}
		return err
	})
	return Stats{Client: f.counters(), Nodes: nodes}, err
}
