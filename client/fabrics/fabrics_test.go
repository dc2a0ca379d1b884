package fabrics_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/fabrics"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/shm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAll: they come best first.
func TestAll(t *testing.T) {
	var names []string
	for _, f := range fabrics.All() {
		names = append(names, f.Name())
	}
	if !slices.Equal(names, []string{"shm", "verbs", "iwarp"}) {
		t.Errorf("%v", names)
	}
}

// TestServersAlone: a program that says where its servers are, and no more, gets the best fabric
// that reaches them.
func TestServersAlone(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // the sockets of shm are of this test
	t.Run("by TCP", func(t *testing.T) {
		info := ask(t, server.Config{Fabric: iwarp.New(iwarp.Options{}), Listen: "127.0.0.1:0"})
		if info.Fabric != "iwarp" || len(info.Skipped) == 0 || info.Skipped[0].Fabric != "shm" || info.Skipped[0].Reason == "" {
			t.Errorf("%+v", info)
		}
	})
	t.Run("by memory", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("shm is of Linux")
		}
		if info := ask(t, server.Config{Fabric: shm.New(shm.Options{}), Listen: "127.0.0.1:7400", MemoryKind: mem.Mmap}); info.Fabric != "shm" || len(info.Skipped) != 0 {
			t.Errorf("%+v", info)
		}
	})
}

// ask starts a server, puts and gets by a client that knows its address, and returns the session.
func ask(t *testing.T, cfg server.Config) admin.ServerInfo {
	t.Helper()
	cfg.DataDir, cfg.FS, cfg.MinFreeBytes, cfg.CacheBytes, cfg.LogBytes = "data", vfs.NewMem(), -1, 4<<20, 16<<20
	cfg.Shards, cfg.MemoryLimit, cfg.RegionSize, cfg.IndexRegionSize = 4, 64<<20, 16<<20, 4<<20
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(world.With(t.Context(), world.World{Heap: cfg.MemoryKind != mem.Mmap}), 20*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Servers: []string{srv.Addrs()[0].String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Put(ctx, []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, []byte("k")); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
	return admin.Of(c).Server()
}
