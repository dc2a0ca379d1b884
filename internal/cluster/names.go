package cluster

// Bounds of a cluster. What comes from outside is held to them before anything
// is stored.
const (
	MaxNodes     = 1024 // members of a cluster, the dead that are still shown included
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

// printable reports whether s has 1 to limit bytes, all visible ASCII: what
// may go into a log line or a terminal as it is.
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
