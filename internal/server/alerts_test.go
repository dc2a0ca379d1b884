package server

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestAlertsName: every metric that an alert of deploy/prometheus is about is on the page of a node with replicas, with the labels by which the alert
// takes it. Those of a device that dials itself are on the page of a node that has one.
func TestAlertsName(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := startReplicas(t)
	r.put(keyOf(0), "v")
	code, page := httpGet(t, r.nodes[r.leader(0)], "/metrics")
	deaf := startPlugs(t, nil, watched("only"))
	eventually(t, "the node has dialled itself", cmIs(deaf, true))
	more, dialled := httpGet(t, deaf, "/metrics")
	if code != 200 || more != 200 {
		t.Fatalf("/metrics: %d, %d", code, more)
	}
	samples := strings.Split(page+dialled, "\n")
	// A metric with its matchers. No alert takes what it does not have a label of.
	metric := regexp.MustCompile(`\b(rdmakv_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`([a-z]+)(=~?)"([^"]*)"`)
	is := func(sample, name string, matchers [][]string) bool {
		if sample != name && !strings.HasPrefix(sample, name+" ") && !strings.HasPrefix(sample, name+"{") {
			return false
		}
		for _, m := range matchers {
			if !regexp.MustCompile(`[{,]` + m[1] + `="(?:` + m[3] + `)"`).MatchString(sample) {
				return false
			}
		}
		return true
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: ")
		if !ok {
			continue
		}
		for _, m := range metric.FindAllStringSubmatch(expr, -1) {
			matchers := matcher.FindAllStringSubmatch(m[2], -1)
			if m[2] != "" && len(matchers) != strings.Count(m[2], ",")+1 {
				t.Errorf("%s: this test does not understand %q", expr, m[2])
			}
			found := false
			for _, s := range samples {
				found = found || is(s, m[1], matchers)
			}
			if seen++; !found {
				t.Errorf("%s: no node has %s", expr, m[0])
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d metrics were looked at", seen)
	}
	if !strings.Contains(page, "\nrdmakv_device_up{device=") || !strings.Contains(page, "fabric=") {
		t.Error("device_up has not the labels that its alert names")
	}
}
