package telemetry

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// TestGroupMetrics: whatever the replicas of a store count is shown, each number by one metric; and how they stand is summed up.
func TestGroupMetrics(t *testing.T) {
	eachNumber(t, groupNumbers, nil)
	replicas := func(match ...uint64) (list []wire.ReplicaStatus) {
		for i, m := range match {
			list = append(list, wire.ReplicaStatus{ID: uint64(i + 1), Votes: true, Match: m, Active: m > 0})
		}
		return list
	}
	list := []wire.GroupStatus{
		{ID: 1, Replica: 1, State: "leads", Leader: "a", Last: 100, Committed: 90, Applied: 80, Replicas: replicas(0, 97, 60)}, // of itself it knows that it is there
		{ID: 2, Replica: 1, State: "leads", Leader: "a", Last: 20, Committed: 20, Applied: 20, Replicas: replicas(20, 30, 0)},
		{ID: 3, Replica: 1, State: "follows", Leader: "b", Last: 7, Committed: 7, Applied: 3, Replicas: replicas(7, 0, 0)},
		{ID: 4, Replica: 1, State: "follows", Committed: 3, Applied: 5},
		{ID: 5, Replica: 1, State: "stopped", Leader: "c"},
		{ID: 6, Replica: 1, State: "waits"},
	}
	n := &Node{Groups: func() []wire.GroupStatus { return list }}
	got := collected(t, func(out sink) { n.collectGroups(out, &store.GroupStats{Elected: 4, EntryBytes: 1000}) })
	for name, want := range map[string]float64{
		"rdmakv_group_replicas leads": 2, "rdmakv_group_replicas follows": 2, "rdmakv_group_replicas learns": 0, "rdmakv_group_replicas waits": 1, "rdmakv_group_replicas stopped": 1,
		"rdmakv_group_unapplied_entries": 14, "rdmakv_group_peer_lag_entries": 40, "rdmakv_group_peers_away": 1, "rdmakv_group_leaderless": 2,
		"rdmakv_group_elected_total": 4, "rdmakv_group_entry_bytes_proposed_total": 1000, "rdmakv_group_terms_total": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	list = nil
	for _, n := range []*Node{n, {}} {
		if got := collected(t, func(out sink) { n.collectGroups(out, &store.GroupStats{}) }); len(got) != 0 {
			t.Errorf("a node without replicas: %v", got)
		}
	}
}

// collected is what is shown, by name and labels.
func collected(t *testing.T, collect func(sink)) map[string]float64 {
	t.Helper()
	ch := make(chan prometheus.Metric, 1000)
	collect(sink{ch: ch})
	close(ch)
	got := make(map[string]float64)
	reg := prometheus.NewRegistry()
	var all []prometheus.Metric
	for m := range ch {
		all = append(all, m)
	}
	reg.MustRegister(shown(all))
	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[strings.NewReplacer(`{state="`, " ", `"}`, "").Replace(name)] = v
	}
	return got
}

// shown is a collector of metrics that are there.
type shown []prometheus.Metric

func (s shown) Describe(chan<- *prometheus.Desc) {}

func (s shown) Collect(ch chan<- prometheus.Metric) {
	for _, m := range s {
		ch <- m
	}
}
