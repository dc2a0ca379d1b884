package lab

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// patience bounds each wait. An emulated machine on a busy host is slow, so it
// is long; nothing is measured by it.
const patience = 2 * time.Minute

var binFlag = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")

// buildDir is for what tests build.
var buildDir string

// TestMain: tests that only boot guests and wait for them run side by side
// (t.Parallel), as many as there are processors; those that look at time do not.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		var err error
		if buildDir, err = os.MkdirTemp("", "rdmakv-lab-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(buildDir)
		return m.Run()
	}())
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

var image = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	_, err := lab.Image(ctx, lab.Config{})
	return err
})

// needLab skips where the lab is unavailable. Where scripts/prepare found that
// it can (RDMAKV_REQUIRE_LAB=1) its absence is a failure.
func needLab(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMAKV_LAB") != "" {
		t.Skip("this is a test of the host, and here is a guest")
	}
	if testing.Short() {
		t.Skip("boots a guest")
	}
	err := image()
	if lab.Unavailable(err) && os.Getenv("RDMAKV_REQUIRE_LAB") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// progress logs what the lab says, and lets a test look at it.
type progress struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
}

func (p *progress) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	p.t.Log(line)
}

// boot boots a guest for one test.
func boot(t *testing.T, c lab.Config) *lab.Guest {
	t.Helper()
	needLab(t)
	p := &progress{t: t}
	c.Progress = p.add
	c.Timeout = patience
	g, err := lab.Boot(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// output runs a program in a guest and returns what it writes.
func output(t *testing.T, g *lab.Guest, args ...string) string {
	t.Helper()
	out, err := g.Output(within(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start starts a program in a guest and waits until it has written a line with
// the given text.
func start(t *testing.T, g *lab.Guest, until string, args ...string) *agent.Process {
	t.Helper()
	p, err := g.Agent().Start(within(t), agent.Cmd{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	readUntil(t, p, until)
	return p
}

// readUntil reads the output of a program until a text has come.
func readUntil(t *testing.T, p *agent.Process, text string) {
	t.Helper()
	var seen []byte
	timer := time.AfterFunc(patience, func() { _ = p.Kill() })
	defer timer.Stop()
	buf := make([]byte, 4096)
	for !bytes.Contains(seen, []byte(text)) {
		n, err := p.Stdout().Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			t.Fatalf("the program has ended without %q: %v, %q", text, err, seen)
		}
	}
}

// inGuest runs one test of this binary in a guest, where it must pass.
func inGuest(t *testing.T, g *lab.Guest, test string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(filepath.Join(g.Dir, "self.test"), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := g.Agent().Run(within(t), agent.Cmd{
		Args: []string{"/mnt/self.test", "-test.v", "-test.run", "^" + test + "$"}, Env: []string{"RDMAKV_LAB=1"},
	}, &out, &out)
	if err != nil || code != 0 || !strings.Contains(out.String(), "--- PASS: "+test) {
		t.Errorf("%s in the guest: code %d, %v\n%s", test, code, err, &out)
	}
}

// inside skips a test that is for inGuest.
func inside(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMAKV_LAB") == "" {
		t.Skip("runs in a guest, started by another test")
	}
}
