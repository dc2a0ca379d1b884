package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// TestBadNodes: wrong ways to start a node of a cluster, each with a message
// that says what to do.
func TestBadNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := write("key", "MDEyMzQ1Njc4OWFiY2RlZg==\n", 0o600)
	secret := write("secret", "0123456789abcdef\n", 0o600)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() }) // behind the parallel subtests
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	insecure := []string{"--node-id=n1", "--gossip-bind=127.0.0.1:0", "--insecure"}
	for _, tc := range []struct {
		name string
		args []string
		env  []string
		code int
		want []string
	}{
		{"no id", []string{"--gossip-bind=127.0.0.1:0", "--insecure"}, nil, 2, []string{"node_id", "needs a name"}},
		{"no gossip address", []string{"--node-id=n1"}, nil, 2, []string{"--node-id: ", "gossip.bind"}},
		{"join alone", []string{"--join=127.0.0.1:1"}, nil, 2, []string{"--join: ", "gossip.bind"}},
		{"open doors", insecure[:2], nil, 2, []string{"gossip.key_file", "secret_file", "cluster.name", "insecure"}},
		{"no secret", []string{"--node-id=n1", "--gossip-bind=127.0.0.1:0", "--cluster-name=red", "--gossip-key-file=" + key}, nil, 2, []string{"secret_file", "RDMAKV_SECRET"}},
		{"itself alone", []string{"--node-id=n1", "--gossip-bind=127.0.0.1:7402", "--insecure", "--join=127.0.0.1:7402"}, nil, 2, []string{"--join", "this node itself"}},
		{"an open key file", append(insecure, "--gossip-key-file="+write("open", "x", 0o644)), nil, 2, []string{"gossip.key_file", "mode 0644"}},
		{"a bad key", append(insecure, "--gossip-key-file="+write("bad", "xyz\n", 0o600)), nil, 2, []string{"gossip.key_file", "key 1"}},
		{"two keys", append(insecure, "--gossip-key-file="+key), []string{"RDMAKV_GOSSIP_KEY=MDEyMzQ1Njc4OWFiY2RlZg=="}, 2, []string{"RDMAKV_GOSSIP_KEY is set too"}},
		{"two secrets", append(insecure, "--secret-file="+secret), []string{"RDMAKV_SECRET=0123456789abcdef"}, 2, []string{"RDMAKV_SECRET is set too"}},
		{"gossip port in use", []string{"--node-id=n1", "--gossip-bind=" + tcp.Addr().String(), "--insecure"}, nil, 1, []string{"gossip", tcp.Addr().String(), "address already in use"}},
		{"gossip port in use for UDP", []string{"--node-id=n1", "--gossip-bind=" + udp.LocalAddr().String(), "--insecure"}, nil, 1, []string{"gossip", udp.LocalAddr().String(), "address already in use"}},
		{"not this machine's address", []string{"--node-id=n1", "--gossip-bind=192.0.2.1:7402", "--insecure"}, nil, 1, []string{"gossip", "192.0.2.1:7402"}},
		{"a host that is not known", []string{"--node-id=n1", "--gossip-bind=no..where:7402", "--insecure"}, nil, 1, []string{"gossip.bind", "no..where"}},
		{"a tenants file that is none", append(insecure, "--tenants-file="+key), nil, 2, []string{"tenants_file", "tenants"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := append(serverArgs(filepath.Join(t.TempDir(), "d")), "--log-level=error")
			r := runProgram(t, nil, tc.env, "kvserver", append(args, tc.args...)...)
			checkRefused(t, r, tc.code, tc.want...)
			if strings.Contains(r.stderr, "MDEyMzQ1") || strings.Contains(r.stderr, "0123456789abcdef") {
				t.Errorf("a secret is shown: %s", r.stderr)
			}
		})
	}
}

// TestDeadSeeds: a node serves although no seed is there, or resolves, or is
// another node than itself; when one comes up, they find each other. At its end
// a node says goodbye. Its directory belongs to no other node.
func TestDeadSeeds(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	clustered := func(id string, more ...string) []string {
		return append([]string{"--node-id", id, "--insecure", "--gossip-profile", "fast"}, more...)
	}
	a := startNode(t, filepath.Join(dir, "a"), clustered("a", "--gossip-bind", "127.0.0.1:0", "--join", "no..where:7402,"+late)...)
	if a.ID != "a" || a.Gossip == "" {
		t.Fatalf("the ready line says node %q at %q", a.ID, a.Gossip)
	}
	members := func(n *node.Node, state string) string {
		t.Helper()
		resp, err := http.Get("http://" + n.Admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, count, _ := strings.Cut(string(text), `rdmakv_cluster_members{state="`+state+`"} `)
		count, _, _ = strings.Cut(count, "\n")
		return count
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not so after two minutes: %s\n%s", what, a.Stderr())
			}
		}
	}
	eventually("the log names the seeds that cannot be reached", func() bool {
		return strings.Contains(a.Stderr(), "no..where") && strings.Contains(a.Stderr(), late)
	})
	// All nodes may have the same list, themselves in it.
	b := startNode(t, filepath.Join(dir, "b"), clustered("b", "--gossip-bind", late, "--join", "127.0.0.1:1,"+late)...)
	eventually("they find each other", func() bool { return members(a, "alive") == "2" && members(b, "alive") == "2" })
	if err := b.Signal(syscall.SIGHUP); err != nil { // nothing to read again, and no end
		t.Fatal(err)
	}
	if n := members(b, "alive"); n != "2" {
		t.Errorf("after SIGHUP %s are alive", n)
	}
	if code, err := b.Stop(time.Minute); err != nil || code != 0 {
		t.Errorf("it ended with exit code %d, %v: %s", code, err, b.Stderr())
	}
	eventually("a goodbye is heard", func() bool { return members(a, "left") == "1" })

	args := append(serverArgs(filepath.Join(dir, "b")), "--log-level=error")
	r := runProgram(t, nil, nil, "kvserver", append(args, clustered("c", "--gossip-bind", "127.0.0.1:0")...)...)
	checkRefused(t, r, 1, `node "b"`, "data_dir")
}
