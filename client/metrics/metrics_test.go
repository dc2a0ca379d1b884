package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/metrics"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// launch runs a server in this process.
func launch(ctx context.Context, change func(*server.Config)) (srv *server.Server, stop func() error, err error) {
	cfg := server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(), MinFreeBytes: -1, CacheBytes: 4 << 20, LogBytes: 16 << 20,
		Shards: 4, MemoryLimit: 64 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20, MemoryKind: mem.Heap,
	}
	if change != nil {
		change(&cfg)
	}
	if srv, err = server.New(cfg); err != nil {
		return nil, nil, err
	}
	if err := srv.Start(ctx); err != nil {
		return nil, nil, err
	}
	return srv, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return srv.Shutdown(ctx)
	}, nil
}

func start(t *testing.T, change func(*server.Config)) *server.Server {
	t.Helper()
	srv, stop, err := launch(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

func dial(t *testing.T, srv *server.Server) *client.Client {
	t.Helper()
	c, err := client.Dial(world.With(t.Context(), world.World{Heap: true}), client.Config{Servers: []string{srv.Addrs()[0].String()}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// gather reads all series, as name{label="value",…}.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				got[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				got[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				got[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return got
}

// What a client has done is what Prometheus is shown; nothing is registered
// twice, and no series is without its family.
func TestCollector(t *testing.T) {
	c := dial(t, start(t, nil))
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(metrics.New(c, metrics.Options{Labels: prometheus.Labels{"app": "test"}})); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for i := range 10 {
		if err := c.Put(ctx, fmt.Appendf(nil, "k%d", i), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		for i := range 10 {
			if _, err := c.Get(ctx, fmt.Appendf(nil, "k%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Get(ctx, []byte("absent")); err == nil {
		t.Fatal("a key that was not put")
	}
	got := gather(t, r)
	gets := got[`rdmakv_client_gets_total{app="test",node="",path="one_read",result="hit"}`] +
		got[`rdmakv_client_gets_total{app="test",node="",path="more_reads",result="hit"}`] +
		got[`rdmakv_client_gets_total{app="test",node="",path="more_reads",result="miss"}`] +
		got[`rdmakv_client_gets_total{app="test",node="",path="send",result="any"}`]
	for name, want := range map[string]float64{
		"writes_total{app=\"test\",kind=\"put\",node=\"\"}":   10,
		"call_seconds{app=\"test\",call=\"write\",node=\"\"}": 10,
		"call_seconds{app=\"test\",call=\"get\",node=\"\"}":   10, // every eighth of 81
		"connected{app=\"test\",node=\"\"}":                   1,
		"connects_total{app=\"test\",node=\"\"}":              1,
	} {
		if v, ok := got["rdmakv_client_"+name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if gets != 81 {
		t.Errorf("%v gets are told by their way", gets)
	}
	if one := got[`rdmakv_client_gets_total{app="test",node="",path="one_read",result="hit"}`]; one > 70 {
		t.Errorf("%v gets by one READ, though each key must be found once", one)
	}
	if got[`rdmakv_client_credits{app="test",node=""}`] < 1 || got[`rdmakv_client_regions{app="test",node=""}`] < 2 {
		t.Error("credits or regions are missing")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if after := gather(t, r); after[`rdmakv_client_connected{app="test",node=""}`] != 0 || after[`rdmakv_client_writes_total{app="test",kind="put",node=""}`] != 10 {
		t.Error("what a closed client shows")
	}
}

// The names follow the rules of Prometheus (promtool check metrics): base units,
// counters end in _total, every metric has a help text.
func TestNames(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics.New(dial(t, start(t, nil)), metrics.Options{}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	faults, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Errorf("%s: %s", f.Metric, f.Text)
	}
	build := 0
	for name, v := range gather(t, r) {
		if strings.HasPrefix(name, "rdmakv_client_build_info{") && strings.Contains(name, `go="go`) && strings.Contains(name, "version=") && v == 1 {
			build++
		}
	}
	if build != 1 {
		t.Errorf("%d series say which release it is", build)
	}
}

// In a cluster every series says whose it is.
func TestCollectorOfCluster(t *testing.T) {
	srv := start(t, func(cfg *server.Config) {
		cfg.Cluster = &server.ClusterConfig{NodeID: "n1", Name: "one", Bind: "127.0.0.1:0", Insecure: true, Profile: "fast"}
	})
	c := dial(t, srv)
	if _, err := admin.Of(c).ClusterInit(t.Context(), []admin.NodeWeight{{ID: "n1"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics.New(c, metrics.Options{Namespace: "mine"}))
	if got := gather(t, r); got[`mine_writes_total{kind="put",node="n1"}`] != 1 || got[`mine_connected{node="n1"}`] != 1 {
		t.Errorf("%v", got)
	}
}
