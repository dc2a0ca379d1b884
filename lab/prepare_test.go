package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// prepare runs scripts/prepare with a PATH of the given programs, which are scripts
// of sh, beside the few that it cannot do without, in a directory of its own. It
// returns its output and what it has set for the tests.
func prepare(t *testing.T, programs map[string]string) (code int, out, env string) {
	t.Helper()
	script, err := filepath.Abs("../scripts/prepare")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"sh", "cat", "env", "grep", "head", "mkdir", "tail", "tr"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", script)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin}
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	set, err := os.ReadFile(filepath.Join(dir, ".cache", "test.env"))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text), string(set)
}

// TestPrepareWithoutModules: where the lab's program does not build, which is so
// without a network and with an empty module cache, prepare says so in a sentence,
// and no test is told that it must have the lab.
func TestPrepareWithoutModules(t *testing.T) {
	programs := map[string]string{
		"uname": `[ "$1" = -m ] && echo x86_64 || echo Linux`, "id": "echo 1000", "unshare": "exit 1",
		"go": `echo 'go: downloading example.org/m v1' >&2; echo 'go: example.org/m@v1: dial tcp: lookup proxy.golang.org: no such host' >&2; exit 1`,
	}
	for _, name := range strings.Fields("tshark openssl spin qemu-system-x86_64 busybox depmod xz mkfs.ext4 dash rdma ibv_devinfo rping ib_read_lat gcc-12 cpp make ld") {
		programs[name] = "exit 0"
	}
	for _, path := range []string{"/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h", "/usr/lib/x86_64-linux-gnu/libibverbs"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("prepare asks for the packages first: %v", err)
		}
	}
	code, out, env := prepare(t, programs)
	if code != 1 || !strings.Contains(out, "go build ./lab/cmd/lab fails: go: example.org/m@v1: dial tcp") || !strings.Contains(out, "go mod download") ||
		strings.Contains(out, "cannot open") || strings.Contains(env, "RDMAKV_REQUIRE_LAB") || !strings.Contains(env, "RDMAKV_SKIP_LAB") {
		t.Errorf("exit code %d\n%s\n%s", code, out, env)
	}
}

// TestPrepareWithoutNetwork: root can install, and nothing can be downloaded: the
// reason is what apt has complained of first.
func TestPrepareWithoutNetwork(t *testing.T) {
	code, out, env := prepare(t, map[string]string{
		"uname": `[ "$1" = -m ] && echo x86_64 || echo Linux`, "id": "echo 0", "unshare": "exit 1", "apt-cache": "exit 0", "go": "exit 1",
		"apt-get": `[ "$1" = update ] && echo "Err:1 http://deb.example.org stable InRelease" && exit 100; echo "E: Unable to locate package"; exit 100`,
	})
	if code != 0 || !strings.Contains(env, "missing packages: qemu-system-x86") || !strings.Contains(env, "(Err:1 http://deb.example.org stable InRelease)") || strings.Contains(env, "REQUIRE_") {
		t.Errorf("exit code %d\n%s\n%s", code, out, env)
	}
}

// TestPrepareBesideABrokenSource: the lists of one source of packages are unavailable,
// and the packages come from the others.
func TestPrepareBesideABrokenSource(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	prepare(t, map[string]string{
		"uname": `[ "$1" = -m ] && echo x86_64 || echo Linux`, "id": "echo 0", "unshare": "exit 1", "apt-cache": "exit 0", "go": "exit 1",
		"apt-get": `[ "$1" = update ] && exit 100; echo "$@" >>` + asked + `; exit 0`,
	})
	got, err := os.ReadFile(asked)
	if err != nil || !strings.Contains(string(got), "qemu-system-x86") {
		t.Errorf("apt was asked for %q, %v", got, err)
	}
}
