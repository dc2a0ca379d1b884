package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/store"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// unit reads a systemd unit: the last value of each key of a section.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	out, section := make(map[string]string), ""
	for line := range strings.Lines(read(t, name)) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case !ok || section == "":
			t.Errorf("%s: %q", name, line)
		default:
			out[section+"."+key] = value
		}
	}
	return out
}

// TestUnit: what the unit promises about the program holds.
func TestUnit(t *testing.T) {
	u := unit(t, "systemd/kvserver.service")
	for key, want := range map[string]string{
		"Service.LimitMEMLOCK": "infinity", "Service.LimitCORE": "0", "Service.KillSignal": "SIGTERM", "Service.NoNewPrivileges": "yes",
		"Service.Type": "exec", // the program does not speak sd_notify
		// With Restart=on-failure: however often it fails. The default gives up after five.
		"Service.Restart": "on-failure", "Unit.StartLimitIntervalSec": "0",
	} {
		if u[key] != want {
			t.Errorf("%s=%s, want %s", key, u[key], want)
		}
	}
	if strings.Contains(read(t, "../cmd/kvserver/serve.go"), "NOTIFY_SOCKET") {
		t.Error("kvserver speaks sd_notify: Type=notify then")
	}
	// ExecReload sends SIGHUP, by which a program that does not know it ends.
	handled := false
	for _, name := range sources(t, "../cmd/kvserver/*.go") {
		handled = handled || strings.Contains(read(t, name), "SIGHUP")
	}
	if !strings.Contains(u["Service.ExecReload"], "-HUP") || !handled {
		t.Errorf("ExecReload=%s, and kvserver handles SIGHUP: %v", u["Service.ExecReload"], handled)
	}
	// systemd must wait longer than the program does.
	limit := endWithin(t)
	if stop, err := strconv.Atoi(u["Service.TimeoutStopSec"]); err != nil || time.Duration(stop)*time.Second <= limit {
		t.Errorf("TimeoutStopSec=%s, the program takes up to %v", u["Service.TimeoutStopSec"], limit)
	}
	// And be back before the others stop waiting for it.
	meet := duration(t, "../internal/server/groups/meet.go", "meetFor")
	if rest, err := strconv.Atoi(u["Service.RestartSec"]); err != nil || rest < 1 || time.Duration(rest)*time.Second >= meet {
		t.Errorf("RestartSec=%s, nodes wait %v for each other", u["Service.RestartSec"], meet)
	}
	if code := regexp.MustCompile(`exitRefused\s*=\s*(\d+)`).FindStringSubmatch(read(t, "../cmd/kvserver/app.go")); code == nil || u["Service.RestartPreventExitStatus"] != code[1] {
		t.Errorf("RestartPreventExitStatus=%s, exitRefused is %v", u["Service.RestartPreventExitStatus"], code)
	}
	user := u["Service.User"]
	if sys := read(t, "systemd/rdmakv.sysusers"); user == "" || !strings.Contains(sys, "\nu "+user+" ") {
		t.Errorf("the user %q is not in rdmakv.sysusers", user)
	}
	words := strings.Fields(u["Service.ExecStart"])
	if len(words) != 3 || words[1] != "--config" || words[2] != "/etc/rdmakv/config.yaml" {
		t.Errorf("ExecStart=%s", u["Service.ExecStart"])
	}
}

// duration reads a constant or a default of a program's source: NAME = time.Second, or "NAME, 3*time.Second".
func duration(t *testing.T, file, name string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`(?m)\b` + name + `(?:\s*[=:]\s*|, )(?:(\d+) ?\* ?)?time\.(Second|Minute|Millisecond)\b`).FindStringSubmatch(read(t, file))
	if m == nil {
		t.Fatalf("%s has no %s", file, name)
	}
	n := 1
	if m[1] != "" {
		n, _ = strconv.Atoi(m[1])
	}
	return time.Duration(n) * map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Millisecond": time.Millisecond}[m[2]]
}

// endWithin is how long an end of the program takes at most, whatever hangs. A hand-over of all groups and a drain are well inside.
func endWithin(t *testing.T) time.Duration {
	t.Helper()
	limit := duration(t, "../cmd/kvserver/serve.go", "shutdownLimit")
	known := duration(t, "../internal/server/groups/status.go", "handOver") + duration(t, "../internal/server/member/gossip.go", "leaveLimit") + duration(t, "../internal/server/config.go", "DrainTimeout")
	if 2*known > limit {
		t.Errorf("hand-over, farewell and drain may take %v, and the end %v", known, limit)
	}
	return limit
}

func sources(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return names
}

// TestUnitVerify: systemd itself finds nothing wrong with it.
func TestUnitVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	// It looks for the program, too.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kvserver.service")
	if err := os.WriteFile(path, []byte(strings.Replace(read(t, "systemd/kvserver.service"), "/usr/bin/kvserver", self, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestThreeNodes: the programs take the files, and the nodes fit together.
func TestThreeNodes(t *testing.T) {
	nodes := map[string]*config.Loaded{}
	for _, id := range []string{"kv1", "kv2", "kv3"} {
		l, err := config.Load(config.Options{Scope: config.ForServer, File: "three-nodes/" + id + ".yaml"})
		if err != nil {
			t.Fatal(err)
		}
		if l.NodeID != id || !l.Clustered() || l.Insecure {
			t.Errorf("%s: node_id %q", id, l.NodeID)
		}
		fitForReplicas(t, l)
		nodes[id] = l
	}
	client, err := config.Load(config.Options{Scope: config.ForClient, File: "three-nodes/client.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	listen := map[string]bool{}
	for id, l := range nodes {
		if len(l.Listen) != 1 || listen[l.Listen[0]] || !slices.Contains(client.Servers, id+".example:7400") {
			t.Errorf("%s listens at %v, the client dials %v", id, l.Listen, client.Servers)
		}
		listen[l.Listen[0]] = true
		for other, o := range nodes {
			seed := other + ".example:7946"
			if slices.Contains(l.Gossip.Join, seed) == (id == other) {
				t.Errorf("%s joins %v", id, l.Gossip.Join)
			}
			if l.ClusterName() != o.ClusterName() || l.SecretFile != o.SecretFile || l.Gossip.KeyFile != o.Gossip.KeyFile || l.Shards != o.Shards || l.TrafficClass != client.TrafficClass {
				t.Errorf("%s and %s differ in what must be the same", id, other)
			}
		}
	}
}

// fitForReplicas: the file says what replicas need, and does not leave it to the defaults.
func fitForReplicas(t *testing.T, l *config.Loaded) {
	t.Helper()
	c := store.Config{LogBytes: int64(l.LogBytes)}
	err := errors.Join(c.Mode.UnmarshalText([]byte(l.Mode)), c.Sync.UnmarshalText([]byte(l.Sync)))
	if err = errors.Join(err, c.MayHaveGroups()); err != nil {
		t.Errorf("node %s can have no replicas: %v", l.NodeID, err)
	}
	if len(l.TenantsFile) > 0 {
		t.Errorf("node %s has tenants, who have stores without replicas", l.NodeID)
	}
	text := read(t, l.File)
	for _, key := range []string{"mode:", "sync:", "log_bytes:"} {
		if !regexp.MustCompile(`(?m)^\s*` + key).MatchString(text) {
			t.Errorf("%s does not say %q", l.File, key)
		}
	}
}

// documents tell people what to type.
var documents = []string{"README.md", "../docs/deploy-roce.md", "systemd/kvserver.service", "kubernetes/rdmakv.yaml", "kubernetes/init.yaml", "three-nodes/kv1.yaml"}

// TestCommands: commands that the documents use exist.
func TestCommands(t *testing.T) {
	words := map[string]map[string]bool{"kvclient": {}, "kvserver": {}}
	use := regexp.MustCompile(`(?:Use:\s+|wire\.Admin\w+, |\{)"([a-z-]+)`)
	for program, known := range words {
		names := sources(t, "../cmd/"+program+"/*.go")
		if program == "kvclient" {
			names = append(names, sources(t, "../cmd/kvclient/internal/*/*.go")...)
		}
		for _, name := range names {
			for _, m := range use.FindAllStringSubmatch(read(t, name), -1) {
				known[m[1]] = true
			}
		}
	}
	command := regexp.MustCompile(`\b(kvserver|kvclient)((?: --[a-z-]+ [^ ]+)*)((?: [a-z]+(?:-[a-z]+)*)+)`)
	groups := map[string]bool{"cluster": true, "admin": true, "fabric": true}
	seen := 0
	for _, name := range documents {
		for _, block := range regexp.MustCompile("(?s)```.*?```|`[^`\n]+`").FindAllString(read(t, name), -1) {
			for _, m := range command.FindAllStringSubmatch(block, -1) {
				f := strings.Fields(m[3])
				if words[f[0]] != nil {
					continue // the programs themselves, to be installed
				}
				if groups[f[0]] && len(f) > 1 && !words[m[1]][f[1]] || !words[m[1]][f[0]] {
					t.Errorf("%s: there is no %s %s", name, m[1], strings.Join(f, " "))
				}
				seen++
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// TestFlags: flags and variables that the documents and files use exist.
func TestFlags(t *testing.T) {
	flags := map[string]bool{"config": true, "output": true, "role": true, "all": true, "timeout": true, "help": true, "compare": true, "replicas": true, "groups": true, "wait": true, "settle": true}
	vars := map[string]bool{config.EnvFile: true, config.EnvSecret: true, config.EnvGossipKey: true}
	for _, k := range config.Keys() {
		flags[k.Flag], vars[k.Env] = true, true
	}
	command := regexp.MustCompile("(?m)(?:kvserver|kvclient) [^\n`|;)#]*")
	flag := regexp.MustCompile(`\s--([a-z][a-z-]*)`)
	variable := regexp.MustCompile(`RDMAKV_[A-Z_]+`)
	seen := 0
	for _, name := range documents {
		text := read(t, name)
		for _, c := range command.FindAllString(text, -1) {
			if strings.Contains(c, "fabric perf") {
				continue // has flags of its own
			}
			for _, m := range flag.FindAllStringSubmatch(c, -1) {
				if seen++; !flags[m[1]] {
					t.Errorf("%s: %q: there is no flag --%s", name, c, m[1])
				}
			}
		}
		for _, v := range variable.FindAllString(text, -1) {
			if seen++; !vars[v] {
				t.Errorf("%s: there is no variable %s", name, v)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d flags and variables were looked at", seen)
	}
}
