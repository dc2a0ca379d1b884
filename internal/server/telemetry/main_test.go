package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// TestMain fails if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// starting are the sources of a node that has just been made. All but Main fail.
type starting struct{ t *testing.T }

func (s starting) Main() *Space { return &Space{Counters: new(base.Counters)} }

func (s starting) Spaces() []*Space                 { s.t.Error("spaces are read"); return nil }
func (s starting) Failed() map[string]error         { s.t.Error("spaces are read"); return nil }
func (s starting) Node() *Node                      { s.t.Error("the node is read"); return nil }
func (s starting) RegionTable() *cluster.Table      { s.t.Error("the node is read"); return nil }
func (s starting) Endpoints() []cluster.Endpoint    { s.t.Error("the node is read"); return nil }
func (s starting) Limits() []LimitStat              { s.t.Error("limits are read"); return nil }
func (s starting) Queued(*auth.Login) (waiting int) { s.t.Error("queues are read"); return 0 }

// TestCollectWhileStarting: a node may be scraped before it has a store, memory or a
// device.
func TestCollectWhileStarting(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(NewCollector(starting{t})); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, f := range families {
		shown[f.GetName()] = true
	}
	for _, name := range []string{"rdmakv_build_info", "rdmakv_ready", "rdmakv_sessions", "rdmakv_beats_total"} {
		if !shown[name] {
			t.Errorf("%s is not shown", name)
		}
	}
	if shown["rdmakv_store_keys"] || shown["rdmakv_registered_bytes"] {
		t.Error("numbers of a store that is not open are shown")
	}
}
