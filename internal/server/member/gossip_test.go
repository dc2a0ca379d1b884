package member

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestMain fails if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHidden: a node that others gossip with, and that tells them of an address
// on which only itself can connect, is worth a warning.
func TestHidden(t *testing.T) {
	list := []cluster.Endpoint{{Fabric: "iwarp", Addr: "127.0.0.1:1"}, {Fabric: "iwarp", Addr: "10.0.0.1:1"}, {Fabric: "iwarp", Addr: "[::1]:1"}, {Fabric: "verbs", Addr: "localhost:1"}}
	for gossip, want := range map[string]int{"10.0.0.1": 3, "fd00::1": 3, "127.0.0.1": 0, "::1": 0} {
		if got := hidden(list, gossip); len(got) != want {
			t.Errorf("with gossip at %s: %v", gossip, got)
		}
	}
}
