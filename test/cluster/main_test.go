package cluster

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/test/cluster/hosts"
)

var (
	seedFlag    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random choices; a failure prints it")
	binFlag     = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")
	keysFlag    = flag.Int("keys", 100_000, "keys of the test that reads every key")
	killsFlag   = flag.Int("kills", 2, "how often a leader goes in each way, in the test that measures fail-overs")
	judgedFlag  = flag.Bool("judged", false, "a load runs beside that test, and what its clients saw is judged; calls take longer for it")
	secondsFlag = flag.Int("seconds", 40, "how long the storm lasts")
	outFlag     = flag.String("out", "", "directory of failing histories; empty: .cache/linearizability of the repository")
	everyPart   = flag.Bool("every-part", false, "the test of the operator's commands does all that it has")
	loopFlag    = flag.Bool("loopback", false, "hosts on loopback addresses, though there may be namespaces")
)

// cannot says why there are no namespaces.
var cannot error

func TestMain(m *testing.M) {
	flag.Parse()
	cannot = hosts.Enter()
	code := m.Run()
	programs.remove()
	os.Exit(code)
}

// programs are kvserver and kvclient, made when a test first asks for them.
var programs builtPrograms

type builtPrograms struct {
	once sync.Once
	dir  string
	temp bool
	err  error
}

// get returns their directory.
func (p *builtPrograms) get(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.dir = *binFlag; p.dir != "" {
			p.dir, p.err = filepath.Abs(p.dir)
			return
		}
		if p.dir, p.err = os.MkdirTemp("", "rdmakv-cluster-"); p.err != nil {
			return
		}
		p.temp = true
		out, err := exec.Command("go", "build", "-o", p.dir+"/", "../../cmd/kvserver", "../../cmd/kvclient").CombinedOutput()
		if err != nil {
			p.err = fmt.Errorf("build the programs: %w\n%s", err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.dir
}

func (p *builtPrograms) remove() {
	if p.temp {
		if err := os.RemoveAll(p.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// parallel lets a test run beside others, as many as -parallel says: these tests wait more than
// they compute. Each has networks of its own where there are namespaces. On loopback addresses
// all nodes of one name would have the same ports, so tests run one after the other there.
func parallel(t *testing.T) {
	if cannot == nil && !*loopFlag {
		t.Parallel()
	}
}

// patience is how long anything may take that must happen. A machine with much
// else to do takes its time.
const patience = 3 * time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// names of hosts: five that are in use, and two to move to.
var names = []string{"one", "two", "three", "spare", "east", "west", "fifth"}

// A world is a rig on hosts of this machine, and clients on two of them.
type world struct {
	*Rig
	t    *testing.T
	net  hosts.Net
	dir  string
	logs *lines
}

// newWorld makes hosts and prepares nodes on the first three.
func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	t.Logf("seed %d", *seedFlag)
	w := &world{t: t, dir: t.TempDir(), logs: &lines{}}
	var err error
	if *loopFlag || cannot != nil {
		w.net, err = hosts.Loopback(names...)
	} else {
		w.net, err = hosts.Namespaces(names...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("hosts are %s; why not namespaces: %v", w.net.Kind(), cannot)
	t.Cleanup(func() {
		if err := w.net.Close(); err != nil {
			t.Error(err)
		}
	})
	o := Options{Bin: programs.get(t), Dir: w.dir, Log: w.logs}
	for _, name := range names[:3] {
		o.Places = append(o.Places, w.net.Host(name))
	}
	for _, f := range change {
		f(&o)
	}
	if w.Rig, err = NewRig(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Rig.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what the nodes said:\n%s", w.logs)
		}
	})
	return w
}

// born starts the nodes and makes a cluster of them.
func (w *world) born() *world {
	w.t.Helper()
	if err := w.Start(within(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.initMap()
	return w
}

// needsFaults skips where the network cannot cut single ports or slow links down.
func (w *world) needsFaults() {
	w.t.Helper()
	if w.net.Kind() != "namespaces" {
		w.t.Skipf("single ports cannot be cut on loopback addresses; no namespaces: %v", cannot)
	}
}

// must runs kvclient on a host; it must end well.
func (w *world) must(host string, args ...string) string {
	w.t.Helper()
	return w.Rig.must(w.t, w.net.Host(host), args...)
}

// admin calls the admin port of a node, from a host.
func (w *world) admin(s *Server, method, path string) (code int, body string) {
	w.t.Helper()
	from := w.net.Host("east")
	c := http.Client{Transport: &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(within(w.t), method, "http://"+hostPort(s.Place().IP(), AdminPort)+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// dial makes a client on a host.
func (w *world) dial(host string, change ...func(*ConnOptions)) *Conn {
	w.t.Helper()
	o := ConnOptions{Addrs: w.Addrs(), Secret: w.Secret, Fabric: w.net.Host(host).Fabric(iwarp.New(iwarp.Options{}))}
	for _, f := range change {
		f(&o)
	}
	c, err := Dial(within(w.t), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

// initMap agrees on the shard map, once.
func (w *world) initMap() {
	w.t.Helper()
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "n1", "n2", "n3")
}

// outDir is where failing histories go.
func outDir() string {
	if *outFlag != "" {
		return *outFlag
	}
	return filepath.Join("..", "..", ".cache", "linearizability")
}

// lines keeps what nodes say, up to a bound.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLines = 1 << 20

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	if extra := l.buf.Len() - maxLines; extra > 0 {
		l.buf.Next(extra)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
