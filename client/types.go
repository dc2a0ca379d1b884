package client

import "encoding/json"

// Info is what is known of a key without its value.
type Info struct {
	Size    int64  // bytes of the value
	Version uint64 // rises with every write of the key; never used twice
}

// Entry is one key of a Scan. Its slices belong to the caller.
type Entry struct {
	Key     []byte
	Value   []byte // nil with ScanOptions.KeysOnly
	Size    int64  // bytes of the value, whether it is here or not
	Version uint64
}

// ScanOptions narrow a Scan. The zero value means all keys with their values.
type ScanOptions struct {
	Prefix   []byte // only keys that begin so
	After    []byte // only keys behind this one, in byte order
	Limit    int    // at most so many; 0 means all
	KeysOnly bool   // leave the values out
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
	Client Counters        `json:"client"`
	Server json.RawMessage `json:"server"` // the server's own JSON
}

// ServerInfo describes the session in force.
type ServerInfo struct {
	Address     string `json:"address"`
	ID          string `json:"id"`          // stable name of the store
	Incarnation uint64 `json:"incarnation"` // new at each start of the server
	Session     uint64 `json:"session"`     // as in the server's log
	Protocol    uint8  `json:"protocol"`    // version of the messages
	Shards      int    `json:"shards"`
	MaxKey      int    `json:"max_key"`   // bytes
	MaxValue    int64  `json:"max_value"` // bytes
	Transport   string `json:"transport"` // what the fabric says of the connection
}
