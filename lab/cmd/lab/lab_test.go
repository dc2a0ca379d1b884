package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/ether"
)

// TestReport: lines may come in any pieces; the log gets all of them.
func TestReport(t *testing.T) {
	const text = `=== RUN   TestA
    a_test.go:1: a figure
--- PASS: TestA (0.00s)
=== RUN   TestB
    --- PASS: TestB/sub (0.00s)
    b_test.go:2: wrong
--- FAIL: TestB (0.00s)
--- SKIP: TestC (0.00s)
FAIL`
	const shown = `    a_test.go:1: a figure
    b_test.go:2: wrong
--- FAIL: TestB (0.00s)
--- SKIP: TestC (0.00s)
FAIL
`
	for _, size := range []int{1, 7, len(text)} {
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := &report{log: log, out: &out}
		for piece := range slices.Chunk([]byte(text), size) {
			if _, err := r.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		r.end()
		if out.String() != shown || r.passed != 1 || r.failed != 1 || r.skipped != 1 {
			t.Errorf("in pieces of %d: %d passed, %d failed, %d skipped, shown:\n%s", size, r.passed, r.failed, r.skipped, &out)
		}
		if data, err := os.ReadFile(log.Name()); err != nil || string(data) != text {
			t.Errorf("log %q, %v", data, err)
		}
		log.Close()
	}
}

// TestControl: words for guests that are not there, and for the Ethernet, which
// needs none.
func TestControl(t *testing.T) {
	sw, err := ether.New(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	c := &lab.Cluster{Switch: sw}
	for _, line := range []string{"", "cut", "cut 1", "cut 1 2", "cut x y", "cut 1 from 2", "loss 1 2", "loss 1 2 x", "link 1 sideways", "pause 1", "kill 0", "heal now", "down now"} {
		if err := do(c, strings.Fields(line)); err == nil {
			t.Errorf("%q is done", line)
		}
	}
	if err := do(c, []string{"heal"}); err != nil {
		t.Error(err)
	}
}

func TestStateDir(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir, err := stateDir("x")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := stateDir("x"); again != dir || err != nil {
		t.Errorf("%s and %s, %v", dir, again, err)
	}
	base := filepath.Dir(dir)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := stateDir("x"); err == nil {
		t.Error("a directory that others can enter is used")
	}
	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tmp, base); err != nil {
		t.Fatal(err)
	}
	if _, err := stateDir("x"); err == nil {
		t.Error("a symbolic link is followed")
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "-nonsense"}, {"exec"}, {"cluster"}, {"up", "what"}, {"serve", "what"}, {"list", "-x"}} {
		i := slices.IndexFunc(commands(), func(c command) bool { return c.name == args[0] })
		os.Args = append([]string{"lab"}, args...)
		if code := commands()[i].main(t.Context()); code == 0 {
			t.Errorf("lab %v: code 0", args)
		}
	}
}
