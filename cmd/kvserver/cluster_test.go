package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/server"
)

// node is what a node of a cluster must be told.
var node = []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=127.0.0.1:0", "RDMAKV_INSECURE=true"}

// TestClusterKeysArrive sets each key that makes a node of a cluster and
// demands that the configuration differs.
func TestClusterKeysArrive(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(env ...string) server.Config {
		t.Helper()
		a := &app{fabrics: newFabrics, cfg: loaded(t, append(append([]string{}, node...), env...)...), stderr: new(bytes.Buffer)}
		cfg, err := a.serverConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (cfg.Cluster.ReloadKeys != nil) != (len(cfg.Cluster.Keys) > 0) {
			t.Error("keys out of a file can be read again, and no others")
		}
		cfg.Cluster.ReloadKeys = nil
		return cfg
	}
	base := load()
	if base.Name != "n1" || base.Cluster.NodeID != "n1" || base.Cluster.Name != config.DefaultCluster {
		t.Errorf("the node is %q, %+v", base.Name, base.Cluster)
	}
	other := map[string]string{
		"node_id": "n2", "advertise": "10.0.0.9", "insecure": "", "cluster.name": "red", "cluster.move_rate": "5MiB", "cluster.hold_level": "true", "gossip.bind": "127.0.0.1:7402",
		"gossip.advertise": "10.0.0.9:7402", "gossip.join": "10.0.0.8:7402", "gossip.key_file": keyFile, "gossip.profile": "wan", "gossip.allow": "10.0.0.0/8",
	}
	for _, name := range clusterKeys {
		value, ok := other[name]
		arrives := func() bool {
			got := load("RDMAKV_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_")) + "=" + value)
			return !reflect.DeepEqual(got.Cluster, base.Cluster) || got.SnapshotRate != base.SnapshotRate
		}
		switch {
		case !ok:
			t.Errorf("the test has no value for %s", name)
		case name == "insecure": // without it the others are refused: internal/config
			if !base.Cluster.Insecure {
				t.Error("insecure does not reach the server")
			}
		case !arrives():
			t.Errorf("%s does not reach the server", name)
		}
	}
	key := base64.StdEncoding.EncodeToString(make([]byte, 16))
	if got := loaded(t, append(node, "RDMAKV_GOSSIP_KEY="+key)...); got == nil {
		t.Fatal("no configuration")
	} else if c, err := clusterConfig(got); err != nil || len(c.Keys) != 1 || c.ReloadKeys != nil {
		t.Errorf("a key of the environment: %+v, %v", c, err)
	}
}
