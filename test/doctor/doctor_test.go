package doctor

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/test/node"
)

const secret = "0123456789abcdef0123456789abcdef"

// standalone are the arguments of a small node at an address.
func standalone(t *testing.T, data string, more ...string) []string {
	return append([]string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", data, "--admin-listen", "", "--fabric", "iwarp", "--memory-limit", "64MiB", "--expert-region-size", "8MiB", "--expert-index-region-size", "8MiB"}, more...)
}

// TestWell: nothing fails on a machine with a node, seen as a client and as
// the node, running and not.
func TestWell(t *testing.T) {
	h := here(t)
	args := standalone(t, freePort(t), "--secret-file", secretFile(t, secret))
	r := h.doctor(args...)
	h.want(r, "", "the node makes it")
	n := h.start(args...)
	r = h.doctor(args...)
	h.want(r, "", "taken for this node, which runs")
	for _, step := range []string{"session", "send", "read", "large read", "clock of peer"} {
		if !strings.Contains(r.String(), "ok   "+step+" "+n.Data) {
			t.Errorf("no step %q:\n%v", step, r)
		}
	}
	if r.Role != "node" {
		t.Errorf("role %q", r.Role)
	}
	r = h.doctor("--fabric", "iwarp", "--secret-file", secretFile(t, secret), n.Data)
	h.want(r, "", "ok   large read "+n.Data)
	if r.Role != "client" {
		t.Errorf("role %q", r.Role)
	}
}

// TestBroken: one thing is wrong, and it is named.
func TestBroken(t *testing.T) {
	h := here(t)
	n := h.start(standalone(t, freePort(t), "--secret-file", secretFile(t, secret))...)
	client := []string{"--fabric", "iwarp", "--timeout", "3s", "--secret-file", secretFile(t, secret)}
	at := func(addr string) []string { return append(client[:len(client):len(client)], addr) }
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	open := secretFile(t, secret)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		args       []string
		code, says string
	}{
		{"wrong secret", []string{"--fabric", "iwarp", "--timeout", "3s", "--secret-file", secretFile(t, strings.Repeat("x", 32)), n.Data}, "secret", "wrong secret"},
		{"no secret", []string{"--fabric", "iwarp", "--timeout", "3s", n.Data}, "secret", "secret_file"},
		{"nobody listens", at(freePort(t)), "port-closed", "nobody listens"},
		{"a listener that says nothing", at(silent.Addr().String()), "session", "no session comes of it"},
		{"secret for all to read", []string{"--fabric", "iwarp", "--secret-file", open, n.Data}, "key-mode", "chmod 600"},
		{"secret missing", []string{"--fabric", "iwarp", "--secret-file", "/nonexistent/secret", n.Data}, "key-file", "does not exist"},
		{"malformed gossip key", standalone(t, "127.0.0.1:0", "--insecure", "--node-id", "kv1", "--gossip-bind", "127.0.0.1:0", "--gossip-key-file", secretFile(t, "no key")), "key-file", "base64"},
		{"unknown key", []string{"--lease", "5"}, "config", "--lease"},
		{"cluster without keys", standalone(t, "127.0.0.1:0", "--node-id", "kv1", "--gossip-bind", "127.0.0.1:0"), "config", "gossip.key_file"},
		{"port of another program", standalone(t, silent.Addr().String()), "port-in-use", "doctor.test (process"},
		{"address of another machine", standalone(t, "192.0.2.1:7400"), "port-address", "not this machine's"},
		{"data directory is a file", append(standalone(t, "127.0.0.1:0"), "--data-dir", notDir), "data-dir", "no directory"},
		{"no RDMA device", append(standalone(t, "127.0.0.1:0"), "--fabric", "verbs"), "no-device", "rdma link add rxe0"},
		{"device that does not exist", append(standalone(t, "127.0.0.1:0"), "--fabric", "auto", "--device", "mlx5_9"), "no-device", "insists on one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := here(t)
			r := h.doctor(c.args...)
			if _, err := os.Stat("/sys/class/infiniband"); err == nil && c.code == "no-device" {
				t.Skip("this machine has an RDMA device")
			}
			if c.code == "no-device" { // what follows from it fails as well
				if r.First != c.code || !strings.Contains(r.String(), c.says) {
					t.Errorf("%v", r)
				}
				return
			}
			h.want(r, c.code, c.says)
		})
	}
}

// TestStopped: a node that is stopped takes connections, because its kernel
// does, and nothing comes of them.
func TestStopped(t *testing.T) {
	h := here(t)
	n := h.start(standalone(t, freePort(t))...)
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := h.doctor("--fabric", "iwarp", "--timeout", "3s", n.Data)
	if err := n.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.want(r, "session", "is it stopped")
}

// TestOtherUser: files that the user may not read or write are findings.
func TestOtherUser(t *testing.T) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Getuid() != 0 || exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", "true").Run() != nil {
		t.Skip("needs root, to be another user")
	}
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	// Where he may run it, too.
	program := filepath.Join(dir, "kvclient")
	text, err := os.ReadFile(filepath.Join(bin, "kvclient"))
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) *report {
		h := here(t)
		return h.run(setpriv, append([]string{"--reuid", "65534", "--regid", "65534", "--clear-groups", program, "doctor", "-o", "json", "--fabric", "iwarp"}, args...)...)
	}
	h := here(t)
	h.want(as("--secret-file", file, "--role", "client", "127.0.0.1:1"), "key-file", "may not read it")
	h.want(as("--listen", "127.0.0.1:0", "--admin-listen", "", "--data-dir", data), "data-dir", "may not write")
	h.want(as("--listen", "127.0.0.1:0", "--admin-listen", "", "--data-dir", filepath.Join(dir, "new")), "data-dir", "may not make it")
}

// TestHosts: what lies between two machines.
func TestHosts(t *testing.T) {
	network, on := apart(t, "kv1", "client")
	addr := net.JoinHostPort(on["kv1"].ip, "7400")
	n := on["kv1"].start(standalone(t, addr)...)
	h := on["client"]
	args := []string{"--fabric", "iwarp", "--timeout", "3s"}
	with := func(more string) []string { return append(args[:len(args):len(args)], more) }
	h.want(h.doctor(with(n.Data)...), "", "ok   large read")
	h.want(h.doctor(with("kv9.invalid:7400")...), "name-unresolved", "getent hosts kv9.invalid")
	h.want(h.doctor(with("192.0.2.7:7400")...), "unreachable", "no way there")
	if err := network.Cut("client", "kv1", 7400); err != nil {
		t.Fatal(err)
	}
	h.want(h.doctor(with(n.Data)...), "port-blocked", "firewall")
	if err := network.Heal(); err != nil {
		t.Fatal(err)
	}
	h.want(h.doctor(with(n.Data)...), "", "ok   large read")
}

// TestLargeReadsVanish: a way that carries small packets and loses large ones,
// as a switch with a smaller MTU does.
func TestLargeReadsVanish(t *testing.T) {
	h := here(t)
	n := h.start(standalone(t, freePort(t))...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go narrow(c, n.Data)
		}
	}()
	h.want(h.doctor("--fabric", "iwarp", "--timeout", "4s", l.Addr().String()), "path-mtu", "small READs pass and this one does not")
}

// narrow passes bytes between a client and a node until more than a small
// packet comes from the node at once; then that direction is silent.
func narrow(c net.Conn, to string) {
	defer c.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	buf := make([]byte, 64<<10)
	lost := false
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		if lost = lost || n > 9000; lost {
			continue
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestExamples: kvserver takes the example configurations, and doctor says what
// this machine lacks for one, without end of its own.
func TestExamples(t *testing.T) {
	for _, name := range []string{"kv1", "kv2", "kv3"} {
		file := filepath.Join("..", "..", "deploy", "three-nodes", name+".yaml")
		cmd := exec.Command(filepath.Join(bin, "kvserver"), "config", "--config", file)
		cmd.Env = node.CleanEnv(os.Environ()) // what tells tests apart is no setting
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "node_id: "+name) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if noNamespaces != nil {
		t.Skipf("needs network namespaces: %v", noNamespaces)
	}
	_, on := apart(t, "kv9") // where nothing of the example is
	file, err := filepath.Abs("../../deploy/three-nodes/kv1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := on["kv9"].doctor("--config", file)
	if r.OK || r.First != "key-file" || r.Role != "node" || !strings.Contains(r.String(), "port-address") || !strings.Contains(r.String(), "head -c 32 /dev/urandom") {
		t.Errorf("%v", r)
	}
}
