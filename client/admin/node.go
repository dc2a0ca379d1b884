package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Node is one server as this Client sees it: the only one, or one of a cluster.
// Its methods are those of Admin, or of Client, for this server alone. They are safe for
// concurrent use.
type Node struct{ p *peer.Peer }

// Nodes returns the nodes that own keys, by id; the server itself if it is the
// only one. It returns none while a cluster has no shard map.
func (a *Admin) Nodes() []*Node { return nodesOf(a.rt.Owners()) }

func nodesOf(peers []*peer.Peer) (nodes []*Node) {
	for _, p := range peers {
		nodes = append(nodes, &Node{p})
	}
	return nodes
}

// Known returns all nodes that this Client has anything to do with: those that own
// keys, and others that it was asked about. It is for monitoring: it waits for
// nothing and connects nothing.
func (a *Admin) Known() []*Node { return nodesOf(a.rt.Known()) }

// Node returns one node by its id, also one that owns no keys (yet). It fails
// with ErrUnknownNode. Whether it can be reached its methods tell. A server that
// is the only one has the id "".
func (a *Admin) Node(id string) (*Node, error) {
	p, err := a.rt.Peer(id)
	if err != nil {
		return nil, a.fail("node", nil, err)
	}
	return &Node{p}, nil
}

// NodeOf returns the node that owns key. It fails with ErrNoMap, or with
// ErrUnavailable if the last look for the map has reached no node that has it.
func (a *Admin) NodeOf(key []byte) (*Node, error) {
	p, err := a.rt.NodeOf(key)
	if err != nil {
		return nil, a.fail("node", key, err)
	}
	return &Node{p}, nil
}

// ID is the node's id; "" for a server that is the only one.
func (n *Node) ID() string { return n.p.Node }

// Ping is Client.Ping of this node.
func (n *Node) Ping(ctx context.Context) (time.Duration, error) { return n.p.Ping(ctx) }

// PingRead is Admin.PingRead of this node.
func (n *Node) PingRead(ctx context.Context) (time.Duration, error) { return pingRead(ctx, n.p) }

// Stats is Admin.Stats of this node.
func (n *Node) Stats(ctx context.Context) (Stats, error) { return statsOf(ctx, n.p) }

// Server describes the session with this node; the zero value if there is none.
func (n *Node) Server() ServerInfo { return n.p.Info() }

// Counters returns what this client has done at this node.
func (n *Node) Counters() client.Counters { return n.p.Counters() }

// State returns how things stand with this node, without asking it.
func (n *Node) State() NodeState { return n.p.State() }

// Latencies returns how long calls at this node took.
func (n *Node) Latencies() Latencies { return n.p.Latencies() }

// An Op is something that the operator of a node asks of it. The answer is a JSON text; what
// the name says depends on the Op.
type Op = wire.DocumentKind

const (
	Rotate     = wire.AdminRotate     // rkeys: "" or "start" begins a rotation, "status" asks how far it is
	Revoke     = wire.AdminRevoke     // a tenant, by name: its sessions end, new ones are refused
	Allow      = wire.AdminAllow      // takes a revocation back
	Status     = wire.AdminStatus     // the node; "table NODE": the region table that it has of NODE
	GossipKeys = wire.AdminGossipKeys // "" or "list", "reload" (the key file), "use DIGEST", "remove DIGEST"
	Limits     = wire.AdminLimits     // the limits that are in force, and how often each was met
	Tenants    = wire.AdminTenants    // the tenants, and what each uses
	Check      = wire.AdminCheck      // replicas: "put GROUP" has all replicas of a group, which the node leads, compute a digest; "at GROUP INDEX": the node's
)

// Do asks the node for an operation of its operator, and returns the answer,
// a JSON text. An op that is no operator's fails with client.ErrOptions, and nothing is
// sent. What it needs is the admin right: else it fails with client.ErrDenied. One
// that changes something (a revocation, say) and is not answered fails with
// client.ErrOutcomeUnknown: the node may have done it, or still do it. To ask again does
// no harm.
func (n *Node) Do(ctx context.Context, op Op, name string) (json.RawMessage, error) {
	return do(ctx, n.p, op, name)
}

// Do is Node(node).Do.
func (a *Admin) Do(ctx context.Context, node string, op Op, name string) (json.RawMessage, error) {
	p, err := a.rt.Peer(node)
	if err != nil {
		return nil, a.fail("admin", nil, err)
	}
	return do(ctx, p, op, name)
}

// maxAdmin bounds an answer, bytes of JSON.
const maxAdmin = 16 << 20

func do(ctx context.Context, p *peer.Peer, op Op, name string) (json.RawMessage, error) {
	if !op.Operators() {
		return nil, p.Fail("admin", nil, "", fmt.Errorf("%w: %v is nothing that an operator asks of a node", client.ErrOptions, op))
	}
	if len(name) > wire.MaxAdminName {
		return nil, p.Fail("admin", nil, "", fmt.Errorf("%w: a name of %d bytes, at most %d", client.ErrOptions, len(name), wire.MaxAdminName))
	}
	return document(ctx, p, op, []byte(name))
}

// document asks a node for a document that an operator may ask for: once, if something changes by that, else over as many sessions as it
// takes. The answer is the caller's.
func document(ctx context.Context, p *peer.Peer, op Op, argument []byte) (text []byte, err error) {
	pt := p.Begin(ctx)
	if err := pt.Enter(p.AdminTurn, 1); err != nil {
		return nil, p.Fail("admin "+op.String(), nil, "", err)
	}
	defer p.AdminTurn.Leave(1)
	ask := func(s *session.Session) (err error) {
		text, err = s.Document(&pt, op, argument, maxAdmin)
		return err
	}
	if op.Changes(argument) {
		err = p.AskOnce(&pt, "admin "+op.String(), ask)
	} else {
		err = p.Ask(&pt, "admin "+op.String(), nil, ask)
	}
	return text, err
}
