// Package node is a server in the test's own process, for tests of the client and of the rooms
// that write and read. It links the server and its database; what needs only a fake takes
// clienttest.
package node

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// A Node is a server in this process that can be stopped and started again on
// the same data and address. It runs on iwarp, with all its memory in Go's heap,
// so that the race detector sees what the fabric does with it; in the lab it
// runs on an RDMA device.
type Node struct {
	TB     testing.TB
	Config server.Config
	Server *server.Server
	Addr   string
	Hard   bool // on an RDMA device
	Mmap   bool // its clients take memory by mmap, as programs do
}

// What a node has with -short, under the race detector as a rule: a small log, twice the least
// that a store takes, and a slow scrubber. The detector looks at each byte of the first files of a
// log; and the scrubber, at its default rate, takes a third of the time, because the detector
// follows each word that it loads.
const (
	shortLog   = 16 << 20
	shortScrub = 256 << 10
)

// InLab: this is a guest of the lab, which has an RDMA device.
var InLab = os.Getenv("RDMAKV_LAB") != ""

// Start is a node: on iwarp or, in the lab, on an RDMA device. It is stopped when the test ends.
func Start(t testing.TB, change func(*server.Config)) *Node {
	t.Helper()
	return StartOn(t, InLab, change)
}

// Soft is a node on iwarp in any case: for what only TCP or a rig can do.
func Soft(t testing.TB, change func(*server.Config)) *Node {
	t.Helper()
	return StartOn(t, false, change)
}

// StartOn is a node on an RDMA device, or on iwarp.
func StartOn(t testing.TB, hard bool, change func(*server.Config)) *Node {
	t.Helper()
	n := &Node{TB: t, Hard: hard, Config: server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: crashfs.New(),
		Shards: 4, MemoryLimit: 512 << 20, RegionSize: 80 << 20, IndexRegionSize: 8 << 20,
		MemoryKind: mem.Heap, CacheBytes: 4 << 20, LogBytes: 32 << 20, MinFreeBytes: -1, Logger: clienttest.Logger("server"),
	}}
	if testing.Short() {
		n.Config.LogBytes, n.Config.ScrubRate = shortLog, shortScrub
	}
	if hard {
		f := verbs.New(verbs.Options{})
		routes, err := f.Local(t.Context(), ":0")
		if err != nil {
			t.Fatal(err)
		}
		n.Config.Fabric, n.Config.Device, n.Config.Listen, n.Config.MemoryKind = f, routes[0].Device, routes[0].Addr, mem.Mmap
	}
	if change != nil {
		change(&n.Config)
	}
	n.Start()
	t.Cleanup(n.Stop)
	return n
}

// Start starts a stopped node, on the data and the address that it had.
func (n *Node) Start() {
	n.TB.Helper()
	srv, err := server.New(n.Config)
	if err != nil {
		n.TB.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		n.TB.Fatal(err)
	}
	n.Server, n.Addr = srv, srv.Addrs()[0].String()
	n.Config.Listen = n.Addr // the next start takes the same port
}

// Stop stops the node; one that is stopped already stays so.
func (n *Node) Stop() {
	n.TB.Helper()
	if n.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.Server.Shutdown(ctx); err != nil {
		n.TB.Errorf("shutdown: %v", err)
	}
	n.Server = nil
}

// StartMapped is a node whose clients, dialled through the fabric it returns, READ
// directly.
func StartMapped(t testing.TB, change func(*server.Config)) (*Node, *clienttest.Mapped) {
	f := clienttest.NewMapped()
	n := StartOn(t, false, func(cfg *server.Config) {
		cfg.Fabric = f
		if change != nil {
			change(cfg)
		}
	})
	return n, f
}
