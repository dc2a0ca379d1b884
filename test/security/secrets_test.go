package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

// programs builds kvserver and kvclient once, unless -bin has them.
var programs = sync.OnceValues(func() (string, error) {
	if *binFlag != "" {
		return *binFlag, nil
	}
	dir, err := os.MkdirTemp("", "rdmakv-security-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/kvserver", "../../cmd/kvclient")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

// A site is a node that runs as a process, with its files.
type site struct {
	*rig // for noSecrets; it has no node of its own
	dir  string
	bin  string
	n    *node.Node
}

func newSite(t *testing.T) *site {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{rig: &rig{t: t}, dir: t.TempDir(), bin: bin}
	s.file("main.secret", mainSecret+"\n", 0o600)
	s.file("alice.secret", aliceWord+"\n", 0o600)
	s.file("reader.secret", readerWord+"\n", 0o600)
	s.file("clerk.secret", clerkWord+"\n", 0o600)
	s.file("tenants.yaml", siteTenants, 0o644)
	return s
}

const siteTenants = `tenants:
  - name: alice
    secret_file: alice.secret
    memory_limit: 32MiB
  - name: bob
    secret_env: BOBS_WORD
    memory_limit: 32MiB
  - name: reader
    secret_file: reader.secret
    space: alice
    read_only: true
  - name: clerk
    secret_file: clerk.secret
    prefix: "desk/"
`

func (s *site) file(name, text string, mode os.FileMode) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// run runs a program to its end and looks for secrets in what it says.
func (s *site) run(env []string, name string, args ...string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Env = append(append(node.CleanEnv(os.Environ()), "RDMAKV_FABRIC="+*fabricFlag), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s %q: %v", name, args, err)
	}
	s.noSecrets(fmt.Sprintf("%s %q", name, args), string(out))
	for _, word := range allSecrets {
		if strings.Contains(strings.Join(args, " "), word) {
			s.t.Fatalf("the test itself gives %s a secret", name)
		}
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (s *site) serverArgs() []string {
	return []string{"--data-dir", filepath.Join(s.dir, "data"), "--listen", *hostFlag + ":0", "--admin-listen", "127.0.0.1:0", "--fabric", *fabricFlag,
		"--log-level", "debug", "--memory-limit", "512MiB", "--secret-file", filepath.Join(s.dir, "main.secret"), "--tenants-file", filepath.Join(s.dir, "tenants.yaml")}
}

func (s *site) start(more ...string) {
	s.t.Helper()
	n, err := node.Start(s.t.Context(), node.Options{
		Bin: filepath.Join(s.bin, "kvserver"), Args: append(s.serverArgs(), more...), Env: append(node.CleanEnv(os.Environ()), "BOBS_WORD="+bobWord),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.n = n
	s.t.Cleanup(func() {
		n.Kill()
		s.noSecrets("standard error of the server", n.Stderr())
		if s.t.Failed() {
			s.t.Logf("the server:\n%s", n.Stderr())
		}
	})
}

// TestSecretsStaySecret looks for secrets in everything that the programs say:
// logs at their most talkative, errors, metrics, statistics, the configuration in
// force, the command lines, answers to operators.
func TestSecretsStaySecret(t *testing.T) {
	s := newSite(t)
	s.start()
	kvclient := func(tenant, secretFile string, args ...string) (string, int) {
		return s.run(nil, "kvclient", append([]string{"--server", s.n.Data, "--log-level", "debug", "--tenant", tenant, "--secret-file", filepath.Join(s.dir, secretFile)}, args...)...)
	}
	if out, code := kvclient("alice", "alice.secret", "put", "k", "v"); code != 0 {
		t.Fatalf("put: %s", out)
	}
	if out, code := s.run([]string{"RDMAKV_SECRET=" + bobWord}, "kvclient", "--server", s.n.Data, "--tenant", "bob", "get", "k"); code == 0 {
		t.Errorf("bob has alice's key: %s", out)
	}
	if out, code := kvclient("alice", "clerk.secret", "get", "k"); code == 0 {
		t.Errorf("a wrong secret: %s", out)
	}
	if out, code := kvclient("clerk", "clerk.secret", "get", "k"); code == 0 || !strings.Contains(out, "not allowed") {
		t.Errorf("outside the prefix: %d, %s", code, out)
	}
	for _, args := range [][]string{{"stats"}, {"admin", "tenants"}, {"admin", "limits"}, {"admin", "revoke", "bob"}, {"config"}, {"doctor"}} {
		kvclient("", "main.secret", args...)
	}
	s.run([]string{"BOBS_WORD=" + bobWord}, "kvserver", append([]string{"config"}, s.serverArgs()...)...)
	// Faults of every kind.
	s.file("alice.secret", aliceWord+"\n", 0o644)
	if out, code := kvclient("alice", "alice.secret", "get", "k"); code == 0 || !strings.Contains(out, "0600") {
		t.Errorf("a secret that all may read: %d, %s", code, out)
	}
	out, code := s.run(nil, "kvserver", s.serverArgs()...)
	if code == 0 || !strings.Contains(out, "0600") || !strings.Contains(out, "BOBS_WORD") {
		t.Errorf("not every fault of the tenants is told: %d, %s", code, out)
	}
	s.file("alice.secret", aliceWord+"\n", 0o600)
	s.file("twice.yaml", siteTenants+"  - name: eve\n    secret_file: alice.secret\n    colour: red\n    prefix: 7\n", 0o644)
	out, code = s.run([]string{"BOBS_WORD=" + bobWord}, "kvserver", append(s.serverArgs(), "--tenants-file", filepath.Join(s.dir, "twice.yaml"))...)
	if code == 0 || !strings.Contains(out, "colour") || !strings.Contains(out, "prefix") {
		t.Errorf("faults of a tenants file: %d, %s", code, out)
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/stats", "/"} {
		s.noSecrets(path, fetchAny(t, "http://"+s.n.Admin+path))
	}
	line, err := s.n.ReadProc("cmdline")
	if err != nil {
		t.Fatal(err)
	}
	s.noSecrets("the command line", string(line))
	// What is on disk beside the secrets' own files.
	err = filepath.WalkDir(filepath.Join(s.dir, "data"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // the server is at work in it
		}
		if data, err := os.ReadFile(path); err == nil {
			s.noSecrets(path, string(data))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReloadBySignal: SIGHUP takes the tenants file as it is then; a faulty one
// changes nothing.
func TestReloadBySignal(t *testing.T) {
	s := newSite(t)
	s.start()
	dial := func(tenant, word string) error {
		cfg := client.Config{Servers: []string{s.n.Data}, Fabrics: []rdma.Fabric{newFabric()}, Tenant: tenant, Secret: []byte(word), DialTimeout: 5 * time.Second}
		c, err := client.Dial(t.Context(), cfg)
		if err == nil {
			err = errors.Join(c.Put(t.Context(), []byte("desk/k"), nil), c.Close())
		}
		return err
	}
	if err := errors.Join(dial("alice", aliceWord), dial("bob", bobWord), dial("clerk", clerkWord)); err != nil {
		t.Fatal(err)
	}
	s.file("tenants.yaml", "tenants:\n  - name: alice\n    secret_file: alice.secret\n    colour: red\n", 0o644)
	signal := func() {
		t.Helper()
		if err := s.n.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	eventually(t, "the fault is logged", func() bool { return strings.Contains(s.n.Stderr(), "colour") })
	if err := dial("bob", bobWord); err != nil {
		t.Errorf("after a faulty file: %v", err)
	}
	s.file("tenants.yaml", strings.Replace(siteTenants, "name: bob", "name: bert", 1), 0o644)
	signal()
	eventually(t, "bob is out", func() bool { return errors.Is(dial("bob", bobWord), client.ErrAuth) })
	eventually(t, "bert is in", func() bool { return dial("bert", bobWord) == nil })
	if err := dial("alice", aliceWord); err != nil {
		t.Error(err)
	}
	owner := client.Config{Servers: []string{s.n.Data}, Fabrics: []rdma.Fabric{newFabric()}, Secret: []byte(mainSecret)}
	c, err := client.Dial(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text, err := admin.Of(c).Do(t.Context(), "", wire.AdminTenants, "")
	if err != nil || !strings.Contains(string(text), `"bert"`) || strings.Contains(string(text), `"bob"`) {
		t.Errorf("%s, %v", text, err)
	}
}
