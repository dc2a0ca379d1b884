package telemetry

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
)

// Sources are where the numbers of a node come from. All methods may be called from
// several goroutines at once, and none of them waits.
type Sources interface {
	// Main is the node's own keys. It may be called before the node serves; all others
	// from then on.
	Main() *Space
	// Spaces are the spaces of tenants that are open, by name, with those that have
	// fenced themselves.
	Spaces() []*Space
	// Failed are the spaces that could not be opened, by name, and why.
	Failed() map[string]error
	// Node is what there is once, whatever spaces there are.
	Node() *Node
	// RegionTable is that of the node's own keys.
	RegionTable() *cluster.Table
	// Endpoints are where clients reach a node that is alone.
	Endpoints() []cluster.Endpoint
	// Limits are the bounds on peers.
	Limits() []LimitStat
	// Queued returns how many requests of a login wait for workers.
	Queued(l *auth.Login) int
}

// A Space is a space of a node, or the node's own keys, as it is at one moment.
type Space struct {
	Name  string // empty: the node's own keys
	Fixed        // what a start decides
	State        // what becomes of it

	Counters *base.Counters
	Fill     *store.Progress // of memory after the start; nil: nothing was told yet
	Setups   int             // connections that have not proved a secret; of the node alone
	Opens    int             // sessions
	Watches  int             // that wait for events

	// From here on nothing is there until the space serves.
	Live
}

// Fixed is what of a space does not change while it serves.
type Fixed struct {
	Node        string // what the node calls itself
	Mode        store.Mode
	Lease       time.Duration
	LeaseOff    bool
	HugePages   string
	MemoryLimit uint64
	Incarnation uint64
	Shards      int
}

// State is whether a space serves.
type State struct {
	Serving bool // Start is done
	Ready   bool // it serves, and does not end
	Closing bool
	Filled  bool // memory has all keys again after the start
	Blocked bool // the debug hook stops the handlers
	Uptime  time.Duration
	Err     error // why it serves no more
}

// Live is what a space has while it serves.
type Live struct {
	Store    *store.Store
	Regions  *memory.Regions
	Turnover *memory.Turnover
	Rotation memory.RotationStat
	Staging  *memory.Staging
	BeatAge  time.Duration // since the last beat
	Kept     *KeptStat     // nil: nothing is kept for the next start

	Credits int // that clients hold
	Held    int // places held for clients
	Growing int // puts that wait for memory
	Slowed  int // puts that wait because the log is nearly full
	Pools   []Pool
	Devices []Device
}

// KeptStat is memory that outlives the process (memory_keep).
type KeptStat struct {
	Keeper   bool   `json:"keeper"`   // a process keeps this node's memory for its next start
	Bytes    uint64 `json:"bytes"`    // of regions that this process has taken over from the one before
	Believed uint64 `json:"believed"` // items in them that were verified and are served
	Dropped  uint64 `json:"dropped"`  // items in them that were dead, or did not verify
	Done     bool   `json:"done"`     // all of them were looked at, or there were none
}

// A Pool is one kind of workers.
type Pool struct {
	Name            string
	Queued, Running int
}

// A Device is what a space has made on one device of the node.
type Device struct {
	*base.Device
	Listen    []string // addresses of the node's listeners on it
	Shared    bool     // sessions take receives from their lane's shared queue
	Lanes     int
	Sessions  int
	LastPath  *rdma.Path // of the session opened last; nil: none was
	Spins     wait.SpinStats
	Responder wait.SpinStats // of the fabric itself, for READs
	Buffers   [4]Buffers     // receives, and replies by size
	// Tried: the node connects to its own listener by this device; Answered: the last
	// time it did, it was answered.
	Tried, Answered bool
}

// Buffers are message buffers of one kind.
type Buffers struct{ Total, Used int }

// A Node is what there is once in a node.
type Node struct {
	Logins    []*auth.Login
	Bounds    *base.Bounds
	Member    *member.Member // nil: it is alone
	Owned     *base.Ownership
	Groups    func() []wire.GroupStatus // of which the node has replicas
	Meta      func() *wire.MetaStatus   // nil: it has no replica of the meta group
	StoodDown bool                      // another process is this node, or its disk is older than what was seen
	Ports     []Port
}

// A Port is where clients connect, in the order of the listeners.
type Port struct {
	Device *base.Device
	Addr   string
	State  string // words about the device to be put behind Addr; empty: it is well
}
