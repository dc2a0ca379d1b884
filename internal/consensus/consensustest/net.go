package consensustest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// A network takes messages between the nodes of a world.
type network struct {
	w *World

	mu                sync.Mutex
	cuts              map[[2]string]bool // from, to
	loss              float64            // of messages
	twice             float64            // of messages
	upTo              time.Duration      // a message takes up to so long
	lose              int                // of the snapshots that come, so many do not arrive
	snaps             int                // that were sent
	taken             int                // that arrived
	haul              time.Duration      // a snapshot takes so long
	intake            time.Duration      // and to be received
	sending, received tally              // snapshots, by nodes
	beats             int                // frames with heartbeats that were sent
}

func newNetwork(w *World) *network {
	return &network{w: w, cuts: map[[2]string]bool{}, upTo: time.Millisecond}
}

// cut cuts the way from one node to another, or mends it.
func (n *network) cut(from, to string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]string{from, to}] = on
}

// isolate cuts a node off from all, or mends that.
func (n *network) isolate(node string, on bool) {
	for _, other := range n.w.names {
		if other != node {
			n.cut(node, other, on)
			n.cut(other, node, on)
		}
	}
}

// slow has each message take up to so long.
func (n *network) slow(upTo time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.upTo = upTo
}

// heal mends everything.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
	n.loss, n.twice, n.upTo = 0, 0, time.Millisecond
}

func (n *network) heartbeatsSent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.beats
}

func (n *network) snapshotsSent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.snaps
}

// A link is one node's end of the network. It implements consensus.Link.
type link struct {
	n    *network
	node *Node
}

// Send takes messages to a node, sometimes.
func (l *link) Send(to string, _ bool, b []byte) {
	beats := 0
	defer func() {
		l.n.mu.Lock()
		l.n.beats += beats
		l.n.mu.Unlock()
	}()
	for len(b) > 0 {
		g, m, rest, err := core.ParseMessage(b)
		if err != nil {
			l.n.w.judge.mu.Lock()
			l.n.w.judge.wrong("%s sends %s what cannot be parsed: %v", l.node.name, to, err)
			l.n.w.judge.mu.Unlock()
			return
		}
		if m.GetType() == pb.MsgHeartbeat {
			beats = 1
		}
		l.n.send(l.node, to, g, m, bytes.Clone(b[:len(b)-len(rest)]))
		b = rest
	}
}

// send takes one message to a node. A message that leaves is held to R1.
func (n *network) send(from *Node, to string, g consensus.GroupID, m *pb.Message, b []byte) {
	promise := m.GetType() != pb.MsgPreVote && (m.GetType() != pb.MsgPreVoteResp || m.GetReject())
	n.w.judge.mu.Lock()
	if word := n.w.judge.of(g).words[consensus.ReplicaID(m.GetFrom())]; promise && m.GetTerm() > word {
		n.w.judge.wrong("R1: replica %d of group %d sends %v of term %d, and its word is %d", m.GetFrom(), g, m.GetType(), m.GetTerm(), word)
	}
	n.w.judge.mu.Unlock()
	n.mu.Lock()
	copies := 1
	if n.w.node(to) == nil || n.cuts[[2]string{from.name, to}] || n.w.chance(n.loss) {
		copies = 0
	} else if n.w.chance(n.twice) {
		copies = 2
	}
	upTo := n.upTo
	n.mu.Unlock()
	for range copies {
		time.AfterFunc(n.w.upTo(upTo), func() {
			if e := n.w.node(to).endpoint(); e != nil {
				if err := e.Deliver(from.name, b); err != nil && !errors.Is(err, consensus.ErrClosed) {
					n.w.judge.mu.Lock()
					n.w.judge.wrong("%s refuses what %s sends: %v", to, from.name, err)
					n.w.judge.mu.Unlock()
				}
			}
		})
	}
}

var errCut = errors.New("consensustest: the network is cut")

// Snapshot takes a state to a node, which takes a while.
func (l *link) Snapshot(ctx context.Context, to string, h consensus.SnapshotHead, data io.Reader) (err error) {
	b, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	pair := l.node.name + " to " + to
	l.n.mu.Lock()
	l.n.snaps++
	l.n.sending.add(pair, 1)
	haul := l.n.haul
	l.n.mu.Unlock()
	defer func() {
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		l.n.sending.add(pair, -1)
		if err == nil {
			l.n.taken++
		}
	}()
	select {
	case <-time.After(haul + l.n.w.upTo(20*time.Millisecond)):
	case <-ctx.Done():
		return ctx.Err()
	}
	l.n.mu.Lock()
	lost := l.n.lose > 0
	if lost {
		l.n.lose--
	}
	cut := lost || l.n.cuts[[2]string{l.node.name, to}] || l.n.cuts[[2]string{to, l.node.name}]
	l.n.mu.Unlock()
	e := l.n.w.node(to).endpoint()
	if cut || e == nil {
		l.n.w.sleep(100 * time.Millisecond)
		return errCut
	}
	return l.receive(ctx, to, e, h, b)
}
