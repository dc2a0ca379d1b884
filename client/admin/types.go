package admin

import (
	"encoding/json"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
)

// Stats are the counters of a client and of the server it talks to.
type Stats struct {
	Client  client.Counters `json:"client"`
	Session ServerInfo      `json:"session"`          // the one in force
	Server  json.RawMessage `json:"server,omitempty"` // the server's own JSON
	// Nodes are those of each node of a cluster, by id; Client is then their sum,
	// and Session and Server are empty.
	Nodes map[string]Stats `json:"nodes,omitempty"`
}

// ServerInfo describes the session in force: which server it leads to (Address as in Config.Servers, ID,
// Node, Incarnation, new at each start, Session as in the server's log, Protocol, Shards, MaxKey
// and MaxValue in bytes, LeaseOff if the server was told to debug without leases), and how it is
// reached (Fabric, Software if this program itself is the RNIC, Device, Port, GID, GIDIndex,
// GIDType, PeerGID, LID, MTU in bytes, Transport, Why this fabric and device, and Skipped: those
// that come before it). What a fabric does not have is zero.
type ServerInfo = base.ServerInfo

// A Skipped is a fabric that comes before the one in use in Config.Fabrics: its name in Fabric,
// its Device, "" if there was none to try, and the Reason why it was not used.
type Skipped = base.Skipped

// A NodeState is how things stand with one server now: whether there is a session (Connected), and
// whether what is READ is believed (Leased; LeaseLeft is for how long yet, if nothing renews it,
// 0 without leases); Credits, requests that the server would take at once, Inflight and Waiting;
// CachedPlaces of items and the CacheBytes that they take; ViewVersion, Incarnation, and Regions
// that can be READ.
type NodeState = base.NodeState

// A Path says how a get was answered: what it cost, for programs that measure. Its String is the
// name that reports use: "read_1".
type Path = base.Path

// The paths of a get.
const (
	PathUnknown   = base.PathUnknown   // not answered
	PathOneRead   = base.PathOneRead   // one RDMA READ: of the item, where it was known to be
	PathTwoReads  = base.PathTwoReads  // two: of the bucket, then of the item
	PathMoreReads = base.PathMoreReads // more: something had moved or was being written, or there were several candidates
	PathLarge     = base.PathLarge     // a value above 64 KiB, READ in chunks
	PathSend      = base.PathSend      // a message that the server's CPU answered
)

// A LatencyHistogram counts calls by how long they took, refused ones and those that failed left out.
// Bucket i of Buckets counts calls of up to UpperBound(i), 2^i µs, that are above the bucket before;
// what is above the last one is in Count alone, the number of calls measured. Sum is the time of all
// of them.
type LatencyHistogram = base.LatencyHistogram

// Latencies are the times of calls since Dial: Gets, of one in 8 gets of one key; Writes, of every
// put, delete, increment, touch and batch, MultiPut left out.
type Latencies = base.Latencies
