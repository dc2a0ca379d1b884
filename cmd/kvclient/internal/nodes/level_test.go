package nodes

import (
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestLevelText: what status says of the feature level, and of the program of a node. What comes from nodes is harmless.
func TestLevelText(t *testing.T) {
	one := uint8(1)
	for want, r := range map[string]statusReport{
		"":                  {LevelWhy: "nobody knows"},
		"feature level 1\n": {Level: &one},
		"feature level 1, which does not rise: node n2 holds the level\n": {Level: &one, LevelWhy: "node n2 holds\nthe level"},
	} {
		if got := r.levelText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, p := range map[string]wire.NodeProgram{
		"0.1.0": {Version: "0.1.0"},
		"0.1.0 (0123456789ab), reads feature levels 0 to 1":                  {Version: "0.1.0", Revision: "0123456789abcdef", Levels: &wire.LevelStatus{Newest: 1}},
		"0.1.0 (short), reads feature levels 1 to 2 and holds the cluster's": {Version: "0.1.0", Revision: "short", Levels: &wire.LevelStatus{Level: 1, Oldest: 1, Newest: 2, Hold: true}},
	} {
		if got := programText(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := programText(&wire.NodeProgram{Version: "v\x1b[2J", Revision: "\x1b[2J"}); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
