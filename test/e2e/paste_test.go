package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// pasted has the blocks of README.md and docs that are pasted into a shell, by
// their first line: what must come out (a value has no newline there, because
// the output is no terminal), and the commands that end with another exit code
// than 0, each behind that code.
var pasted = map[string]struct {
	want []string
	may  []string
}{
	"make build": {
		want: []string{"ready\n", "bluefalse\n3\n", "\n5\n", "colour\n"},
		may:  []string{"3: bin/kvclient exists shape"},
	},
	"bin/kvserver --data-dir /tmp/rdmakv &": {
		want: []string{"ready\n", "colour\n", "\n5\n"},
		may:  []string{"124: timeout 3 bin/kvclient watch --prefix c"},
	},
	"# a cache that is killed":             {want: []string{"ready\n", "blueEND\n"}},
	"# a server that is alone, with a key": {want: []string{"add n2 n3", "is done", "apple"}},
	"# three nodes":                        {want: []string{"add n4 n5", "is done", "apple"}},
	"# a rolling restart":                  {want: []string{"nothing failed\n", "pear"}},
	"for i in 1 2 3; do":                   {want: []string{"ready: n1, n2, n3\n", "apple"}},
}

// notPasted are blocks with our programs in them that cannot run here, by the
// beginning of their first line, and why.
var notPasted = map[string]string{
	"bin/kvserver --node-id n6 ...":        "is no whole command line; the same commands: TestLive of test/cluster",
	"kvclient cluster backup /mnt/backups": "wants a disk at /mnt and another cluster; the same commands: TestBackup of test/cluster",
	"kvserver backup ...":                  "is no whole command line; the same commands: TestUpgrade of test/cluster",
	"bin/kvclient cluster recover":         "wants a cluster that has lost machines; the same commands: TestRecover of test/cluster",
	"make bench-compare":                   "installs Redis and memcached, and takes a quarter of an hour",
	"for n in kv1 kv2 kv3; do":             "wants three machines",
	"ip address add":                       "changes the network of the machine",
	"rdma link":                            "wants a RoCE card",
	"mlnx_qos":                             "wants a RoCE card",
	"bin/kvclient fabric devices":          "wants an RDMA card at 10.0.0.1, and two machines",
	"kvclient --config /etc/rdmakv":        "wants three machines; the same commands: test/doctor",
	"sudo -u rdmakv kvclient doctor":       "wants the user and the unit of a machine; test/doctor",
	"kvclient bench --workload b":          "two minutes of load; TestScripts/bench",
	"kvclient doctor --config /etc/rdmakv": "wants a RoCE card",
	"kvserver --listen 10.0.0.1:7400,":     "wants two RoCE cards",
}

// TestPaste pastes the blocks of README.md and docs into bash, all lines at once:
// nothing waits but what the lines themselves wait for.
func TestPaste(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	done := make(map[string]bool)
	var files []string
	for _, where := range []string{"../../docs/*.md", "../../docs/learn/*.md"} {
		more, err := filepath.Glob(where)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %d files, %v", where, len(more), err)
		}
		files = append(files, more...)
	}
	fence := regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```")
	for _, file := range append(files, "../../README.md", "../../deploy/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			block := m[1]
			if !regexp.MustCompile(`(?m)^\s*(sudo .*|timeout \d+ )?(bin/)?kv(client|server) `).MatchString(block) {
				continue
			}
			first, _, _ := strings.Cut(block, "\n")
			if _, ok := pasted[first]; ok {
				done[first] = true
				t.Run(strings.TrimSuffix(first, " &"), func(t *testing.T) {
					t.Parallel() // they wait for elections and for commands that move replicas
					paste(t, block, pasted[first].want, pasted[first].may)
				})
				continue
			}
			known := false
			for begin := range notPasted {
				known = known || strings.HasPrefix(first, begin)
			}
			if !known {
				t.Errorf("%s: the block that begins with %q is neither pasted nor is there a reason why not", file, first)
			}
		}
	}
	if len(done) != len(pasted) {
		t.Errorf("%v are pasted, want %d blocks", done, len(pasted))
	}
}

// TestAddComesLater adds a node that is not up: the command says that it waits, the node is started only then, and the task is done.
func TestAddComesLater(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about processes of this machine")
	}
	paste(t, `
node() { bin/kvserver --node-id n$1 --data-dir /tmp/n$1 --listen 127.0.0.$1:7400 --admin-listen 127.0.0.$1:7401 --gossip-bind 127.0.0.$1:7402 --join 127.0.0.1:7402,127.0.0.2:7402 --insecure; }
for i in 1 2 3; do node $i & done
bin/kvclient cluster init --replicas 3 n1 n2 n3
bin/kvclient cluster add n4 --wait 1m --yes 2>/tmp/says &
add=$!
while kill -0 $add && ! grep 'waiting for .*the cluster has not heard of "n4"' /tmp/says; do sleep 0.1; done
node 4 &
wait $add
cat /tmp/says >&2
`, []string{`the cluster has not heard of "n4"`, "task 1 (add n4) is done"}, nil)
}

// paste gives a shell all lines of a block at once. It has programs and documents
// where the README is, and ports and directories of its own.
func paste(t *testing.T, block string, want, may []string) {
	dir := t.TempDir()
	for name, target := range map[string]string{"bin": bin, "docs": "../../docs"} {
		abs, err := filepath.Abs(target)
		if err == nil {
			err = os.Symlink(abs, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data, admin, gossip := freePort(t), freePort(t), freePort(t)
	block = strings.NewReplacer("/tmp/", dir+"/", "make build\n", "", ":7400", ":"+data, ":7401", ":"+admin, ":7402", ":"+gossip).Replace(block)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir = dir
	cmd.Env = append(node.CleanEnv(os.Environ()), "RDMAKV_LISTEN=127.0.0.1:"+data, "RDMAKV_ADMIN_LISTEN=127.0.0.1:"+admin,
		"RDMAKV_SERVERS=127.0.0.1:"+data, "HOME="+dir, "RDMAKV_MEMORY_LIMIT=256MiB", "RDMAKV_EXPERT_REGION_SIZE=32MiB")
	cmd.Stdin = strings.NewReader("trap 'echo \"FAILED $?: $BASH_COMMAND\" >&2' ERR\n" + block + "\necho END\n")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the servers stay in the shell's group
	cmd.WaitDelay = time.Second                           // they have its output, too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	state, err := cmd.Process.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if err != nil || !state.Success() {
		t.Errorf("bash: %v, %v", state, err)
	}
	for _, w := range append(slices.Clone(want), "END\n") {
		if !strings.Contains(stdout.String(), w) {
			t.Errorf("no %q", w)
		}
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "kvserver: ") { // it has ended with an error, which a shell that does not wait for it passes over
			t.Error(strings.TrimSpace(line))
		}
		failed, ok := strings.CutPrefix(line, "FAILED ")
		if ok && !slices.Contains(may, strings.TrimSpace(failed)) {
			t.Error(strings.TrimSpace(line))
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", &stdout, &stderr)
	}
}

// pastedHosts are the addresses that nodes of a block listen on; that behind them nobody listens on, and a port there is held by whoever uses it on the others.
var pastedHosts = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}

const heldHost = "127.0.0.6"

// freePort is a port that is free on all pastedHosts, for TCP and UDP, and stays so until the test ends: no other freePort gives it away, because it is held at
// heldHost, and no connection that is made meanwhile takes it, because it is none of those that the kernel draws. If it could be one of those, a node of
// the block would not come up wherever a client has the port at its address: there are tests whose clients have hundreds at 127.0.0.4.
func freePort(t *testing.T) string {
	t.Helper()
	from, to := drawnPorts(t)
	for range 1000 {
		n := 10000 + rand.IntN(1<<16-10000)
		if n >= from && n <= to {
			continue
		}
		port := strconv.Itoa(n)
		held, err := net.Listen("tcp", net.JoinHostPort(heldHost, port))
		if err != nil {
			continue
		}
		if !slices.ContainsFunc(pastedHosts, func(host string) bool { return inUse(net.JoinHostPort(host, port)) }) {
			t.Cleanup(func() { held.Close() })
			return port
		}
		held.Close()
	}
	t.Fatalf("no port of 10000 to 65535, without %d to %d, is free at %v", from, to, pastedHosts)
	return ""
}

// inUse reports whether nobody can listen on an address, by TCP or UDP.
func inUse(addr string) bool {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return true
	}
	ln.Close()
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		return true
	}
	packets.Close()
	return false
}

// drawnPorts are the ports that the kernel gives to those who ask for any, the first and the last one. Where it does not tell, they are those of a Linux that
// nobody has configured, and those that IANA has for that.
func drawnPorts(t *testing.T) (from, to int) {
	t.Helper()
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 32768, 65535
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &from, &to); err != nil {
		t.Fatalf("%s has %q: %v", file, text, err)
	}
	return from, to
}

// TestFreePort: a port that was given away is not given away again, is drawn by no connection, and is free for TCP and UDP at all addresses.
func TestFreePort(t *testing.T) {
	from, to := drawnPorts(t)
	seen := make(map[string]bool)
	for range 50 {
		port := freePort(t)
		if n, err := strconv.Atoi(port); err != nil || seen[port] || n >= from && n <= to {
			t.Errorf("port %q; connections have those from %d to %d, and before it there were %v", port, from, to, seen)
		}
		seen[port] = true
		for _, host := range pastedHosts {
			if inUse(net.JoinHostPort(host, port)) {
				t.Errorf("%s is in use at %s", port, host)
			}
		}
		if !inUse(net.JoinHostPort(heldHost, port)) {
			t.Errorf("%s is not held", port)
		}
	}
}
