package cluster

import (
	"crypto/sha256"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// These bound a cluster. Values from outside are held to them before anything is
// stored.
const (
	MaxNodes     = 1024 // members of a cluster, dead ones that are still shown included
	MaxName      = 63   // bytes of a node id, a cluster's name, a device's name
	MaxEndpoints = 8    // of one node
	MaxAddr      = 127  // bytes of an address
)

// CheckNodeID says whether id can name a node: 1 to 63 of a-z, 0-9, '-' and
// '.', beginning and ending with a letter or digit. It is the name under
// which operators, maps and logs know the node for ever.
func CheckNodeID(id string) error {
	if !named(id) {
		return malformed("node id %q: 1 to %d of a-z, 0-9, '-' and '.' are needed, a letter or digit first and last", clip(id), MaxName)
	}
	return nil
}

// CheckName says whether name can name a cluster: the rule of node ids.
func CheckName(name string) error {
	if !named(name) {
		return malformed("cluster name %q: 1 to %d of a-z, 0-9, '-' and '.' are needed, a letter or digit first and last", clip(name), MaxName)
	}
	return nil
}

// CheckZone says whether zone can name a zone: 1 to 63 visible characters of ASCII. ErrMalformed.
func CheckZone(zone string) error {
	if !printable(zone, MaxName) {
		return malformed("zone %q: 1 to %d visible characters of ASCII are needed", clip(zone), MaxName)
	}
	return nil
}

// named reports whether s is a name: 1 to MaxName of a-z, 0-9, and '-' and '.'
// inside.
func named(s string) bool {
	if len(s) < 1 || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' || c == '.':
			if i == 0 || i == len(s)-1 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// printable reports whether s has 1 to limit bytes, all visible ASCII, so that it may
// go into a log line or a terminal as it is.
func printable(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= limit
}

// clip shortens a text from outside for an error message.
func clip(s string) string {
	if len(s) > MaxName+1 {
		return s[:MaxName+1] + "..."
	}
	return s
}

// GossipKeyDigest names a gossip key without giving it away: the first 8 bytes of the
// SHA-256 of a label and the key, in hex.
func GossipKeyDigest(key []byte) string {
	h := sha256.New()
	h.Write([]byte("rkv gossip key"))
	h.Write(key)
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// Hash returns the xxhash64 of a node id: its short name where a text is too long.
func Hash(id string) uint64 { return xxhash.Sum64String(id) }
