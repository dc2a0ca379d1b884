package consensus

import (
	"context"
	"io"
)

// A Link takes what replicas tell each other from one node to others. What arrives it gives to
// the other node's Endpoint. Nothing is promised: what is sent may be lost, come twice, late, or
// behind what was sent later.
type Link interface {
	// Send takes messages to a node. It does not block, and keeps nothing of b; what it has
	// no room for is lost. Urgent messages, heartbeats and votes, wait for no others.
	Send(node string, urgent bool, b []byte)
	// Snapshot takes a machine's state to a replica at a node. It returns nil when the
	// other node's Receive did, and may take as long as ctx allows.
	Snapshot(ctx context.Context, node string, h SnapshotHead, data io.Reader) error
}

// A SnapshotHead says what a snapshot is, for whom, and by whom.
type SnapshotHead struct {
	Group    GroupID
	From, To ReplicaID
	Term     uint64 // of the leader that sends it
	State    State
}

// An Endpoint is where a Link hands over what other nodes have sent. Every byte of it is
// checked; which node has sent it the Link knows, because it has authenticated that node.
type Endpoint interface {
	// Deliver takes messages (Link.Send) of a node, and keeps nothing of b. What there is no
	// room for is lost. ErrMessage: the node sends what no replica does; what could be told
	// from that was taken.
	Deliver(node string, b []byte) error
	// Receive takes a snapshot that a node sends. It returns nil when the replica has
	// adopted it, or does not need it. ctx ends when the sender is gone. ErrNoGroup,
	// ErrMessage, ErrBusy (another snapshot is on its way, or there was no place for too
	// long), ErrNotTaken.
	Receive(ctx context.Context, node string, h SnapshotHead, data io.Reader) error
}
