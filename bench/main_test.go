package bench

import (
	"context"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
)

// startServer starts a node in this process on a real directory.
func startServer(b *testing.B, sync store.SyncPolicy) string {
	b.Helper()
	srv, err := server.New(server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: b.TempDir(), Sync: sync, MemoryLimit: 1 << 30,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			b.Error(err)
		}
	})
	return srv.Addrs()[0].String()
}

func dial(b *testing.B, addr string, change func(*client.Config)) *client.Client {
	b.Helper()
	cfg := client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}}
	if change != nil {
		change(&cfg)
	}
	c, err := client.Dial(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}
