package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/cluster/hosts"
	"github.com/rdmakv/rdmakv/test/node"
)

var binFlag = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")

// bin is the directory of the programs.
var bin string

// noNamespaces says why there are no separate hosts.
var noNamespaces error

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("left out with -short: each test starts programs")
		return
	}
	if os.Getenv("RDMAKV_LAB") == "" {
		noNamespaces = hosts.Enter()
	} else {
		// TestDevice makes a device of the guest's own network, which is not allowed
		// within a user namespace; and the guest's kernel has no TAP devices.
		noNamespaces = errors.New("the guest has one network, with a device to break")
	}
	os.Exit(func() int {
		if bin = *binFlag; bin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "rdmakv-doctor-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // another user runs the programs, too
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/kvserver", "../../cmd/kvclient")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
			return 1
		}
		bin = dir
		return m.Run()
	}())
}

// A report is what doctor -o json prints, as a script reads it.
type report struct {
	Role  string
	OK    bool
	First string `json:"first_failure"`
	Steps []struct {
		Step, Subject, Level, Code, Text, Do string
	}
}

// failed lists the codes of what failed.
func (r *report) failed() (codes []string) {
	for _, s := range r.Steps {
		if s.Level == "fail" {
			codes = append(codes, s.Code)
		}
	}
	return slices.Compact(codes)
}

func (r *report) String() string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%-4s %s %s %s: %s -> %s\n", s.Level, s.Step, s.Subject, s.Code, s.Text, s.Do)
	}
	return b.String()
}

// A host is where programs run: this machine, or a namespace.
type host struct {
	t  *testing.T
	on node.Launcher
	ip string
}

func here(t *testing.T) host { return host{t, nil, "127.0.0.1"} }

// apart makes separate hosts, or skips the test.
func apart(t *testing.T, names ...string) (hosts.Net, map[string]host) {
	t.Helper()
	if noNamespaces != nil {
		t.Skipf("needs network namespaces: %v", noNamespaces)
	}
	n, err := hosts.Namespaces(names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	out := map[string]host{}
	for _, name := range names {
		out[name] = host{t, n.Host(name).On(), n.Host(name).IP()}
	}
	return n, out
}

// start starts a node.
func (h host) start(args ...string) *node.Node {
	h.t.Helper()
	n, err := node.Start(h.t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: args, On: h.on, Wait: 5 * time.Minute})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = n.Kill() })
	return n
}

// doctor examines the host and checks the exit code against the report.
func (h host) doctor(args ...string) *report {
	h.t.Helper()
	return h.run(filepath.Join(bin, "kvclient"), append([]string{"doctor", "-o", "json"}, args...)...)
}

func (h host) run(program string, args ...string) *report {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	on := h.on
	if on == nil {
		on = node.Local()
	}
	p, err := on.Start(node.Command{Path: program, Args: args, Stdout: &stdout, Stderr: &stderr, Env: []string{"HOME=/nonexistent"}})
	if err != nil {
		h.t.Fatal(err)
	}
	code, err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	r := new(report)
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		h.t.Fatalf("%v: exit code %d, %s%s", err, code, &stdout, &stderr)
	}
	if want := map[bool]int{true: 0, false: 1}[r.OK]; code != want || stderr.Len() > 0 {
		h.t.Errorf("exit code %d, want %d: %s", code, want, &stderr)
	}
	return r
}

// want holds a report to one code of failure; "" for none.
func (h host) want(r *report, code, says string) {
	h.t.Helper()
	var codes []string
	if code != "" {
		codes = []string{code}
	}
	if !slices.Equal(r.failed(), codes) || r.First != code || !strings.Contains(r.String(), says) {
		h.t.Errorf("failed: %v, want %q and %q\n%v", r.failed(), code, says, r)
	}
}

// secretFile writes a file that its owner alone may read.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort is a port that had no listener a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
