package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/server"
)

// loaded is a configuration with one variable set.
func loaded(t *testing.T, env ...string) *config.Loaded {
	t.Helper()
	l, err := config.Load(config.Options{Scope: config.ForServer, Search: []string{}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestEveryKeyArrives sets each of the server's keys and demands that the
// server's configuration differs: a key that is read and then forgotten would
// silently have no effect.
func TestEveryKeyArrives(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	tenants := filepath.Join(filepath.Dir(secret), "tenants")
	if err := os.WriteFile(tenants, []byte("tenants: [{name: blue, secret_file: secret}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{
		"tenants_file": tenants, "expert.max_sessions_per_host": "8", "rkey_max_age": "1h",
		"secret_file": secret, "log_level": "debug", "log_format": "json",
		"data_dir": "x", "listen": "127.0.0.1:1", "admin_listen": "127.0.0.1:2", "pprof": "true", "sync": "interval",
		"sync_interval": "1s", "shards": "3", "memory_limit": "512MiB", "expert.region_size": "64MiB", "expert.index_region_size": "8MiB",
		"huge_pages": "try", "expert.prefault": "on", "lease": "off", "max_sessions": "9",
		"mode": "cache", "memory_keep": "1m", "wait_mode": "event", "expert.spin": "30us", "watch_bytes": "0", "log_bytes": "64MiB",
	}
	base := server.Config{}
	for i, env := range append([]string{""}, envs(t, other)...) {
		a := &app{fabrics: newFabrics, stderr: new(bytes.Buffer)}
		if a.cfg = loaded(t); i > 0 {
			a.cfg = loaded(t, env)
		}
		cfg, err := a.serverConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(env, "_LOG_LEVEL") || strings.Contains(env, "_LOG_FORMAT") {
			if fmt.Sprintf("%T %v", cfg.Logger.Handler(), cfg.Logger.Enabled(t.Context(), slog.LevelDebug)) == "*slog.TextHandler false" {
				t.Errorf("%s changes nothing in the log", env)
			}
			continue
		}
		cfg.Logger = nil // made anew each time, as is the fabric
		for i := range cfg.Listeners {
			cfg.Listeners[i].Fabric, cfg.Listeners[i].Why = nil, ""
		}
		if i == 0 {
			base = cfg
		} else if reflect.DeepEqual(cfg, base) {
			t.Errorf("%s does not reach the server", env)
		}
	}
	a := &app{fabrics: newFabrics, cfg: loaded(t, "RDMAKV_REQUIRE_RDMA=true"), stderr: new(bytes.Buffer)}
	if _, err := a.serverConfig(t.Context()); err == nil || !strings.Contains(err.Error(), "require_rdma") {
		t.Errorf("require_rdma: %v", err)
	}
}

// picks are the keys that decide about fabrics: see TestPick and
// TestVerbsOptions.
var picks = []string{"fabric", "device", "require_rdma",
	"verbs_connect", "gid_index", "traffic_class", "expert.service_level", "expert.path_mtu",
	"tls.cert", "tls.key", "tls.ca",
	"shm", "shm_dir"}

// ofTheProcess are the keys that the server is not told of: see
// test/e2e, TestCores.
var ofTheProcess = []string{"expert.cores"}

// clusterKeys make a node of a cluster: see TestClusterKeysArrive.
var clusterKeys = []string{"node_id", "advertise", "insecure", "cluster.name", "cluster.move_rate", "cluster.hold_level",
	"gossip.bind", "gossip.advertise", "gossip.join", "gossip.key_file", "gossip.profile", "gossip.allow"}

// envs makes variables of the values, and complains of server keys without.
func envs(t *testing.T, values map[string]string) (out []string) {
	t.Helper()
	for _, k := range config.Keys() {
		v, ok := values[k.Name]
		switch {
		case ok:
			if k.Name == "memory_keep" {
				continue // it needs another key beside it, and takes effect when the node starts
			}
			out = append(out, k.Env+"="+v)
		case k.Scope&config.ForServer != 0 && !slices.Contains(picks, k.Name) && !slices.Contains(ofTheProcess, k.Name) && !slices.Contains(clusterKeys, k.Name):
			t.Errorf("the test has no value for %s", k.Name)
		}
	}
	return out
}

// TestNames: every name of the configuration is one of the store's or the server's.
func TestNames(t *testing.T) {
	for key, arrived := range map[string]func(server.Config) string{
		"sync":       func(c server.Config) string { return c.Sync.String() },
		"mode":       func(c server.Config) string { return c.Mode.String() },
		"huge_pages": func(c server.Config) string { return c.HugePages.String() },
	} {
		for _, name := range config.Choices(key) {
			a := &app{fabrics: newFabrics, cfg: loaded(t, "RDMAKV_"+strings.ToUpper(key)+"="+name), stderr: new(bytes.Buffer)}
			if cfg, err := a.serverConfig(t.Context()); err != nil || arrived(cfg) != name {
				t.Errorf("%s: %s became %s, %v", key, name, arrived(cfg), err)
			}
		}
	}
}

// TestPrefault: pages are taken before they are used where huge pages are asked for, or
// where the expert says so.
func TestPrefault(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "RDMAKV_HUGE_PAGES=try": true, "RDMAKV_HUGE_PAGES=on": true, "RDMAKV_EXPERT_PREFAULT=on": true,
		"RDMAKV_HUGE_PAGES=on RDMAKV_EXPERT_PREFAULT=off": false,
	} {
		if got := prefault(loaded(t, strings.Fields(env)...).Config); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}

// TestDefaultsAreTaken: the server takes the defaults of the configuration.
func TestDefaultsAreTaken(t *testing.T) {
	a := &app{fabrics: newFabrics, cfg: loaded(t), stderr: new(bytes.Buffer)}
	cfg, err := a.serverConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(cfg); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestMessages(t *testing.T) {
	got := distinctLines("a\nb\na\nb\n")
	if len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("distinct lines are %q", got)
	}
	var out bytes.Buffer
	a := &app{fabrics: newFabrics, cfg: loaded(t), stderr: &out}
	a.logger().Warn("x", "err", errors.Join(errors.New("one"), errors.New("two"), errors.New("one")))
	if !strings.Contains(out.String(), `err="one; two"`) {
		t.Errorf("logged %q", out.String())
	}
}
