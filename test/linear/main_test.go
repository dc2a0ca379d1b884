package linear

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var (
	seedFlag    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random choices; a failure prints it")
	replayFlag  = flag.String("replay", "", "file of a saved history, which TestReplay judges again")
	opsFlag     = flag.Int("ops", 20_000, "operations of each run")
	secondsFlag = flag.Int("seconds", 0, "end each run after so many seconds; 0: when its operations are done")
	binFlag     = flag.String("bin", "", "directory with kvserver; empty: build it")
	fabricFlag  = flag.String("fabric", "iwarp", "fabric of nodes and clients: iwarp, verbs or shm")
	hostFlag    = flag.String("host", "127.0.0.1", "address that nodes listen on")
	outFlag     = flag.String("out", "", "directory of failing histories; empty: .cache/linearizability of the repository")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if *fabricFlag != "iwarp" && *fabricFlag != "verbs" && *fabricFlag != "shm" {
			fmt.Fprintf(os.Stderr, "-fabric is %q, want iwarp, verbs or shm\n", *fabricFlag)
			return 2
		}
		code := m.Run()
		programs.remove()
		return code
	}())
}

// outDir is where failing histories go.
func outDir() string {
	if *outFlag != "" {
		return *outFlag
	}
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache", "linearizability")
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return filepath.Join(os.TempDir(), "rdmakv-linearizability")
}

// programs is the directory of kvserver, made when a test first asks for it.
var programs builtPrograms

type builtPrograms struct {
	once sync.Once
	dir  string
	err  error
}

func (p *builtPrograms) get(t testing.TB) string {
	t.Helper()
	p.once.Do(p.make)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.dir
}

// make builds kvserver, or copies it: in a guest it lies on a file system of the
// host that caches nothing, where each of its pages would be fetched when it is
// first executed.
func (p *builtPrograms) make() {
	if p.dir, p.err = os.MkdirTemp("", "rdmakv-linear-"); p.err != nil {
		return
	}
	to := filepath.Join(p.dir, "kvserver")
	if *binFlag == "" {
		// With the GOFLAGS of a mutant, if there are any: what is broken for the tests
		// is broken in it too.
		out, err := exec.Command("go", "build", "-o", to, "../../cmd/kvserver").CombinedOutput()
		if err != nil {
			p.err = fmt.Errorf("build kvserver: %w\n%s", err, out)
		}
		return
	}
	data, err := os.ReadFile(filepath.Join(*binFlag, "kvserver"))
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	p.err = err
}

func (p *builtPrograms) remove() {
	if p.dir != "" {
		if err := os.RemoveAll(p.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
