package client

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

var verbose = flag.Bool("logs", false, "write the logs of client and server to standard error")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLogger(who string) *slog.Logger {
	if !*verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("who", who)
}

// A node is a server in this process that can be stopped and started again on
// the same data and address. It runs on iwarp, with all its memory in Go's heap,
// so that the race detector sees what the fabric does with it; in the lab it
// runs on an RDMA device.
type node struct {
	t    testing.TB
	cfg  server.Config
	srv  *server.Server
	addr string
	hard bool // on an RDMA device
}

// inLab: this is a guest of the lab, which has an RDMA device.
var inLab = os.Getenv("RDMAKV_LAB") != ""

func startNode(t testing.TB, change func(*server.Config)) *node {
	t.Helper()
	return startNodeOn(t, inLab, change)
}

// softNode is a node on iwarp in any case: for what only TCP or a rig can do.
func softNode(t testing.TB, change func(*server.Config)) *node {
	t.Helper()
	return startNodeOn(t, false, change)
}

func startNodeOn(t testing.TB, hard bool, change func(*server.Config)) *node {
	t.Helper()
	n := &node{t: t, hard: hard, cfg: server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(),
		Shards: 4, MemoryLimit: 512 << 20, RegionSize: 80 << 20, IndexRegionSize: 8 << 20,
		MemoryKind: memory.Heap, CacheBytes: 4 << 20, MinFreeBytes: -1, Logger: testLogger("server"),
	}}
	if hard {
		f := verbs.New(verbs.Options{})
		routes, err := f.Local(t.Context(), ":0")
		if err != nil {
			t.Fatal(err)
		}
		n.cfg.Fabric, n.cfg.Device, n.cfg.Listen, n.cfg.MemoryKind = f, routes[0].Device, routes[0].Addr, memory.Mmap
	}
	if change != nil {
		change(&n.cfg)
	}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *node) start() {
	n.t.Helper()
	srv, err := server.New(n.cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		n.t.Fatal(err)
	}
	n.srv, n.addr = srv, srv.Addrs()[0].String()
	n.cfg.Listen = n.addr // the next start takes the same port
}

func (n *node) stop() {
	n.t.Helper()
	if n.srv == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.srv.Shutdown(ctx); err != nil {
		n.t.Errorf("shutdown: %v", err)
	}
	n.srv = nil
}

// config is a client's for this node.
func (n *node) config() Config {
	cfg := Config{
		Servers: []string{n.addr}, Fabric: iwarp.New(iwarp.Options{}), Secret: n.cfg.Secret,
		HeapMemory: true, Logger: testLogger("client"),
		// A loaded machine under the race detector is slow; tests of deadlines
		// set their own.
		Timeout: time.Minute, DialTimeout: 20 * time.Second,
	}
	if n.hard {
		cfg.Fabric, cfg.HeapMemory = verbs.New(verbs.Options{}), false
	}
	return cfg
}

// pace is what a session and a put take on this machine as it is now: the unit in
// which tests count that need a short timeout.
func (n *node) pace() time.Duration {
	n.t.Helper()
	begin := time.Now()
	c := n.dial(nil)
	if err := c.Put(n.t.Context(), []byte("pace"), nil); err != nil {
		n.t.Fatal(err)
	}
	return time.Since(begin)
}

func (n *node) dial(change func(*Config)) *Client {
	n.t.Helper()
	cfg := n.config()
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := Dial(ctx, cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			n.t.Errorf("close: %v", err)
		}
	})
	return c
}

// deadPort is an address where nobody listens.
func deadPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually waits until cond holds; what says what was waited for.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > 2*time.Minute { // costs nothing where it happens
			t.Fatalf("did not happen within 2 min: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
