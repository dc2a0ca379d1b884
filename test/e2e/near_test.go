package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/test/node"
)

// TestNearest: without being told, a client takes shared memory from a server of
// its own host, and another fabric where it is switched off, where it does not
// look in the same directory, and where the server does not let it; and it says
// which and why.
func TestNearest(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	dir := t.TempDir()
	start := func(more ...string) *node.Node {
		t.Helper()
		n, err := node.Start(t.Context(), node.Options{
			Bin: filepath.Join(bin, "kvserver"),
			Args: append([]string{"--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--admin-listen", "", "--log-level", "warn",
				"--memory-limit", "64MiB", "--expert-region-size", "8MiB", "--expert-index-region-size", "8MiB"}, more...),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Kill() })
		return n
	}
	ping := func(n *node.Node, want, why string, env ...string) {
		t.Helper()
		r := runProgram(t, nil, append([]string{"RDMAKV_FABRIC=auto"}, env...), "kvclient", "--server", n.Data, "ping", "--count", "1")
		fields := strings.Fields(r.stdout)
		var fabric string
		for i, f := range fields {
			if f == "fabric" {
				fabric = fields[i+1]
				break
			}
		}
		if r.code != 0 || fabric != want || !strings.Contains(r.stdout, why) {
			t.Errorf("%v: on %q, want %q because of %q: %+v", env, fabric, want, why, r)
		}
	}
	n := start()
	ping(n, "shm", "on this host")
	ping(n, "iwarp", "", "RDMAKV_SHM=off")
	ping(n, "iwarp", "no process of this host listens at port", "RDMAKV_SHM_DIR="+t.TempDir())
	// RDMA was asked for: neither end does it in software.
	if r := runProgram(t, nil, []string{"RDMAKV_FABRIC=auto", "RDMAKV_REQUIRE_RDMA=true"}, "kvclient", "--server", n.Data, "ping", "--count", "1"); r.code == 0 {
		t.Errorf("require_rdma: %+v", r)
	}
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	n = start("--shm", "off")
	ping(n, "iwarp", "no process of this host listens at port")
}
