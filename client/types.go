package client

import (
	"encoding/json"
	"time"
)

// Info is what is known of a key without its value.
type Info struct {
	Size    int64     // bytes of the value
	Version uint64    // rises with every write of the key; never used twice
	Expiry  time.Time // when the key expires, by the server's time; zero: never
}

// Item is what GetItem returns.
type Item struct {
	Value   []byte    // belongs to the caller
	Version uint64    // rises with every write of the key; never used twice
	Expiry  time.Time // when the key expires, by the server's time; zero: never
}

// Entry is one key of a Scan. Its slices belong to the caller.
type Entry struct {
	Key     []byte
	Value   []byte    // nil with ScanOptions.KeysOnly
	Size    int64     // bytes of the value, whether it is here or not
	Version uint64    // 0 where KeysOnly kept the server from reading it
	Expiry  time.Time // by the server's time; zero: never
}

// ScanOptions narrow a Scan. The zero value means all keys with their values.
type ScanOptions struct {
	Prefix []byte // only keys that begin so
	Start  []byte // only keys from this one on, in byte order
	End    []byte // only keys before this one
	// After is only keys behind this one: a scan that goes on where another one
	// ended, behind its last key.
	After    []byte
	Limit    int  // at most so many; 0 means all
	KeysOnly bool // leave the values out
}

// Result is the answer to one key of a MultiGet.
type Result struct {
	Value []byte // belongs to the caller; nil where Err is not nil
	Err   error  // nil, ErrNotFound, or why this key was not answered
}

// Pair is one write of a MultiPut.
type Pair struct {
	Key, Value []byte
}

// Stats are the counters of this client and of the server it talks to.
type Stats struct {
	Client  Counters        `json:"client"`
	Session ServerInfo      `json:"session"`          // the one in force
	Server  json.RawMessage `json:"server,omitempty"` // the server's own JSON
	// Nodes are those of each node of a cluster, by id; Client is then their sum,
	// and Session and Server are empty.
	Nodes map[string]Stats `json:"nodes,omitempty"`
}

// ServerInfo describes the session in force: who the server is, and how it is
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
