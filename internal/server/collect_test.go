package server

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var (
	metricHelp = regexp.MustCompile(`(?m)^# HELP (rdmakv_\S+) (.+)$`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (rdmakv_\S+) (\w+)$`)
	unitInside = regexp.MustCompile(`_(bytes|seconds)_`)
)

// TestEveryMetric: each metric has a help text, a type, its unit at the end of
// its name (before _total, which all counters and only they end in), and no
// label that would make one metric of several things.
func TestEveryMetric(t *testing.T) {
	nodes := startNodes(t, 2)
	birth(t, nodes...)
	p := dial(t, nodes[0], peerOptions{})
	if _, err := p.get("key", 10); err != nil && !strings.Contains(err.Error(), "not") {
		t.Log(err) // the key is another node's, or absent: a request was counted
	}
	alone := startServer(t, func(c *Config) { c.AdminListen, c.Spaces = "127.0.0.1:0", []SpaceConfig{{Name: "space-a"}} })
	for name, srv := range map[string]*Server{"of a cluster": nodes[0], "alone, with a space": alone} {
		eventually(t, "filled", srv.Filled)
		code, text := httpGet(t, srv, "/metrics")
		if code != 200 {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		faults, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			t.Errorf("%s: %s: %s", name, f.Metric, f.Text)
		}
		helps := make(map[string]bool)
		for _, m := range metricHelp.FindAllStringSubmatch(text, -1) {
			helps[m[1]] = true
		}
		types := metricType.FindAllStringSubmatch(text, -1)
		for _, m := range types {
			base := strings.TrimSuffix(m[1], "_total")
			if !helps[m[1]] || m[2] == "untyped" || (m[2] == "counter") != (base != m[1]) || unitInside.MatchString(base+" ") {
				t.Errorf("%s: %s is a %s, with help: %v; want a help, a type, _total for counters alone, the unit last", name, m[1], m[2], helps[m[1]])
			}
		}
		if len(types) < 100 || strings.Contains(text, `{name="`) || strings.Contains(text, `,name="`) {
			t.Errorf("%s: %d metrics, label name: %v", name, len(types), strings.Contains(text, `name="`))
		}
		for _, want := range map[string][]string{
			"of a cluster":        {"rdmakv_gossip_health_score", "rdmakv_limit_setup_seconds ", `rdmakv_limit_bytes{limit="tenant_staging"}`, `rdmakv_limit_used{limit="sessions"}`},
			"alone, with a space": {`rdmakv_space_store_keys{space="space-a"} 0`, `rdmakv_store_reads_total{source="disk"} 0`, "rdmakv_store_log_bytes "},
		}[name] {
			if !strings.Contains(text, want) {
				t.Errorf("%s: metrics lack %s", name, want)
			}
		}
	}
}

// TestStoreMetricsAreTheStores: a value arrives under its name.
func TestStoreMetricsAreTheStores(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.AdminListen = "127.0.0.1:0" })
	put(t, srv.main.Store, "key", "value")
	st := srv.main.Store.Stats()
	_, text := httpGet(t, srv, "/metrics")
	for _, want := range []string{
		fmt.Sprintf("rdmakv_store_epoch %d\n", st.Epoch), "rdmakv_store_keys 1\n", "rdmakv_store_published_writes_total 1\n",
		fmt.Sprintf("rdmakv_store_region_bytes %v\n", float64(st.RegionBytes)), "rdmakv_store_fenced 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}
