package client

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Position is a place in the order of all writes of a store; of a cluster it is
// one for each node, or where shards have replicas for each group: that is good at every node. It is good over reconnects, and over a restart of a server
// if that was stopped in an orderly way and nothing was written since; where it
// is not, Watch says EventSkip. The zero Position means from now. Its text form
// (String, ParsePosition) can be kept.
type Position struct {
	c    wire.Cursor // of the only server, or of node
	node string      // "" where there is one server only; of a group, its name (groupName)
	rest string      // the other nodes' cursors, as String writes them
}

// String is 32 hexadecimal digits; of a cluster ID=DIGITS for each node, or @NUMBER=DIGITS for each group, with
// commas between; "" for the zero Position.
func (p Position) String() string {
	switch {
	case p == (Position{}):
		return ""
	case p.node == "" && p.rest == "":
		return cursorText(p.c)
	}
	return vectorText(p.vector())
}

func cursorText(c wire.Cursor) string {
	b := binary.BigEndian.AppendUint64(nil, c.Incarnation)
	return hex.EncodeToString(binary.BigEndian.AppendUint64(b, c.Version))
}

func vectorText(v map[string]wire.Cursor) string {
	var b strings.Builder
	for _, node := range slices.Sorted(maps.Keys(v)) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(node)
		b.WriteByte('=')
		b.WriteString(cursorText(v[node]))
	}
	return b.String()
}

// vector is the position as one cursor for each node.
func (p Position) vector() map[string]wire.Cursor {
	v := make(map[string]wire.Cursor)
	for part := range strings.SplitSeq(p.rest, ",") {
		if node, text, ok := strings.Cut(part, "="); ok {
			v[node], _ = parseCursor(text) // String or ParsePosition has made it
		}
	}
	if p.node != "" {
		v[p.node] = p.c
	}
	return v
}

// of is the cursor of one node, zero if the position has none; "" is the only
// server there is.
func (p Position) of(node string) wire.Cursor {
	if node == p.node {
		return p.c
	}
	return p.vector()[node]
}

func parseCursor(text string) (wire.Cursor, bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 16 {
		return wire.Cursor{}, false
	}
	return wire.Cursor{Incarnation: binary.BigEndian.Uint64(b), Version: binary.BigEndian.Uint64(b[8:])}, true
}

// ParsePosition reads what String has written. It fails with ErrOptions.
func ParsePosition(text string) (Position, error) {
	if text == "" {
		return Position{}, nil
	}
	if !strings.Contains(text, "=") {
		if c, ok := parseCursor(text); ok {
			return Position{c: c}, nil
		}
		return Position{}, fmt.Errorf("%w: a position has 32 hexadecimal digits", ErrOptions)
	}
	v := make(map[string]wire.Cursor)
	for part := range strings.SplitSeq(text, ",") {
		node, digits, _ := strings.Cut(part, "=")
		c, ok := parseCursor(digits)
		if _, twice := v[node]; !ok || twice || cluster.CheckNodeID(node) != nil && !isGroupName(node) || len(v) == cluster.MaxNodes {
			return Position{}, fmt.Errorf("%w: a position in a cluster is ID=DIGITS for each node, with commas between, 32 hexadecimal digits each", ErrOptions)
		}
		v[node] = c
	}
	return Position{rest: vectorText(v)}, nil
}

// groupName is what a group is called in a position; no node is called so.
func groupName(group uint32) string { return "@" + strconv.FormatUint(uint64(group), 10) }

func isGroupName(name string) bool {
	text, ok := strings.CutPrefix(name, "@")
	n, err := strconv.ParseUint(text, 10, 32)
	return ok && err == nil && n != 0 && groupName(uint32(n)) == name
}
