package wire

import (
	"fmt"
	"time"
)

// NodeStatus is a node as it sees itself: the JSON that AdminStatus answers.
// Fields are only ever added. Numbers of 64 bits that a JSON number may not hold
// are hexadecimal text.
type NodeStatus struct {
	NodeID      string `json:"node_id"`      // empty: a server that is alone
	ClusterName string `json:"cluster_name"` // empty with it
	ClusterID   string `json:"cluster_id"`   // 32 hex digits; empty before there is a map
	NodeProgram
	Incarnation string    `json:"incarnation"` // 16 hex digits
	Uptime      float64   `json:"uptime_seconds"`
	Time        time.Time `json:"time"` // the node's wall clock
	Ready       bool      `json:"ready"`
	Filled      bool      `json:"filled"`

	Map       MapStatus     `json:"map"`
	Shards    ShardStatus   `json:"shards"`
	View      ViewStatus    `json:"view"`
	Endpoints []string      `json:"endpoints"` // FABRIC://HOST:PORT, as clients are told
	Fabrics   []string      `json:"fabrics"`   // FABRIC/DEVICE at HOST:PORT, as they are
	Regions   RegionStatus  `json:"regions"`   // of the node's own keys
	Memory    MemoryStatus  `json:"memory"`    // as above
	LeaseMS   int64         `json:"lease_ms"`  // 0: off
	BeatAgeMS int64         `json:"beat_age_ms"`
	Lag       LagStatus     `json:"lag"`
	Sessions  int           `json:"sessions"` // in all spaces
	Spaces    int           `json:"spaces"`
	Tenants   int           `json:"tenants"`
	Table     TableStatus   `json:"table"`
	Gossip    *GossipStatus `json:"gossip,omitempty"` // nil: a server that is alone
	NodeReplicas
}

// NodeProgram is which program a node runs. Its fields stand among those of NodeStatus.
type NodeProgram struct {
	Version  string       `json:"version"`          // the release
	Revision string       `json:"revision"`         // commit that it was built from; empty: it does not know it
	Levels   *LevelStatus `json:"levels,omitempty"` // nil: a server that is alone, or the program knows no levels: it reads level 0 alone
}

// LevelStatus is the feature level of the cluster, as a node has heard of it, and the levels that the node's program reads.
type LevelStatus struct {
	Level  uint8 `json:"level"`
	Oldest uint8 `json:"oldest"`
	Newest uint8 `json:"newest"`
	Hold   bool  `json:"hold"` // its operator wants the level to stay
}

// NodeReplicas is what of a node's status concerns replicas. Its fields stand among those of NodeStatus.
type NodeReplicas struct {
	Store  string        `json:"store"`            // of the node's own keys: 32 hex digits, drawn when it was made
	Groups []GroupStatus `json:"groups,omitempty"` // of which the node has a replica, by id
	Meta   *MetaStatus   `json:"meta,omitempty"`   // nil: the node has no replica of the meta group
}

// MetaStatus is the meta group, which has the shard map and the tasks that change it, as a node sees it that has a replica of it.
type MetaStatus struct {
	GroupStatus
	Version    uint64 `json:"version"` // of its state, as the replica has it; 0: none has come yet
	MapVersion uint64 `json:"map_version"`
}

// GroupStatus is a group of shards as a node sees it that has a replica of it.
type GroupStatus struct {
	ID        uint32          `json:"id"`
	Replica   uint64          `json:"replica"` // of this node
	State     string          `json:"state"`   // leads, follows, learns (without a vote), waits (it takes no part yet), stopped
	Why       string          `json:"why,omitempty"`
	Leader    string          `json:"leader"` // node; empty: it is not known, or there is none
	Term      uint64          `json:"term"`
	Shards    []uint16        `json:"shards"`
	Last      uint64          `json:"last"` // index of the newest entry of the replica's log
	Committed uint64          `json:"committed"`
	Applied   uint64          `json:"applied"`
	Replicas  []ReplicaStatus `json:"replicas"` // by id, by the configuration in force at this node
}

// ReplicaStatus is a replica of a group. What is behind its vote only the leader knows.
type ReplicaStatus struct {
	ID       uint64 `json:"id"`
	Node     string `json:"node"`
	Votes    bool   `json:"votes"`
	Match    uint64 `json:"match"`    // index up to which it has the leader's entries, durably
	Active   bool   `json:"active"`   // it was heard of within an election timeout
	Snapshot bool   `json:"snapshot"` // it is being sent one
}

// MapStatus is the shard map that a node has.
type MapStatus struct {
	State   string `json:"state"` // none, prepared, committed
	Version uint64 `json:"version"`
	Digest  string `json:"digest"` // 16 hex digits; empty if there is none
}

// ShardStatus says which shards are the node's.
type ShardStatus struct {
	Owned int      `json:"owned"`
	Total int      `json:"total"`
	List  []uint16 `json:"list"`
}

// ViewStatus is the node's view of the cluster.
type ViewStatus struct {
	Version uint64 `json:"version"`
}

// RegionStatus counts regions and what they hold, bytes.
type RegionStatus struct {
	Index       int    `json:"index"`
	Items       int    `json:"items"`
	Retired     int    `json:"retired"`
	Bytes       uint64 `json:"bytes"`
	ViewVersion uint64 `json:"view_version"`
}

// MemoryStatus is the registered memory, bytes.
type MemoryStatus struct {
	Limit uint64 `json:"limit"`
	Used  uint64 `json:"used"`
}

// LagStatus says how far what readers see is behind what was ordered.
type LagStatus struct {
	Unpublished  int `json:"unpublished_writes"`
	NotDurable   int `json:"shards_not_durable"`   // ordered beyond durable
	NotPublished int `json:"shards_not_published"` // durable beyond published
}

// TableStatus is the region table as the cluster was told of it.
type TableStatus struct {
	Version uint64 `json:"version"`
	Digest  string `json:"digest"`
	Regions int    `json:"regions"`
}

// GossipStatus is what gossip knows.
type GossipStatus struct {
	Addr         string            `json:"addr"` // HOST:PORT, as others are told
	Encrypted    bool              `json:"encrypted"`
	Members      []MemberStatus    `json:"members"`
	KeyDigests   []string          `json:"key_digests"` // the first is in use
	WrongKey     uint64            `json:"wrong_key"`   // gossip turned away
	WrongCluster uint64            `json:"wrong_label"`
	NotAllowed   uint64            `json:"not_allowed"`
	Conflicts    uint64            `json:"conflicts"` // about two nodes of one id
	Unproved     uint64            `json:"unproved"`  // claims about nodes that lack the proof of the secret
	Open         []ConflictStatus  `json:"open_conflicts,omitempty"`
	LastRefused  string            `json:"last_refused,omitempty"`
	LastConflict string            `json:"last_conflict,omitempty"`
	JoinErrors   map[string]string `json:"join_errors,omitempty"` // by seed
	TCPOnly      []string          `json:"tcp_only,omitempty"`    // nodes that answer this one by TCP, and not by UDP
	Health       int               `json:"health"`                // 0 is well
	Tables       int               `json:"tables"`                // region tables of others
}

// ConflictStatus is a node id that two processes had when it was looked at last.
type ConflictStatus struct {
	Node   string    `json:"node"`
	Addrs  []string  `json:"addrs"`  // of gossip, the older one first; if there is one only, it is of a node that claims the id without proof
	Proved bool      `json:"proved"` // both know the cluster's secret
	Over   bool      `json:"over"`   // the younger has said goodbye since
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
}

// MemberStatus is one node as gossip sees it.
type MemberStatus struct {
	ID          string    `json:"id"`
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	Gossip      string    `json:"gossip"`
	Incarnation string    `json:"incarnation"`
	Endpoints   []string  `json:"endpoints"`
	MapVersion  uint64    `json:"map_version"`
	MapDigest   string    `json:"map_digest"`
	Regions     uint32    `json:"regions"`

	TableVersion uint64 `json:"table_version"`
	TableDigest  string `json:"table_digest"`

	Reads uint8 `json:"reads"` // newest feature level that its program reads
}

// TableAnswer is a region table that a node has, its own or another's.
type TableAnswer struct {
	Node        string        `json:"node"`
	Incarnation string        `json:"incarnation"`
	Version     uint64        `json:"version"`
	Digest      string        `json:"digest"`
	Devices     []string      `json:"devices"`
	Regions     []TableRegion `json:"regions"`
}

// TableRegion is a region in it.
type TableRegion struct {
	ID     uint32     `json:"id"`
	Kind   uint8      `json:"kind"`
	State  string     `json:"state"`
	Base   uint64     `json:"base"`
	Length uint64     `json:"length"`
	Keys   []TableKey `json:"keys"`
}

// TableKey is the address and the rkey under which a device serves a region.
type TableKey struct {
	Device uint8  `json:"device"` // index in devices
	Addr   uint64 `json:"addr,string"`
	RKey   uint32 `json:"rkey"`
}

// Hex64 is a number of 64 bits as a NodeStatus has it: JSON's own numbers lose some.
func Hex64(v uint64) string { return fmt.Sprintf("%016x", v) }
