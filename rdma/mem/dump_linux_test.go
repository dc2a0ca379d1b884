package mem

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childRole in the environment tells the child of TestCoreDump that it is one.
const childRole = "MEMORY_TEST_CRASH"

// mark writes a pattern that is nowhere else: no copy of it exists before.
func mark(dst []byte, seed uint32) {
	for i := range dst {
		seed = seed*1664525 + 1013904223
		dst[i] = byte(seed >> 24)
	}
}

// TestCoreDump: the core of a process that dies has its Go heap and not its
// blocks. A real crash, of this test's own binary.
func TestCoreDump(t *testing.T) {
	if os.Getenv(childRole) != "" {
		crash()
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
	core := coreOf(t)
	if core == "" {
		t.Fatal("no core dump: this test sees nothing")
	}
	slab, heap := contains(t, core, 1), contains(t, core, 2)
	if !heap {
		t.Error("the Go heap is not in the core: this test sees nothing")
	}
	if slab {
		t.Error("registered memory is in the core dump")
	}
}

// crash is the child: it dies with a core dump, if it may.
func crash() {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		panic(err)
	}
	block, err := Alloc(1<<20, Options{Tag: "test"})
	if err != nil {
		panic(err)
	}
	mark(block.Bytes(), 1)
	heap := make([]byte, 1<<16)
	mark(heap, 2)
	debug.SetTraceback("crash")
	if err := unix.Kill(os.Getpid(), unix.SIGABRT); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
	runtime.KeepAlive(heap)
	runtime.KeepAlive(block)
	os.Exit(3)
}

// coreOf lets a child crash and returns its core dump, or "".
func coreOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCoreDump$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), childRole+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SIGABRT") {
		t.Fatalf("the child did not crash: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "core*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// contains says whether a file has the pattern of a seed somewhere.
func contains(t *testing.T, name string, seed uint32) bool {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, 64)
	mark(want, seed)
	// The test's own copies would be found in its own core, not in the child's.
	buf := make([]byte, 1<<20+len(want))
	kept := 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		if bytes.Contains(buf[:kept+n], want) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[kept+n-len(want):kept+n])
	}
}

// TestFreshIsZero: what one user of memory left in it no other finds there: the
// kernel gives pages back to itself, and zeroed ones out.
func TestFreshIsZero(t *testing.T) {
	const size = 4 << 20
	for round := range 8 {
		b, err := Alloc(size, Options{Tag: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range b.Bytes() {
			if v != 0 {
				t.Fatalf("round %d: byte %d of fresh memory is %#x", round, i, v)
			}
		}
		mark(b.Bytes(), 3)
		if err := b.Free(); err != nil {
			t.Fatal(err)
		}
	}
}
