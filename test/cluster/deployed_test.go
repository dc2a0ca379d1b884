package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/test/node"
)

// A deployment is three nodes of the files in deploy/three-nodes, on which the commands of deploy/README.md are typed. What those commands start is
// what it says, but for three programs of machines that this one is not: ssh, sudo and systemctl are scripts that ask this test.
type deployment struct {
	*world
	readme string
	dir    string            // of one directory for each machine, by the node's name
	hosts  map[string]string // name of a machine to that of its host
	socket string            // of this test, for the scripts

	mu    sync.Mutex
	nodes map[string]*node.Node
}

// machines are the names that the documents give to machines, in the order of the rig's hosts.
var machines = []string{"kv1", "kv2", "kv3"}

func deploy(t *testing.T) *deployment {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "base64"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("RDMAKV_REQUIRE_CURL") == "1" {
				t.Fatalf("RDMAKV_REQUIRE_CURL=1, but: %v", err)
			}
			t.Skipf("the commands of the document need it: %v", err)
		}
	}
	text, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &deployment{world: newWorld(t), readme: string(text), hosts: map[string]string{"app": "east"}, nodes: map[string]*node.Node{}}
	d.dir = filepath.Join(d.world.dir, "machines")
	for i, m := range machines {
		d.hosts[m] = names[i]
	}
	for _, m := range machines {
		d.install(m, m+".yaml", "config.yaml")
	}
	d.install("app", "client.yaml", "client.yaml")
	d.scripts()
	t.Cleanup(func() {
		for _, m := range machines {
			if n := d.running(m); n != nil {
				if err := n.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return d
}

// install puts a file of deploy/three-nodes onto a machine.
func (d *deployment) install(m, file, as string) {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/three-nodes", file))
	must(d.t, err)
	must(d.t, os.MkdirAll(filepath.Join(d.dir, m), 0o700))
	must(d.t, os.WriteFile(filepath.Join(d.dir, m, as), []byte(d.here(m, string(text))), 0o600))
}

// here puts addresses and directories of this test in the place of the documents'.
func (d *deployment) here(m, text string) string {
	pairs := []string{"/etc/rdmakv", filepath.Join(d.dir, m), "/var/lib/rdmakv", filepath.Join(d.dir, m, "data")}
	for i, name := range machines {
		ip := d.net.Host(d.hosts[name]).IP()
		pairs = append(pairs, name+".example:", ip+":", fmt.Sprintf("10.0.0.%d:", i+1), ip+":")
	}
	host := d.net.Host(d.hosts[m]).IP()
	pairs = append(pairs, "10.0.0.0/24", host[:strings.LastIndex(host, ".")]+".0/24")
	if d.net.Kind() == "loopback" { // hosts share the address that each machine has for itself
		pairs = append(pairs, "127.0.0.1:7401", host+":7401")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// block is the first block of commands of the document that has some words.
func (d *deployment) block(words string) string {
	d.t.Helper()
	for i, text := range strings.Split(d.readme, "\n```") {
		if i%2 == 1 && strings.Contains(text, words) {
			_, text, _ = strings.Cut(text, "\n")
			return text
		}
	}
	d.t.Fatalf("deploy/README.md has no block of commands with %q", words)
	return ""
}

// scripts makes the programs that this machine does not have, and answers them.
func (d *deployment) scripts() {
	d.t.Helper()
	bin := filepath.Join(d.dir, "bin")
	must(d.t, os.MkdirAll(bin, 0o700))
	d.socket = filepath.Join(d.t.TempDir(), "s") // a short path, as sockets need
	ask := "exec curl -sS --fail-with-body --max-time 170 --unix-socket '" + d.socket + "' "
	for name, text := range map[string]string{
		"ssh":       ask + `--data-binary "$2" "http://test/ssh/$1"`,
		"systemctl": ask + `--data-binary "$*" "http://test/systemctl/$MACHINE"`,
		"sudo":      `[ "$1 $2" = "-u rdmakv" ] && shift 2 && exec "$@"`,
		"chown":     `[ "$1" = "rdmakv:" ]`, // there is no such user
	} {
		must(d.t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	ln, err := net.Listen("unix", d.socket)
	must(d.t, err)
	s := &http.Server{Handler: http.HandlerFunc(d.answer)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln)
	}()
	d.t.Cleanup(func() {
		s.Close()
		<-done
	})
}

// answer does what a script asks for.
func (d *deployment) answer(w http.ResponseWriter, r *http.Request) {
	words, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	out, err := "", error(nil)
	switch _, rest, _ := strings.Cut(r.URL.Path[1:], "/"); {
	case strings.HasPrefix(r.URL.Path, "/ssh/"):
		out, err = d.shell(rest, string(words))
	case string(words) == "enable --now kvserver":
		err = d.start(rest)
	case string(words) == "restart kvserver":
		if err = d.stop(rest); err == nil {
			err = d.start(rest)
		}
	default:
		err = fmt.Errorf("systemctl %s", words)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintln(w, out, err)
		return
	}
	fmt.Fprint(w, out)
}

func (d *deployment) running(m string) *node.Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodes[m]
}

// start starts a machine's node as the unit does.
func (d *deployment) start(m string) error {
	n, err := node.Start(d.t.Context(), node.Options{
		Bin: filepath.Join(d.opt.Bin, "kvserver"), Args: []string{"--config", filepath.Join(d.dir, m, "config.yaml")}, On: d.net.Host(d.hosts[m]).On(),
		// All three are on one machine here, and none is to leave anything in its /run.
		Env: []string{"RDMAKV_MEMORY_LIMIT=256MiB", "RDMAKV_SHM=off"}, Log: named{m, d.logs},
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[m] = n
	return nil
}

func (d *deployment) stop(m string) error {
	code, err := d.running(m).Stop(patience)
	if err == nil && code != 0 {
		err = fmt.Errorf("node %s ends with %d", m, code)
	}
	return err
}

// shell types commands on a machine, in the directory of its files.
func (d *deployment) shell(m, commands string) (string, error) {
	var out bytes.Buffer
	script := "set -eu; cd '" + filepath.Join(d.dir, m) + "'; export PATH='" + filepath.Join(d.dir, "bin") + "':'" + d.opt.Bin + "':\"$PATH\" RDMAKV_SHM=off MACHINE=" + m + "\n"
	p, err := d.net.Host(d.hosts[m]).On().Start(node.Command{Path: "/bin/bash", Args: []string{"-c", script + d.here(m, commands)}, Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	timer := time.AfterFunc(patience, func() { _ = p.Signal(9) })
	defer timer.Stop()
	if code, _ := p.Wait(); code != 0 {
		return out.String(), fmt.Errorf("on %s, exit code %d of: %s", m, code, commands)
	}
	return out.String(), nil
}

// types is shell, where all has to end well.
func (d *deployment) types(m, commands string) string {
	d.t.Helper()
	out, err := d.shell(m, commands)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// TestDeployed: what deploy/README.md says of three machines makes a cluster with replicas of deploy/three-nodes, and restarts it under load without a call
// that fails.
func TestDeployed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	parallel(t)
	d := deploy(t)
	d.types("kv1", d.block("gossip.key"))
	for _, m := range []string{"kv2", "kv3", "app"} { // "brought to the others by a way that you trust"
		for _, file := range []string{"secret", "gossip.key"} {
			text, err := os.ReadFile(filepath.Join(d.dir, "kv1", file))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(d.dir, m, file), text, 0o600))
		}
	}
	doctor, start := d.block("kvclient doctor"), d.block("systemctl enable")
	for _, m := range machines {
		out, _ := d.shell(m, doctor)
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "FAIL") && !strings.Contains(line, "port-closed") {
				t.Errorf("before the start of %s: %s", m, line)
			}
		}
		d.types(m, start)
	}
	for _, m := range machines {
		d.types(m, doctor)
	}
	birth := d.block("cluster init")
	out := d.types("kv2", birth)
	if !strings.Contains(out, "6 groups with 3 replicas on 3 nodes") {
		t.Errorf("cluster init, check and status say:\n%s", out)
	}
	if again := d.types("kv3", birth); !strings.Contains(again, strings.SplitN(out, "\n", 2)[0]) {
		t.Errorf("once more, cluster init says\n%s and at first it said\n%s", again, out)
	}
	if job := d.types("app", d.job()); !strings.Contains(job, strings.SplitN(out, "\n", 2)[0]) {
		t.Errorf("the Job of Kubernetes says\n%s and at first cluster init said\n%s", job, out)
	}
	d.wellInJSON()
	d.restartsUnderLoad()
	d.eachGroupIsLed()
	d.wellInJSON()
}

// eachGroupIsLed waits until each group has a leader: behind a restart one may just elect another, where the machine has no processor for the last one.
func (d *deployment) eachGroupIsLed() {
	d.t.Helper()
	for ctx := within(d.t); ; pause(ctx, 200*time.Millisecond) {
		var st struct{ Groups []groupStatus }
		must(d.t, json.Unmarshal([]byte(d.types("app", "kvclient --config client.yaml cluster status -o json")), &st))
		if !slices.ContainsFunc(st.Groups, func(g groupStatus) bool { return g.Leader == "" }) {
			return
		}
		if ctx.Err() != nil {
			d.t.Fatalf("a group has no leader: %+v", st.Groups)
		}
	}
}

// job is the command of the Job that makes the cluster in Kubernetes, which is run there once more whenever somebody likes: for these machines, and with the
// secret where the Job has it.
func (d *deployment) job() string {
	d.t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/init.yaml")
	must(d.t, err)
	m := regexp.MustCompile(`command: \[(.*)\]`).FindSubmatch(text)
	if m == nil {
		d.t.Fatal("deploy/kubernetes/init.yaml has no command")
	}
	command := strings.NewReplacer(",", "", `"`, "", "rdmakv-0.rdmakv.rdmakv.svc.cluster.local:", "kv1.example:").Replace(string(m[1]))
	for i, name := range machines {
		command = strings.ReplaceAll(command, fmt.Sprintf("rdmakv-%d", i), name)
	}
	return `RDMAKV_SECRET="$(cat secret)" ` + command
}

// wellInJSON: what scripts read says that all three nodes have a replica of each group, and that all replicas are alike.
func (d *deployment) wellInJSON() {
	d.t.Helper()
	var st struct{ Groups []groupStatus }
	must(d.t, json.Unmarshal([]byte(d.types("app", "kvclient --config client.yaml cluster status -o json")), &st))
	if len(st.Groups) != 6 {
		d.t.Errorf("%d groups", len(st.Groups))
	}
	for _, g := range st.Groups {
		if g.Leader == "" || g.Term == 0 || len(g.Replicas) != 3 {
			d.t.Errorf("%+v", g)
		}
	}
	var check struct {
		OK     bool
		Failed int
		Groups []struct {
			Replicas []struct{ State, Digest string }
		}
	}
	must(d.t, json.Unmarshal([]byte(d.types("app", "kvclient --config client.yaml cluster check -o json")), &check))
	if !check.OK || check.Failed != 0 || len(check.Groups) != 6 {
		d.t.Errorf("%+v", check)
	}
	for _, g := range check.Groups {
		for _, r := range g.Replicas {
			if r.State != "done" || r.Digest != g.Replicas[0].Digest || len(g.Replicas) != 3 {
				d.t.Errorf("%+v", g)
			}
		}
	}
}

// restartsUnderLoad types the rolling restart of the document while clients on the other machine put and get.
func (d *deployment) restartsUnderLoad() {
	d.t.Helper()
	cfg := config.Config{SecretFile: filepath.Join(d.dir, "app", "secret")}
	secret, err := cfg.Secret()
	must(d.t, err)
	ctx, stop := context.WithCancel(d.t.Context())
	var calls atomic.Int64
	var wg sync.WaitGroup
	failed := make([]error, 4)
	longest := make([]time.Duration, len(failed))
	for i := range failed {
		c := d.dial("west", func(o *ConnOptions) { o.Secret = secret })
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && failed[i] == nil; n++ {
				each, cancel := context.WithTimeout(d.t.Context(), PatientLimit)
				key, value := fmt.Appendf(nil, "rolling %d %d", i, n%64), fmt.Append(nil, n)
				began := time.Now()
				err := c.Put(each, key, value)
				if err == nil {
					var got []byte
					if got, err = c.Get(each, key); err == nil && !bytes.Equal(got, value) {
						err = fmt.Errorf("%q is read, and %q was put", got, value)
					}
				}
				cancel()
				longest[i], failed[i] = max(longest[i], time.Since(began)), err
				calls.Add(2)
			}
		})
	}
	was := map[string]int{}
	for _, m := range machines {
		was[m] = d.running(m).PID()
	}
	began := time.Now()
	out, err := d.shell("app", d.block("systemctl restart"))
	took := time.Since(began)
	stop()
	wg.Wait()
	slowest := time.Duration(0)
	for _, l := range longest {
		slowest = max(slowest, l)
	}
	d.t.Logf("three restarts in %v, %d calls meanwhile, the longest put and get took %v", took.Round(time.Millisecond), calls.Load(), slowest.Round(time.Millisecond))
	if err := errors.Join(append(failed, err)...); err != nil || calls.Load() < 100 {
		d.t.Errorf("of %d calls meanwhile: %v\n%s", calls.Load(), err, out)
	}
	for _, m := range machines {
		if d.running(m).PID() == was[m] {
			d.t.Errorf("%s was not restarted:\n%s", m, out)
		}
	}
}
