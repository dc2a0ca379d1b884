// Package doctor examines a machine on which a node or a client of the store is
// to run, step by step from the ground up, and says of each step whether it
// holds, what is wrong, and what to do about it:
//
//	the machine   kernel modules, libraries, devices, ports, GIDs, MTU,
//	              locked memory, huge pages, cgroup, clock
//	the node      key files, data directory, ports to listen at
//	the way       names, gossip and data ports of every peer
//	a session     messages, one-sided READs, large READs, clocks compared
//
// It changes nothing but one small file in the data directory, which it removes
// again, and needs no running node: if the node is not there, that is a finding
// like others.
//
// What the kernel tells by files is read below Host.Root, so that a test can put
// another machine there. Every fault has a code that does not change between
// versions (codes.go): scripts use the code, people the text.
//
// exam.go runs the steps in order, report.go prints what they found; each other
// file is about one thing that is examined.
package doctor

import (
	"context"
	"net/netip"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Settings is what the machine is judged against: plain values of the
// configuration. A zero value means that the configuration does not say.
type Settings struct {
	Node bool // a node is to run here; else only a client

	// Both.
	Fabric       string   // auto, verbs, iwarp
	Devices      []string // named by the operator
	RequireRDMA  bool
	VerbsConnect string // cm or tcp
	GIDIndex     int    // -1: chosen by address
	PathMTU      int    // 0: the port's
	Files        []KeyFile
	WeakSecrets  []string // keys, variables and tenants whose secrets look as if a person had thought of them
	TLS          TLS
	Ways         []Way // which fabrics are used, and why others are not

	// A node.
	NodeID      string
	Cluster     string // label of the cluster; used if Gossip is set
	DataDir     string
	Cache       bool // nothing is kept on disk
	Listen      []string
	Admin       string
	Gossip      string   // HOST:PORT, "" for a standalone node
	Advertise   string   // gossip address that others are told; "" is Gossip
	Join        []string // gossip addresses of other nodes
	GossipKeys  [][]byte // the primary one first
	MaxSessions int
	MemoryLimit uint64
	RegionSize  uint64
	IndexRegion uint64
	HugePages   string // auto, off, try, on

	// Peers are the data addresses to make a session with. SelfPeers are this
	// node's own: they are examined if it is found running.
	Peers, SelfPeers []string

	// These say why there is nothing to make a session, or gossip, with.
	NoSession, NoGossip error
}

// A KeyFile is a file with something secret, or that says which peers to trust.
type KeyFile struct {
	Key    string // of the configuration: secret_file
	Path   string
	Secret bool  // others may not read it
	Err    error // the error of reading it, from the code that knows its form
}

// A Way is an address and the fabrics for it.
type Way struct {
	Address string
	Listen  bool     // a node listens there; else a client dials it
	Use     []string // "verbs/mlx5_0 at 10.0.0.1:7400: why"
	Not     []string // why others are not used
}

// A Peer is a session with a node. What it tells is what an admin.Node of a client tells that
// is connected to this node alone.
type Peer interface {
	Server() admin.ServerInfo
	Ping(context.Context) (time.Duration, error)
	PingRead(context.Context) (time.Duration, error)
	View(context.Context) (*layout.View, error)
	ReadRegion(ctx context.Context, region uint32, off uint64, dst []byte) error
	Close() error
}

// A Clustered peer tells of the other nodes of its cluster.
type Clustered interface {
	Cluster(context.Context) (admin.ClusterInfo, error)
}

// A Replicating peer tells an operator of the groups of replicas of which it has one.
type Replicating interface {
	Groups(context.Context) ([]admin.GroupStatus, error)
}

// A Gossiping peer tells an operator of its gossip.
type Gossiping interface {
	Gossip(context.Context) (Gossip, error)
}

// Gossip is what a node says of its gossip.
type Gossip struct {
	Node, Cluster string
	Keys          []string // digests (cluster.GossipKeyDigest); the first is that of the key that seals
	TCPOnly       []string // nodes that answer it by TCP, and not by UDP
}

// A Host is the machine. All functions must be set; This sets them.
type Host struct {
	Root string // under which /proc, /sys and /dev are read: "/"

	// Libraries says what is missing of rdma-core; nil: nothing.
	Libraries func() (verbs, cm error)
	// Device asks a device itself for what sysfs does not tell.
	Device func(name string) (ibv.DeviceAttr, []ibv.PortAttr, error)
	// Rights opens a device and tries whether it keeps to the rights of queue
	// pairs: rdma.CapAccessIgnored and rdma.CapNoRevoke, and how that is known.
	Rights func(ctx context.Context, name string) (rdma.DeviceAttr, error)
	// Resolve finds the addresses of a host.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial makes a session with the node at a data address, and no other.
	Dial func(ctx context.Context, addr string) (Peer, error)
	// Now is the wall clock.
	Now func() time.Time

	// Patience bounds each step that waits for another process.
	Patience time.Duration
}
