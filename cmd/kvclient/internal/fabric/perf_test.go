package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A lockedBuffer is written by a running command and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func perfApp(args ...string) (code func(context.Context) int, stdout, stderr *lockedBuffer) {
	stdout, stderr = new(lockedBuffer), new(lockedBuffer)
	a := &app.App{Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr, Env: []string{"RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
	return func(ctx context.Context) int {
		return a.Run(ctx, append([]string{"fabric", "perf"}, args...), Commands)
	}, stdout, stderr
}

// perfServer starts a server and returns where it is.
func perfServer(t *testing.T, args ...string) string {
	t.Helper()
	run, _, said := perfApp(append([]string{"--serve", "127.0.0.1:0"}, args...)...)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan int, 1)
	go func() { end <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if code := <-end; code != cli.ExitOK {
			t.Errorf("the server ended with %d: %s", code, said)
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, rest, ok := strings.Cut(said.String(), "serving on iwarp/iwarp0 at "); ok {
			addr, _, _ := strings.Cut(rest, " ")
			return addr
		}
	}
	t.Fatalf("the server says %q", said)
	return ""
}

// TestPerf runs client and server as people do.
func TestPerf(t *testing.T) {
	addr := perfServer(t, "--max-size", "64KiB")
	run, stdout, stderr := perfApp(addr, "-t", "all", "-s", "64,4KiB", "-n", "200", "-o", "json")
	if code := run(t.Context()); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	dec := json.NewDecoder(strings.NewReader(stdout.String()))
	for _, name := range perf.Tests() {
		for _, size := range []int{64, 4096} {
			var r perf.Result
			if err := dec.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if r.Test != name || r.Bytes != size || r.Iterations != 200 || r.Warmup != 100 || (r.Latency == nil) == (r.Bandwidth == nil) {
				t.Errorf("%s of %d bytes: %+v", name, size, r)
			}
		}
	}

	run, stdout, stderr = perfApp(addr, "-t", "read_lat,send_bw", "-s", "8,16", "-D", "20ms")
	if code := run(t.Context()); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	text := stdout.String()
	if strings.Count(text, "#bytes #iterations") != 2 || strings.Count(text, "\n") != 2*(3+2)+1 ||
		!strings.Contains(text, "t_typical[usec]") || !strings.Contains(text, "MsgRate[Mpps]") || !strings.Contains(text, "full round trip") {
		t.Errorf("%s", text)
	}

	run, _, stderr = perfApp(addr, "-s", "64KiB,64KiB,65537B", "-n", "5")
	if code := run(t.Context()); code != cli.ExitError || !strings.Contains(stderr.String(), "takes 65536") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestPerfUsage: wrong usage is reported before any server is dialed.
func TestPerfUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "either HOST:PORT"},
		{"127.0.0.1:1 --serve 127.0.0.1:2", "either HOST:PORT"},
		{"127.0.0.1:1 -t read", "there are: read_lat"},
		{"127.0.0.1:1 -s 0", "--size is 0"},
		{"127.0.0.1:1 --test=", "names no test"},
		{"127.0.0.1:1 --size=", "names no size"},
		{"127.0.0.1:1 -s 4Kib", "not a size"},
		{"127.0.0.1:1 -s 1GiB", "--size is 1GiB"},
		{"127.0.0.1:1 -a -s 64", "both --size and --sweep"},
		{"127.0.0.1:1 -n 5 -D 1s", "both --iterations and --duration"},
		{"127.0.0.1:1 -t read_bw --depth 4 -l 8", "batch 8"},
		{"127.0.0.1:1 -t write_lat -e", "no events"},
		{"--serve 127.0.0.1:0 --max-tests 0", "--max-tests 1 to 1024"},
		{"--serve 127.0.0.1:0 --max-size 1GiB", "--max-size is 1GiB"},
	} {
		run, _, stderr := perfApp(strings.Fields(c.args)...)
		if code := run(t.Context()); code != cli.ExitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, stderr)
		}
	}
	run, _, stderr := perfApp("127.0.0.1:1")
	if code := run(t.Context()); code != cli.ExitError || stderr.String() == "" {
		t.Errorf("nobody there: exit code %d, %s", code, stderr)
	}
}

// noOpen is a fabric whose devices cannot be opened.
type noOpen struct{ rdma.Fabric }

func (noOpen) Open(context.Context, string) (rdma.Device, error) {
	return nil, errors.New("it cannot be opened")
}

// TestPerfPassed: why a better fabric is not used is told once, also if the one that
// is left leads nowhere; that this machine has no device for it is no news then.
func TestPerfPassed(t *testing.T) {
	o := perfOptions{tests: []string{"read_lat"}, sizes: []string{"8", "16"}}
	plan, err := o.plan(true)
	if err != nil {
		t.Fatal(err)
	}
	soft := iwarp.New(iwarp.Options{})
	none := fmt.Errorf("shm: %w", rdma.ErrNoDevice)
	other := errors.New("verbs: the way there is device a; allowed are: b")
	down := &rdma.OpError{Op: "route", Fabric: "verbs", Err: fmt.Errorf("%w: none is usable: a: port 1 is DOWN", rdma.ErrNoDevice)}
	server := perfServer(t)
	for _, c := range []struct {
		what   string
		fabric rdma.Fabric
		addr   string
		passed []error
		lines  int
		fails  bool
	}{
		{"no device", soft, apptest.Nobody(t), []error{none}, 0, true},
		{"another reason", soft, apptest.Nobody(t), []error{none, other}, 2, true},
		{"a port is down", soft, apptest.Nobody(t), []error{down}, 1, true},
		{"not opened", noOpen{soft}, apptest.Nobody(t), []error{none}, 1, true},
		{"a server", soft, server, []error{none}, 1, false},
	} {
		var out, errOut bytes.Buffer
		a := &app.App{Stdout: &out, Stderr: &errOut, Output: "text"}
		err := perfTests(t.Context(), t.Context(), a, way{fabric: c.fabric, device: "iwarp0", addr: c.addr}, c.passed, plan, c.addr)
		if (err != nil) != c.fails || strings.Count(errOut.String(), "\n") != c.lines || strings.Count(errOut.String(), "not used: ") != c.lines {
			t.Errorf("%s: %v\n%s", c.what, err, &errOut)
		}
	}
}
