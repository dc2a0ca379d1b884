package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// A ruleFile is what Prometheus reads; a key that is misspelt is not among these.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// rules reads the alerts, refusing keys that Prometheus does not know.
func rules(t *testing.T) (list []alert) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader([]byte(read(t, "prometheus/rules.yaml"))))
	dec.KnownFields(true)
	var f ruleFile
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

// TestAlerts: each alert has a name of its own, says how bad it is, of whom, and what to do with a command or a place that there is.
// That the metrics exist is tested beside them (TestAlertsName, internal/server).
func TestAlerts(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range rules(t) {
		if seen[a.Alert] || !strings.HasPrefix(a.Alert, "Rdmakv") || !strings.Contains(a.Expr, "rdmakv_") && !strings.Contains(a.Expr, `job="rdmakv"`) {
			t.Errorf("%s: %s", a.Alert, a.Expr)
		}
		seen[a.Alert] = true
		if s := a.Labels["severity"]; s != "critical" && s != "warning" || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v", a.Alert, a.Labels)
		}
		if a.For != "" {
			if d, err := time.ParseDuration(a.For); err != nil || d < time.Second || d > time.Hour {
				t.Errorf("%s: for %s: %v", a.Alert, a.For, err)
			}
		}
		summary, do := a.Annotations["summary"], a.Annotations["do"]
		if len(a.Annotations) != 2 || len(do) < 20 || strings.Contains(a.Expr, "sum(increase") != !strings.Contains(summary, "$labels.instance") && a.Alert != "RdmakvElectionsInVain" {
			t.Errorf("%s: %q, do %q", a.Alert, summary, do)
		}
		// What it sends people to is there.
		for _, other := range regexp.MustCompile(`Rdmakv[A-Za-z]+`).FindAllString(do, -1) {
			if !strings.Contains(read(t, "prometheus/rules.yaml"), "alert: "+other+"\n") {
				t.Errorf("%s: there is no alert %s", a.Alert, other)
			}
		}
		for _, command := range regexp.MustCompile(`kvclient [a-z]+(?: (?:check|status|init))?`).FindAllString(do, -1) {
			switch command {
			case "kvclient cluster check", "kvclient cluster status", "kvclient doctor":
			default:
				t.Errorf("%s: %q", a.Alert, command)
			}
		}
	}
	for _, want := range []string{"ReplicaStopped", "GroupLeaderless", "ElectionsInVain", "PeersAway", "ReplicaLags", "ChecksFailed", "DiskFull", "DeviceDown"} {
		if !seen["Rdmakv"+want] {
			t.Errorf("there is no alert %s", want)
		}
	}
}

// TestPromtool: Prometheus' own tool takes the expressions, and the alerts come when rules_test.yaml says.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if path := os.Getenv("RDMAKV_PROMTOOL"); path != "" {
		tool, err = path, nil
	}
	if err != nil {
		t.Skipf("no promtool here (Debian: apt-get install prometheus): %v", err)
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "FAILED") {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
