// Package apptest has what the tests of kvclient's packages share: a server that
// runs in the test's own process, and an address without a listener.
package apptest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Alone starts one server in this process and returns its address.
func Alone(t *testing.T, change ...func(*server.Config)) string {
	t.Helper()
	cfg := server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(), MinFreeBytes: -1, CacheBytes: 4 << 20, LogBytes: 16 << 20,
		Shards: 4, MemoryLimit: 64 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20, MemoryKind: mem.Heap,
	}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return srv.Addrs()[0].String()
}

// Nobody is an address without a listener.
func Nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
