package secret

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childRole in the environment tells the child of TestProtect what it is.
const childRole = "SECRET_TEST_CRASH"

// TestProtect: a process that protects its secrets leaves no core dump when it dies,
// where another one does. A real crash, of this test's own binary.
func TestProtect(t *testing.T) {
	if role := os.Getenv(childRole); role != "" {
		crash(role)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Skip(err)
	}
	if p := string(pattern); strings.ContainsAny(p, "|/%") {
		t.Skipf("core dumps of this machine go elsewhere (kernel.core_pattern = %q)", p)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max != unix.RLIM_INFINITY {
		t.Skipf("core dumps are limited here: %+v %v", limit, err)
	}
	if !leavesCore(t, "plain") {
		t.Fatal("no core dump: this test sees nothing")
	}
	if leavesCore(t, "protected") {
		t.Error("a process with secrets left a core dump")
	}
}

// crash is the child: it dies with a core dump, if it may.
func crash(role string) {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		panic(err)
	}
	if role == "protected" {
		if err := Protect(); err != nil {
			panic(err)
		}
	}
	debug.SetTraceback("crash")
	if err := unix.Kill(os.Getpid(), unix.SIGABRT); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
	os.Exit(3)
}

// leavesCore lets a child crash and reports whether it left a core dump.
func leavesCore(t *testing.T, role string) bool {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProtect$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), childRole+"="+role)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SIGABRT") {
		t.Fatalf("the child did not crash: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "core*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}
