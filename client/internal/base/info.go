package base

import "time"

// Result is the answer to one key of a MultiGet.
type Result struct {
	Value []byte // belongs to the caller; empty where Err is not nil
	Err   error  // nil, ErrNotFound, or why this key was not answered
}

// Pair is one write of a MultiPut.
type Pair struct {
	Key, Value []byte
}

// ServerInfo describes the session in force: which server it leads to, and how it is
// reached. What a fabric does not have is zero.
type ServerInfo struct {
	Address     string `json:"address"`        // as in Config.Servers
	ID          string `json:"id"`             // stable name of the store
	Node        string `json:"node,omitempty"` // id of the node, in a cluster
	Incarnation uint64 `json:"incarnation"`    // new at each start of the server
	Session     uint64 `json:"session"`        // as in the server's log
	Protocol    uint8  `json:"protocol"`       // version of the messages
	Shards      int    `json:"shards"`
	MaxKey      int    `json:"max_key"`   // bytes
	MaxValue    int64  `json:"max_value"` // bytes
	// LeaseOff: the server was told to debug without leases. What is READ is
	// believed for as long as the connection lasts.
	LeaseOff bool `json:"lease_off,omitempty"`

	Fabric    string    `json:"fabric"`              // "verbs", "iwarp"
	Software  bool      `json:"software"`            // this program itself is the RNIC
	Device    string    `json:"device"`              // as the fabric names it
	Port      int       `json:"port,omitempty"`      // of the device, from 1
	GID       string    `json:"gid,omitempty"`       // of this end
	GIDIndex  int       `json:"gid_index,omitempty"` // in the port's GID table
	GIDType   string    `json:"gid_type,omitempty"`  // "RoCE v2"
	PeerGID   string    `json:"peer_gid,omitempty"`  // of the other end
	LID       int       `json:"lid,omitempty"`       // of the other end; InfiniBand only
	MTU       int       `json:"mtu,omitempty"`       // bytes of payload in one packet
	Transport string    `json:"transport"`           // what the fabric says of the connection
	Why       string    `json:"why"`                 // why this fabric and device
	Skipped   []Skipped `json:"skipped,omitempty"`   // fabrics that come before it
}

// A Skipped is a fabric that comes before the one in use in Config.Fabrics.
type Skipped struct {
	Fabric string `json:"fabric"`
	Device string `json:"device,omitempty"` // "" if there was none to try
	Reason string `json:"reason"`           // why it was not used
}

// A NodeState is how things stand with one server now.
type NodeState struct {
	Connected bool // there is a session
	// Leased: what is READ is believed; LeaseLeft is for how long yet, if nothing
	// renews it. A client that reads nothing lets its lease run out. Without leases
	// (ServerInfo.LeaseOff) there is no end to it, and LeaseLeft is 0.
	Leased    bool
	LeaseLeft time.Duration

	Credits      int // requests that the server would take at once
	Inflight     int // requests under way
	Waiting      int // calls that wait for a credit, a slot or space for READs
	CachedPlaces int // remembered places of items
	CacheBytes   int // memory that they take
	ViewVersion  uint64
	Incarnation  uint64
	Regions      int // regions that can be READ
}

// A Path says how a get was answered: what it cost, for programs that measure.
type Path uint8

// The paths of a get.
const (
	PathUnknown   Path = iota // not answered
	PathOneRead               // one RDMA READ: of the item, where it was known to be
	PathTwoReads              // two: of the bucket, then of the item
	PathMoreReads             // more: something had moved or was being written, or there were several candidates
	PathLarge                 // a value above 64 KiB, READ in chunks
	PathSend                  // a message that the server's CPU answered
)

// String returns the name that reports use: "read_1".
func (p Path) String() string {
	switch p {
	case PathOneRead:
		return "read_1"
	case PathTwoReads:
		return "read_2"
	case PathMoreReads:
		return "read_more"
	case PathLarge:
		return "read_large"
	case PathSend:
		return "send"
	}
	return "unknown"
}

// ExpiryTime is an expiry in microseconds since 1970; 0 is never.
func ExpiryTime(micros uint64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(min(micros, 1<<62)))
}

// Info is what is known of a key without its value.
type Info struct {
	Size    int64     // bytes of the value
	Version uint64    // rises with every write of the key; never used twice
	Expiry  time.Time // when the key expires, by the server's time; zero: never
}
